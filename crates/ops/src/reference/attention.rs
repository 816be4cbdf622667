//! Attention over the keys that a row's mask lets it see.

use super::gates::soft_cap;
use super::state::{Pages, Slot};
use super::values::{Numbers, dot, softmax};
use crate::{Attention, Batch, DeviceError, Mask, PAGE_TOKENS, SequenceRows};
use std::ops::RangeInclusive;

/// Keeps each row's key and value at its index.
pub(super) fn write_kv(
    k: &Numbers,
    v: &Numbers,
    pages: &mut Pages,
    batch: &Batch,
) -> Result<(), DeviceError> {
    for (place, row) in batch.rows.iter().enumerate() {
        let sequence = &batch.sequences[row.sequence as usize];
        let slot = pages.find(batch, sequence, row.index)?;
        let open = pages.find_open(batch, sequence, row.index)?;
        pages.write(slot, open, k.row(place), v.row(place));
    }
    Ok(())
}

/// What a step's rows see beside the pages.
pub(super) struct Context<'a> {
    pub(super) batch: &'a Batch,
    pub(super) pages: &'a Pages,
    /// Keys and values of the batch's own rows, where they are in no page.
    pub(super) unwritten: Option<(&'a Numbers, &'a Numbers)>,
    /// Keys of the batch's own rows in half precision, where pages have them quantised.
    pub(super) exact: Option<&'a Numbers>,
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

/// Where a key and its value are.
enum Key {
    Page(Slot),
    /// The key in an open page, the value in a page.
    Open {
        key: Slot,
        value: Slot,
    },
    /// The key in the batch, the value in a page.
    Written {
        row: usize,
        value: Slot,
    },
    /// Both in the batch.
    Row(usize),
}

impl Context<'_> {
    /// The keys that a row sees, by ascending index.
    fn seen(&self, mask: Mask, place: usize) -> Result<Vec<Key>, DeviceError> {
        let row = self.batch.rows[place];
        let sequence = &self.batch.sequences[row.sequence as usize];
        let first = sequence.length.at_most();
        let own_page = row.index - row.index % PAGE_TOKENS as u32;
        let row_at = |index: u32| (sequence.rows.start + index - first) as usize;
        let find = |index: u32| {
            if self.unwritten.is_some() && index >= first {
                return Ok(Key::Row(row_at(index)));
            }
            let value = self.pages.find(self.batch, sequence, index)?;
            if self.pages.layout().open.is_none() || index < own_page {
                return Ok(Key::Page(value));
            }
            if index >= first {
                return Ok(Key::Written { row: row_at(index), value });
            }
            let key = self.pages.find_open(self.batch, sequence, index)?;
            Ok(Key::Open { key: key.expect("the layout names a group of open pages"), value })
        };
        visible(mask, row.index, sequence).map(find).collect()
    }

    fn key(&self, key: &Key, kv_head: usize) -> &[f32] {
        let dim = self.pages.layout().key_dim;
        match (key, self.unwritten, self.exact) {
            (Key::Row(row), Some((keys, _)), _) => head_of(keys.row(*row), kv_head, dim),
            (Key::Written { row, .. }, _, Some(keys)) => head_of(keys.row(*row), kv_head, dim),
            (Key::Open { key, .. }, _, _) => self.pages.open_key(*key, kv_head),
            (Key::Page(slot), _, _) => self.pages.key(*slot, kv_head),
            (Key::Row(_), None, _) => unreachable!("only unwritten rows are found as rows"),
            (Key::Written { .. }, _, None) => unreachable!("the verifier saw the keys that were written"),
        }
    }

    fn value(&self, key: &Key, kv_head: usize) -> &[f32] {
        match (key, self.unwritten) {
            (Key::Row(row), Some((_, values))) => {
                head_of(values.row(*row), kv_head, self.pages.layout().value_dim)
            }
            (Key::Page(value) | Key::Open { value, .. } | Key::Written { value, .. }, _) => {
                self.pages.value(*value, kv_head)
            }
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
