//! A few rows with the query heads of one kv head: a split of the keys at a time, and the total of the splits.
//!
//! A *query* is one head of one row; a row's queries follow each other.

use super::super::pages::Sequence;
use super::ahead::{Ahead, FAR_BLOCKS};
use super::softmax::{SUMS, Sums};
use super::tiles::{Tile, key_tile, value_tile};
use super::{Context, products, seen, splits_of};
use crate::simd::Lanes;
use crate::threads::Columns;
use gannet_ops::Attention;
use gannet_ops::numerics::{KEY_BLOCK, KEY_SPLIT, LANES};
use std::ops::Range;

/// One part of the work: what it reads.
pub(super) struct RowHeads<'a> {
    pub(super) op: &'a Attention,
    pub(super) context: &'a Context<'a>,
    pub(super) sequence: &'a Sequence<'a>,
    pub(super) sequence_number: usize,
    pub(super) rows: Range<usize>,
    pub(super) kv_head: usize,
    /// Query heads of the kv head.
    group: usize,
    /// `[tokens, heads * key_dim]`.
    q: &'a [f32],
}

impl<'a> RowHeads<'a> {
    pub(super) fn new(
        op: &'a Attention,
        q: &'a [f32],
        context: &'a Context<'a>,
        (block, kv_head): (usize, usize),
    ) -> Self {
        let group = op.heads / context.pages.layout.kv_heads;
        let sequence_number = context.blocks.sequences[block];
        let sequence = &context.sequences[sequence_number];
        Self {
            op,
            context,
            sequence,
            sequence_number,
            rows: context.blocks.rows[block].clone(),
            kv_head,
            group,
            q,
        }
    }

    /// The splits with keys that any of the rows sees.
    #[inline(always)]
    pub(super) fn splits(&self) -> Range<usize> {
        splits_of(&self.seen_by_any())
    }

    #[inline(always)]
    fn seen_by_any(&self) -> Range<usize> {
        self.seen(self.rows.start).start..self.seen(self.rows.end - 1).end
    }

    #[inline(always)]
    fn seen(&self, row: usize) -> Range<usize> {
        seen(self.op.mask, self.sequence.index_of(row), self.sequence.end())
    }

    /// The block with the indices of the rows.
    #[inline(always)]
    pub(super) fn own_block(&self) -> usize {
        self.sequence.index_of(self.rows.start) / KEY_BLOCK
    }

    /// The places of a block that a row sees.
    #[inline(always)]
    fn places(&self, row: usize, block: usize) -> Range<usize> {
        places_of(self.seen(row), block)
    }

    /// The places of a block from the first to the last that any row sees.
    #[inline(always)]
    fn places_of_any(&self, block: usize) -> Range<usize> {
        places_of(self.seen_by_any(), block)
    }

    fn queries(&self) -> usize {
        self.rows.len() * self.group
    }

    fn key_dim(&self) -> usize {
        self.context.pages.layout.key_dim
    }

    fn padded_value(&self) -> usize {
        self.context.pages.layout.value_dim.next_multiple_of(LANES)
    }
}

/// The places of a block that indices of keys have.
#[inline(always)]
fn places_of(keys: Range<usize>, block: usize) -> Range<usize> {
    let start = block * KEY_BLOCK;
    let place = |index: usize| index.clamp(start, start + KEY_BLOCK) - start;
    place(keys.start)..place(keys.end)
}

/// The sums of some keys for each query of a part.
pub(super) struct Totals<'a> {
    /// Weighted values, `[queries, padded value]`.
    values: &'a mut [f32],
    sums: Sums<'a>,
}

impl<'a> Totals<'a> {
    pub(super) fn floats(part: &RowHeads<'_>) -> usize {
        Self::floats_of(part.queries(), part.context.pages.layout.value_dim)
    }

    pub(super) fn floats_of(queries: usize, value_dim: usize) -> usize {
        queries * (value_dim.next_multiple_of(LANES) + SUMS)
    }

    pub(super) fn new(floats: &'a mut [f32], part: &RowHeads<'_>) -> Self {
        let (values, sums) = floats[..Self::floats(part)].split_at_mut(part.queries() * part.padded_value());
        Self { values, sums: Sums::new(sums) }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.values.fill(0.0);
        self.sums.clear();
    }

    /// Folds in a split, for the queries that saw any of its keys.
    #[inline(always)]
    pub(super) fn fold(&mut self, split: &Totals<'_>) {
        self.fold_parts(split.values, split.sums.floats());
    }

    /// As `fold`, of numbers that were copied.
    #[inline(always)]
    pub(super) fn fold_floats(&mut self, split: &[f32]) {
        let (values, sums) = split.split_at(self.values.len());
        self.fold_parts(values, &sums[..self.sums.floats().len()]);
    }

    #[inline(always)]
    fn fold_parts(&mut self, values: &[f32], sums: &[f32]) {
        let width = self.values.len() / self.sums.queries();
        let totals = &mut *self.values;
        self.sums.fold(sums, |query, [kept, added]| {
            let at = query * width..(query + 1) * width;
            for (total, split) in totals[at.clone()].iter_mut().zip(&values[at]) {
                *total = split.mul_add(added, *total * kept);
            }
        });
    }
}

/// The numbers of a part while it runs.
pub(super) struct Work<'a> {
    /// `[queries, key_dim]`.
    q: &'a mut [f32],
    /// The same, as a block's keys need them.
    scaled_q: &'a mut [f32],
    /// Scores, then weights: `[queries, KEY_BLOCK]`.
    scores: &'a mut [[f32; KEY_BLOCK]],
    pub(super) split: Totals<'a>,
    key_tile: &'a mut [[f32; KEY_BLOCK]],
    /// `[KEY_BLOCK, padded value]`.
    value_tile: &'a mut [f32],
}

impl<'a> Work<'a> {
    pub(super) fn floats(part: &RowHeads<'_>) -> usize {
        let (queries, key) = (part.queries(), part.key_dim());
        let tiles = KEY_BLOCK * (key + part.padded_value());
        queries * (2 * key + KEY_BLOCK) + Totals::floats(part) + tiles
    }

    pub(super) fn new(floats: &'a mut [f32], part: &RowHeads<'_>) -> Self {
        let (queries, key) = (part.queries(), part.key_dim());
        let (q, rest) = floats.split_at_mut(queries * key);
        let (scaled_q, rest) = rest.split_at_mut(queries * key);
        let (scores, rest) = rest.split_at_mut(queries * KEY_BLOCK);
        let (split, rest) = rest.split_at_mut(Totals::floats(part));
        let (key_tile, value_tile) = rest.split_at_mut(KEY_BLOCK * key);
        Self {
            q,
            scaled_q,
            scores: scores.as_chunks_mut().0,
            split: Totals::new(split, part),
            key_tile: key_tile.as_chunks_mut().0,
            value_tile,
        }
    }

    /// Brings the queries together.
    #[inline(always)]
    pub(super) fn load_queries(&mut self, part: &RowHeads<'_>) {
        let run = part.group * part.key_dim();
        let (width, start) = (part.op.heads * part.key_dim(), part.kv_head * run);
        for (q, row) in self.q.chunks_exact_mut(run).zip(part.rows.clone()) {
            q.copy_from_slice(&part.q[row * width + start..][..run]);
        }
    }
}

/// Sums a split of the keys.
#[inline(always)]
pub(super) fn add_split<L: Lanes>(part: &RowHeads<'_>, work: &mut Work<'_>, split: usize) {
    work.split.clear();
    let seen = part.seen_by_any();
    let start = seen.start.max(split * KEY_SPLIT);
    let end = seen.end.min((split + 1) * KEY_SPLIT);
    let last = seen.end.div_ceil(KEY_BLOCK) - 1;
    for block in start / KEY_BLOCK..end.div_ceil(KEY_BLOCK) {
        add_block::<L>(part, work, (block, last));
    }
}

/// Adds a block of keys to the split; the rows see blocks up to the last.
#[inline(always)]
fn add_block<L: Lanes>(part: &RowHeads<'_>, work: &mut Work<'_>, (block, last): (usize, usize)) {
    let Work { q, scaled_q, scores, split, key_tile: keys, value_tile: values } = work;
    let keys = key_tile::<L>(part, block, keys);
    // The rows see blocks up to the last.
    let later = |blocks: usize| (block + blocks <= last).then_some(block + blocks);
    let far_keys = later(FAR_BLOCKS).and_then(|block| part.keys_in_page(block));
    let ahead = Ahead::of(part.values_in_page(block), far_keys, keys.elements);
    let shape = (part.key_dim(), part.places_of_any(block));
    products::scores::<L>((&keys, ahead), shape, (q, scaled_q), scores);
    let width = part.padded_value();
    let seen = |query: usize| part.places(part.rows.start + query / part.group, block);
    split.sums.add_block::<L>(part.op, scores, seen, |query, kept| {
        split.values[query * width..][..width].iter_mut().for_each(|x| *x *= kept);
    });
    let values = value_tile::<L>(part, block, values);
    products::scale_weights::<L>(&values, scores);
    let next = later(1).and_then(|block| part.keys_in_page(block));
    let far_values = later(FAR_BLOCKS).and_then(|block| part.values_in_page(block));
    let ahead = Ahead::of(next, far_values, values.elements);
    add_values::<L>(part, block, (&values, ahead), scores, split.values);
}

/// Adds the weighted values of a block by ascending key: each row over those that not all rows see, and all rows
/// together over the others between them.
#[inline(always)]
fn add_values<L: Lanes>(
    part: &RowHeads<'_>,
    block: usize,
    (values, ahead): (&Tile<'_>, Ahead),
    weights: &[[f32; KEY_BLOCK]],
    sums: &mut [f32],
) {
    let width = part.padded_value();
    let places = || part.rows.clone().map(|row| part.places(row, block));
    let start = places().map(|at| at.start).max().unwrap_or(0);
    let shared = start..places().map(|at| at.end).min().unwrap_or(0).max(start);
    for pass in [Pass::Before, Pass::Shared, Pass::After] {
        let rows = if pass == Pass::Shared { part.rows.len() } else { 1 };
        let queries = weights.chunks(rows * part.group).zip(sums.chunks_mut(rows * part.group * width));
        for ((weights, sums), row) in queries.zip(part.rows.clone().step_by(rows)) {
            let seen = part.places(row, block);
            let at = match pass {
                Pass::Before => seen.start..seen.end.min(shared.start),
                Pass::Shared => shared.clone(),
                Pass::After => seen.start.max(shared.end)..seen.end,
            };
            if !at.is_empty() {
                let ahead = if pass == Pass::Shared { ahead } else { ahead.none() };
                products::add_values::<L>((values, ahead), width, weights, at, sums);
            }
        }
    }
}

/// What of a block is added: that before what all rows see, that, or what follows it.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Before,
    Shared,
    After,
}

/// Multiplies by the share that the weights of all keys and of the sink leave.
#[inline(always)]
pub(super) fn finish(part: &RowHeads<'_>, totals: &Totals<'_>, out: &mut Columns<'_, f32>) {
    let (width, dim) = (part.padded_value(), part.context.pages.layout.value_dim);
    for (place, row) in part.rows.clone().enumerate() {
        let out = out.row(row);
        for (head, out) in out.chunks_exact_mut(dim).enumerate() {
            let query = place * part.group + head;
            let sink = part.context.sinks.map(|sinks| sinks[part.kv_head * part.group + head]);
            let (kept, weight) = totals.sums.total(query, sink);
            let share = kept / weight;
            for (out, total) in out.iter_mut().zip(&totals.values[query * width..][..width]) {
                *out = total * share;
            }
        }
    }
}
