//! `attention`: one pass over the keys that a row sees, in pages or in the batch.
//!
//! ```text
//! y = sum_j exp(s_j - m) v_j / (sum_j exp(s_j - m) + exp(sink - m)),   s_j = soft_cap(scale * q . k_j)
//! ```
//!
//! Keys go by absolute index in blocks of 64. A split of 256 has a running maximum of its own: each block
//! scales what the split has by `exp(old maximum - new)`. Splits are folded from left to right into the row's
//! total. So a row's bits depend on its index and its keys alone, whichever pages they lie in and wherever a
//! chunk began.
//!
//! A part of the work is one row with the query heads of one kv head, which share the loads of its keys.
//! Bound by memory in decode, by the two products in prefill.

mod products;
mod softmax;

use super::Crew;
use super::pages::{Elements, LayerPages, Sequence, Strip};
use crate::simd::{Kernel, Lanes};
use gannet_ops::numerics::{KEY_BLOCK, KEY_SPLIT, LANES};
use gannet_ops::{Attention, Mask};
use softmax::{Sums, fold_split, start_block, total_weight};
use std::ops::Range;

/// Where keys and values are.
pub(crate) struct Context<'a> {
    pub(crate) pages: LayerPages<'a>,
    pub(crate) sequences: &'a [Sequence<'a>],
    /// The sequence of each row.
    pub(crate) sequence_of: &'a [u32],
    /// Keys and values of the batch's own rows, `[tokens, kv_heads * dim]` each, where they are in no page.
    pub(crate) unwritten: Option<[&'a [f32]; 2]>,
    /// `[heads]`.
    pub(crate) sinks: Option<&'a [f32]>,
}

/// q `[tokens, heads * key_dim]` -> out `[tokens, heads * value_dim]`.
pub(crate) fn attention(
    crew: &mut Crew<'_>,
    op: &Attention,
    q: &[f32],
    context: &Context<'_>,
    out: &mut [f32],
) {
    let layout = context.pages.layout;
    let (isa, group) = (crew.isa, op.heads / layout.kv_heads);
    crew.rows(out, group * layout.value_dim, 1, |part, out, scratch| {
        let (row, kv_head) = (part / layout.kv_heads, part % layout.kv_heads);
        let sequence = &context.sequences[context.sequence_of[row] as usize];
        let seen = seen(op.mask, sequence.index_of(row), sequence.end());
        let q = &q[part * group * layout.key_dim..][..group * layout.key_dim];
        let work = Work::new(scratch.floats(Work::floats(group, context)), group, context);
        isa.run(RowHeads { op, q, context, sequence, kv_head, seen, work, out });
    });
}

/// The indices of the keys that the row at this index sees, in a sequence whose rows end before `end`.
pub(crate) fn seen(mask: Mask, index: usize, end: usize) -> Range<usize> {
    let from = |window: u32| (index + 1).saturating_sub(window as usize);
    match mask {
        Mask::Causal => 0..index + 1,
        Mask::Window(window) => from(window)..index + 1,
        Mask::Block => 0..end,
        Mask::BlockWindow(window) => from(window)..end.min(index + window as usize),
    }
}

/// The numbers of one part while it runs.
struct Work<'a> {
    /// `[group, padded key]`, zero beyond the key.
    q: &'a mut [f32],
    /// Scores, then weights: `[group, KEY_BLOCK]`.
    scores: &'a mut [[f32; KEY_BLOCK]],
    /// Weighted values of the split, `[group, padded value]`.
    split: &'a mut [f32],
    split_sums: &'a mut [Sums],
    /// The same of the splits before.
    total: &'a mut [f32],
    total_sums: &'a mut [Sums],
}

impl<'a> Work<'a> {
    fn floats(group: usize, context: &Context<'_>) -> usize {
        let layout = context.pages.layout;
        let (key, value) = (layout.key_dim.next_multiple_of(LANES), layout.value_dim.next_multiple_of(LANES));
        group * (key + KEY_BLOCK + 2 * value + 2 * size_of::<Sums>() / size_of::<f32>())
    }

    fn new(floats: &'a mut [f32], group: usize, context: &Context<'_>) -> Self {
        let layout = context.pages.layout;
        let (key, value) = (layout.key_dim.next_multiple_of(LANES), layout.value_dim.next_multiple_of(LANES));
        let (q, rest) = floats.split_at_mut(group * key);
        let (scores, rest) = rest.split_at_mut(group * KEY_BLOCK);
        let (split, rest) = rest.split_at_mut(group * value);
        let (total, rest) = rest.split_at_mut(group * value);
        let (split_sums, total_sums) = bytemuck::cast_slice_mut(rest).split_at_mut(group);
        Self { q, scores: scores.as_chunks_mut().0, split, split_sums, total, total_sums }
    }
}

/// One row with the query heads of one kv head.
struct RowHeads<'a> {
    op: &'a Attention,
    q: &'a [f32],
    context: &'a Context<'a>,
    sequence: &'a Sequence<'a>,
    kv_head: usize,
    seen: Range<usize>,
    work: Work<'a>,
    out: &'a mut [f32],
}

impl Kernel for RowHeads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        let group = self.work.scores.len();
        let padded = self.work.q.len() / group;
        for (padded, q) in self.work.q.chunks_exact_mut(padded).zip(self.q.chunks_exact(self.q.len() / group))
        {
            padded[..q.len()].copy_from_slice(q);
            padded[q.len()..].fill(0.0);
        }
        self.work.total.fill(0.0);
        self.work.total_sums.fill(Sums::NONE);
        for split in cut(self.seen.clone(), KEY_SPLIT) {
            self.work.split.fill(0.0);
            self.work.split_sums.fill(Sums::NONE);
            for block in cut(split, KEY_BLOCK) {
                self.add_block::<L>(block);
            }
            self.fold_split();
        }
        self.finish();
    }
}

impl RowHeads<'_> {
    /// Adds a block of keys to the split.
    #[inline(always)]
    fn add_block<L: Lanes>(&mut self, block: Range<usize>) {
        let Work { q, scores, split, split_sums, .. } = &mut self.work;
        let value = split.len() / scores.len();
        let layout = self.context.pages.layout;
        let start = block.start - block.start % KEY_BLOCK;
        let strips = self.context.strips(self.sequence, self.kv_head, block.clone());
        for (strip, [keys, _]) in &strips {
            let at = strip.start - start..strip.end - start;
            products::scores::<L>(keys, layout.key_dim, q, scores, at);
        }
        for head in 0..scores.len() {
            let kept = start_block(
                self.op,
                &mut scores[head],
                block.start - start..block.end - start,
                &mut split_sums[head],
            );
            split[head * value..][..value].iter_mut().for_each(|x| *x *= kept);
        }
        for (strip, [_, values]) in &strips {
            let at = strip.start - start..strip.end - start;
            for (head, split) in split.chunks_exact_mut(value).enumerate() {
                products::add_values::<L>(values, layout.value_dim, &scores[head][at.clone()], split);
            }
        }
    }

    /// Folds the split into the total.
    #[inline(always)]
    fn fold_split(&mut self) {
        let Work { scores, split, split_sums, total, total_sums, .. } = &mut self.work;
        let value = split.len() / scores.len();
        for (head, (total, split)) in total.chunks_exact_mut(value).zip(split.chunks_exact(value)).enumerate()
        {
            let [kept, added] = fold_split(&mut total_sums[head], split_sums[head]);
            for (total, split) in total.iter_mut().zip(split) {
                *total = split.mul_add(added, *total * kept);
            }
        }
    }

    /// Divides by the weight of all keys and of the sink.
    #[inline(always)]
    fn finish(self) {
        let group = self.work.scores.len();
        let (value_dim, padded) = (self.out.len() / group, self.work.total.len() / group);
        let totals = self.work.total.chunks_exact(padded).zip(&*self.work.total_sums);
        for (head, (out, (total, sums))) in self.out.chunks_exact_mut(value_dim).zip(totals).enumerate() {
            let sink = self.context.sinks.map(|sinks| sinks[self.kv_head * group + head]);
            let (kept, weight) = total_weight(*sums, sink);
            for (out, total) in out.iter_mut().zip(total) {
                *out = total * kept / weight;
            }
        }
    }
}

impl<'a> Context<'a> {
    /// The keys and values of some indices of a block: those in a page, then those in the batch, each with
    /// its indices.
    #[inline(always)]
    fn strips(
        &self,
        sequence: &Sequence<'_>,
        kv_head: usize,
        block: Range<usize>,
    ) -> [(Range<usize>, [Strip<'a>; 2]); 2] {
        let written = if self.unwritten.is_some() {
            block.end.min(sequence.first_index).max(block.start)
        } else {
            block.end
        };
        let (in_page, in_batch) = (block.start..written, written..block.end);
        let keys = self.pages.keys(sequence, kv_head, in_page.clone());
        let values = self.pages.values(sequence, kv_head, in_page.clone());
        let layout = self.pages.layout;
        let [unwritten_keys, unwritten_values] = self.unwritten.unwrap_or([&[], &[]]);
        let row = (sequence.rows.start + in_batch.start).saturating_sub(sequence.first_index);
        let of_batch = |elements: &'a [f32], dim: usize| {
            let stride = layout.kv_heads * dim;
            let start = if in_batch.is_empty() { 0 } else { row * stride + kv_head * dim };
            Strip { elements: Elements::F32(&elements[start..]), stride }
        };
        let batch_strips =
            [of_batch(unwritten_keys, layout.key_dim), of_batch(unwritten_values, layout.value_dim)];
        [(in_page, [keys, values]), (in_batch, batch_strips)]
    }
}

/// A range cut at the multiples of `step`.
#[inline(always)]
fn cut(range: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (range.start / step..range.end.div_ceil(step)).map(move |number| number * step);
    starts
        .map(move |start| start.max(range.start)..(start + step).min(range.end))
        .filter(|part| !part.is_empty())
}
