//! Matrices of codes and of bf16 numbers as the kernels read them: panels of sixteen rows, interleaved.
//!
//! ```text
//! panel  16 rows of the matrix, one a lane; its runs follow each other by ascending column
//! run    32 or 256 columns: heads, then sub-blocks
//! head   an f16 of each lane
//! sub-block  of 32 columns: bytes of scales of each lane, then codes, four columns of each lane after another
//! ```
//!
//! A panel is read from front to back, and what stands side by side in a register belongs to different rows of the
//! matrix, so a product needs no sum across lanes. Nothing is rounded: a row comes back as the very numbers that
//! its format's decoder in `tensor` gives. A stack of experts has panels of its own for each expert; rows beyond
//! the last are zero.
//!
//! Matrices of bf16 numbers have panels of their own, see `pairs`.
//!
//! Knows no operation. What is multiplied how is said in `kernels::product`.

mod formats;
mod pack;
mod pairs;
mod planes;
mod row;
mod scales;

pub(crate) use formats::{Offset, PanelFormat, PanelVisitor, visit};
pub(crate) use pack::{bytes_of_panel, pack};
pub(crate) use planes::Planes;
pub(crate) use scales::{BlockScales, Scales};

use crate::arena::Place;
use gannet_ops::numerics::LANES;
use gannet_tensor::Format;

/// Columns that share scales of the row they are multiplied with, and of a sub-block.
pub(crate) const SUB_BLOCK: usize = 32;

/// What panels consist of, and so how they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelKind {
    Codes,
    Pairs,
}

/// A matrix in panels.
pub(crate) struct Panels {
    pub(crate) format: Format,
    /// Of one matrix of a stack.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) panel_bytes: usize,
    pub(crate) place: Place,
}

impl Panels {
    pub(crate) fn kind(&self) -> PanelKind {
        kind(self.format)
    }

    /// Panels of one matrix of a stack.
    pub(crate) fn per_matrix(&self) -> usize {
        self.rows.div_ceil(LANES)
    }

    /// All panels of the matrix of this number.
    pub(crate) fn matrix(&self, number: usize) -> &[u8] {
        let bytes = self.per_matrix() * self.panel_bytes;
        &self.place.bytes()[number * bytes..][..bytes]
    }
}

/// What panels of a format that has them consist of.
fn kind(format: Format) -> PanelKind {
    if format == Format::Bf16 { PanelKind::Pairs } else { PanelKind::Codes }
}

/// Bytes of a panel of a matrix with so many columns.
pub(crate) const fn panel_bytes<F: PanelFormat>(columns: usize) -> usize {
    columns / run_columns::<F>() * run_bytes::<F>()
}

/// Columns of a run.
pub(crate) const fn run_columns<F: PanelFormat>() -> usize {
    F::Scales::SUB_BLOCKS * SUB_BLOCK
}

/// Bytes of a run.
pub(crate) const fn run_bytes<F: PanelFormat>() -> usize {
    head_bytes::<F>() + F::Scales::SUB_BLOCKS * sub_block_bytes::<F>()
}

/// Bytes of a run's heads.
pub(crate) const fn head_bytes<F: PanelFormat>() -> usize {
    F::Scales::HEADS * LANES * size_of::<u16>()
}

/// Bytes of a sub-block.
pub(crate) const fn sub_block_bytes<F: PanelFormat>() -> usize {
    F::Scales::BYTES * LANES + F::Planes::BYTES
}
