//! Products of rows with matrices of codes, by integers: for every format of 4 bits and more.
//!
//! ```text
//! for each block of 32 columns, ascending; for each of its scales (one, or two of 16 columns):
//!     i      = sum of (code[o, k] - zero) * x_code[r, k]                     in 32-bit integers
//!     y[r,o] = fma(f32(i), scale[o] * x_scale[r], y[r,o])
//! and then, where the format has minima:
//!     y[r,o] = fma(minimum[o], x_scale[r] * f32(sum of x_code[r, k]), y[r,o])
//! at the end: y[r,o] += bias[o]
//! ```
//!
//! Where x has two terms, the blocks of the second follow those of the first, with the same blocks of the matrix.
//!
//! Each `*` rounds once, each fma once, the conversion of an integer once. `scale` is the number that the format
//! means, a float32 without loss. Sixteen outputs are the lanes of a register and nothing is summed across lanes, so
//! the bits of one (row, output) follow from this formula alone: they are the same beside any other rows, at every
//! level of instructions and for any number of threads.
//!
//! `code - zero` is never formed: `zero` times the row's negative sum is where the integer starts from.
//!
//! A panel's codes of 32 columns are unpacked into eight registers, once for as many rows as have room for their
//! sums. One row is bound by memory; many rows by the instruction that multiplies codes, of which there are eight
//! for 3 to 6 others that take the same units.

use super::activations::{Activations, Block, Terms};
use crate::kernels::Crew;
use crate::panels::{
    BlockScales, Offset, PanelFormat, PanelVisitor, Panels, Planes, SUB_BLOCK, Scales, head_bytes, run_bytes,
    sub_block_bytes, visit,
};
use crate::simd::{CodeKernel, Dots, Isa, Lanes};
use crate::threads::Columns;
use gannet_ops::numerics::LANES;
use std::ops::Range;

/// Most bytes of rows that go over a part's panels together: they stay in the second cache level.
const ROW_BYTES: usize = 384 * 1024;
/// Parts of the work a member, so that a late member doesn't hold up the others.
const PARTS_PER_MEMBER: usize = 4;

/// How many outputs a part of the work has: whole panels, and parts enough for all members.
pub(crate) fn outputs_per_part(crew: &Crew<'_>, outputs: usize) -> usize {
    let parts = crew.turn.members() * PARTS_PER_MEMBER;
    outputs.div_ceil(parts).next_multiple_of(LANES)
}

/// A product of some rows with one matrix of a stack.
#[derive(Clone, Copy)]
pub(crate) struct CodeProduct<'a> {
    pub(crate) isa: Isa,
    pub(crate) x: &'a Activations,
    pub(crate) panels: &'a Panels,
    /// Which of the stack.
    pub(crate) matrix: usize,
    pub(crate) bias: Option<&'a [f32]>,
}

/// Which row of the result each row of x is.
#[derive(Clone, Copy)]
pub(crate) enum Places<'a> {
    /// That of the same number.
    Same,
    /// The second number of the pair that stands where the row does.
    Listed(&'a [(u32, u32)]),
}

impl Places<'_> {
    #[inline(always)]
    fn of(self, row: usize) -> usize {
        match self {
            Places::Same => row,
            Places::Listed(pairs) => pairs[row].1 as usize,
        }
    }
}

impl CodeProduct<'_> {
    /// Computes some columns of the result for rows of x.
    pub(crate) fn part(self, rows: Range<usize>, places: Places<'_>, columns: &mut Columns<'_, f32>) {
        let part = Part { product: self, rows, places, columns };
        let Ok(()) = visit(self.panels.format, part) else {
            unreachable!("panels are made of formats that have them")
        };
    }
}

/// Some columns of a product.
struct Part<'a, 'b> {
    product: CodeProduct<'a>,
    rows: Range<usize>,
    places: Places<'a>,
    columns: &'a mut Columns<'b, f32>,
}

impl PanelVisitor for Part<'_, '_> {
    type Output = ();

    fn visit<F: PanelFormat>(self) {
        let Self { product: CodeProduct { isa, x, panels, matrix, bias }, rows, places, columns } = self;
        let outputs = columns.range();
        let first = outputs.start / LANES;
        let most = (ROW_BYTES / (x.terms().count() * panels.columns / SUB_BLOCK * size_of::<Block>())).max(1);
        // Equal runs, of a length that the tiles divide.
        let runs = rows.len().div_ceil(most).max(1);
        let run = rows.len().div_ceil(runs).next_multiple_of(12);
        let mut start = rows.start;
        while start < rows.end {
            let end = rows.end.min(start + run);
            let all = &panels.matrix(matrix)[first * panels.panel_bytes..];
            for (number, panel) in
                all.chunks_exact(panels.panel_bytes).take(outputs.len().div_ceil(LANES)).enumerate()
            {
                let lanes = number * LANES..outputs.len().min((number + 1) * LANES);
                let bias = bias.map(|bias| &bias[outputs.start + lanes.start..outputs.start + lanes.end]);
                isa.run_codes(PanelRows::<F> {
                    panel,
                    x: x.blocks(),
                    x_rows: x.rows(),
                    terms: x.terms(),
                    rows: start..end,
                    bias,
                    places,
                    columns: &mut *columns,
                    lanes,
                    format: std::marker::PhantomData,
                });
            }
            start = end;
        }
    }
}

/// The body for each of these numbers that is below a constant.
macro_rules! each_row {
    ($($number:literal)* of $count:ident: $row:ident => $body:block) => {
        $(if $number < $count {
            let $row = $number;
            $body
        })*
    };
}

/// One panel with some rows.
struct PanelRows<'a, 'b, F> {
    panel: &'a [u8],
    x: &'a [Block],
    x_rows: usize,
    terms: Terms,
    rows: Range<usize>,
    bias: Option<&'a [f32]>,
    places: Places<'a>,
    columns: &'a mut Columns<'b, f32>,
    /// The columns that are the panel's, all its lanes but in the last one.
    lanes: Range<usize>,
    format: std::marker::PhantomData<F>,
}

impl<F: PanelFormat> CodeKernel for PanelRows<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(mut self) {
        let mut row = self.rows.start;
        if D::MOST_ROWS >= 12 {
            row = self.tiles::<D, 12>(row);
            row = self.tiles::<D, 8>(row);
        }
        if D::MOST_ROWS >= 4 {
            row = self.tiles::<D, 4>(row);
            row = self.tiles::<D, 2>(row);
        }
        self.tiles::<D, 1>(row);
    }
}

impl<F: PanelFormat> PanelRows<'_, '_, F> {
    /// Tiles of `ROWS` rows from `row` on, as long as there are so many; the row after them.
    #[inline(always)]
    fn tiles<D: Dots, const ROWS: usize>(&mut self, mut row: usize) -> usize {
        while row + ROWS <= self.rows.end {
            self.tile::<D, ROWS>(row);
            row += ROWS;
        }
        row
    }

    /// Sixteen outputs of `ROWS` rows.
    #[inline(always)]
    fn tile<D: Dots, const ROWS: usize>(&mut self, row: usize) {
        let mut sums = [D::Floats::splat(0.0); ROWS];
        let mut x = self.x[row..].chunks(self.x_rows);
        for _ in 0..self.terms.count() {
            for run in self.panel.chunks_exact(run_bytes::<F>()) {
                let (heads, sub_blocks) = run.split_at(head_bytes::<F>());
                for sub_block in sub_blocks.chunks_exact(sub_block_bytes::<F>()) {
                    let Some(x) = x.next().and_then(|x| x.first_chunk::<ROWS>()) else { return };
                    let (bytes, planes) = sub_block.split_at(F::Scales::BYTES * LANES);
                    let scales = F::Scales::read::<D>(heads, bytes);
                    let codes = codes::<F, D>(planes);
                    // Written out, because the compiler leaves a loop of so long a body with its sums in memory.
                    each_row!(0 1 2 3 4 5 6 7 8 9 10 11 of ROWS: r => {
                        sums[r] = step::<F, D>(&codes, &scales, &x[r], sums[r]);
                    });
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            self.put(row + r, sums);
        }
    }

    /// Writes the sums of a row.
    #[inline(always)]
    fn put<L: Lanes>(&mut self, row: usize, sums: L) {
        let out = &mut self.columns.row(self.places.of(row))[self.lanes.clone()];
        let sums = match self.bias {
            Some(bias) => sums.add(L::load_part(bias)),
            None => sums,
        };
        match out.first_chunk_mut() {
            Some(out) => sums.store(out),
            None => {
                let mut stored = [0.0; LANES];
                sums.store(&mut stored);
                out.copy_from_slice(&stored[..out.len()]);
            }
        }
    }
}

/// The codes of a sub-block of a panel.
#[inline(always)]
fn codes<F: PanelFormat, D: Dots>(planes: &[u8]) -> [D::Bytes; 8] {
    let mut codes = F::Planes::unpack::<D>(planes);
    if let Some(table) = F::TABLE {
        for codes in &mut codes {
            *codes = D::look_up(table, *codes);
        }
    }
    codes
}

/// Adds 32 columns of a row.
#[inline(always)]
fn step<F: PanelFormat, D: Dots>(
    codes: &[D::Bytes; 8],
    scales: &BlockScales<D::Floats>,
    x: &Block,
    sum: D::Floats,
) -> D::Floats {
    let x_scale = D::Floats::splat(x.scale);
    let mut sum = sum;
    let (parts, starts) = match F::Scales::COUNT {
        1 => (1, [x.minus_sum, 0]),
        _ => (2, x.minus_sums),
    };
    for part in 0..parts {
        let mut dots = F::Offset::start::<D>(starts[part]);
        // By index: chains of iterators over halves were left as loops through memory.
        for i in part * 4..(part + 1) * 8 / parts {
            dots = F::Offset::dot::<D>(dots, codes[i], x.codes[i]);
        }
        sum = D::floats(dots).mul_add(scales.scales[part].mul(x_scale), sum);
    }
    if F::Scales::HAS_MINIMUM {
        sum = scales.minimum.mul_add(D::Floats::splat(x.scaled_sum), sum);
    }
    sum
}
