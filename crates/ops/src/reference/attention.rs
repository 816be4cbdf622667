//! Attention over the keys that a row's mask lets it see.

use super::gates::soft_cap;
use super::state::{Pages, Slot};
use super::values::{Numbers, dot, softmax};
use crate::{Attention, Batch, DeviceError, Mask, SequenceRows};
use std::ops::RangeInclusive;

/// Keeps each row's key and value at its index.
pub(super) fn write_kv(
    k: &Numbers,
    v: &Numbers,
    pages: &mut Pages,
    batch: &Batch,
) -> Result<(), DeviceError> {
    for (place, row) in batch.rows.iter().enumerate() {
        let slot = pages.find(batch, &batch.sequences[row.sequence as usize], row.index)?;
        pages.write(slot, k.row(place), v.row(place));
    }
    Ok(())
}

/// What a step's rows see beside the pages.
pub(super) struct Context<'a> {
    pub(super) batch: &'a Batch,
    pub(super) pages: &'a Pages,
    /// Keys and values of the batch's own rows, where they are in no page.
    pub(super) unwritten: Option<(&'a Numbers, &'a Numbers)>,
    /// A score a head that has no value.
    pub(super) sinks: Option<&'a [f32]>,
}

/// For each head: `softmax(scale * q k^T) v` over the keys seen, by ascending index.
pub(super) fn attention(op: &Attention, q: &Numbers, context: &Context<'_>) -> Result<Numbers, DeviceError> {
    let layout = context.pages.layout();
    let mut y = Vec::new();
    for (place, q) in q.rows().enumerate() {
        let keys = context.seen(op.mask, place)?;
        for (head, q) in q.chunks(layout.key_dim).enumerate() {
            let kv_head = head / (op.heads / layout.kv_heads);
            let score = |key: &Key| {
                let score = op.scale * dot(q, context.key(key, kv_head));
                op.soft_cap.map_or(score, |cap| soft_cap(score, cap))
            };
            let mut scores: Vec<f32> = keys.iter().map(score).collect();
            scores.extend(context.sinks.map(|sinks| sinks[head]));
            let weights = softmax(&scores);
            for column in 0..layout.value_dim {
                let weighted = |(key, weight): (&Key, &f32)| weight * context.value(key, kv_head)[column];
                y.push(keys.iter().zip(&weights).map(weighted).sum());
            }
        }
    }
    Ok(Numbers::new(op.heads * layout.value_dim, y))
}

/// Where a key is.
enum Key {
    Page(Slot),
    Row(usize),
}

impl Context<'_> {
    /// The keys that a row sees, by ascending index.
    fn seen(&self, mask: Mask, place: usize) -> Result<Vec<Key>, DeviceError> {
        let row = self.batch.rows[place];
        let sequence = &self.batch.sequences[row.sequence as usize];
        let first = sequence.length.at_most();
        let find = |index: u32| match self.unwritten {
            Some(_) if index >= first => Ok(Key::Row((sequence.rows.start + index - first) as usize)),
            Some(_) | None => Ok(Key::Page(self.pages.find(self.batch, sequence, index)?)),
        };
        visible(mask, row.index, sequence).map(find).collect()
    }

    fn key(&self, key: &Key, kv_head: usize) -> &[f32] {
        match (key, self.unwritten) {
            (Key::Row(row), Some((keys, _))) => head_of(keys.row(*row), kv_head, self.pages.layout().key_dim),
            (Key::Page(slot), _) => self.pages.key(*slot, kv_head),
            (Key::Row(_), None) => unreachable!("only unwritten rows are found as rows"),
        }
    }

    fn value(&self, key: &Key, kv_head: usize) -> &[f32] {
        match (key, self.unwritten) {
            (Key::Row(row), Some((_, values))) => {
                head_of(values.row(*row), kv_head, self.pages.layout().value_dim)
            }
            (Key::Page(slot), _) => self.pages.value(*slot, kv_head),
            (Key::Row(_), None) => unreachable!("only unwritten rows are found as rows"),
        }
    }
}

/// The indices that the row at index i sees.
fn visible(mask: Mask, i: u32, sequence: &SequenceRows) -> RangeInclusive<u32> {
    let last = sequence.length.at_most() + (sequence.rows.len() as u32 - 1);
    match mask {
        Mask::Causal => 0..=i,
        Mask::Window(window) => (i + 1).saturating_sub(window)..=i,
        Mask::Block => 0..=last,
        Mask::BlockWindow(window) => (i + 1).saturating_sub(window)..=last.min(i.saturating_add(window - 1)),
    }
}

fn head_of(row: &[f32], head: usize, dim: usize) -> &[f32] {
    &row[head * dim..(head + 1) * dim]
}
