//! The pages of one group: which are free, and how many hold each of the others.

use gannet_ops::PageId;

/// The pages of one group.
pub(crate) struct PagePool {
    /// Sequences and tree nodes that refer to each page; 0 is free.
    holders: Vec<u32>,
    /// The last one is taken next, so that a page that was just used is used again.
    free: Vec<PageId>,
}

impl PagePool {
    pub(crate) fn new(total: u32) -> Self {
        Self { holders: vec![0; total as usize], free: (0..total).rev().map(PageId).collect() }
    }

    pub(crate) fn total(&self) -> usize {
        self.holders.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// A free page, held once.
    pub(crate) fn take(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.holders[page.0 as usize] = 1;
        Some(page)
    }

    /// Holds a page once more.
    pub(crate) fn share(&mut self, page: PageId) {
        let holders = &mut self.holders[page.0 as usize];
        assert!(*holders > 0, "a free page can't be shared");
        *holders += 1;
    }

    /// Holds a page once less; nobody's page is free.
    pub(crate) fn give_back(&mut self, page: PageId) {
        let holders = &mut self.holders[page.0 as usize];
        assert!(*holders > 0, "a free page can't be given back");
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }

    pub(crate) fn holders(&self, page: PageId) -> u32 {
        self.holders[page.0 as usize]
    }

    /// Panics unless each page is held as often as it occurs in `held`, and the others are free.
    pub(crate) fn check(&self, held: impl Iterator<Item = PageId>) {
        let mut counted = vec![0; self.holders.len()];
        for page in held {
            counted[page.0 as usize] += 1;
        }
        assert_eq!(counted, self.holders, "each page is held as often as sequences and tree refer to it");
        let mut free = self.free.clone();
        free.sort_unstable();
        let unheld =
            (0..self.holders.len()).filter(|page| counted[*page] == 0).map(|page| PageId(page as u32));
        assert!(free.into_iter().eq(unheld), "each page that nobody holds is free, once");
    }
}
