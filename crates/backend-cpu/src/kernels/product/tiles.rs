//! Products of rows with panels, as far as they are alike for every kind: how the work is cut, and the walk over tiles.
//!
//! A tile is sixteen outputs, the lanes of a register, of as many rows as have registers for their sums. Nothing is summed
//! across lanes or rows, so the cut changes no bit.

use super::groups::GROUP_ROWS;
use crate::kernels::Crew;
use crate::panels::Panels;
use crate::simd::{Isa, Lanes};
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
/// reads the form of rows that it made itself, and writes rows that it reads next.
pub(crate) fn tile_of_part(crew: &Crew<'_>, rows: usize, outputs: usize) -> (usize, usize) {
    let parts = crew.turn.members() * PARTS_PER_MEMBER;
    if rows >= parts * GROUP_ROWS {
        (rows.div_ceil(parts).next_multiple_of(GROUP_ROWS), outputs.next_multiple_of(LANES))
    } else {
        (rows.max(1), outputs_per_part(crew, outputs))
    }
}

/// Rows in the form in which a kind of panels is multiplied with them.
pub(crate) trait PanelRows: Default + Sync {
    fn rows(&self) -> usize;
    /// How many rows a group has.
    fn group(&self) -> usize;
    /// Replaces the rows by rows of others, the first numbers of pairs; each run of pairs starts a group.
    fn gather<'r>(&mut self, from: &Self, runs: impl Iterator<Item = &'r [(u32, u32)]> + Clone);
    /// Computes a part of a product.
    fn multiply(part: Part<'_, '_, Self>);
}

/// A product of some rows with one matrix of a stack.
pub(crate) struct PanelProduct<'a, X> {
    pub(crate) isa: Isa,
    pub(crate) x: &'a X,
    pub(crate) panels: &'a Panels,
    /// Which of the stack.
    pub(crate) matrix: usize,
    pub(crate) bias: Option<&'a [f32]>,
}

impl<X: PanelRows> PanelProduct<'_, X> {
    /// Computes some columns of the result for rows of x, the first of which starts a group.
    pub(crate) fn part(&self, rows: Range<usize>, places: Places<'_>, columns: &mut Columns<'_, f32>) {
        let Self { isa, x, panels, matrix, bias } = *self;
        let outputs = columns.range();
        let first = outputs.start / LANES * panels.panel_bytes;
        let bytes = outputs.len().div_ceil(LANES) * panels.panel_bytes;
        X::multiply(Part {
            isa,
            x,
            format: panels.format,
            width: panels.columns,
            walk: Walk {
                panels: &panels.matrix(matrix)[first..first + bytes],
                panel_bytes: panels.panel_bytes,
                rows,
                bias: bias.map(|bias| &bias[outputs]),
                places,
                columns,
            },
        });
    }
}

/// Some columns of a product.
pub(crate) struct Part<'a, 'b, X> {
    pub(super) isa: Isa,
    pub(super) x: &'a X,
    pub(super) format: gannet_tensor::Format,
    /// Columns of the matrix.
    pub(super) width: usize,
    pub(super) walk: Walk<'a, 'b>,
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

/// The sums of tiles. Implementations mark all that they call `#[inline(always)]`.
pub(super) trait Tiles {
    type Floats: Lanes;
    /// Rows whose sums have registers.
    const MOST_ROWS: usize;

    /// Sixteen outputs of this row and those after it, as many as `rows`, which are more than half of `ROWS`; the other sums
    /// mean nothing. `None` where there is no room for `ROWS` in the row's group, which the caller rules out.
    //
    // No sums come out of a loop that is left early: with a second way out the compiler kept some of them in memory.
    fn sums<const ROWS: usize>(&self, panel: &[u8], row: usize, rows: usize) -> Option<[Self::Floats; ROWS]>;
}

/// The body for each of these numbers that is below a constant, those above its half only where they are below `rows`.
macro_rules! each_row {
    ($($number:literal)* of $count:ident, $rows:ident: $row:ident => $body:block) => {
        $(if $number < $count && ($number < $count / 2 + 1 || $number < $rows) {
            let $row = $number;
            $body
        })*
    };
}

pub(super) use each_row;

/// Some panels with some rows.
pub(super) struct Walk<'a, 'b> {
    panels: &'a [u8],
    panel_bytes: usize,
    rows: Range<usize>,
    /// Of the panels' outputs.
    bias: Option<&'a [f32]>,
    places: Places<'a>,
    /// Those of the panels, whose last one may have fewer.
    columns: &'a mut Columns<'b, f32>,
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

impl Walk<'_, '_> {
    /// All rows, in equal runs that stay near while they meet one panel after the other. A row takes so many bytes, and a
    /// group has so many rows.
    #[inline(always)]
    pub(super) fn run<T: Tiles>(mut self, tiles: &T, row_bytes: usize, group: usize) {
        let most = (ROW_BYTES / row_bytes.max(1)).max(1);
        let runs = self.rows.len().div_ceil(most).max(1);
        let run = self.rows.len().div_ceil(runs).next_multiple_of(group).max(1);
        let (panels, rows) = (self.panels, self.rows.clone());
        for start in rows.clone().step_by(run) {
            for (number, panel) in panels.chunks_exact(self.panel_bytes).enumerate() {
                self.panel(tiles, Tile { panel, number, row: start }, rows.end.min(start + run));
            }
        }
    }

    /// A panel with the rows from that of the tile on up to `end`.
    #[inline(always)]
    fn panel<T: Tiles>(&mut self, tiles: &T, mut tile: Tile<'_>, end: usize) {
        if T::MOST_ROWS >= 16 {
            self.tiles::<T, 16>(tiles, &mut tile, end);
            self.tiles::<T, 8>(tiles, &mut tile, end);
        }
        if T::MOST_ROWS >= 4 {
            self.tiles::<T, 4>(tiles, &mut tile, end);
            self.tiles::<T, 2>(tiles, &mut tile, end);
        }
        self.tiles::<T, 1>(tiles, &mut tile, end);
    }

    /// Tiles of `ROWS` rows, as long as more than half of so many are left.
    #[inline(always)]
    fn tiles<T: Tiles, const ROWS: usize>(&mut self, tiles: &T, tile: &mut Tile<'_>, end: usize) {
        while tile.row + ROWS / 2 < end {
            let rows = ROWS.min(end - tile.row);
            let Some(sums) = tiles.sums::<ROWS>(tile.panel, tile.row, rows) else { return };
            let lanes = tile.number * LANES..((tile.number + 1) * LANES).min(self.columns.range().len());
            for (r, sums) in sums.into_iter().enumerate().take(rows) {
                self.put(tile.row + r, lanes.clone(), sums);
            }
            tile.row += rows;
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
