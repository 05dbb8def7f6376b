//! The computation of a vector from the embeddings of the tokens.
//!
//! 1. The embeddings are projected to three times [`WIDTH`] values, and normalised.
//! 2. Three branches look at 2, 3 and 5 tokens around each token, with two convolutions each.
//! 3. The embedding and the results of the branches are the features of a token. They are normalised and summed up over
//!    the tokens, projected, and divided by the square root of the number of tokens.
//! 4. Five dense layers with two short cuts make the vector.

use std::collections::HashMap;

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, ShapeBuilder, Slice};

use super::DIMENSIONS;
use super::file::Sections;

/// Number of values of a branch for each token.
const WIDTH: usize = 256;
/// Number of features of a token.
pub(super) const FEATURES: usize = DIMENSIONS + BRANCHES.len() * WIDTH;
/// Number of values between the dense layers.
const HIDDEN: usize = 320;
/// Each branch: the end of its tensors' names, how many tokens it looks at, and how many of them are before the token.
const BRANCHES: [(&str, usize, usize); 3] = [("2", 2, 0), ("3", 3, 1), ("5", 5, 2)];
/// Added to variances, so that they are not zero.
const EPSILON: f32 = 1e-12;

/// A matrix, or a vector if it has one row.
pub(super) struct Tensor {
    /// The name in the package.
    pub(super) name: &'static str,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

const fn matrix(name: &'static str, rows: usize, columns: usize) -> Tensor {
    Tensor { name, rows, columns }
}

const fn vector(name: &'static str, columns: usize) -> Tensor {
    Tensor { name, rows: 1, columns }
}

/// The tensors in the order of the file: the values of a vector, or the scale of a matrix and its values with 8 bits.
pub(super) const TENSORS: [Tensor; 34] = [
    matrix("proj2", DIMENSIONS, WIDTH),
    matrix("proj3", DIMENSIONS, WIDTH),
    matrix("proj5", DIMENSIONS, WIDTH),
    vector("proj_b2", WIDTH),
    vector("proj_b3", WIDTH),
    vector("proj_b5", WIDTH),
    vector("ln_g2", WIDTH),
    vector("ln_g3", WIDTH),
    vector("ln_g5", WIDTH),
    vector("ln_b2", WIDTH),
    vector("ln_b3", WIDTH),
    vector("ln_b5", WIDTH),
    matrix("w1_2", 2 * WIDTH, WIDTH),
    matrix("w1_3", 3 * WIDTH, WIDTH),
    matrix("w1_5", 5 * WIDTH, WIDTH),
    vector("b1_2", WIDTH),
    vector("b1_3", WIDTH),
    vector("b1_5", WIDTH),
    matrix("w2_2", 2 * WIDTH, WIDTH),
    matrix("w2_3", 3 * WIDTH, WIDTH),
    matrix("w2_5", 5 * WIDTH, WIDTH),
    vector("b2_2", WIDTH),
    vector("b2_3", WIDTH),
    vector("b2_5", WIDTH),
    vector("ln_g", FEATURES),
    vector("ln_b", FEATURES),
    matrix("cnn_W", FEATURES, DIMENSIONS),
    vector("cnn_b", DIMENSIONS),
    matrix("d0", DIMENSIONS, HIDDEN),
    matrix("d1", HIDDEN, HIDDEN),
    matrix("p1", DIMENSIONS, HIDDEN),
    matrix("d2", HIDDEN, DIMENSIONS),
    matrix("p3", HIDDEN, DIMENSIONS),
    matrix("d3", DIMENSIONS, DIMENSIONS),
];

#[derive(Debug)]
pub(super) struct Network {
    projection: Dense,
    projection_norm: Norm,
    branches: Vec<Branch>,
    norm: Norm,
    /// From the sum of the features.
    output: Dense,
    /// The dense layers d0 to d3 and the short cuts p1 and p3 beside d1 and d3.
    dense: [Array2<f32>; 4],
    short_cuts: [Array2<f32>; 2],
}

impl Network {
    pub(super) fn read(sections: &mut Sections<'_>) -> Option<Self> {
        let mut tensors = HashMap::new();
        for tensor in &TENSORS {
            tensors.insert(tensor.name, read_tensor(sections, tensor)?);
        }
        let mut take = |name: &str| tensors.remove(name);
        // Tensors of the branches, side by side.
        let mut beside = |name: &str| {
            let parts: Vec<_> =
                BRANCHES.iter().map(|branch| take(&format!("{name}{}", branch.0))).collect::<Option<_>>()?;
            let views: Vec<_> = parts.iter().map(|part| part.view()).collect();
            ndarray::concatenate(Axis(1), &views).ok()
        };
        let projection = Dense { weights: beside("proj")?, bias: beside("proj_b")? };
        let projection_norm = Norm { gain: beside("ln_g")?, bias: beside("ln_b")? };
        let mut branches = Vec::new();
        for (end, order, before) in BRANCHES {
            let mut layer = |number: u8| {
                let weights = take(&format!("w{number}_{end}"))?;
                Some(Dense { weights, bias: take(&format!("b{number}_{end}"))? })
            };
            branches.push(Branch { order, before, layers: [layer(1)?, layer(2)?] });
        }
        Some(Self {
            projection,
            projection_norm,
            branches,
            norm: Norm { gain: take("ln_g")?, bias: take("ln_b")? },
            output: Dense { weights: take("cnn_W")?, bias: take("cnn_b")? },
            dense: [take("d0")?, take("d1")?, take("d2")?, take("d3")?],
            short_cuts: [take("p1")?, take("p3")?],
        })
    }

    /// The vector of the tokens whose features these are; the embeddings are there, and the other features are computed.
    pub(super) fn vector(&self, mut features: Array2<f32>) -> Vec<f32> {
        let mut projected = self.projection.apply(&features.slice_axis(Axis(1), (..DIMENSIONS).into()));
        self.projection_norm.apply(&mut projected);
        for (number, branch) in self.branches.iter().enumerate() {
            let columns = |before| Slice::from(before + number * WIDTH..before + (number + 1) * WIDTH);
            let inputs = projected.slice_axis(Axis(1), columns(0));
            branch.apply(&inputs, features.slice_axis_mut(Axis(1), columns(DIMENSIONS)));
        }
        self.norm.apply(&mut features);

        let mut sum = vec![0.0; FEATURES];
        for row in features.rows() {
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        let tokens = number(features.nrows());
        let mut mean = vec![0.0; DIMENSIONS];
        add_product(&mut mean, &sum, &self.output.weights);
        for (mean, bias) in mean.iter_mut().zip(&self.output.bias) {
            *mean = (*mean + tokens * bias) / tokens.sqrt();
        }
        self.dense_layers(&mean)
    }

    fn dense_layers(&self, mean: &[f32]) -> Vec<f32> {
        let mut first = vec![0.0; HIDDEN];
        add_product(&mut first, mean, &self.dense[0]);
        keep_positive(&mut first);
        let mut second = vec![0.0; HIDDEN];
        add_product(&mut second, mean, &self.short_cuts[0]);
        add_product(&mut second, &first, &self.dense[1]);
        keep_positive(&mut second);
        let mut third = vec![0.0; DIMENSIONS];
        add_product(&mut third, &second, &self.dense[2]);
        keep_positive(&mut third);
        let mut last = vec![0.0; DIMENSIONS];
        add_product(&mut last, &second, &self.short_cuts[1]);
        add_product(&mut last, &third, &self.dense[3]);
        for value in &mut last {
            *value = value.tanh();
        }
        crate::with_length_one(last).unwrap_or_else(|| vec![0.0; DIMENSIONS])
    }
}

fn read_tensor(sections: &mut Sections<'_>, tensor: &Tensor) -> Option<Array2<f32>> {
    let count = tensor.rows * tensor.columns;
    let values = if tensor.rows == 1 {
        sections.floats(count)?
    } else {
        let scale = *sections.floats(1)?.first()?;
        sections.bytes(count)?.iter().map(|value| scale * f32::from(value.cast_signed())).collect()
    };
    Array2::from_shape_vec((tensor.rows, tensor.columns), values).ok()
}

#[derive(Debug)]
struct Dense {
    weights: Array2<f32>,
    /// One row.
    bias: Array2<f32>,
}

impl Dense {
    fn apply(&self, inputs: &ArrayView2<'_, f32>) -> Array2<f32> {
        let mut outputs = Array2::zeros((inputs.nrows(), self.weights.ncols()));
        for mut row in outputs.rows_mut() {
            row.assign(&self.bias.row(0));
        }
        general_mat_mul(1.0, inputs, &self.weights, 1.0, &mut outputs);
        outputs
    }
}

/// Two convolutions, each with a short cut beside it.
#[derive(Debug)]
struct Branch {
    /// How many tokens it looks at.
    order: usize,
    /// How many of them are before the token.
    before: usize,
    layers: [Dense; 2],
}

impl Branch {
    fn apply(&self, inputs: &ArrayView2<'_, f32>, mut outputs: ArrayViewMut2<'_, f32>) {
        let tokens = inputs.nrows();
        // Zeros before the first token and after the last one.
        let mut padded = Array2::zeros((tokens + self.order - 1, WIDTH));
        let own = Slice::from(self.before..self.before + tokens);
        padded.slice_axis_mut(Axis(0), own).assign(inputs);
        for layer in &self.layers {
            let mut next = layer.apply(&windows(&padded, tokens, self.order));
            next.zip_mut_with(&padded.slice_axis(Axis(0), own), |next, own| *next = next.max(0.0) + own);
            padded.slice_axis_mut(Axis(0), own).assign(&next);
        }
        outputs.assign(&padded.slice_axis(Axis(0), own));
    }
}

/// For each token the row of its window: `order` rows of `padded`, which are one after the other in memory.
fn windows(padded: &Array2<f32>, tokens: usize, order: usize) -> ArrayView2<'_, f32> {
    let shape = (tokens, order * WIDTH).strides((WIDTH, 1));
    let values = padded.as_slice().expect("an array that was not sliced is contiguous");
    ArrayView2::from_shape(shape, values).expect("each window is within the padding")
}

#[derive(Debug)]
struct Norm {
    /// One row.
    gain: Array2<f32>,
    /// One row.
    bias: Array2<f32>,
}

impl Norm {
    /// Gives the values of each row the mean 0 and the variance 1, then applies gain and bias.
    fn apply(&self, rows: &mut Array2<f32>) {
        let count = number(rows.ncols());
        for mut row in rows.rows_mut() {
            let mean = row.sum() / count;
            row -= mean;
            let variance = row.dot(&row) / count;
            row *= (variance + EPSILON).sqrt().recip();
            row *= &self.gain.row(0);
            row += &self.bias.row(0);
        }
    }
}

fn add_product(sums: &mut [f32], vector: &[f32], matrix: &Array2<f32>) {
    for (factor, row) in vector.iter().zip(matrix.rows()) {
        // Half of the values between the dense layers are zero.
        if *factor != 0.0 {
            sums.iter_mut().zip(row).for_each(|(sum, weight)| *sum += factor * weight);
        }
    }
}

/// A number of tokens or features.
fn number(count: usize) -> f32 {
    f32::from(u16::try_from(count).expect("there are at most thousands"))
}

fn keep_positive(values: &mut [f32]) {
    for value in values {
        *value = value.max(0.0);
    }
}
