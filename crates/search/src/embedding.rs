//! The meaning of a text, as a model gives it: a direction in a space of some hundred
//! dimensions.

use pulp::{Arch, NullaryFnOnce};

/// Maximum number of dimensions.
pub const MAX_DIMENSIONS: usize = 4_096;

/// The largest value of a dimension; the smallest one is its negative.
const LARGEST: i8 = i8::MAX;

/// The values of a text, with 8 bits per dimension. Only their direction counts: they
/// are scaled so that the largest one is 127 or -127.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embedding {
    values: Box<[i8]>,
}

/// The values are no embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEmbedding {
    #[error("has {dimensions} dimensions, not 1 to {MAX_DIMENSIONS}")]
    Dimensions { dimensions: usize },
    #[error("has a value that is no finite number")]
    NotFinite,
    #[error("has only zeros")]
    Zero,
    /// Only of stored values.
    #[error("has a value out of range")]
    OutOfRange,
}

impl Embedding {
    pub fn of(values: &[f32]) -> Result<Self, InvalidEmbedding> {
        check_dimensions(values.len())?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(InvalidEmbedding::NotFinite);
        }
        let largest = values.iter().fold(0.0_f64, |largest, value| largest.max(f64::from(value.abs())));
        if largest == 0.0 {
            return Err(InvalidEmbedding::Zero);
        }
        let scale = f64::from(LARGEST) / largest;
        #[expect(clippy::cast_possible_truncation, reason = "the scale keeps the values within -127 and 127")]
        let values = values.iter().map(|value| (f64::from(*value) * scale).round() as i8);
        Ok(Self { values: values.collect() })
    }

    /// Reads the stored form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, InvalidEmbedding> {
        check_dimensions(bytes.len())?;
        let values: Box<[i8]> = bytes.iter().map(|byte| byte.cast_signed()).collect();
        if values.contains(&i8::MIN) {
            return Err(InvalidEmbedding::OutOfRange);
        }
        if values.iter().all(|value| *value == 0) {
            return Err(InvalidEmbedding::Zero);
        }
        Ok(Self { values })
    }

    /// The stored form: a byte for each dimension.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.values.iter().map(|value| value.cast_unsigned()).collect()
    }

    pub const fn dimensions(&self) -> usize {
        self.values.len()
    }

    pub(crate) const fn values(&self) -> &[i8] {
        &self.values
    }

    /// The cosine of the angle between two embeddings, from -1 to 1; `None` if their
    /// dimensions differ.
    pub fn cosine(&self, other: &Self) -> Option<f64> {
        let is_comparable = self.dimensions() == other.dimensions();
        let wide = widened(&self.values);
        is_comparable.then(|| {
            f64::from(dot(&wide, &other.values)) * inverse_norm(&self.values) * inverse_norm(&other.values)
        })
    }
}

const fn check_dimensions(dimensions: usize) -> Result<(), InvalidEmbedding> {
    match dimensions {
        1..=MAX_DIMENSIONS => Ok(()),
        _ => Err(InvalidEmbedding::Dimensions { dimensions }),
    }
}

/// The reciprocal of the length of a vector that is not zero.
pub(crate) fn inverse_norm(values: &[i8]) -> f64 {
    let square: i32 = values.iter().map(|value| i32::from(*value).pow(2)).sum();
    1.0 / f64::from(square).sqrt()
}

pub(crate) fn widened(values: &[i8]) -> Vec<i16> {
    values.iter().copied().map(i16::from).collect()
}

/// The number of partial sums of a [`dot`] product, which the processor computes in parallel.
const LANES: usize = 16;

/// The sum of the products of two lists. At most [`MAX_DIMENSIONS`](crate::MAX_DIMENSIONS)
/// values do not overflow.
pub(crate) fn dot(wide: &[i16], values: &[i8]) -> i32 {
    let (wide, wide_rest) = wide.as_chunks();
    let (values, values_rest) = values.as_chunks();
    let rest = wide_rest.iter().zip(values_rest).map(|(one, other)| i32::from(*one) * i32::from(*other));
    Arch::new().dispatch(DotOfChunks { wide, values }) + rest.sum::<i32>()
}

/// The sum of the products of two lists, compiled for each kind of processor.
struct DotOfChunks<'a> {
    wide: &'a [[i16; 2 * LANES]],
    values: &'a [[i8; 2 * LANES]],
}

impl NullaryFnOnce for DotOfChunks<'_> {
    type Output = i32;

    /// Each step adds two products of 16-bit values to a lane. The compiler turns these steps into
    /// one SIMD instruction for several lanes. An iterator over the lanes prevents that.
    #[expect(
        clippy::inline_always,
        reason = "only code that is inlined into `dispatch` uses the instructions of the processor it runs on"
    )]
    #[inline(always)]
    fn call(self) -> i32 {
        let mut sums = [0; LANES];
        for (one, other) in self.wide.iter().zip(self.values) {
            for lane in 0..LANES {
                sums[lane] += i32::from(one[lane]) * i32::from(other[lane])
                    + i32::from(one[lane + LANES]) * i32::from(other[lane + LANES]);
            }
        }
        sums.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_direction_is_an_embedding() {
        use InvalidEmbedding::{Dimensions, NotFinite, OutOfRange, Zero};
        for (values, error) in [
            (vec![], Dimensions { dimensions: 0 }),
            (vec![1.0; 4_097], Dimensions { dimensions: 4_097 }),
            (vec![1.0, f32::NAN], NotFinite),
            (vec![f32::NEG_INFINITY, 1.0], NotFinite),
            (vec![0.0, -0.0], Zero),
        ] {
            assert_eq!(Embedding::of(&values), Err(error));
        }
        for values in [[f32::MAX, f32::MIN], [1e-45, -1e-45]] {
            assert_eq!(Embedding::of(&values).unwrap().values(), [127, -127]);
        }
        for (bytes, error) in
            [(&[][..], Dimensions { dimensions: 0 }), (&[0, 0], Zero), (&[1, 0x80], OutOfRange)]
        {
            assert_eq!(Embedding::from_bytes(bytes), Err(error));
        }
    }

    proptest! {
        #[test]
        fn cosine_is_nearly_that_of_the_exact_values(
            pairs in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 1..300),
            scale in prop::sample::select(vec![1e-30_f32, 1.0, 1e30]),
        ) {
            let (one, other): (Vec<f32>, Vec<f32>) = pairs.iter().map(|(a, b)| (a * scale, *b)).unzip();
            let exact = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            prop_assume!(exact(&one, &one) > 0.0 && exact(&other, &other) > 0.0);
            let expected = exact(&one, &other) / (exact(&one, &one) * exact(&other, &other)).sqrt();
            let [one, other] = [one, other].map(|values| Embedding::of(&values).unwrap());
            let cosine = one.cosine(&other).unwrap();
            prop_assert!((cosine - expected).abs() < 0.02, "{} {}", cosine, expected);
            prop_assert_eq!(Embedding::from_bytes(&one.to_bytes()), Ok(one));
        }
    }
}
