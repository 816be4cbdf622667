//! One row of a matrix in panels, as the numbers that its format's decoder gives.

use super::formats::{Offset, PanelFormat, PanelVisitor, visit};
use super::planes::Planes;
use super::scales::{BlockScales, Scales};
use super::{PanelKind, Panels, SUB_BLOCK, head_bytes, pairs, run_bytes, run_columns, sub_block_bytes};
use gannet_ops::numerics::LANES;

impl Panels {
    /// Decodes row `row` of the first matrix of the stack to `out`, which has its columns.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        let panel = &self.matrix(0)[row / LANES * self.panel_bytes..][..self.panel_bytes];
        if self.kind() == PanelKind::Pairs {
            return pairs::decode_row(panel, row % LANES, out);
        }
        let Ok(()) = visit(self.format, Row { panel, lane: row % LANES, out }) else {
            unreachable!("panels are made of formats that have them")
        };
    }
}

struct Row<'a> {
    panel: &'a [u8],
    lane: usize,
    out: &'a mut [f32],
}

impl PanelVisitor for Row<'_> {
    type Output = ();

    fn visit<F: PanelFormat>(self) {
        let runs = self.panel.chunks_exact(run_bytes::<F>());
        for (run, out) in runs.zip(self.out.chunks_exact_mut(run_columns::<F>())) {
            let (heads, sub_blocks) = run.split_at(head_bytes::<F>());
            let sub_blocks = sub_blocks.chunks_exact(sub_block_bytes::<F>());
            for (sub_block, out) in sub_blocks.zip(out.as_chunks_mut::<SUB_BLOCK>().0) {
                decode::<F>(heads, sub_block, self.lane, out);
            }
        }
    }
}

fn decode<F: PanelFormat>(heads: &[u8], sub_block: &[u8], lane: usize, out: &mut [f32; SUB_BLOCK]) {
    let (bytes, planes) = sub_block.split_at(F::Scales::BYTES * LANES);
    let BlockScales { scales, minimum } = F::Scales::lane(heads, bytes, lane);
    let codes = F::Planes::lane(planes, lane).map(u32::to_le_bytes);
    for (i, (out, code)) in out.iter_mut().zip(codes.as_flattened()).enumerate() {
        let code = F::TABLE.map_or(*code, |table| table[usize::from(*code)]);
        let scaled = scales[i / (SUB_BLOCK / 2)] * (i32::from(code) - F::Offset::ZERO) as f32;
        *out = if F::Scales::HAS_MINIMUM { scaled + minimum } else { scaled };
    }
}

/// Codes from zero, scales, and the minimum where the format has one.
#[cfg(test)]
pub(crate) type SubBlock = ([i32; SUB_BLOCK], [f32; 2], Option<f32>);

#[cfg(test)]
impl Panels {
    /// Sub-block `number` of a row, for tests that state formulas.
    pub(crate) fn sub_block(&self, row: usize, number: usize) -> SubBlock {
        struct Of<'a>(&'a [u8], usize, usize);
        impl PanelVisitor for Of<'_> {
            type Output = SubBlock;

            fn visit<F: PanelFormat>(self) -> SubBlock {
                let Of(panel, lane, number) = self;
                let (run, number) = (number / F::Scales::SUB_BLOCKS, number % F::Scales::SUB_BLOCKS);
                let run = &panel[run * run_bytes::<F>()..][..run_bytes::<F>()];
                let (heads, sub_blocks) = run.split_at(head_bytes::<F>());
                let sub_block = &sub_blocks[number * sub_block_bytes::<F>()..][..sub_block_bytes::<F>()];
                let (bytes, planes) = sub_block.split_at(F::Scales::BYTES * LANES);
                let BlockScales { scales, minimum } = F::Scales::lane(heads, bytes, lane);
                let codes = F::Planes::lane(planes, lane).map(u32::to_le_bytes);
                let code = |i: usize| {
                    let code = codes.as_flattened()[i];
                    i32::from(F::TABLE.map_or(code, |table| table[usize::from(code)])) - F::Offset::ZERO
                };
                (std::array::from_fn(code), scales, F::Scales::HAS_MINIMUM.then_some(minimum))
            }
        }
        let panel = &self.matrix(0)[row / LANES * self.panel_bytes..][..self.panel_bytes];
        visit(self.format, Of(panel, row % LANES, number)).unwrap_or_else(|_| unreachable!("it has panels"))
    }
}
