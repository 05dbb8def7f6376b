//! The file of the model.
//!
//! | bytes | content |
//! |---|---|
//! | 16 KiB | text: the format, the notice, the licence |
//! | 31 MB | embeddings of the tokens ([`table`](super::table)) |
//! | 6 MB | sections, read with [`Sections`]: bits and scales of the table, matrices, map of characters, vocabulary |
//!
//! Numbers are little-endian. The conversion is deterministic, so the hash of the file is a constant, and nothing in
//! a file with that hash is unexpected.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Take, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};

use super::{ModelError, NAME, VERSION};

pub(super) const FILE_NAME: &str = "use-multilingual-3.model";
/// The size of the file.
pub(super) const FILE_BYTES: u64 = 37_306_093;
pub(super) const FILE_SHA256: &str = "e22c92c750c6b757e8114b9a3577e8e8dd02f6a2dbd1318d6ff734acd5c046f1";

/// Size of the text at the beginning.
pub(super) const TEXT_BYTES: usize = 16 << 10;
/// The first line of the file; the number is that of the format.
const FIRST_LINE: &str = "Keepsake embedding model, format 1\n";
/// Size of the table, which follows.
const TABLE_BYTES: u64 = 30_843_658;
/// Bytes of the sections that are read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// The text at the beginning of the file, with the licence of the model.
pub(super) fn text(licence: &str) -> Option<Vec<u8>> {
    let notice = format!(
        "{FIRST_LINE}\
        {NAME} {VERSION}: Google's Universal Sentence Encoder, multilingual, version 3\n\
        (https://tfhub.dev/google/universal-sentence-encoder-multilingual/3), Apache-2.0.\n\
        Keepsake converted this file from the package {}:\n\
        its values are the same, and stored otherwise. The package's licence follows.\n\n",
        super::WHEEL_REQUIREMENT,
    );
    let mut text = notice.into_bytes();
    text.extend_from_slice(licence.as_bytes());
    if text.len() > TEXT_BYTES {
        return None;
    }
    text.resize(TEXT_BYTES, b'\n');
    Some(text)
}

/// Whether the file is a model of this format and size; its hash is not verified.
fn check_size(file: &mut File, path: &Path) -> Result<(), ModelError> {
    let mut first_line = [0; FIRST_LINE.len()];
    file.read_exact(&mut first_line).map_err(unreadable(path))?;
    if first_line != FIRST_LINE.as_bytes() {
        return Err(ModelError::OtherFormat(path.to_owned()));
    }
    let bytes = file.metadata().map_err(ModelError::io(path))?.len();
    if bytes == FILE_BYTES { Ok(()) } else { Err(ModelError::Damaged(path.to_owned())) }
}

/// The error of a file that ends too soon, or cannot be read.
pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> ModelError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => ModelError::Damaged(path.to_owned()),
        _ => ModelError::io(path)(error),
    }
}

/// Opens the file and verifies its hash.
pub(super) fn open_verified(path: &Path) -> Result<File, ModelError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ModelError::NotInstalled(path.parent().unwrap_or(path).to_owned()));
        }
        opened => opened.map_err(ModelError::io(path))?,
    };
    check_size(&mut file, path)?;
    let hash = hash(&mut file).map_err(ModelError::io(path))?;
    if hash == FILE_SHA256 { Ok(file) } else { Err(ModelError::Damaged(path.to_owned())) }
}

fn hash(file: &mut File) -> io::Result<String> {
    file.rewind()?;
    let mut hashed = Hashed::new(io::sink());
    // A file that grows meanwhile ends too.
    io::copy(&mut file.take(FILE_BYTES + 1), &mut hashed)?;
    Ok(hashed.finish().1)
}

/// A writer that also computes the SHA-256 of the bytes.
pub(super) struct Hashed<W> {
    inner: W,
    hash: Context,
}

impl<W: Write> Hashed<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, hash: Context::new(&SHA256) }
    }

    /// The writer, and the hash in hexadecimal.
    pub(super) fn finish(self) -> (W, String) {
        (self.inner, hex::encode(self.hash.finish()))
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Reads the sections after the table, one after the other, so that a model which is opened is not twice in memory.
pub(super) struct Sections<R>(Take<R>);

impl<'a> Sections<BufReader<&'a File>> {
    pub(super) fn of_file(mut file: &'a File) -> io::Result<Self> {
        let start = TEXT_BYTES as u64 + TABLE_BYTES;
        file.seek(SeekFrom::Start(start))?;
        Ok(Self::new(BufReader::with_capacity(BUFFER_BYTES, file), FILE_BYTES - start))
    }
}

impl<R: Read> Sections<R> {
    /// `bytes` is the size of the sections.
    pub(super) fn new(reader: R, bytes: u64) -> Self {
        Self(reader.take(bytes))
    }

    /// So many values of `SIZE` bytes each.
    fn values<T, const SIZE: usize>(
        &mut self,
        count: usize,
        value: impl Fn([u8; SIZE]) -> T,
    ) -> io::Result<Vec<T>> {
        if count.saturating_mul(SIZE) as u64 > self.0.limit() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut values = Vec::with_capacity(count);
        let mut buffer = [[0; SIZE]; 1_024];
        while values.len() < count {
            let read = &mut buffer[..(count - values.len()).min(1_024)];
            self.0.read_exact(read.as_flattened_mut())?;
            values.extend(read.iter().map(|bytes| value(*bytes)));
        }
        Ok(values)
    }

    pub(super) fn bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        self.values(count, u8::from_le_bytes)
    }

    pub(super) fn numbers(&mut self, count: usize) -> io::Result<Vec<u32>> {
        self.values(count, u32::from_le_bytes)
    }

    pub(super) fn floats(&mut self, count: usize) -> io::Result<Vec<f32>> {
        self.values(count, f32::from_le_bytes)
    }

    /// Multiples of a number, which is before them.
    pub(super) fn multiples(&mut self, count: usize) -> io::Result<Vec<f32>> {
        let scale = f32::from_le_bytes(self.word()?);
        self.values(count, |byte| scale * f32::from(i8::from_le_bytes(byte)))
    }

    pub(super) fn number(&mut self) -> io::Result<usize> {
        usize::try_from(u32::from_le_bytes(self.word()?)).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn word(&mut self) -> io::Result<[u8; 4]> {
        let mut bytes = [0; 4];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Bytes after their number.
    pub(super) fn counted(&mut self) -> io::Result<Vec<u8>> {
        let count = self.number()?;
        self.bytes(count)
    }
}
