//! `attention`: one pass over the keys that a row sees, in pages or in the batch.
//!
//! ```text
//! y = sum_j exp(s_j - m) v_j / (sum_j exp(s_j - m) + exp(sink - m)),   s_j = soft_cap(scale * q . k_j)
//! ```
//!
//! Keys go by absolute index in blocks of 64, which are pages. A split of 256 has a running maximum of its own:
//! each block scales what the split has by `exp(old maximum - new)`. Splits are folded from left to right into
//! the row's total. A score is summed by ascending channel, a column of the result by ascending key. So a
//! row's bits depend on its index and its keys alone, whichever pages they lie in and wherever a chunk began.
//!
//! Of keys in int8, a row sees those from the beginning of its own page on in half precision, from an open page and
//! from the batch, and those before as codes: the scale of a channel goes into the query, that of a value into
//! its weight.
//!
//! A part of the work is a few neighbouring rows with the query heads of one kv head, which share the loads of
//! its keys and values. Where a part is much of the work, as in decode or where a long prompt runs among short
//! ones, each of its splits is a part of its own and a last pass folds them: the same numbers in the same order.
//! Bound by memory in decode, by the two products in prefill.

mod ahead;
mod products;
mod rows;
mod softmax;
mod tiles;

use super::pages::{LayerPages, OpenPages, Sequence};
use super::{Crew, Scratch, grown};
use crate::simd::{Kernel, Lanes};
use crate::threads::Columns;
use gannet_ops::numerics::{KEY_BLOCK, KEY_SPLIT};
use gannet_ops::{Attention, Mask, PAGE_TOKENS, PagedLayout};
use rows::{RowHeads, Totals, Work, add_split, finish};
use std::ops::Range;

// A block of keys is a page.
const _: () = assert!(KEY_BLOCK == PAGE_TOKENS);

/// Rows that share the loads of keys and values.
const ROWS_PER_BLOCK: usize = 16;
/// A part that is more than one of so many that a member could have is cut into splits.
const PARTS_PER_MEMBER: usize = 8;

/// Where keys and values are.
pub(crate) struct Context<'a> {
    pub(crate) pages: LayerPages<'a>,
    pub(crate) sequences: &'a [Sequence<'a>],
    /// The rows of each part, which ascend and are of one page.
    pub(crate) blocks: &'a RowBlocks,
    /// Keys and values of the batch's own rows, `[tokens, kv_heads * dim]` each, where they are in no page.
    pub(crate) unwritten: Option<[&'a [f32]; 2]>,
    /// Keys in half precision of pages that fill, where the pages have them in int8.
    pub(crate) open: Option<OpenPages<'a>>,
    /// Keys of the batch's own rows `[tokens, kv_heads * dim]`, where the pages have them in int8.
    pub(crate) written: Option<&'a [f32]>,
    /// `[heads]`.
    pub(crate) sinks: Option<&'a [f32]>,
}

/// The rows of a batch in blocks: a few rows of one sequence and of one page each.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowBlocks {
    rows: Vec<Range<usize>>,
    /// The sequence of each block.
    sequences: Vec<usize>,
}

impl RowBlocks {
    /// Cuts the rows of all sequences into blocks, in place of those that were there.
    pub(crate) fn fill(&mut self, sequences: &[Sequence<'_>]) {
        self.rows.clear();
        self.sequences.clear();
        for (number, sequence) in sequences.iter().enumerate() {
            for page in cut(sequence.first_index..sequence.end(), PAGE_TOKENS) {
                for start in page.clone().step_by(ROWS_PER_BLOCK) {
                    let end = (start + ROWS_PER_BLOCK).min(page.end);
                    self.rows.push(sequence.row_of(start)..sequence.row_of(end));
                    self.sequences.push(number);
                }
            }
        }
    }
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
    let (isa, kv_heads) = (crew.isa, layout.kv_heads);
    let part_of = |number: usize| RowHeads::new(op, q, context, (number / kv_heads, number % kv_heads));
    let parts = context.blocks.rows.len() * kv_heads;
    let mut shared = std::mem::take(crew.shared);
    let Scratch { floats, starts } = &mut shared;
    let unit = cut_heavy_parts(crew.turn.members(), (0..parts).map(part_of), starts);
    // [splits of heavy parts, unit]
    let partials = grown(floats, starts[parts] * unit);
    if !partials.is_empty() {
        crew.rows(partials, unit, 1, |number, sum, scratch| {
            let of = starts.partition_point(|start| *start <= number) - 1;
            let part = part_of(of);
            let split = part.splits().start + number - starts[of];
            let work = Work::new(scratch.floats(Work::floats(&part)), &part);
            let sum = &mut Totals::new(sum, &part);
            isa.run(AddSplits { part: &part, work, splits: split..split + 1, sum });
        });
    }
    let partials = &*partials;
    let (width, step) = (op.heads * layout.value_dim, op.heads / kv_heads * layout.value_dim);
    crew.tiles((out, width, step), &context.blocks.rows, |block, out, scratch| {
        let number = block * kv_heads + out.range().start / step;
        let part = part_of(number);
        let partials = &partials[starts[number] * unit..starts[number + 1] * unit];
        let floats = Totals::floats(&part);
        if partials.is_empty() {
            let (sum, work) = scratch.floats(floats + Work::floats(&part)).split_at_mut(floats);
            let (sum, work) = (&mut Totals::new(sum, &part), Work::new(work, &part));
            isa.run(AddSplits { part: &part, work, splits: part.splits(), sum });
            isa.run(Finish { part: &part, sum, out });
        } else {
            let total = Totals::new(scratch.floats(floats), &part);
            isa.run(Fold { part: &part, partials, unit, total, out });
        }
    });
    *crew.shared = shared;
}

/// Takes the memory that is needed between the two passes of any step of so many rows in a context, so that no step takes
/// any: fewer parts are cut than all members could have. Where there isn't so much, a step takes what it needs.
pub(crate) fn reserve(
    crew: &mut Crew<'_>,
    (heads, layout): (usize, &PagedLayout),
    (rows, context): (usize, usize),
) {
    let queries = ROWS_PER_BLOCK * heads / layout.kv_heads.max(1);
    let unit = Totals::floats_of(queries, layout.value_dim);
    let splits = context.div_ceil(KEY_SPLIT) + 1;
    let units = splits.saturating_mul(PARTS_PER_MEMBER * crew.turn.members());
    let Scratch { floats, starts } = &mut *crew.shared;
    let more = units.saturating_mul(unit).saturating_sub(floats.len());
    let _ = floats.try_reserve_exact(more);
    let _ = starts.try_reserve_exact((rows.saturating_mul(layout.kv_heads) + 1).saturating_sub(starts.len()));
}

/// Writes down where the splits of each part begin among those that are work of their own: none of a part that is whole.
/// Returns the floats that the sums of any of them take.
///
/// A part is cut where it is so much of the work that others would wait for it. Its rows times its splits are what it costs.
fn cut_heavy_parts<'a>(
    members: usize,
    parts: impl Iterator<Item = RowHeads<'a>> + Clone,
    starts: &mut Vec<usize>,
) -> usize {
    let cost = |part: &RowHeads<'_>| part.rows.len() * part.splits().len();
    let heavy = parts.clone().map(|part| cost(&part)).sum::<usize>() / (PARTS_PER_MEMBER * members);
    let (mut start, mut unit) = (0, 0);
    starts.clear();
    starts.push(start);
    starts.extend(parts.map(|part| {
        let splits = part.splits().len();
        if splits > 1 && cost(&part) > heavy {
            start += splits;
            unit = unit.max(Totals::floats(&part));
        }
        start
    }));
    unit
}

/// The sums of a part over some splits, one after the other.
struct AddSplits<'a, 'b, 'c> {
    part: &'c RowHeads<'a>,
    work: Work<'b>,
    splits: Range<usize>,
    sum: &'c mut Totals<'b>,
}

impl Kernel for AddSplits<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { part, mut work, splits, sum } = self;
        work.load_queries(part);
        sum.clear();
        for split in splits {
            add_split::<L>(part, &mut work, split);
            sum.fold(&work.split);
        }
    }
}

/// The result of a part from its sums.
struct Finish<'a, 'b, 'c> {
    part: &'c RowHeads<'a>,
    sum: &'c Totals<'b>,
    out: Columns<'c, f32>,
}

impl Kernel for Finish<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        finish(self.part, self.sum, &mut self.out);
    }
}

/// The result of a part from its sums, which follow each other in runs of `unit`.
struct Fold<'a, 'b> {
    part: &'b RowHeads<'a>,
    partials: &'b [f32],
    unit: usize,
    total: Totals<'b>,
    out: Columns<'b, f32>,
}

impl Kernel for Fold<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self) {
        self.total.clear();
        for partial in self.partials.chunks_exact(self.unit) {
            self.total.fold_floats(partial);
        }
        finish(self.part, &self.total, &mut self.out);
    }
}

/// The indices of the keys that the row at this index sees, in a sequence whose rows end before `end`.
#[inline(always)]
pub(crate) fn seen(mask: Mask, index: usize, end: usize) -> Range<usize> {
    let from = |window: u32| (index + 1).saturating_sub(window as usize);
    match mask {
        Mask::Causal => 0..index + 1,
        Mask::Window(window) => from(window)..index + 1,
        Mask::Block => 0..end,
        Mask::BlockWindow(window) => from(window)..end.min(index + window as usize),
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

/// The splits that a range of keys touches.
#[inline(always)]
fn splits_of(keys: &Range<usize>) -> Range<usize> {
    keys.start / KEY_SPLIT..keys.end.div_ceil(KEY_SPLIT)
}
