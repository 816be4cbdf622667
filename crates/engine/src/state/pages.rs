//! The pages of one group: which are free, and how many hold each of the others.

use gannet_ops::PageId;

/// The pages of one group.
pub(crate) struct PagePool {
    /// Sequences and tree nodes that refer to each page; 0 is free.
    holders: Vec<u32>,
    /// The last one is taken next, so that a page that was just used is used again.
    free: Vec<PageId>,
    /// Pages without memory, which was given back to the process.
    lent: Vec<PageId>,
    /// Memory of checks.
    counted: Vec<u32>,
}

impl PagePool {
    pub(crate) fn new(total: u32) -> Self {
        let (holders, free) = (vec![0; total as usize], (0..total).rev().map(PageId).collect());
        Self { holders, free, lent: Vec::new(), counted: Vec::new() }
    }

    /// Pages that have memory.
    pub(crate) fn total(&self) -> usize {
        self.holders.len() - self.lent.len()
    }

    pub(crate) fn lent(&self) -> usize {
        self.lent.len()
    }

    /// Takes a free page away, whose memory is given back.
    pub(crate) fn lend(&mut self) -> Option<PageId> {
        let page = self.free.pop()?;
        self.lent.push(page);
        Some(page)
    }

    /// So many of the pages that were lent have memory again.
    pub(crate) fn return_lent(&mut self, pages: usize) {
        let kept = self.lent.len() - pages;
        self.free.extend(self.lent.drain(kept..));
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
    pub(crate) fn check(&mut self, held: impl Iterator<Item = PageId>) {
        let Self { holders, free, lent, counted } = self;
        counted.clear();
        counted.resize(holders.len(), 0);
        for page in held {
            counted[page.0 as usize] += 1;
        }
        assert_eq!(counted, holders, "each page is held as often as sequences and tree refer to it");
        for page in free.iter().chain(&*lent) {
            let count = &mut counted[page.0 as usize];
            assert_eq!(*count, 0, "a free or lent page is held by nobody and listed once");
            *count = 1;
        }
        assert!(!counted.contains(&0), "each page that nobody holds is free or lent");
    }
}
