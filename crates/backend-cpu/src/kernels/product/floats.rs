//! Products of rows with matrices of any format, in float32 and in the named order.
//!
//! ```text
//! y[r, o] = fold(lanes) + bias[o],   lanes[i % 16] += x[r, i] * weight[o, i] for i ascending, fused
//! ```
//!
//! The sum of one (row, output) is the same whatever stands beside it, so which of the two ways a product is
//! computed, and how it is cut, changes no bit:
//!
//! - *Few rows*: a run of weights is unpacked in registers and multiplied at once; four outputs run side by
//!   side, because one sum alone would wait for each addition. Bound by memory, or by unpacking.
//! - *Many rows*: some weight rows are unpacked into a tile that stays in the second cache level, and blocks
//!   of four rows by four outputs are summed in registers over the whole width, for all rows. Bound by
//!   arithmetic.
//!
//! Members take runs of outputs.

use crate::kernels::formats::{Unpack, UnpackVisitor, visit};
use crate::kernels::{Crew, Scratch};
use crate::simd::{AHEAD, Isa, Kernel, Lanes, folds, prefetch};
use crate::threads::Columns;
use crate::weights::{RowMatrix, RowView};
use gannet_ops::numerics::LANES;
use gannet_tensor::decode::BlockFormat;
use std::marker::PhantomData;
use std::ops::Range;

/// Rows and outputs whose sums run side by side where there are registers for sixteen sums.
const BLOCK: usize = 4;
/// The same where there aren't.
const SMALL_BLOCK: usize = 2;
/// Rows for which weights are unpacked in registers, as often as there are blocks of them; a tile is for more.
const FEW_ROWS: usize = 2 * BLOCK;
/// Floats of a tile: 256 KiB, half of a small second cache level.
const TILE_FLOATS: usize = 64 * 1024;
/// Parts of the work a member, so that a late member doesn't hold up the others.
const PARTS_PER_MEMBER: usize = 4;

/// How many outputs a part of the work has: a multiple of the block, enough parts for all members, and for
/// many rows at most a tile.
pub(crate) fn outputs_per_part(crew: &Crew<'_>, outputs: usize, rows: usize, columns: usize) -> usize {
    let parts = crew.turn.members() * PARTS_PER_MEMBER;
    let step = outputs.div_ceil(parts).next_multiple_of(BLOCK);
    let in_tile = (TILE_FLOATS / columns.next_multiple_of(LANES)) / BLOCK * BLOCK;
    if rows <= FEW_ROWS { step } else { step.min(in_tile.max(BLOCK)) }
}

/// Which row of x each row of the result is made of.
#[derive(Clone, Copy)]
pub(crate) enum Pairs<'a> {
    /// The row of the same number, for so many.
    Same(usize),
    /// (row of x, row of the result).
    Listed(&'a [(u32, u32)]),
}

impl Pairs<'_> {
    #[inline(always)]
    fn len(self) -> usize {
        match self {
            Pairs::Same(count) => count,
            Pairs::Listed(pairs) => pairs.len(),
        }
    }

    #[inline(always)]
    fn at(self, place: usize) -> (usize, usize) {
        match self {
            Pairs::Same(_) => (place, place),
            Pairs::Listed(pairs) => (pairs[place].0 as usize, pairs[place].1 as usize),
        }
    }
}

/// A product of some rows with a matrix that starts at row `first` of a stack.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) isa: Isa,
    pub(crate) x: &'a [f32],
    pub(crate) matrix: &'a RowMatrix,
    pub(crate) first: usize,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) rows: Pairs<'a>,
}

impl<'a> Product<'a> {
    /// Computes some columns of the result.
    pub(crate) fn part(self, columns: &mut Columns<'_, f32>, scratch: &mut Scratch) {
        let outputs = columns.range();
        let part = Part { product: self, outputs, columns, scratch };
        visit(self.matrix.format, part).unwrap_or_else(Part::by_decoder);
    }

    fn x(&self, row: usize) -> &'a [f32] {
        &self.x[row * self.matrix.columns..][..self.matrix.columns]
    }

    /// Which rows of the stack have the weights of some outputs.
    fn matrix_rows(&self, outputs: Range<usize>) -> Range<usize> {
        self.first + outputs.start..self.first + outputs.end
    }
}

/// Some outputs of a product.
struct Part<'a, 'b> {
    product: Product<'a>,
    outputs: Range<usize>,
    columns: &'a mut Columns<'b, f32>,
    scratch: &'a mut Scratch,
}

impl UnpackVisitor for Part<'_, '_> {
    type Output = ();

    fn visit<U: Unpack>(self) {
        let Product { isa, matrix, rows, .. } = self.product;
        if rows.len() <= FEW_ROWS {
            let Self { product, outputs, columns, .. } = self;
            isa.run(FewRows::<U> { product, outputs, columns, unpack: PhantomData });
        } else {
            self.by_tiles(|rows, stride, tile| {
                isa.run(FillTile::<U> { matrix, rows, stride, tile, unpack: PhantomData });
            });
        }
    }
}

impl Part<'_, '_> {
    /// For a format without an unpacker.
    fn by_decoder(self) {
        let matrix = self.product.matrix;
        let width = matrix.columns;
        self.by_tiles(|rows, stride, tile| {
            for (row, out) in rows.zip(tile.chunks_exact_mut(stride)) {
                matrix.format.decode(matrix.row(row), &mut out[..width]);
                out[width..].fill(0.0);
            }
        });
    }

    /// Fills a tile with the weights of some outputs, and multiplies all rows with it, until all outputs are
    /// done. `fill` takes rows of the matrix, the floats from row to row of the tile, and the tile.
    fn by_tiles(self, fill: impl Fn(Range<usize>, usize, &mut [f32])) {
        let Product { isa, matrix, bias, .. } = self.product;
        let stride = matrix.columns.next_multiple_of(LANES);
        let in_tile = (TILE_FLOATS / stride).max(BLOCK);
        for first in (0..self.outputs.len()).step_by(in_tile) {
            let count = in_tile.min(self.outputs.len() - first);
            let tile = self.scratch.floats(count * stride);
            let outputs = self.outputs.start + first..self.outputs.start + first + count;
            let bias = bias.map(|bias| &bias[outputs.clone()]);
            fill(self.product.matrix_rows(outputs), stride, tile);
            isa.run(ManyRows { product: self.product, tile, count, bias, columns: self.columns, first });
        }
    }
}

/// A few rows with some outputs.
struct FewRows<'a, 'b, U> {
    product: Product<'a>,
    outputs: Range<usize>,
    columns: &'a mut Columns<'b, f32>,
    unpack: PhantomData<U>,
}

impl<U: Unpack> Kernel for FewRows<'_, '_, U> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let mut output = 0;
        while output + BLOCK <= self.outputs.len() {
            self.outputs::<L, BLOCK>(output);
            output += BLOCK;
        }
        while output < self.outputs.len() {
            self.outputs::<L, 1>(output);
            output += 1;
        }
    }
}

impl<U: Unpack> FewRows<'_, '_, U> {
    /// `OUTPUTS` outputs of all rows; the weights of the first rows are near when the others come.
    #[inline(always)]
    fn outputs<L: Lanes, const OUTPUTS: usize>(&mut self, output: usize) {
        let (rows, mut row) = (self.product.rows.len(), 0);
        if L::HOLDS_SIXTEEN {
            while row + BLOCK <= rows {
                self.sums::<L, BLOCK, OUTPUTS>(row, output);
                row += BLOCK;
            }
            while row + 2 <= rows {
                self.sums::<L, 2, OUTPUTS>(row, output);
                row += 2;
            }
        }
        while row < rows {
            self.sums::<L, 1, OUTPUTS>(row, output);
            row += 1;
        }
    }

    #[inline(always)]
    fn sums<L: Lanes, const ROWS: usize, const OUTPUTS: usize>(&mut self, row: usize, output: usize) {
        let Self { product, outputs, columns, .. } = self;
        let at = outputs.start + output;
        let x: [&[f32]; ROWS] = std::array::from_fn(|i| product.x(product.rows.at(row + i).0));
        let weights: [RowView<'_>; OUTPUTS] =
            std::array::from_fn(|i| product.matrix.view(product.first + at + i, U::BYTES));
        let sums = dots_unpacked::<L, U, ROWS, OUTPUTS>(x, weights);
        for (i, sums) in sums.into_iter().enumerate() {
            let out = &mut columns.row(product.rows.at(row + i).1)[output..][..OUTPUTS];
            match product.bias {
                Some(bias) => (0..OUTPUTS).for_each(|j| out[j] = sums[j] + bias[at + j]),
                None => out.copy_from_slice(&sums),
            }
        }
    }
}

/// The dot products of rows of x with rows of packed weights.
#[inline(always)]
fn dots_unpacked<L: Lanes, U: Unpack, const ROWS: usize, const OUTPUTS: usize>(
    x: [&[f32]; ROWS],
    weights: [RowView<'_>; OUTPUTS],
) -> [[f32; OUTPUTS]; ROWS] {
    let mut sums = [[L::splat(0.0); OUTPUTS]; ROWS];
    let width = x[0].len();
    let runs = width / U::ELEMENTS;
    for run in 0..runs {
        let mut near: [&[[f32; LANES]]; ROWS] = [&[]; ROWS];
        for row in 0..ROWS {
            near[row] = x[row][run * U::ELEMENTS..][..U::ELEMENTS].as_chunks::<LANES>().0;
        }
        for output in 0..OUTPUTS {
            let packed = weights[output].run(run, U::BYTES);
            if ROWS > 1 {
                prefetch(packed.as_ptr().wrapping_add(AHEAD));
            }
            U::unpack::<L>(packed, |sixteen, weights| {
                for row in 0..ROWS {
                    sums[row][output] = L::load(&near[row][sixteen]).mul_add(weights, sums[row][output]);
                }
            });
        }
    }
    if runs * U::ELEMENTS < width {
        for output in 0..OUTPUTS {
            let weights = unpacked_rest::<L, U>(weights[output].rest, width - runs * U::ELEMENTS);
            for row in 0..ROWS {
                let x = L::load_part(&x[row][runs * U::ELEMENTS..]);
                sums[row][output] = x.mul_add(weights, sums[row][output]);
            }
        }
    }
    fold_block(sums)
}

/// What is left of a row of plain numbers beyond its whole lanes. A row of blocks leaves nothing.
#[inline(always)]
fn unpacked_rest<L: Lanes, U: Unpack>(packed: &[u8], elements: usize) -> L {
    let mut values = [0.0; LANES];
    U::Block::decode_blocks(packed, &mut values[..elements]);
    L::load(&values)
}

/// Unpacks rows of a matrix into rows of `stride`, zero beyond the width.
pub(crate) struct FillTile<'a, U> {
    pub(crate) matrix: &'a RowMatrix,
    pub(crate) rows: Range<usize>,
    pub(crate) stride: usize,
    pub(crate) tile: &'a mut [f32],
    pub(crate) unpack: PhantomData<U>,
}

impl<U: Unpack> Kernel for FillTile<'_, U> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let width = self.matrix.columns;
        let whole = width / U::ELEMENTS * U::ELEMENTS;
        for (row, out) in self.rows.zip(self.tile.chunks_exact_mut(self.stride)) {
            let weights = self.matrix.view(row, U::BYTES);
            let (out, rest) = out.split_at_mut(whole);
            for (run, out) in out.chunks_exact_mut(U::ELEMENTS).enumerate() {
                let out = out.as_chunks_mut::<LANES>().0;
                U::unpack::<L>(weights.run(run, U::BYTES), |sixteen, weights| {
                    weights.store(&mut out[sixteen])
                });
            }
            let (last, beyond) = rest.split_at_mut(width - whole);
            U::Block::decode_blocks(weights.rest, last);
            beyond.fill(0.0);
        }
    }
}

/// Many rows with a tile of `count` outputs, the first of which is `first` of the columns.
struct ManyRows<'a, 'b> {
    product: Product<'a>,
    tile: &'a [f32],
    count: usize,
    bias: Option<&'a [f32]>,
    columns: &'a mut Columns<'b, f32>,
    first: usize,
}

impl Kernel for ManyRows<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let rows = self.product.rows.len();
        let mut row = 0;
        if L::HOLDS_SIXTEEN {
            while row + BLOCK <= rows {
                self.rows::<L, BLOCK, BLOCK>(row);
                row += BLOCK;
            }
            while row < rows {
                self.rows::<L, 1, BLOCK>(row);
                row += 1;
            }
        } else {
            while row + SMALL_BLOCK <= rows {
                self.rows::<L, SMALL_BLOCK, SMALL_BLOCK>(row);
                row += SMALL_BLOCK;
            }
            while row < rows {
                self.rows::<L, 1, SMALL_BLOCK>(row);
                row += 1;
            }
        }
    }
}

impl ManyRows<'_, '_> {
    /// All outputs of the tile for `ROWS` rows, `OUTPUTS` side by side.
    #[inline(always)]
    fn rows<L: Lanes, const ROWS: usize, const OUTPUTS: usize>(&mut self, row: usize) {
        let x: [&[f32]; ROWS] = std::array::from_fn(|i| self.product.x(self.product.rows.at(row + i).0));
        let mut output = 0;
        while output + OUTPUTS <= self.count {
            let sums = dot_block::<L, ROWS, OUTPUTS>(x, self.tile, output);
            self.put(row, output, sums);
            output += OUTPUTS;
        }
        while output < self.count {
            let sums = dot_block::<L, ROWS, 1>(x, self.tile, output);
            self.put(row, output, sums);
            output += 1;
        }
    }

    #[inline(always)]
    fn put<const ROWS: usize, const OUTPUTS: usize>(
        &mut self,
        row: usize,
        output: usize,
        sums: [[f32; OUTPUTS]; ROWS],
    ) {
        for (i, sums) in sums.into_iter().enumerate() {
            let out =
                &mut self.columns.row(self.product.rows.at(row + i).1)[self.first + output..][..OUTPUTS];
            match self.bias {
                Some(bias) => (0..OUTPUTS).for_each(|j| out[j] = sums[j] + bias[output + j]),
                None => out.copy_from_slice(&sums),
            }
        }
    }
}

/// The dot products of rows of x with rows of a tile from `output` on.
#[inline(always)]
fn dot_block<L: Lanes, const ROWS: usize, const OUTPUTS: usize>(
    x: [&[f32]; ROWS],
    tile: &[f32],
    output: usize,
) -> [[f32; OUTPUTS]; ROWS] {
    let width = x[0].len();
    let (steps, stride) = (width / LANES, width.next_multiple_of(LANES));
    let row = |i: usize| &tile[(output + i) * stride..][..stride].as_chunks::<LANES>().0[..stride / LANES];
    let weights: [&[[f32; LANES]]; OUTPUTS] = std::array::from_fn(row);
    let whole: [&[[f32; LANES]]; ROWS] = x.map(|x| &x.as_chunks::<LANES>().0[..steps]);
    let mut sums = [[L::splat(0.0); OUTPUTS]; ROWS];
    for step in 0..steps {
        let mut packed = [L::splat(0.0); OUTPUTS];
        for (packed, weights) in packed.iter_mut().zip(weights) {
            *packed = L::load(&weights[step]);
        }
        for (sums, x) in sums.iter_mut().zip(whole) {
            let x = L::load(&x[step]);
            for (sum, weights) in sums.iter_mut().zip(packed) {
                *sum = x.mul_add(weights, *sum);
            }
        }
    }
    if stride > width {
        for (sums, x) in sums.iter_mut().zip(x) {
            let x = L::load_part(&x[steps * LANES..]);
            for (sum, weights) in sums.iter_mut().zip(weights) {
                *sum = x.mul_add(L::load(&weights[steps]), *sum);
            }
        }
    }
    fold_block(sums)
}

/// The folds of a block; sixteen at once where it has so many.
#[inline(always)]
fn fold_block<L: Lanes, const ROWS: usize, const OUTPUTS: usize>(
    sums: [[L; OUTPUTS]; ROWS],
) -> [[f32; OUTPUTS]; ROWS] {
    let mut out = [[0.0; OUTPUTS]; ROWS];
    if ROWS * OUTPUTS == LANES {
        let mut sixteen = [L::splat(0.0); LANES];
        for row in 0..ROWS {
            for output in 0..OUTPUTS {
                sixteen[row * OUTPUTS + output] = sums[row][output];
            }
        }
        let mut folds = [0.0; LANES];
        L::fold_each(sixteen).store(&mut folds);
        out.as_flattened_mut().copy_from_slice(&folds);
    } else {
        for row in 0..ROWS {
            out[row] = folds(sums[row]);
        }
    }
    out
}
