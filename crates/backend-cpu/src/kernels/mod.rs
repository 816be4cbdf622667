//! Kernels: what each operation computes, on slices. A file is named after its operation.
//!
//! A kernel cuts its result into parts, by rows, heads or outputs and never along a sum, and the crew's
//! members compute them with the instructions of its level. So neither threads nor level change a bit.
//!
//! Knows no program, no batch and no step: rows come as slices, and places in pages as numbers.

pub(crate) mod embed;

pub(crate) mod add_rms_norm;
pub(crate) mod gated_norm;
pub(crate) mod head_norm;
pub(crate) mod l2_norm;
mod norm;
pub(crate) mod position_scale;
pub(crate) mod rms_norm;

pub(crate) mod expert_linear;
mod formats;
pub(crate) mod linear;
pub(crate) mod product;
pub(crate) mod sample;

pub(crate) mod attention;
pub(crate) mod pages;
pub(crate) mod rope;
pub(crate) mod write_kv;

pub(crate) mod causal_conv;
pub(crate) mod decay_gate;
pub(crate) mod gated_delta_rule;

pub(crate) mod add;
pub(crate) mod clamped_gate;
mod elementwise;
pub(crate) mod gelu_gate;
pub(crate) mod scale;
pub(crate) mod sigmoid_gate;
pub(crate) mod silu_gate;
pub(crate) mod soft_cap;

pub(crate) mod combine_experts;
pub(crate) mod route_experts;

pub(crate) mod concat;
pub(crate) mod gather_rows;
pub(crate) mod pool;

pub(crate) mod slice;

use crate::simd::Isa;
use crate::threads::{Columns, Turn};
use std::ops::Range;

/// Elements of a part of the work that is done once an element; less isn't worth a second thread.
const ELEMENTS_PER_PART: usize = 8 * 1024;

/// Who computes: a turn of the team, the instructions to use, and each member's scratch.
pub(crate) struct Crew<'a> {
    pub(crate) turn: Turn<'a>,
    pub(crate) isa: Isa,
    pub(crate) scratch: &'a mut [Scratch],
    /// For what one piece of work leaves to the next.
    pub(crate) shared: &'a mut Scratch,
}

impl Crew<'_> {
    /// Calls `work` for runs of rows of `width`: the first row's number, the rows, and the member's scratch.
    pub(crate) fn rows<T: Send>(
        &mut self,
        out: &mut [T],
        width: usize,
        rows_per_part: usize,
        work: impl Fn(usize, &mut [T], &mut Scratch) + Sync,
    ) {
        self.turn.rows(out, width, rows_per_part, self.scratch, work);
    }

    /// Calls `work` for runs of rows so long that a part is worth a thread.
    fn light_rows<T: Send>(&mut self, out: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let rows_per_part = (ELEMENTS_PER_PART / width.max(1)).max(1);
        self.rows(out, width, rows_per_part, |first, rows, _| work(first, rows));
    }

    /// Calls `work` for runs of `step` columns, with the member's scratch.
    fn columns<T: Send>(
        &mut self,
        out: &mut [T],
        width: usize,
        step: usize,
        work: impl Fn(Columns<'_, T>, &mut Scratch) + Sync,
    ) {
        self.turn.columns(out, width, step, self.scratch, work);
    }

    /// Calls `work` for runs of `step` columns of each block of rows: the block's number, and the tile.
    fn tiles(
        &mut self,
        out: (&mut [f32], usize, usize),
        blocks: &[Range<usize>],
        work: impl Fn(usize, Columns<'_, f32>, &mut Scratch) + Sync,
    ) {
        self.turn.tiles(out, blocks, self.scratch, work);
    }

    /// Calls `work` for runs of `step` columns of a buffer of rows of `width`, each with its run of a second
    /// buffer.
    fn columns_and_runs(
        &mut self,
        out: (&mut [f32], usize, usize),
        runs: (&mut [f32], usize),
        work: impl Fn(Columns<'_, f32>, &mut [f32]) + Sync,
    ) {
        self.turn.columns_and_runs(out, runs, work);
    }
}

/// Memory of one member, for as long as a part of the work takes; kept, so that a steady step allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    floats: Vec<f32>,
    /// Where runs of the floats begin.
    starts: Vec<usize>,
}

impl Scratch {
    /// So many floats, of any value.
    fn floats(&mut self, count: usize) -> &mut [f32] {
        grown(&mut self.floats, count)
    }
}

/// The first `count` of some floats, made that many where they are fewer.
fn grown(floats: &mut Vec<f32>, count: usize) -> &mut [f32] {
    if floats.len() < count {
        floats.resize(count, 0.0);
    }
    &mut floats[..count]
}
