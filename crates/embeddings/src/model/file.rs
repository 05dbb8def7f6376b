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
use std::io::{self, Read, Seek, Write};
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
    match file.read_exact(&mut first_line) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(ModelError::Damaged(path.to_owned()));
        }
        read => read.map_err(ModelError::io(path))?,
    }
    if first_line != FIRST_LINE.as_bytes() {
        return Err(ModelError::OtherFormat(path.to_owned()));
    }
    let bytes = file.metadata().map_err(ModelError::io(path))?.len();
    if bytes == FILE_BYTES { Ok(()) } else { Err(ModelError::Damaged(path.to_owned())) }
}

/// Opens the file and verifies its hash. Also returns what follows the table.
pub(super) fn read_verified(path: &Path) -> Result<(File, Vec<u8>), ModelError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ModelError::NotInstalled(path.parent().unwrap_or(path).to_owned()));
        }
        opened => opened.map_err(ModelError::io(path))?,
    };
    check_size(&mut file, path)?;
    let (hash, rest) = hash_and_rest(&mut file).map_err(ModelError::io(path))?;
    if hash == FILE_SHA256 { Ok((file, rest)) } else { Err(ModelError::Damaged(path.to_owned())) }
}

fn hash_and_rest(file: &mut File) -> io::Result<(String, Vec<u8>)> {
    file.rewind()?;
    let mut hashed = Hashed::new(io::sink());
    io::copy(&mut file.take(TEXT_BYTES as u64 + TABLE_BYTES), &mut hashed)?;
    let mut rest = Vec::new();
    // A file that grows meanwhile ends here too.
    file.take(FILE_BYTES).read_to_end(&mut rest)?;
    hashed.write_all(&rest)?;
    Ok((hashed.finish().1, rest))
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

/// Reads the sections after the table, one after the other. `None` means that there are too few bytes.
pub(super) struct Sections<'a> {
    rest: &'a [u8],
}

impl<'a> Sections<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    fn words(&mut self, count: usize) -> Option<impl Iterator<Item = [u8; 4]> + use<'a>> {
        Some(self.bytes(count.checked_mul(4)?)?.as_chunks().0.iter().copied())
    }

    pub(super) fn numbers(&mut self, count: usize) -> Option<Vec<u32>> {
        Some(self.words(count)?.map(u32::from_le_bytes).collect())
    }

    pub(super) fn floats(&mut self, count: usize) -> Option<Vec<f32>> {
        Some(self.words(count)?.map(f32::from_le_bytes).collect())
    }

    /// Bytes after their number.
    pub(super) fn counted(&mut self) -> Option<&'a [u8]> {
        let count = *self.numbers(1)?.first()?;
        self.bytes(usize::try_from(count).ok()?)
    }
}
