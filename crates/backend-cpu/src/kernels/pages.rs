//! One layer's keys and values as kernels see them: strips of neighbouring keys, in a page or in the batch.
//!
//! A page of a group has the layers one after the other, each as `[K or V][kv_head][64][dim]`.

use gannet_ops::{KvFormat, PAGE_TOKENS, PageId, PagedLayout};
use std::ops::Range;

/// A sequence's rows, and its pages in one group.
#[derive(Clone, Debug)]
pub(crate) struct Sequence<'a> {
    /// Its rows in the batch.
    pub(crate) rows: Range<usize>,
    /// The index of its first row.
    pub(crate) first_index: usize,
    /// Pages at the front that are no longer listed.
    pub(crate) released: usize,
    /// The others.
    pub(crate) pages: &'a [PageId],
}

impl Sequence<'_> {
    /// The index of one of its rows.
    pub(crate) fn index_of(&self, row: usize) -> usize {
        self.first_index + row - self.rows.start
    }

    /// One after the index of its last row.
    pub(crate) fn end(&self) -> usize {
        self.first_index + self.rows.len()
    }

    /// The page with this index. The caller has checked that the sequence lists it.
    pub(crate) fn page(&self, index: usize) -> usize {
        self.pages[index / PAGE_TOKENS - self.released].0 as usize
    }
}

/// One layer's part of the pages of its group.
#[derive(Clone, Copy)]
pub(crate) struct LayerPages<'a> {
    pub(crate) layout: &'a PagedLayout,
    /// All pages of the group.
    pub(crate) bytes: &'a [u8],
    pub(crate) page_bytes: usize,
    /// Where the layer's keys start in a page, in bytes; its values follow.
    pub(crate) offset: usize,
}

/// Some neighbouring keys, or values, of one head; each `stride` elements after the one before.
#[derive(Clone, Copy)]
pub(crate) struct Strip<'a> {
    pub(crate) elements: Elements<'a>,
    pub(crate) stride: usize,
}

/// Keys or values in one of their formats.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
}

impl<'a> LayerPages<'a> {
    /// The keys of some indices, all in one page.
    pub(crate) fn keys(&self, sequence: &Sequence<'_>, kv_head: usize, indices: Range<usize>) -> Strip<'a> {
        let (format, dim) = (self.layout.key_format, self.layout.key_dim);
        self.strip(
            sequence,
            indices,
            self.offset + kv_head * PAGE_TOKENS * dim * format.bytes(),
            (format, dim),
        )
    }

    /// The values of some indices, all in one page.
    pub(crate) fn values(&self, sequence: &Sequence<'_>, kv_head: usize, indices: Range<usize>) -> Strip<'a> {
        let (format, dim) = (self.layout.value_format, self.layout.value_dim);
        let start = self.offset + value_offset(self.layout);
        self.strip(sequence, indices, start + kv_head * PAGE_TOKENS * dim * format.bytes(), (format, dim))
    }

    fn strip(
        &self,
        sequence: &Sequence<'_>,
        indices: Range<usize>,
        head_start: usize,
        (format, dim): (KvFormat, usize),
    ) -> Strip<'a> {
        if indices.is_empty() {
            return Strip { elements: Elements::F32(&[]), stride: dim };
        }
        let page = sequence.page(indices.start) * self.page_bytes;
        let start = page + head_start + indices.start % PAGE_TOKENS * dim * format.bytes();
        let bytes = &self.bytes[start..start + indices.len() * dim * format.bytes()];
        let elements = match format {
            KvFormat::F32 => Elements::F32(bytemuck::cast_slice(bytes)),
            KvFormat::F16 => Elements::F16(bytemuck::cast_slice(bytes)),
        };
        Strip { elements, stride: dim }
    }
}

/// Where a layer's values start after its keys, in bytes.
pub(crate) fn value_offset(layout: &PagedLayout) -> usize {
    layout.page_elements().0 * layout.key_format.bytes()
}
