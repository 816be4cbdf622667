//! Packing: rows of a checkpoint into panels, once, at load.

use super::formats::{PanelFormat, PanelVisitor, visit};
use super::planes::Planes;
use super::scales::Scales;
use super::{
    PanelKind, SUB_BLOCK, head_bytes, kind, pairs, panel_bytes, run_bytes, run_columns, sub_block_bytes,
};
use gannet_ops::numerics::LANES;
use gannet_tensor::Format;

/// Bytes of a panel of a matrix in this format with so many columns, where the format has panels.
pub(crate) fn bytes_of_panel(format: Format, columns: usize) -> Option<usize> {
    match kind(format) {
        PanelKind::Codes => visit(format, Size { columns }).ok(),
        PanelKind::Pairs => Some(pairs::panel_bytes(columns)),
    }
}

/// Fills a zeroed panel with up to sixteen rows, each of `row_bytes`. The format has panels.
pub(crate) fn pack(format: Format, rows: &[u8], row_bytes: usize, panel: &mut [u8]) {
    if kind(format) == PanelKind::Pairs {
        return pairs::pack(rows, row_bytes, panel);
    }
    let Ok(()) = visit(format, Rows { rows, row_bytes, panel }) else {
        unreachable!("the caller has asked for the bytes of a panel")
    };
}

struct Size {
    columns: usize,
}

impl PanelVisitor for Size {
    type Output = usize;

    fn visit<F: PanelFormat>(self) -> usize {
        panel_bytes::<F>(self.columns)
    }
}

struct Rows<'a> {
    rows: &'a [u8],
    row_bytes: usize,
    panel: &'a mut [u8],
}

impl PanelVisitor for Rows<'_> {
    type Output = ();

    fn visit<F: PanelFormat>(self) {
        let block_bytes = F::FORMAT.row_bytes(run_columns::<F>()).expect("a run is whole blocks");
        for (lane, row) in self.rows.chunks_exact(self.row_bytes).enumerate() {
            let runs = self.panel.chunks_exact_mut(run_bytes::<F>());
            for (block, run) in row.chunks_exact(block_bytes).zip(runs) {
                pack_block::<F>(block, lane, run);
            }
        }
    }
}

#[inline(always)]
fn pack_block<F: PanelFormat>(block: &[u8], lane: usize, run: &mut [u8]) {
    let parts = F::parts(block);
    let (heads, sub_blocks) = run.split_at_mut(head_bytes::<F>());
    for (head, bits) in parts.heads[..F::Scales::HEADS].iter().enumerate() {
        heads[2 * (head * LANES + lane)..][..2].copy_from_slice(bits);
    }
    let codes = parts.codes.as_chunks::<SUB_BLOCK>().0;
    for (number, to) in sub_blocks.chunks_exact_mut(sub_block_bytes::<F>()).enumerate() {
        for (place, byte) in parts.scales[number][..F::Scales::BYTES].iter().enumerate() {
            to[place * LANES + lane] = *byte;
        }
        let words = codes[number].as_chunks::<4>().0;
        let words = std::array::from_fn(|i| u32::from_le_bytes(words[i]));
        F::Planes::pack(&words, lane, &mut to[F::Scales::BYTES * LANES..]);
    }
}
