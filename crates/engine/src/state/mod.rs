//! The only door to the memory of sequences: `reserve` before a step, `commit` after it, `release` at the end.
//!
//! Invariant: each page of a group is free or held by exactly one sequence, and the two add up to the total; it
//! is checked after each step in debug builds.

pub mod budget;
mod pages;

use gannet_ops::{Budget, PAGE_TOKENS, PageId, PageLifetime, PageTable, StateLayout};
use pages::PagePool;

/// Pages of all groups.
pub(crate) struct StateManager {
    groups: Vec<Group>,
}

struct Group {
    lifetime: PageLifetime,
    pool: PagePool,
}

/// The pages that one sequence holds.
#[derive(Default)]
pub(crate) struct SequencePages {
    groups: Vec<GroupPages>,
}

#[derive(Default)]
struct GroupPages {
    /// Pages at the front that have left the window.
    released: u32,
    pages: Vec<PageId>,
}

/// A sequence needs more pages than are free.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sequence needs {needed} more pages of group {group}, and {free} of {total} are free")]
pub(crate) struct OutOfPages {
    group: usize,
    needed: usize,
    free: usize,
    total: usize,
}

impl StateManager {
    pub(crate) fn new(layout: &StateLayout, budget: &Budget) -> Self {
        let group = |(group, pages): (&gannet_ops::PageGroup, &u32)| Group {
            lifetime: group.lifetime,
            pool: PagePool::new(*pages),
        };
        Self { groups: layout.groups.iter().zip(&budget.pages).map(group).collect() }
    }

    /// The state of a sequence that holds nothing yet.
    pub(crate) fn empty(&self) -> SequencePages {
        SequencePages { groups: self.groups.iter().map(|_| GroupPages::default()).collect() }
    }

    /// Makes sure that the sequence has pages for its first `tokens` tokens, in every group or in none.
    pub(crate) fn reserve(&mut self, sequence: &mut SequencePages, tokens: usize) -> Result<(), OutOfPages> {
        let wanted = tokens.div_ceil(PAGE_TOKENS);
        for (number, (group, held)) in self.groups.iter().zip(&sequence.groups).enumerate() {
            let needed = wanted.saturating_sub(held.reach());
            let free = group.pool.free();
            if needed > free {
                return Err(OutOfPages { group: number, needed, free, total: group.pool.total() });
            }
        }
        for (group, held) in self.groups.iter_mut().zip(&mut sequence.groups) {
            while held.reach() < wanted {
                held.pages.push(group.pool.take().expect("the free pages were counted above"));
            }
        }
        Ok(())
    }

    /// Gives back the pages that no row from index `computed` on can read.
    pub(crate) fn commit(&mut self, sequence: &mut SequencePages, computed: usize) {
        for (group, held) in self.groups.iter_mut().zip(&mut sequence.groups) {
            let PageLifetime::Window(window) = group.lifetime else { continue };
            let first_key = (computed + 1).saturating_sub(window as usize);
            let left = (first_key / PAGE_TOKENS).saturating_sub(held.released as usize).min(held.pages.len());
            for page in held.pages.drain(..left) {
                group.pool.give_back(page);
            }
            held.released += left as u32;
        }
    }

    /// Gives back everything.
    pub(crate) fn release(&mut self, sequence: &mut SequencePages) {
        for (group, held) in self.groups.iter_mut().zip(&mut sequence.groups) {
            for page in held.pages.drain(..) {
                group.pool.give_back(page);
            }
            held.released = 0;
        }
    }

    /// Checks the invariant against all sequences that hold pages.
    pub(crate) fn check<'a>(&self, holders: impl Iterator<Item = &'a SequencePages>) {
        let mut held = vec![Vec::new(); self.groups.len()];
        for holder in holders {
            for (all, group) in held.iter_mut().zip(&holder.groups) {
                all.extend_from_slice(&group.pages);
            }
        }
        for (group, held) in self.groups.iter().zip(held) {
            group.pool.check(held);
        }
    }
}

impl SequencePages {
    /// Appends the sequence's pages to a batch's list and returns a table a group.
    pub(crate) fn tables(&self, pages: &mut Vec<PageId>) -> Vec<PageTable> {
        let mut table = |group: &GroupPages| {
            let start = pages.len() as u32;
            pages.extend_from_slice(&group.pages);
            PageTable { released: group.released, pages: start..pages.len() as u32 }
        };
        self.groups.iter().map(&mut table).collect()
    }
}

impl GroupPages {
    /// Pages from the sequence's start to the last one held.
    fn reach(&self) -> usize {
        self.released as usize + self.pages.len()
    }
}
