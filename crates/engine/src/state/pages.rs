//! The pages of one group: which are free.

use gannet_ops::PageId;

/// The pages of one group.
pub(crate) struct PagePool {
    total: u32,
    /// The last one is taken next, so that a page that was just used is used again.
    free: Vec<PageId>,
}

impl PagePool {
    pub(crate) fn new(total: u32) -> Self {
        Self { total, free: (0..total).rev().map(PageId).collect() }
    }

    pub(crate) fn total(&self) -> usize {
        self.total as usize
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn take(&mut self) -> Option<PageId> {
        self.free.pop()
    }

    pub(crate) fn give_back(&mut self, page: PageId) {
        self.free.push(page);
    }

    /// Panics unless `held` and the free pages are all pages, each once.
    pub(crate) fn check(&self, held: Vec<PageId>) {
        let mut all = held;
        all.extend_from_slice(&self.free);
        all.sort_unstable();
        let is_each_once = all.iter().copied().eq((0..self.total).map(PageId));
        assert!(is_each_once, "each page is free or held by one sequence, found {all:?} of {}", self.total);
    }
}
