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
//! Where x has two terms, `i` is 256 times the sum over the codes of the second and that over those of the first: still an
//! exact integer, and all that follows is done once. The second has two words of a block, which meet the matrix's codes
//! in a copy in memory, by number.
//!
//! Each `*` rounds once, each fma once, the conversion of an integer once. `scale` is the number that the format
//! means, a float32 without loss. Sixteen outputs are the lanes of a register and nothing is summed across lanes, so
//! the bits of one (row, output) follow from this formula alone: they are the same beside any other rows, at every
//! level of instructions and for any number of threads.
//!
//! `code - zero` is never formed: `zero` times the row's negative sum is where the integer starts from.
//!
//! A panel's codes of 32 columns are unpacked into eight registers, once for as many rows as have room for their
//! sums and for all their terms. One row is bound by memory; many rows by the instruction that multiplies codes, of which there are eight
//! for 3 to 6 others that take the same units.

use super::activations::{Activations, Block, Far, GROUP_ROWS, Terms, WORDS};
use crate::kernels::Crew;
use crate::panels::{
    BlockScales, Offset, PanelFormat, PanelVisitor, Panels, Planes, SUB_BLOCK, Scales, head_bytes, run_bytes,
    sub_block_bytes, visit,
};
use crate::simd::{AHEAD, CodeKernel, Dots, Isa, LINE, Lanes, REGISTER, prefetch};
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

/// How many rows and outputs a part of the work has. Rows that are many enough are cut, and keep all outputs: so a member
/// reads the codes that it made itself, and writes rows that it reads next.
pub(crate) fn tile_of_part(crew: &Crew<'_>, rows: usize, outputs: usize) -> (usize, usize) {
    let parts = crew.turn.members() * PARTS_PER_MEMBER;
    if rows >= parts * GROUP_ROWS {
        (rows.div_ceil(parts).next_multiple_of(GROUP_ROWS), outputs.next_multiple_of(LANES))
    } else {
        (rows.max(1), outputs_per_part(crew, outputs))
    }
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
    /// The second number of the row's pair; the first row of the product has the first pair.
    Listed(&'a [(u32, u32)]),
}

impl Places<'_> {
    #[inline(always)]
    fn of(self, row: usize, rows: &Range<usize>) -> usize {
        match self {
            Places::Same => row,
            Places::Listed(pairs) => pairs[row - rows.start].1 as usize,
        }
    }
}

impl CodeProduct<'_> {
    /// Computes some columns of the result for rows of x, the first of which starts a group.
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
        let first = outputs.start / LANES * panels.panel_bytes;
        let bytes = outputs.len().div_ceil(LANES) * panels.panel_bytes;
        isa.run_codes(PanelRows::<F> {
            panels: &panels.matrix(matrix)[first..first + bytes],
            panel_bytes: panels.panel_bytes,
            width: panels.columns,
            x,
            rows,
            bias: bias.map(|bias| &bias[outputs]),
            places,
            columns,
            format: std::marker::PhantomData,
        });
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

/// Some panels with some rows.
struct PanelRows<'a, 'b, F> {
    panels: &'a [u8],
    panel_bytes: usize,
    /// Columns of the matrix.
    width: usize,
    x: &'a Activations,
    rows: Range<usize>,
    /// Of the panels' outputs.
    bias: Option<&'a [f32]>,
    places: Places<'a>,
    /// Those of the panels, whose last one may have fewer.
    columns: &'a mut Columns<'b, f32>,
    format: std::marker::PhantomData<F>,
}

/// Where in a product a tile is.
#[derive(Clone, Copy)]
struct Tile<'a> {
    panel: &'a [u8],
    /// The panel's number.
    number: usize,
    /// The first row.
    row: usize,
}

impl<F: PanelFormat> CodeKernel for PanelRows<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<D: Dots>(mut self) {
        match self.x.terms() {
            Terms::One => self.runs::<D, false>(),
            Terms::Two => self.runs::<D, true>(),
        }
    }
}

impl<F: PanelFormat> PanelRows<'_, '_, F> {
    /// All rows, in equal runs that stay near while they meet one panel after the other.
    #[inline(always)]
    fn runs<D: Dots, const FAR: bool>(&mut self) {
        let row_bytes =
            self.width / SUB_BLOCK * (size_of::<Block>() + if FAR { size_of::<Far>() } else { 0 });
        let most = (ROW_BYTES / row_bytes).max(1);
        let runs = self.rows.len().div_ceil(most).max(1);
        let run = self.rows.len().div_ceil(runs).next_multiple_of(self.x.group()).max(1);
        let (panels, rows) = (self.panels, self.rows.clone());
        for start in rows.clone().step_by(run) {
            for (number, panel) in panels.chunks_exact(self.panel_bytes).enumerate() {
                self.panel::<D, FAR>(Tile { panel, number, row: start }, rows.end.min(start + run));
            }
        }
    }

    /// A panel with the rows from that of the tile on up to `end`.
    #[inline(always)]
    fn panel<D: Dots, const FAR: bool>(&mut self, mut tile: Tile<'_>, end: usize) {
        if D::MOST_ROWS >= 16 {
            self.tiles::<D, FAR, 16>(&mut tile, end);
            self.tiles::<D, FAR, 8>(&mut tile, end);
        }
        if D::MOST_ROWS >= 4 {
            self.tiles::<D, FAR, 4>(&mut tile, end);
            self.tiles::<D, FAR, 2>(&mut tile, end);
        }
        self.tiles::<D, FAR, 1>(&mut tile, end);
    }

    /// Tiles of `ROWS` rows, as long as there are so many.
    #[inline(always)]
    fn tiles<D: Dots, const FAR: bool, const ROWS: usize>(&mut self, tile: &mut Tile<'_>, end: usize) {
        while tile.row + ROWS <= end {
            self.tile::<D, FAR, ROWS>(*tile);
            tile.row += ROWS;
        }
    }

    /// Sixteen outputs of `ROWS` rows.
    #[inline(always)]
    fn tile<D: Dots, const FAR: bool, const ROWS: usize>(&mut self, at: Tile<'_>) {
        let mut sums = [D::Floats::splat(0.0); ROWS];
        let (mut x, mut far) = (self.x.tile(at.row), self.x.far_tile(at.row));
        for run in at.panel.chunks_exact(run_bytes::<F>()) {
            let (heads, sub_blocks) = run.split_at(head_bytes::<F>());
            for sub_block in sub_blocks.chunks_exact(sub_block_bytes::<F>()) {
                let Some(x) = x.next().and_then(<[_]>::first_chunk::<ROWS>) else { return };
                let far = if FAR {
                    // Known to be there, so that no row looks.
                    let Some(far) = far.next().and_then(<[_]>::first_chunk::<ROWS>) else { return };
                    Some(far)
                } else {
                    None
                };
                if ROWS > 1 {
                    // Some rows keep the processor too busy to see in time that it will need what follows.
                    for line in sub_block.chunks(LINE) {
                        prefetch(line.as_ptr().wrapping_add(AHEAD));
                    }
                }
                let (bytes, planes) = sub_block.split_at(F::Scales::BYTES * LANES);
                let scales = F::Scales::read::<D>(heads, bytes);
                let codes = codes::<F, D>(planes);
                let mut copy = [[0; REGISTER]; WORDS];
                if FAR {
                    for i in 0..WORDS {
                        D::store(codes[i], &mut copy[i]);
                    }
                }
                // Written out, because the compiler leaves a loop of so long a body with its sums in memory.
                each_row!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 of ROWS: r => {
                    let far = far.map(|far| (&far[r], &copy));
                    sums[r] = step::<F, D>(&codes, &scales, (&x[r], far), sums[r]);
                });
            }
        }
        let lanes = at.number * LANES..((at.number + 1) * LANES).min(self.columns.range().len());
        for (r, sums) in sums.into_iter().enumerate() {
            self.put(at.row + r, lanes.clone(), sums);
        }
    }

    /// Writes the sums of a row.
    #[inline(always)]
    fn put<L: Lanes>(&mut self, row: usize, lanes: Range<usize>, sums: L) {
        let out = &mut self.columns.row(self.places.of(row, &self.rows))[lanes.clone()];
        let sums = match self.bias {
            Some(bias) => sums.add(L::load_part(&bias[lanes])),
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
fn codes<F: PanelFormat, D: Dots>(planes: &[u8]) -> [D::Bytes; WORDS] {
    let mut codes = F::Planes::unpack::<D>(planes);
    if let Some(table) = F::TABLE {
        for codes in &mut codes {
            *codes = D::look_up(table, *codes);
        }
    }
    codes
}

/// A row's, and the codes that it is to meet.
type SecondTerm<'a> = (&'a Far, &'a [[u8; REGISTER]; WORDS]);

/// Adds 32 columns of a row: its first term, and its second with a copy of the codes.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "chains of iterators over halves were left as loops through memory"
)]
fn step<F: PanelFormat, D: Dots>(
    codes: &[D::Bytes; WORDS],
    scales: &BlockScales<D::Floats>,
    (x, far): (&Block, Option<SecondTerm<'_>>),
    sum: D::Floats,
) -> D::Floats {
    let x_scale = D::Floats::splat(x.scale);
    let mut sum = sum;
    let parts = if F::Scales::COUNT == 1 { 1 } else { 2 };
    for part in 0..parts {
        let mut dots = F::Offset::start::<D>(if parts == 1 { x.minus_sum } else { x.minus_sums[part] });
        for i in part * WORDS / parts..(part + 1) * WORDS / parts {
            dots = F::Offset::dot::<D>(dots, codes[i], x.codes[i]);
        }
        if let Some((far, copy)) = far {
            let halves = if parts == 1 { 0..2 } else { part..part + 1 };
            let minus_sum =
                if parts == 1 { far.minus_sums[0] + far.minus_sums[1] } else { far.minus_sums[part] };
            let mut far_dots = F::Offset::start::<D>(minus_sum);
            for half in halves {
                let codes = D::load(&copy[far.places[half] as usize % WORDS]);
                far_dots = F::Offset::dot::<D>(far_dots, codes, far.words[half]);
            }
            dots = D::next_term(far_dots, dots);
        }
        sum = D::floats(dots).mul_add(scales.scales[part].mul(x_scale), sum);
    }
    if F::Scales::HAS_MINIMUM {
        sum = scales.minimum.mul_add(D::Floats::splat(x.scaled_sum), sum);
    }
    sum
}
