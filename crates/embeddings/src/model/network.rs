//! The computation of vectors from the embeddings of the tokens.
//!
//! 1. The embeddings are projected to three times [`WIDTH`] values, and normalised.
//! 2. Three branches look at 2, 3 and 5 tokens around each token, with two convolutions each.
//! 3. The embedding and the results of the branches are the features of a token. They are normalised and summed up over
//!    the tokens, projected, and divided by the square root of the number of tokens.
//! 4. Five dense layers with two short cuts make the vector.
//!
//! Several texts are computed together: each product of matrices reads all weights, and many tokens occur several times, but
//! are projected once.

use std::io::{self, Read};

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut1, ArrayViewMut2, Axis, Slice};
use pulp::{Arch, Simd, WithSimd};

use super::file::Sections;
use super::{DIMENSIONS, MAX_TOKENS};

/// Number of values of a branch for each token.
const WIDTH: usize = 256;
/// Number of features of a token.
const FEATURES: usize = DIMENSIONS + BRANCHES.len() * WIDTH;
/// Number of values between the dense layers.
const HIDDEN: usize = 320;
/// Each branch: how many tokens it looks at, and how many of them are before the token.
const BRANCHES: [(usize, usize); 3] = [(2, 0), (3, 1), (5, 2)];
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

/// The memory of a computation, which is used again by the next one. Texts need different sizes of memory, and a process
/// keeps much of what it frees in different sizes.
///
/// It has addresses for [`MAX_TOKENS`] tokens of any texts, 20 MB. Each token of a passage uses about 15 KB of memory.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The embeddings of the distinct tokens, one after the other.
    pub(super) embeddings: Vec<f32>,
    others: Vec<f32>,
}

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
    pub(super) fn read(sections: &mut Sections<impl Read>) -> io::Result<Self> {
        let mut tensors = TENSORS.iter().map(|tensor| read_tensor(sections, tensor));
        let mut next = || tensors.next().expect("each tensor is taken once");
        // The tensors of a kind, one of each branch.
        let mut of_branches =
            || -> io::Result<[Array2<f32>; BRANCHES.len()]> { Ok([next()?, next()?, next()?]) };
        let beside = |parts: [Array2<f32>; BRANCHES.len()]| {
            let mut all = Array2::zeros((parts[0].nrows(), parts.len() * WIDTH));
            for (mut columns, part) in all.axis_chunks_iter_mut(Axis(1), WIDTH).zip(&parts) {
                columns.assign(part);
            }
            all
        };
        let projection = Dense { weights: beside(of_branches()?), bias: beside(of_branches()?) };
        let projection_norm = Norm { gain: beside(of_branches()?), bias: beside(of_branches()?) };
        let mut layers = || -> io::Result<_> {
            let weights = of_branches()?.map(|weights| Convolution::weights_of_points(&weights));
            Ok(weights.into_iter().zip(of_branches()?).map(|(weights, bias)| Convolution { weights, bias }))
        };
        let layers = layers()?.zip(layers()?);
        let branches = BRANCHES.iter().zip(layers);
        let branches = branches
            .map(|(&(order, before), (first, second))| Branch { order, before, layers: [first, second] })
            .collect();
        let norm = Norm { gain: next()?, bias: next()? };
        let output = Dense { weights: next()?, bias: next()? };
        let [d0, d1, p1, d2, p3, d3] = [next()?, next()?, next()?, next()?, next()?, next()?];
        Ok(Self {
            projection,
            projection_norm,
            branches,
            norm,
            output,
            dense: [d0, d1, d2, d3],
            short_cuts: [p1, p3],
        })
    }

    pub(super) fn scratch(&self) -> Scratch {
        let values = MAX_TOKENS * (self.projection.weights.ncols() + FEATURES);
        // Texts of one token need most.
        let branch_values = self.branch_values(&[1; MAX_TOKENS]);
        Scratch {
            embeddings: Vec::with_capacity(MAX_TOKENS * DIMENSIONS),
            others: Vec::with_capacity(values + branch_values),
        }
    }

    fn branch_values(&self, lengths: &[usize]) -> usize {
        self.branches.iter().map(|branch| branch.scratch_values(lengths)).max().unwrap_or_default()
    }

    /// The vectors of texts with these numbers of tokens, all of the same [`Length`]. `tokens` has the row of
    /// the embedding of each token.
    pub(super) fn vectors(
        &self,
        length: Length,
        tokens: &[usize],
        lengths: &[usize],
        Scratch { embeddings, others }: &mut Scratch,
    ) -> Vec<Vec<f32>> {
        let embeddings = matrix_of(embeddings, DIMENSIONS);
        let projected_values = embeddings.nrows() * self.projection.weights.ncols();
        let features_values = tokens.len() * FEATURES;
        others.resize(projected_values + features_values + self.branch_values(lengths), 0.0);
        let (projected, rest) = others.split_at_mut(projected_values);
        let (features, of_branch) = rest.split_at_mut(features_values);
        let mut projected = matrix_of(projected, self.projection.weights.ncols());
        let mut features = matrix_of(features, FEATURES);
        self.projection.apply(length, &embeddings.view(), &mut projected);
        self.projection_norm.apply(&mut projected);
        for (mut row, &token) in features.rows_mut().into_iter().zip(tokens) {
            row.slice_axis_mut(Axis(0), (..DIMENSIONS).into()).assign(&embeddings.row(token));
        }
        for (number, branch) in self.branches.iter().enumerate() {
            let columns = |before| Slice::from(before + number * WIDTH..before + (number + 1) * WIDTH);
            let inputs = projected.slice_axis(Axis(1), columns(0));
            let outputs = features.slice_axis_mut(Axis(1), columns(DIMENSIONS));
            branch.apply(length, &inputs, tokens, lengths, outputs, of_branch);
        }
        self.norm.apply(&mut features);

        let mut sums: Array2<f32> = Array2::zeros((lengths.len(), FEATURES));
        let mut start = 0;
        for (mut sum, &length) in sums.rows_mut().into_iter().zip(lengths) {
            for row in features.slice_axis(Axis(0), Slice::from(start..start + length)).rows() {
                sum += &row;
            }
            start += length;
        }
        let mut means = product_of_few(&sums, &self.output.weights);
        for (mut mean, &length) in means.rows_mut().into_iter().zip(lengths) {
            let tokens = number(length);
            mean.zip_mut_with(&self.output.bias.row(0), |mean, bias| {
                *mean = (*mean + tokens * bias) / tokens.sqrt();
            });
        }
        let vectors = self.dense_layers(&means);
        let vectors = vectors.rows().into_iter().map(|row| crate::with_length_one(row.to_vec()));
        vectors.map(|vector| vector.unwrap_or_else(|| vec![0.0; DIMENSIONS])).collect()
    }

    fn dense_layers(&self, means: &Array2<f32>) -> Array2<f32> {
        let mut first = product_of_few(means, &self.dense[0]);
        keep_positive(&mut first);
        let mut second = product_of_few(means, &self.short_cuts[0]);
        add_product_of_few(&first.view(), &self.dense[1], &mut second.view_mut());
        keep_positive(&mut second);
        let mut third = product_of_few(&second, &self.dense[2]);
        keep_positive(&mut third);
        let mut last = product_of_few(&second, &self.short_cuts[1]);
        add_product_of_few(&third.view(), &self.dense[3], &mut last.view_mut());
        last.mapv_inplace(f32::tanh);
        last
    }
}

fn read_tensor(sections: &mut Sections<impl Read>, tensor: &Tensor) -> io::Result<Array2<f32>> {
    let count = tensor.rows * tensor.columns;
    let values = if tensor.rows == 1 { sections.floats(count)? } else { sections.multiples(count)? };
    Ok(Array2::from_shape_vec((tensor.rows, tensor.columns), values).expect("there are as many values"))
}

#[derive(Debug)]
struct Dense {
    weights: Array2<f32>,
    /// One row.
    bias: Array2<f32>,
}

impl Dense {
    fn apply(&self, length: Length, inputs: &ArrayView2<'_, f32>, outputs: &mut ArrayViewMut2<'_, f32>) {
        for mut row in outputs.rows_mut() {
            row.assign(&self.bias.row(0));
        }
        add_product(length, inputs, &self.weights, outputs);
    }
}

fn matrix_of(values: &mut [f32], columns: usize) -> ArrayViewMut2<'_, f32> {
    let rows = values.len() / columns;
    ArrayViewMut2::from_shape((rows, columns), values).expect("the values are whole rows")
}

/// Two convolutions, each with a short cut beside it.
#[derive(Debug)]
struct Branch {
    /// How many tokens it looks at.
    order: usize,
    /// How many of them are before the token.
    before: usize,
    layers: [Convolution; 2],
}

impl Branch {
    /// How many tokens a tile has.
    fn tokens_of_tile(&self) -> usize {
        POINTS + 1 - self.order
    }

    /// The tiles of a text. Zeros between two texts are enough for both.
    fn tiles(&self, length: usize) -> usize {
        (length + self.order / 2).div_ceil(self.tokens_of_tile())
    }

    fn padded_rows(&self, tiles: usize) -> usize {
        tiles * self.tokens_of_tile() + self.order - 1
    }

    /// The number of values that [`Branch::apply`] needs memory for.
    fn scratch_values(&self, lengths: &[usize]) -> usize {
        let tiles = lengths.iter().map(|length| self.tiles(*length)).sum();
        (self.padded_rows(tiles) + 2 * POINTS * tiles) * WIDTH
    }

    /// The results for texts with these numbers of tokens. `tokens` has the row of the input of each token.
    fn apply(
        &self,
        length: Length,
        inputs: &ArrayView2<'_, f32>,
        tokens: &[usize],
        lengths: &[usize],
        mut outputs: ArrayViewMut2<'_, f32>,
        scratch: &mut [f32],
    ) {
        let tokens_of_tile = self.tokens_of_tile();
        let (mut tiles, mut places) = (0, Vec::with_capacity(tokens.len()));
        for &tokens in lengths {
            // A text begins with a tile, so that its vector does not depend on the texts before it.
            let first = tiles * tokens_of_tile;
            places.extend(first..first + tokens);
            tiles += self.tiles(tokens);
        }
        let (padded, rest) = scratch.as_chunks_mut().0.split_at_mut(self.padded_rows(tiles));
        let (values, rest) = rest.split_at_mut(POINTS * tiles);
        let products = &mut rest[..POINTS * tiles];
        // Zeros before the first token and after the last one.
        padded.as_flattened_mut().fill(0.0);
        for (token, place) in tokens.iter().zip(&places) {
            row_of(&mut padded[self.before + place]).assign(&inputs.row(*token));
        }
        for layer in &self.layers {
            layer.multiply(length, padded, values, products, tokens_of_tile);
            let products = points_of(products);
            for place in &places {
                let (tile, token) = (place / tokens_of_tile, place % tokens_of_tile);
                let products = products.map(|rows| &rows[tile]);
                let is_last = token + 1 == tokens_of_tile;
                add_sums(&mut padded[self.before + place], products, token, is_last, layer.bias());
            }
        }
        for (mut output, place) in outputs.rows_mut().into_iter().zip(&places) {
            output.assign(&row_of(&mut padded[self.before + place]));
        }
    }
}

/// The points that a convolution is computed at, with the method of Toom and Cook.
///
/// The sums of a convolution are the coefficients of a product of two polynomials, of inputs and of weights, so they follow
/// from the product's values at some points. Six rows of inputs and six products of matrices give the sums of five tokens, if
/// the convolution looks at two tokens, of four, if it looks at three, and of two, if it looks at five. Without this
/// they took ten, twelve and ten products. The results differ only by their rounding.
const POINTS: usize = 6;

/// All points but the last one, which is infinity, and the factor of the weights' value there.
const FINITE_POINTS: [(f32, f32); POINTS - 1] =
    [(0.0, 1.0 / 4.0), (1.0, -1.0 / 6.0), (-1.0, -1.0 / 6.0), (2.0, 1.0 / 24.0), (-2.0, 1.0 / 24.0)];

/// The values of a row.
type RowValues = [f32; WIDTH];

#[derive(Debug)]
struct Convolution {
    /// The values of the weights at each point.
    weights: [Array2<f32>; POINTS],
    /// One row.
    bias: Array2<f32>,
}

impl Convolution {
    /// `weights` has a square block for each token that the convolution looks at, one below the
    /// other. The blocks are the coefficients of the polynomial of weights; its value at infinity
    /// is the last one.
    fn weights_of_points(weights: &Array2<f32>) -> [Array2<f32>; POINTS] {
        let of_tokens: Vec<_> = weights.axis_chunks_iter(Axis(0), WIDTH).collect();
        let value_at = |index: usize| {
            let mut value: Array2<f32> = Array2::zeros((WIDTH, WIDTH));
            if let Some((point, factor)) = FINITE_POINTS.get(index) {
                let mut scale = *factor;
                for weights in &of_tokens {
                    value.scaled_add(scale, weights);
                    scale *= point;
                }
            } else if let Some(weights) = of_tokens.last() {
                value.assign(weights);
            }
            value
        };
        std::array::from_fn(value_at)
    }

    fn bias(&self) -> &RowValues {
        self.bias.as_slice().and_then(<[f32]>::first_chunk).expect("a bias is a row")
    }

    /// Sets the values of inputs and of products at each point, one point after the other: a row for each tile.
    fn multiply(
        &self,
        length: Length,
        padded: &[RowValues],
        values: &mut [RowValues],
        products: &mut [RowValues],
        tokens_of_tile: usize,
    ) {
        let tiles = values.len() / POINTS;
        let [v0, v1, v2, v3, v4, v5] = points_of_mut(values);
        for tile in 0..tiles {
            let inputs = padded[tile * tokens_of_tile..].first_chunk().expect("the padding has whole tiles");
            set_values(
                inputs,
                &mut v0[tile],
                &mut v1[tile],
                &mut v2[tile],
                &mut v3[tile],
                &mut v4[tile],
                &mut v5[tile],
            );
        }
        products.as_flattened_mut().fill(0.0);
        let points = values.chunks_exact_mut(tiles).zip(products.chunks_exact_mut(tiles));
        for (weights, (values, products)) in self.weights.iter().zip(points) {
            let values = matrix_of(values.as_flattened_mut(), WIDTH);
            let mut products = matrix_of(products.as_flattened_mut(), WIDTH);
            add_product(length, &values.view(), weights, &mut products);
        }
    }
}

fn row_of(values: &mut RowValues) -> ArrayViewMut1<'_, f32> {
    values.as_mut_slice().into()
}

/// The rows of each point.
fn points_of(rows: &[RowValues]) -> [&[RowValues]; POINTS] {
    let mut points = rows.chunks_exact(rows.len() / POINTS);
    std::array::from_fn(|_| points.next().expect("each point has rows"))
}

fn points_of_mut(rows: &mut [RowValues]) -> [&mut [RowValues]; POINTS] {
    let mut points = rows.chunks_exact_mut(rows.len() / POINTS);
    std::array::from_fn(|_| points.next().expect("each point has rows"))
}

/// Sets the values of a tile's inputs at the points 0, 1, -1, 2, -2 and infinity.
///
/// The compiler vectorises it because it knows that the arguments of a function do not overlap.
#[inline(never)]
fn set_values(
    inputs: &[RowValues; POINTS],
    v0: &mut RowValues,
    v1: &mut RowValues,
    v2: &mut RowValues,
    v3: &mut RowValues,
    v4: &mut RowValues,
    v5: &mut RowValues,
) {
    let [i0, i1, i2, i3, i4, i5] = inputs;
    for at in 0..WIDTH {
        let even = i4[at] - 4.0 * i2[at];
        let odd = i3[at] - 4.0 * i1[at];
        let even_of_two = i4[at] - i2[at];
        let odd_of_two = 2.0 * (i3[at] - i1[at]);
        v0[at] = 4.0 * i0[at] - 5.0 * i2[at] + i4[at];
        v1[at] = even + odd;
        v2[at] = even - odd;
        v3[at] = even_of_two + odd_of_two;
        v4[at] = even_of_two - odd_of_two;
        v5[at] = 4.0 * i1[at] - 5.0 * i3[at] + i5[at];
    }
}

/// Adds the result of a convolution for one token to its row: the positive sums. They follow from the products at the points
/// 0, 1, -1, 2, -2 and infinity, of which 0 counts for the first token of a tile, and infinity for the last one.
#[inline(never)]
fn add_sums(
    row: &mut RowValues,
    products: [&RowValues; POINTS],
    token: usize,
    is_last: bool,
    bias: &RowValues,
) {
    let [p0, p1, p2, p3, p4, p5] = products;
    let of_zero = if token == 0 { 1.0 } else { 0.0 };
    let of_infinity = if is_last { 1.0 } else { 0.0 };
    let sign = if token.is_multiple_of(2) { 1.0 } else { -1.0 };
    let power = number(1 << token);
    for at in 0..WIDTH {
        let of_one = p1[at] + sign * p2[at];
        let of_two = p3[at] + sign * p4[at];
        let sum = of_zero * p0[at] + of_one + power * of_two + of_infinity * p5[at] + bias[at];
        row[at] += sum.max(0.0);
    }
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
    fn apply(&self, rows: &mut ArrayViewMut2<'_, f32>) {
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

/// Whether a text is long. It decides how products are computed, so texts are computed together with those of the same length
/// only: a vector does not depend on the texts beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// With [`add_product_of_few`], as those of a query.
    Short,
    /// With `general_mat_mul`.
    Long,
}

impl Length {
    /// The most tokens of a short text.
    const MAX_TOKENS: usize = 32;

    pub(super) fn of(text: &[u32]) -> Self {
        if text.len() <= Self::MAX_TOKENS { Self::Short } else { Self::Long }
    }
}

/// Adds a product. The result of a row does not depend on the others.
fn add_product(
    length: Length,
    inputs: &ArrayView2<'_, f32>,
    weights: &Array2<f32>,
    outputs: &mut ArrayViewMut2<'_, f32>,
) {
    match length {
        Length::Short => add_product_of_few(inputs, weights, outputs),
        Length::Long => general_mat_mul(1.0, inputs, weights, 1.0, outputs),
    }
}

fn product_of_few(inputs: &Array2<f32>, weights: &Array2<f32>) -> Array2<f32> {
    let mut outputs = Array2::zeros((inputs.nrows(), weights.ncols()));
    add_product_of_few(&inputs.view(), weights, &mut outputs.view_mut());
    outputs
}

/// Adds a product with a few rows of inputs.
///
/// `general_mat_mul` copies all weights first, and computes as many rows as the processor has lanes: for
/// a few rows this takes longer than the product. The result of a row does not depend on the others.
fn add_product_of_few(
    inputs: &ArrayView2<'_, f32>,
    weights: &Array2<f32>,
    outputs: &mut ArrayViewMut2<'_, f32>,
) {
    let (width, columns) = weights.dim();
    debug_assert!(
        width.is_multiple_of(ADDED_ROWS) && columns.is_multiple_of(LANES),
        "{width} rows and {columns} columns of weights"
    );
    Arch::new().dispatch(ProductOfFew {
        inputs: inputs.as_slice().expect("whole rows are contiguous"),
        weights: weights.as_slice().expect("an array that was not sliced is contiguous"),
        outputs: outputs.as_slice_mut().expect("whole rows are contiguous"),
        width,
        columns,
    });
}

/// Rows of weights that are added together. Each matrix has a multiple of them.
const ADDED_ROWS: usize = 4;
/// The number of columns of each matrix is a multiple of this, so that vector instructions leave no column out.
const LANES: usize = 16;

/// A product that is added, with the vector instructions of the processor.
struct ProductOfFew<'a> {
    inputs: &'a [f32],
    weights: &'a [f32],
    outputs: &'a mut [f32],
    width: usize,
    columns: usize,
}

impl WithSimd for ProductOfFew<'_> {
    type Output = ();

    /// Adds [`ADDED_ROWS`] rows of weights, each with its factor, to each row of outputs before the next ones.
    #[expect(
        clippy::inline_always,
        reason = "only code that is inlined into `dispatch` uses the instructions of the processor it runs on"
    )]
    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { inputs, weights, outputs, width, columns } = self;
        for (place, rows) in weights.chunks_exact(ADDED_ROWS * columns).enumerate() {
            let [w0, w1, w2, w3]: [_; ADDED_ROWS] =
                std::array::from_fn(|row| S::as_simd_f32s(&rows[row * columns..(row + 1) * columns]).0);
            for (input, output) in inputs.chunks_exact(width).zip(outputs.chunks_exact_mut(columns)) {
                let [f0, f1, f2, f3] =
                    std::array::from_fn(|row| simd.splat_f32s(input[ADDED_ROWS * place + row]));
                let sums = S::as_mut_simd_f32s(output).0;
                for ((((sum, w0), w1), w2), w3) in sums.iter_mut().zip(w0).zip(w1).zip(w2).zip(w3) {
                    let two = simd.mul_add_e_f32s(f0, *w0, simd.mul_add_e_f32s(f1, *w1, *sum));
                    *sum = simd.mul_add_e_f32s(f2, *w2, simd.mul_add_e_f32s(f3, *w3, two));
                }
            }
        }
    }
}

/// A number of tokens or features.
fn number(count: usize) -> f32 {
    f32::from(u16::try_from(count).expect("there are at most thousands"))
}

fn keep_positive(values: &mut Array2<f32>) {
    values.mapv_inplace(|value| value.max(0.0));
}
