//! Keys and values of one layer, in pages.

use super::super::unknown;
use super::zeros;
use crate::{Batch, DeviceError, GroupId, KvFormat, PAGE_TOKENS, PageId, PagedLayout, SequenceRows, int8};
use half::{bf16, f16};

/// The pages of one layer: `[page][kv_head][PAGE_TOKENS][dim]` keys, and values alike, as they are read.
#[derive(Debug)]
pub(in crate::reference) struct Pages {
    layout: PagedLayout,
    count: u32,
    keys: Vec<f32>,
    values: Vec<f32>,
    open_count: u32,
    /// Keys of pages that fill, where the pages have them quantised: `[page][kv_head][PAGE_TOKENS][dim]`.
    open: Vec<f32>,
}

/// The place of one token in one page.
#[derive(Clone, Copy, Debug)]
pub(in crate::reference) struct Slot {
    page: usize,
    token: usize,
}

impl Pages {
    pub(super) fn new(layout: &PagedLayout, count: u32, open_count: u32) -> Result<Self, DeviceError> {
        let (keys, values) = layout.page_elements();
        let many = |elements: usize, count: u32| elements.checked_mul(count as usize);
        let open = zeros(many(keys, open_count), "open pages of keys")?;
        let (keys, values) =
            (zeros(many(keys, count), "pages of keys")?, zeros(many(values, count), "pages of values")?);
        Ok(Self { layout: layout.clone(), count, keys, values, open_count, open })
    }

    pub(in crate::reference) fn layout(&self) -> &PagedLayout {
        &self.layout
    }

    /// Where the sequence's table has the token of this index.
    pub(in crate::reference) fn find(
        &self,
        batch: &Batch,
        sequence: &SequenceRows,
        index: u32,
    ) -> Result<Slot, DeviceError> {
        find_in(self.layout.group, self.count, (batch, sequence), index)
    }

    /// Where the sequence's table of open pages has it, for keys that have any.
    pub(in crate::reference) fn find_open(
        &self,
        batch: &Batch,
        sequence: &SequenceRows,
        index: u32,
    ) -> Result<Option<Slot>, DeviceError> {
        let open = self.layout.open;
        open.map(|open| find_in(open, self.open_count, (batch, sequence), index)).transpose()
    }

    /// Writes a row; the last of a page makes the codes of all keys of the page.
    pub(in crate::reference) fn write(&mut self, slot: Slot, open: Option<Slot>, k: &[f32], v: &[f32]) {
        let (key_format, value_format) = (self.layout.key_format, self.layout.value_format);
        for head in 0..self.layout.kv_heads {
            let (place, dim) = (self.place(slot, head), self.layout.value_dim);
            write_head(&mut self.values[place * dim..][..dim], &v[head * dim..][..dim], value_format);
            let dim = self.layout.key_dim;
            let k = &k[head * dim..][..dim];
            match open {
                None => write_head(&mut self.keys[place * dim..][..dim], k, key_format),
                Some(open) => {
                    let place = self.place(open, head);
                    write_head(&mut self.open[place * dim..][..dim], k, KvFormat::F16);
                }
            }
        }
        if let Some(open) = open.filter(|_| slot.token == PAGE_TOKENS - 1) {
            self.quantise(slot.page, open.page);
        }
    }

    /// Makes the keys of a page those of an open page, in int8.
    fn quantise(&mut self, page: usize, open: usize) {
        let dim = self.layout.key_dim;
        let (to, from) = (page * self.layout.kv_heads, open * self.layout.kv_heads);
        for head in 0..self.layout.kv_heads {
            for channel in 0..dim {
                let at = |head: usize, token: usize| (head * PAGE_TOKENS + token) * dim + channel;
                let exact = (0..PAGE_TOKENS).map(|token| self.open[at(from + head, token)]);
                let scale = int8::scale(int8::largest(exact)).to_f32();
                for token in 0..PAGE_TOKENS {
                    let code = int8::code(self.open[at(from + head, token)], scale);
                    self.keys[at(to + head, token)] = f32::from(code) * scale;
                }
            }
        }
    }

    pub(in crate::reference) fn key(&self, slot: Slot, kv_head: usize) -> &[f32] {
        let dim = self.layout.key_dim;
        &self.keys[self.place(slot, kv_head) * dim..][..dim]
    }

    pub(in crate::reference) fn open_key(&self, slot: Slot, kv_head: usize) -> &[f32] {
        let dim = self.layout.key_dim;
        &self.open[self.place(slot, kv_head) * dim..][..dim]
    }

    pub(in crate::reference) fn value(&self, slot: Slot, kv_head: usize) -> &[f32] {
        let dim = self.layout.value_dim;
        &self.values[self.place(slot, kv_head) * dim..][..dim]
    }

    pub(super) fn copy(&mut self, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        let (keys, values) = self.layout.page_elements();
        for (from, to) in copies {
            let (from, to) = (checked(*from, self.count)?, checked(*to, self.count)?);
            self.keys.copy_within(from * keys..(from + 1) * keys, to * keys);
            self.values.copy_within(from * values..(from + 1) * values, to * values);
        }
        Ok(())
    }

    pub(super) fn copy_open(&mut self, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        let keys = self.layout.page_elements().0;
        for (from, to) in copies {
            let (from, to) = (checked(*from, self.open_count)?, checked(*to, self.open_count)?);
            self.open.copy_within(from * keys..(from + 1) * keys, to * keys);
        }
        Ok(())
    }

    pub(super) fn elements(&self) -> usize {
        self.keys.len() + self.values.len() + self.open.len()
    }

    fn place(&self, slot: Slot, kv_head: usize) -> usize {
        (slot.page * self.layout.kv_heads + kv_head) * PAGE_TOKENS + slot.token
    }
}

fn find_in(
    group: GroupId,
    count: u32,
    (batch, sequence): (&Batch, &SequenceRows),
    index: u32,
) -> Result<Slot, DeviceError> {
    let table = &sequence.tables[group.0 as usize];
    let pages = batch.pages_of(table);
    let number = index as usize / PAGE_TOKENS;
    let listed = number.checked_sub(table.released as usize).and_then(|place| pages.get(place));
    let Some(page) = listed else {
        let from = table.released as usize;
        let reason = format!("the table lists pages {from}..{} of the sequence", from + pages.len());
        return Err(unknown("page with the token at index", index, reason));
    };
    Ok(Slot { page: checked(*page, count)?, token: index as usize % PAGE_TOKENS })
}

fn checked(page: PageId, count: u32) -> Result<usize, DeviceError> {
    if page.0 < count {
        return Ok(page.0 as usize);
    }
    Err(unknown("page", page.0, format!("its group has {count} pages")))
}

/// Writes the keys or values of one token and head.
fn write_head(out: &mut [f32], head: &[f32], format: KvFormat) {
    let scale = int8::scale(int8::largest(head.iter().copied())).to_f32();
    for (out, x) in out.iter_mut().zip(head) {
        *out = match format {
            KvFormat::F32 => *x,
            KvFormat::F16 => f16::from_f32(*x).to_f32(),
            KvFormat::Bf16 => bf16::from_f32(*x).to_f32(),
            KvFormat::Int8 => f32::from(int8::code(*x, scale)) * scale,
        };
    }
}
