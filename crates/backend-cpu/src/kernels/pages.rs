//! One layer's keys and values as kernels see them: those of one page and head, which lie together.
//!
//! A page of a group has the layers one after the other, each as keys `[kv_head][dim][64]`, then values
//! `[kv_head][64][dim]`, then the half-precision scales of what is in int8: of keys `[kv_head][dim]`, of values
//! `[kv_head][64]`. An open page has keys in half precision, laid out alike. Keys lie channel by channel, so that a query's channel meets sixteen keys in one
//! register and no sum is ever folded; values lie token by token, so that a weight meets sixteen columns.

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

    /// The row with an index that is one of its rows'.
    pub(crate) fn row_of(&self, index: usize) -> usize {
        self.rows.start + index - self.first_index
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

/// The keys, or the values, of one page and head.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    F32(&'a [f32]),
    F16(&'a [u16]),
    Bf16(&'a [u16]),
    Int8(Int8<'a>),
}

impl<'a> Elements<'a> {
    /// Without scales.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Elements::F32(elements) => bytemuck::cast_slice(elements),
            Elements::F16(elements) | Elements::Bf16(elements) => bytemuck::cast_slice(elements),
            Elements::Int8(elements) => elements.codes,
        }
    }
}

/// Codes, and a scale in half precision for each channel of keys or token of values.
#[derive(Clone, Copy)]
pub(crate) struct Int8<'a> {
    pub(crate) codes: &'a [u8],
    pub(crate) scales: &'a [u16],
}

/// One layer's part of the open pages, which have the keys of pages that fill.
#[derive(Clone, Copy)]
pub(crate) struct OpenPages<'a> {
    /// The sequences with their open pages.
    pub(crate) sequences: &'a [Sequence<'a>],
    /// All pages of the group.
    pub(crate) bytes: &'a [u8],
    pub(crate) page_bytes: usize,
    /// Where the layer's keys start in a page, in bytes.
    pub(crate) offset: usize,
}

impl<'a> OpenPages<'a> {
    /// The keys of the page with this index: `[dim][64]`, f16.
    pub(crate) fn keys(&self, sequence: usize, (kv_head, dim): (usize, usize), index: usize) -> &'a [u16] {
        let page = self.sequences[sequence].page(index) * self.page_bytes;
        let bytes = PAGE_TOKENS * dim * size_of::<u16>();
        bytemuck::cast_slice(&self.bytes[page + self.offset + kv_head * bytes..][..bytes])
    }
}

impl<'a> LayerPages<'a> {
    /// The keys of the page with this index: `[dim][64]`.
    pub(crate) fn keys(&self, sequence: &Sequence<'_>, kv_head: usize, index: usize) -> Elements<'a> {
        let layout = self.layout;
        let start = sequence.page(index) * self.page_bytes + self.offset;
        let scales = start + key_scales_offset(layout);
        self.elements([start, scales], kv_head, (layout.key_format, layout.key_dim, layout.key_dim))
    }

    /// The values of the page with this index: `[64][dim]`.
    pub(crate) fn values(&self, sequence: &Sequence<'_>, kv_head: usize, index: usize) -> Elements<'a> {
        let layout = self.layout;
        let page = sequence.page(index) * self.page_bytes + self.offset;
        let starts = [page + value_offset(layout), page + value_scales_offset(layout)];
        self.elements(starts, kv_head, (layout.value_format, layout.value_dim, PAGE_TOKENS))
    }

    fn elements(
        &self,
        [start, scales_start]: [usize; 2],
        kv_head: usize,
        (format, dim, scales): (KvFormat, usize, usize),
    ) -> Elements<'a> {
        let bytes = PAGE_TOKENS * dim * format.bytes();
        let bytes = &self.bytes[start + kv_head * bytes..][..bytes];
        match format {
            KvFormat::F32 => Elements::F32(bytemuck::cast_slice(bytes)),
            KvFormat::F16 => Elements::F16(bytemuck::cast_slice(bytes)),
            KvFormat::Bf16 => Elements::Bf16(bytemuck::cast_slice(bytes)),
            KvFormat::Int8 => {
                let scales = &self.bytes[scales_start + kv_head * scales * size_of::<u16>()..]
                    [..scales * size_of::<u16>()];
                Elements::Int8(Int8 { codes: bytes, scales: bytemuck::cast_slice(scales) })
            }
        }
    }
}

/// Where a layer's values start after its keys, in bytes.
pub(crate) fn value_offset(layout: &PagedLayout) -> usize {
    layout.page_elements().0 * layout.key_format.bytes()
}

/// Where the scales of a layer's keys start after its keys, in bytes.
pub(crate) fn key_scales_offset(layout: &PagedLayout) -> usize {
    value_offset(layout) + layout.page_elements().1 * layout.value_format.bytes()
}

/// Where the scales of a layer's values start after its keys, in bytes.
pub(crate) fn value_scales_offset(layout: &PagedLayout) -> usize {
    key_scales_offset(layout) + layout.page_scales().0 * size_of::<u16>()
}
