//! Keys and values of one layer, in pages.

use super::super::unknown;
use super::zeros;
use crate::{Batch, DeviceError, KvFormat, PAGE_TOKENS, PageId, PagedLayout, SequenceRows};
use half::{bf16, f16};

/// The pages of one layer: `[page][kv_head][PAGE_TOKENS][dim]` keys, and values alike.
#[derive(Debug)]
pub(in crate::reference) struct Pages {
    layout: PagedLayout,
    count: u32,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// The place of one token in one page.
#[derive(Clone, Copy, Debug)]
pub(in crate::reference) struct Slot {
    page: usize,
    token: usize,
}

impl Pages {
    pub(super) fn new(layout: &PagedLayout, count: u32) -> Result<Self, DeviceError> {
        let (keys, values) = layout.page_elements();
        let many = |elements: usize| elements.checked_mul(count as usize);
        let (keys, values) = (zeros(many(keys), "pages of keys")?, zeros(many(values), "pages of values")?);
        Ok(Self { layout: layout.clone(), count, keys, values })
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
        let table = &sequence.tables[self.layout.group.0 as usize];
        let pages = batch.pages_of(table);
        let number = index as usize / PAGE_TOKENS;
        let listed = number.checked_sub(table.released as usize).and_then(|place| pages.get(place));
        let Some(page) = listed else {
            let from = table.released as usize;
            let reason = format!("the table lists pages {from}..{} of the sequence", from + pages.len());
            return Err(unknown("page with the token at index", index, reason));
        };
        Ok(Slot { page: self.page(*page)?, token: index as usize % PAGE_TOKENS })
    }

    pub(in crate::reference) fn write(&mut self, slot: Slot, k: &[f32], v: &[f32]) {
        let (key_format, value_format) = (self.layout.key_format, self.layout.value_format);
        for head in 0..self.layout.kv_heads {
            let (place, dim) = (self.place(slot, head), self.layout.key_dim);
            write_head(&mut self.keys[place * dim..][..dim], &k[head * dim..][..dim], key_format);
            let dim = self.layout.value_dim;
            write_head(&mut self.values[place * dim..][..dim], &v[head * dim..][..dim], value_format);
        }
    }

    pub(in crate::reference) fn key(&self, slot: Slot, kv_head: usize) -> &[f32] {
        let dim = self.layout.key_dim;
        &self.keys[self.place(slot, kv_head) * dim..][..dim]
    }

    pub(in crate::reference) fn value(&self, slot: Slot, kv_head: usize) -> &[f32] {
        let dim = self.layout.value_dim;
        &self.values[self.place(slot, kv_head) * dim..][..dim]
    }

    pub(super) fn copy(&mut self, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        let (keys, values) = self.layout.page_elements();
        for (from, to) in copies {
            let (from, to) = (self.page(*from)?, self.page(*to)?);
            self.keys.copy_within(from * keys..(from + 1) * keys, to * keys);
            self.values.copy_within(from * values..(from + 1) * values, to * values);
        }
        Ok(())
    }

    pub(super) fn elements(&self) -> usize {
        self.keys.len() + self.values.len()
    }

    fn page(&self, page: PageId) -> Result<usize, DeviceError> {
        if page.0 < self.count {
            return Ok(page.0 as usize);
        }
        Err(unknown("page", page.0, format!("its group has {} pages", self.count)))
    }

    fn place(&self, slot: Slot, kv_head: usize) -> usize {
        (slot.page * self.layout.kv_heads + kv_head) * PAGE_TOKENS + slot.token
    }
}

fn write_head(out: &mut [f32], head: &[f32], format: KvFormat) {
    for (out, x) in out.iter_mut().zip(head) {
        *out = match format {
            KvFormat::F32 => *x,
            KvFormat::F16 => f16::from_f32(*x).to_f32(),
            KvFormat::Bf16 => bf16::from_f32(*x).to_f32(),
        };
    }
}
