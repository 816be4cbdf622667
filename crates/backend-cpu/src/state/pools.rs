//! The pages of each group: one buffer a group, a page after the other, in each the group's layers in order.

use crate::backend::unknown;
use crate::kernels::pages::{LayerPages, OpenPages, Sequence};
use crate::kernels::write_kv::Target;
use crate::memory::{Buffer, HUGE_PAGE};
use gannet_ops::{
    Budget, DeviceError, GroupId, PAGE_TOKENS, PageId, PagedLayout, StateEntry, StateId, StateLayout,
};
use std::ops::Range;

/// Bytes from the start of each pool that are touched before a step needs them; pages are handed out from there. A step that is
/// the first to touch a page waits for the system to clear it, and to bring a huge page together: up to 5 ms.
const READY_BYTES: usize = 1 << 30;

pub(crate) struct Pools {
    groups: Vec<Pool>,
    /// For each entry of the layout, where it is; `None` for a recurrent one.
    layers: Vec<Option<Layer>>,
}

/// One layer's sizes, and where it starts in a page and in an open page, in bytes.
struct Layer {
    layout: PagedLayout,
    offset: usize,
    open_offset: Option<usize>,
}

struct Pool {
    pages: u32,
    page_bytes: usize,
    buffer: Buffer,
    /// Bytes from the start that need no touching any more.
    ready: usize,
}

impl Pools {
    pub(crate) fn new(layout: &StateLayout, budget: &Budget) -> Result<Self, DeviceError> {
        let mut groups = Vec::new();
        for (number, group) in layout.groups.iter().enumerate() {
            let pages = budget.pages.get(number).copied();
            let pages = pages
                .ok_or_else(|| unknown("page group", number as u64, "the budget has no pages for it"))?;
            let page_bytes = layout.page_bytes(GroupId(number as u32));
            let bytes = page_bytes.saturating_mul(pages as usize);
            let buffer = Buffer::on_huge_pages(bytes, || format!("{pages} pages of group `{}`", group.name))?;
            groups.push(Pool { pages, page_bytes, buffer, ready: 0 });
        }
        let mut ends = vec![0; groups.len()];
        let mut place = |group: GroupId, bytes: usize| {
            let end = ends.get_mut(group.0 as usize);
            let end = end.ok_or_else(|| unknown("page group", group.0, "the layout has fewer"))?;
            *end += bytes;
            Ok::<usize, DeviceError>(*end - bytes)
        };
        let mut layer = |entry: &StateEntry| match entry {
            StateEntry::Recurrent(_) => Ok(None),
            StateEntry::Paged(paged) => {
                let offset = place(paged.group, paged.page_bytes())?;
                let open_offset = paged.open.map(|open| place(open, paged.open_page_bytes())).transpose()?;
                Ok(Some(Layer { layout: paged.clone(), offset, open_offset }))
            }
        };
        let layers = layout.entries.iter().map(&mut layer).collect::<Result<_, DeviceError>>()?;
        Ok(Self { groups, layers })
    }

    /// One layer's keys and values.
    pub(crate) fn layer(&self, state: StateId) -> LayerPages<'_> {
        let Layer { layout, offset, .. } = self.place(state);
        let pool = &self.groups[layout.group.0 as usize];
        LayerPages { layout, bytes: pool.buffer.as_slice(), page_bytes: pool.page_bytes, offset: *offset }
    }

    /// One layer's keys of pages that fill, where it has any; `groups` has the sequences with their pages of each
    /// group.
    pub(crate) fn open_layer<'a>(
        &'a self,
        state: StateId,
        groups: &'a [Vec<Sequence<'a>>],
    ) -> Option<OpenPages<'a>> {
        let Layer { layout, open_offset, .. } = self.place(state);
        let (group, offset) = (layout.open?.0 as usize, (*open_offset)?);
        let Pool { page_bytes, buffer, .. } = &self.groups[group];
        let (sequences, page_bytes) = (&groups[group][..], *page_bytes);
        Some(OpenPages { sequences, bytes: buffer.as_slice(), page_bytes, offset })
    }

    /// One layer's pages, and its open pages, to be written; `groups` has the sequences with their pages of each
    /// group.
    pub(crate) fn layer_mut<'a>(
        &'a mut self,
        state: StateId,
        groups: &'a [Vec<Sequence<'a>>],
    ) -> (&'a PagedLayout, Target<'a>, Option<Target<'a>>) {
        let layer = self.layers[state.0 as usize].as_ref();
        let Layer { layout, offset, open_offset } = layer.expect("the verifier saw a paged entry here");
        let target = |group: usize, pool: &'a mut Pool, offset: usize| Target {
            sequences: &groups[group],
            pages: pool.buffer.as_mut_slice(),
            page_bytes: pool.page_bytes,
            offset,
        };
        let group = layout.group.0 as usize;
        let Some((open, open_offset)) = layout.open.zip(*open_offset) else {
            return (layout, target(group, &mut self.groups[group], *offset), None);
        };
        let open = open.0 as usize;
        let [pool, open_pool] =
            self.groups.get_disjoint_mut([group, open]).expect("open pages have their own group");
        (layout, target(group, pool, *offset), Some(target(open, open_pool, open_offset)))
    }

    /// The group that an entry lives in.
    pub(crate) fn group(&self, state: StateId) -> usize {
        self.place(state).layout.group.0 as usize
    }

    /// The group with the keys of its pages that fill, where they are quantised.
    pub(crate) fn open_group(&self, state: StateId) -> Option<usize> {
        self.place(state).layout.open.map(|open| open.0 as usize)
    }

    /// Checks that a sequence lists pages of a group for some of its indices, and that these exist.
    pub(crate) fn check(
        &self,
        group: usize,
        sequence: &Sequence<'_>,
        indices: Range<usize>,
    ) -> Result<(), DeviceError> {
        if indices.is_empty() {
            return Ok(());
        }
        let listed = sequence.released..sequence.released + sequence.pages.len();
        let (first, last) = (indices.start / PAGE_TOKENS, (indices.end - 1) / PAGE_TOKENS);
        if first < listed.start || last >= listed.end {
            let index = if first < listed.start { indices.start } else { indices.end - 1 };
            let reason = format!("the table lists pages {listed:?} of the sequence");
            return Err(unknown("page with the token at index", index as u64, reason));
        }
        let pages = &sequence.pages[first - listed.start..=last - listed.start];
        pages.iter().try_for_each(|page| self.groups[group].check(*page))
    }

    pub(crate) fn copy(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        let groups = self.groups.len();
        let pool = self.groups.get_mut(group.0 as usize);
        let pool = pool.ok_or_else(|| unknown("page group", group.0, format!("there are {groups}")))?;
        for (from, to) in copies {
            pool.check(*from)?;
            pool.check(*to)?;
            let (from, to, bytes) = (from.0 as usize, to.0 as usize, pool.page_bytes);
            pool.buffer.as_mut_slice::<u8>().copy_within(from * bytes..(from + 1) * bytes, to * bytes);
        }
        Ok(())
    }

    /// Has the system give the memory of a huge page that a step would wait for. Whether there is more of that.
    pub(crate) fn make_ready(&mut self) -> bool {
        let is_missing = |pool: &&mut Pool| pool.ready < pool.ready_end();
        if let Some(pool) = self.groups.iter_mut().find(is_missing) {
            let end = (pool.ready + HUGE_PAGE).min(pool.ready_end());
            pool.buffer.touch(pool.ready..end);
            pool.ready = end;
        }
        self.groups.iter_mut().any(|pool| is_missing(&pool))
    }

    /// Gives back the memory of pages that are written before they are read again.
    pub(crate) fn forget(&mut self, group: GroupId, pages: &[PageId]) -> Result<(), DeviceError> {
        let groups = self.groups.len();
        let pool = self.groups.get_mut(group.0 as usize);
        let pool = pool.ok_or_else(|| unknown("page group", group.0, format!("there are {groups}")))?;
        for page in pages {
            pool.check(*page)?;
            let start = page.0 as usize * pool.page_bytes;
            pool.buffer.forget(start..start + pool.page_bytes);
        }
        // Who asked for memory is not to see the rest of it taken.
        pool.ready = pool.buffer.bytes();
        Ok(())
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.groups.iter().map(|pool| pool.buffer.resident_bytes(0..pool.buffer.bytes())).sum()
    }

    fn place(&self, state: StateId) -> &Layer {
        self.layers[state.0 as usize].as_ref().expect("the verifier saw a paged entry here")
    }
}

impl Pool {
    fn ready_end(&self) -> usize {
        self.buffer.bytes().min(READY_BYTES)
    }

    fn check(&self, page: PageId) -> Result<(), DeviceError> {
        if page.0 < self.pages {
            return Ok(());
        }
        Err(unknown("page", page.0, format!("its group has {} pages", self.pages)))
    }
}
