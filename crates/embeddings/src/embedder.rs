//! The source of vectors that a server is configured with.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::model::{NAME, VERSION};
use crate::{DIMENSIONS, Endpoint, EndpointConfig, InvalidEndpoint, Model, ModelError, ModelFolder};

/// The embedded model's folder is looked at again after this time.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// The part of similarity in the score of a hit, as measured with the embedded model and with a larger one at an
/// endpoint (`docs/adr/0030`).
const WEIGHT_OF_EMBEDDED: f32 = 0.25;
const WEIGHT_OF_ENDPOINT: f32 = 0.4;

/// The source of vectors.
#[derive(Debug)]
pub enum Embedder {
    /// There are no vectors.
    Off,
    /// The embedded model; its methods block.
    Embedded(Arc<EmbeddedModel>),
    /// An endpoint; its methods are asynchronous.
    Endpoint(Endpoint),
}

impl Embedder {
    pub fn off() -> Self {
        Self::Off
    }

    /// The model of a folder, which may be installed later.
    pub fn embedded(folder: impl Into<PathBuf>) -> Self {
        Self::Embedded(Arc::new(EmbeddedModel::new(ModelFolder::new(folder))))
    }

    pub fn endpoint(config: EndpointConfig) -> Result<Self, InvalidEndpoint> {
        Endpoint::new(config).map(Self::Endpoint)
    }

    /// The stable name of everything that decides about the values of a vector, without spaces. `None` if there are no vectors.
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::Off => None,
            Self::Embedded(model) => Some(model.id()),
            Self::Endpoint(endpoint) => Some(endpoint.id()),
        }
    }

    /// Number of values of a vector. `None` if there are no vectors.
    pub fn dimensions(&self) -> Option<usize> {
        match self {
            Self::Off => None,
            Self::Embedded(_) => Some(DIMENSIONS),
            Self::Endpoint(endpoint) => Some(endpoint.dimensions()),
        }
    }

    /// The part of similarity in the score of a hit, between 0 and 1.
    pub fn weight(&self) -> f32 {
        match self {
            Self::Off => 0.0,
            Self::Embedded(_) => WEIGHT_OF_EMBEDDED,
            Self::Endpoint(_) => WEIGHT_OF_ENDPOINT,
        }
    }

    /// The last known status. Does no I/O: an embedded model may have been installed or removed since.
    pub fn status(&self) -> Status {
        match self {
            Self::Off => Status::Off,
            Self::Embedded(model) => model.status(),
            Self::Endpoint(_) => Status::Ready,
        }
    }
}

/// Whether an [`Embedder`] has vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    Off,
    /// The embedded model may be installed later.
    NotInstalled,
    /// The embedded model is there and cannot be used, for this reason.
    Unusable(Arc<str>),
    /// An endpoint is always ready; its calls may fail.
    Ready,
}

/// The reason why the embedded model makes no vector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("no model is installed")]
    NotInstalled,
    #[error("{0}")]
    Unusable(Arc<str>),
}

impl From<Missing> for Status {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::NotInstalled => Self::NotInstalled,
            Missing::Unusable(reason) => Self::Unusable(reason),
        }
    }
}

/// The embedded model of a folder. It may be installed, replaced or removed meanwhile: each call that takes a time
/// looks at the folder again if the last look is [`LOOK_INTERVAL`] ago.
///
/// Calls that take a time block: about 10 ms per KiB of text, and 0.1 s when a model is opened.
#[derive(Debug)]
pub struct EmbeddedModel {
    folder: ModelFolder,
    id: String,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    looked_at: Option<Instant>,
    /// The file that `model` was opened from.
    file: Option<FileIdentity>,
    model: Result<Arc<Model>, Missing>,
}

/// Identifies a state of the file: another file, a write or a change of permissions makes another identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed_at: (i64, i64),
}

impl EmbeddedModel {
    pub fn new(folder: ModelFolder) -> Self {
        let state = State { looked_at: None, file: None, model: Err(Missing::NotInstalled) };
        Self { folder, id: format!("{NAME}-{VERSION}/{DIMENSIONS}"), state: Mutex::new(state) }
    }

    pub fn folder(&self) -> &ModelFolder {
        &self.folder
    }

    /// The stable name of everything that decides about the values of a vector.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What the last look found; does no I/O.
    pub fn status(&self) -> Status {
        match &self.state.lock().model {
            Ok(_) => Status::Ready,
            Err(missing) => missing.clone().into(),
        }
    }

    /// The vector of a query.
    pub fn embed_query(&self, text: &str, now: Instant) -> Result<Vec<f32>, Missing> {
        let vectors = self.embed_documents(&[text], now)?;
        Ok(vectors.into_iter().next().unwrap_or_default())
    }

    /// The vectors of passages, in their order.
    pub fn embed_documents<T: AsRef<str>>(
        &self,
        texts: &[T],
        now: Instant,
    ) -> Result<Vec<Vec<f32>>, Missing> {
        self.model(now)?.embed(texts).map_err(|error| {
            let missing = unusable(&error);
            let mut state = self.state.lock();
            // The next look opens it again.
            state.file = None;
            state.model = Err(missing.clone());
            missing
        })
    }

    /// The model, after a look at the folder if it is time for one. While one call opens a model, others have what the
    /// look before found.
    pub fn model(&self, now: Instant) -> Result<Arc<Model>, Missing> {
        let (looked_before, known_file) = {
            let mut state = self.state.lock();
            if state.looked_at.is_some_and(|looked_at| now < looked_at + LOOK_INTERVAL) {
                return state.model.clone();
            }
            (state.looked_at.replace(now), state.file)
        };
        if looked_before.is_none() {
            self.folder.remove_abandoned();
        }
        let file = fs::metadata(self.folder.file()).ok().map(|file| FileIdentity {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            changed_at: (file.ctime(), file.ctime_nsec()),
        });
        if file.is_some() && file == known_file {
            return self.state.lock().model.clone();
        }
        let opened = Model::open(&self.folder).map(Arc::new);
        // An error of the system may pass, so the next look opens the file again.
        let file = file.filter(|_| !matches!(opened, Err(ModelError::Io { .. })));
        let model = opened.map_err(|error| match error {
            ModelError::NotInstalled(_) => Missing::NotInstalled,
            error => unusable(&error),
        });
        let mut state = self.state.lock();
        state.file = file;
        state.model.clone_from(&model);
        model
    }
}

fn unusable(error: &ModelError) -> Missing {
    Missing::Unusable(error.to_string().into())
}
