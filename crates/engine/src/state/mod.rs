//! The only door to the memory of sequences: `match_prefix` when one starts, `reserve` before a step, `settle`,
//! `rollback`, `commit` and `checkpoint` after it, `release` at the end.
//!
//! A layout may have the layers of several programs, a target's and its drafter's. Their pages are groups like any others:
//! whoever shares a prefix shares it in all of them, so that a hit restores what a drafter knows too.
//!
//! Rows may fall: drafts that the device doesn't confirm. They write behind the tokens that stand, where nobody reads, and
//! their recurrent state waits at the device until `settle` says how many of them stand.
//!
//! Of keys in int8, the pages that fill have a second page with the keys unquantised, in a group of its own. A sequence
//! holds it until a row beyond the page is committed, and the tree as long as the page is partly filled or has a
//! snapshot inside: so a hit ends inside of a page only where it is still there.
//!
//! Each page of a group is free or held, by sequences, by the prefix tree, or by both; [`StateManager::check`] counts
//! them after each step in debug builds and when the engine falls idle.

pub mod budget;
mod kinds;
mod lending;
mod pages;
mod prefix;

use gannet_ops::{
    Budget, DeviceError, GroupId, PAGE_TOKENS, PageId, PageLifetime, PageTable, RecurrentBank, RecurrentUse,
    RecurrentWrite, State, StateLayout, StepId, TokenId,
};
use pages::PagePool;
use prefix::{Dropped, PrefixTree, Published, first_page};

pub use kinds::{PageKind, PagesByKind};
pub(crate) use prefix::PrefixKey;
pub use prefix::{PrefixEvent, PrefixFollower};
use std::ops::Range;

/// Pages, recurrent banks and the prefix cache.
pub(crate) struct StateManager {
    groups: Vec<Group>,
    tree: PrefixTree,
    is_recurrent: bool,
    snapshots: usize,
    counters: PrefixCounters,
    /// Memory for what the tree takes and gives back.
    changes: Published,
}

struct Group {
    lifetime: PageLifetime,
    pool: PagePool,
}

/// What the prefix cache was asked for and gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounters {
    /// Tokens of the prompts that were looked up.
    pub asked_tokens: u64,
    /// Tokens that needn't be computed.
    pub hit_tokens: u64,
    /// Pages given up for others.
    pub evicted_pages: u64,
    /// Recurrent snapshots given up for others.
    pub evicted_snapshots: u64,
}

/// Drafts of a sequence in one step, at most, so that its rows touch two pages at most: the budget of open pages rests on
/// it.
pub(crate) const DRAFTS_MAX: usize = PAGE_TOKENS - 1;

/// What pages are used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Held by running sequences.
    pub in_use: usize,
    /// Held by the prefix cache alone.
    pub cached: usize,
    /// All.
    pub total: usize,
}

/// Tokens of a sequence that a step computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepTokens {
    /// By index.
    tokens: Range<usize>,
    /// Those from this index on may fall: they are drafts.
    certain: usize,
}

impl StepTokens {
    /// Of these tokens the last `drafts` may fall.
    pub(crate) fn with_drafts(tokens: Range<usize>, drafts: usize) -> Self {
        assert!(drafts <= DRAFTS_MAX, "{drafts} drafts are more than a page holds");
        let certain = tokens.end - drafts;
        Self { tokens, certain }
    }
}

impl From<Range<usize>> for StepTokens {
    /// Tokens that are certain.
    fn from(tokens: Range<usize>) -> Self {
        Self::with_drafts(tokens, 0)
    }
}

/// What one sequence holds.
pub(crate) struct SequenceState {
    groups: Vec<GroupPages>,
    recurrent: Option<RecurrentState>,
    /// Whether rows of the step that was reserved last may fall.
    may_fall: bool,
    key: PrefixKey,
}

#[derive(Default)]
struct GroupPages {
    /// Pages at the front that no row reads any more.
    released: usize,
    pages: Vec<PageId>,
}

/// A sequence's recurrent slot.
#[derive(Clone, Copy)]
struct RecurrentState {
    slot: u32,
    /// The bank that the last submitted step wrote; none before the first.
    bank: Option<u8>,
}

/// Where a sequence starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixHit {
    /// Tokens that needn't be computed.
    pub(crate) reused: usize,
    /// Tokens that the cache has in common with the prompt; the next one is the first that differs.
    pub(crate) common: usize,
}

/// A sequence needs more pages than can be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sequence needs {needed} more pages of group {group}; {free} of {total} are free and the others in use"
)]
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
        let groups: Vec<Group> = layout.groups.iter().zip(&budget.pages).map(group).collect();
        let pages = groups.iter().map(|group| group.pool.total()).sum();
        Self {
            tree: PrefixTree::new(groups.iter().map(|group| (group.lifetime, group.pool.total()))),
            groups,
            is_recurrent: layout.is_recurrent(),
            snapshots: budget.snapshots as usize,
            counters: PrefixCounters::default(),
            changes: Published::with_room(pages, budget.snapshots as usize),
        }
    }

    /// Notes what the prefix cache gains and loses from now on.
    pub(crate) fn follow_prefixes(&mut self) {
        self.tree.follow();
    }

    /// Takes what was noted of the prefix cache.
    pub(crate) fn take_prefix_events(&mut self, events: &mut Vec<PrefixEvent>) {
        self.tree.take_events(events);
    }

    pub(crate) fn counters(&self) -> PrefixCounters {
        self.counters
    }

    /// Pages by kind: held by these sequences (one that several share counts for each, up to all that are held), by the
    /// prefix cache alone, and all.
    pub(crate) fn page_counts<'a>(&self, holders: impl Iterator<Item = &'a SequenceState>) -> PagesByKind {
        let mut counts = PagesByKind::default();
        for holder in holders {
            for (group, held) in self.groups.iter().zip(&holder.groups) {
                counts.0[PageKind::of(group.lifetime) as usize].in_use += held.pages.len();
            }
        }
        for kind in PageKind::ALL {
            let of_kind = || self.groups.iter().filter(|group| PageKind::of(group.lifetime) == kind);
            let total: usize = of_kind().map(|group| group.pool.total()).sum();
            let taken = total - of_kind().map(|group| group.pool.free()).sum::<usize>();
            let in_use = counts.of(kind).in_use.min(taken);
            counts.0[kind as usize] = PageCounts { in_use, cached: taken - in_use, total };
        }
        counts
    }

    /// The state of a sequence that holds nothing yet. `slot` is its recurrent slot, where the model needs one.
    pub(crate) fn empty(&self, key: PrefixKey, slot: u32) -> SequenceState {
        let groups = self.groups.iter().map(|_| GroupPages::default()).collect();
        let recurrent = self.is_recurrent.then_some(RecurrentState { slot, bank: None });
        SequenceState { groups, recurrent, may_fall: false, key }
    }

    /// Gives an empty sequence what the cache has of its tokens, at most `at_most` of them.
    pub(crate) fn match_prefix(
        &mut self,
        sequence: &mut SequenceState,
        tokens: &[TokenId],
        at_most: usize,
        device: &mut dyn State,
    ) -> Result<PrefixHit, DeviceError> {
        let walk = self.tree.walk(sequence.key, tokens);
        let mut resume = self.tree.resume(&walk, at_most, self.is_recurrent);
        self.hold(sequence, &walk, resume.tokens);
        if !resume.tokens.is_multiple_of(PAGE_TOKENS) && !self.copy_last_pages(sequence, device)? {
            // No page is left for the copy: what is whole is still a hit, where no recurrent state is needed.
            let whole = resume.tokens - resume.tokens % PAGE_TOKENS;
            resume = self.tree.resume(&walk, whole, self.is_recurrent);
            self.release_pages(sequence);
            self.hold(sequence, &walk, resume.tokens);
            if !resume.tokens.is_multiple_of(PAGE_TOKENS) {
                self.release_pages(sequence);
                resume.tokens = 0;
                resume.snapshot = None;
            }
        }
        if let (Some(snapshot), Some(recurrent)) = (resume.snapshot, &mut sequence.recurrent) {
            self.tree.touch_snapshot(&walk, snapshot);
            device.restore(snapshot, RecurrentBank { slot: recurrent.slot, bank: 0 })?;
            recurrent.bank = Some(0);
        }
        self.counters.asked_tokens += tokens.len() as u64;
        self.counters.hit_tokens += resume.tokens as u64;
        Ok(PrefixHit { reused: resume.tokens, common: walk.common })
    }

    /// Shares the tree's pages of the first `tokens` tokens with a sequence that holds none.
    fn hold(&mut self, sequence: &mut SequenceState, walk: &prefix::Walk, tokens: usize) {
        for (number, (group, held)) in self.groups.iter_mut().zip(&mut sequence.groups).enumerate() {
            let (released, pages) = self.tree.pages_for(walk, number, tokens);
            for page in &pages {
                group.pool.share(*page);
            }
            *held = GroupPages { released, pages };
        }
    }

    /// Replaces the last page of each group by a copy, since its other tokens belong to others; false where a group
    /// has no page for it.
    fn copy_last_pages(
        &mut self,
        sequence: &mut SequenceState,
        device: &mut dyn State,
    ) -> Result<bool, DeviceError> {
        for number in 0..self.groups.len() {
            let Some(copy) = self.take_page(number, device)? else { return Ok(false) };
            let last = sequence.groups[number].pages.last_mut().expect("the hit ends inside of a page");
            let original = std::mem::replace(last, copy);
            device.copy_pages(GroupId(number as u32), &[(original, copy)])?;
            self.groups[number].pool.give_back(original);
        }
        Ok(true)
    }

    /// Makes sure that the sequence has pages for a step that computes these of its tokens; what it got stays where
    /// that fails.
    pub(crate) fn reserve(
        &mut self,
        sequence: &mut SequenceState,
        step: impl Into<StepTokens>,
        device: &mut dyn State,
    ) -> Result<Result<(), OutOfPages>, DeviceError> {
        self.reserve_in(0..self.groups.len(), sequence, &step.into(), device)
    }

    /// As `reserve`, in the groups that keep whole sequences: what a request needs before it starts. A window's group
    /// has room for the windows of all sequences by its budget.
    pub(crate) fn reserve_whole(
        &mut self,
        sequence: &mut SequenceState,
        tokens: usize,
        device: &mut dyn State,
    ) -> Result<Result<(), OutOfPages>, DeviceError> {
        let is_whole = |number: &usize| self.groups[*number].lifetime == PageLifetime::Full;
        let whole: Vec<usize> = (0..self.groups.len()).filter(is_whole).collect();
        self.reserve_in(whole, sequence, &(0..tokens).into(), device)
    }

    fn reserve_in(
        &mut self,
        groups: impl IntoIterator<Item = usize>,
        sequence: &mut SequenceState,
        step: &StepTokens,
        device: &mut dyn State,
    ) -> Result<Result<(), OutOfPages>, DeviceError> {
        sequence.may_fall = step.certain < step.tokens.end;
        let wanted = step.tokens.end.div_ceil(PAGE_TOKENS);
        for number in groups {
            let is_open = self.groups[number].lifetime == PageLifetime::Open;
            if is_open {
                let read = step.tokens.start.min(step.certain);
                self.give_back_from(number, sequence, read.div_ceil(PAGE_TOKENS));
            }
            while sequence.groups[number].reach() < wanted {
                let Some(page) = self.take_page(number, device)? else {
                    let needed = wanted - sequence.groups[number].reach();
                    let pool = &self.groups[number].pool;
                    return Ok(Err(OutOfPages {
                        group: number,
                        needed,
                        free: pool.free(),
                        total: pool.total(),
                    }));
                };
                let held = &mut sequence.groups[number];
                let shares = if is_open { open_shares(held.reach(), wanted, step.certain) } else { 1 };
                held.pages.extend(std::iter::repeat_n(page, shares));
                (1..shares).for_each(|_| self.groups[number].pool.share(page));
            }
        }
        Ok(Ok(()))
    }

    /// Gives back a sequence's pages of a group from number `first` on.
    fn give_back_from(&mut self, number: usize, sequence: &mut SequenceState, first: usize) {
        let held = &mut sequence.groups[number];
        let kept = first.saturating_sub(held.released).min(held.pages.len());
        for page in held.pages.drain(kept..) {
            self.groups[number].pool.give_back(page);
        }
    }

    /// Whether any layer has recurrent state.
    pub(crate) fn is_recurrent(&self) -> bool {
        self.is_recurrent
    }

    /// Whether any layer sees a window alone.
    pub(crate) fn has_windows(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.lifetime, PageLifetime::Window(_)))
    }

    /// Tokens of the longest sequence that all memory could hold.
    pub(crate) fn longest_sequence(&self) -> usize {
        let whole = self.groups.iter().filter(|group| group.lifetime == PageLifetime::Full);
        whole.map(|group| group.pool.total() * PAGE_TOKENS).min().unwrap_or(usize::MAX)
    }

    /// A free page of a group, if need be one that the tree gives up.
    fn take_page(&mut self, number: usize, device: &mut dyn State) -> Result<Option<PageId>, DeviceError> {
        loop {
            if let Some(page) = self.groups[number].pool.take() {
                return Ok(Some(page));
            }
            let pool = &self.groups[number].pool;
            let is_free = |page| pool.holders(page) == 1;
            if !self.tree.evict_page(number, is_free, &mut self.changes.dropped) {
                return Ok(None);
            }
            let Dropped { pages, snapshots } = &self.changes.dropped;
            self.counters.evicted_pages += pages.len() as u64;
            self.counters.evicted_snapshots += snapshots.len() as u64;
            self.give_back(device)?;
        }
    }

    /// Gives back what the tree has given up.
    fn give_back(&mut self, device: &mut dyn State) -> Result<(), DeviceError> {
        let Dropped { pages, snapshots } = &mut self.changes.dropped;
        for (group, page) in pages.drain(..) {
            self.groups[group].pool.give_back(page);
        }
        snapshots.drain(..).try_for_each(|snapshot| device.forget(snapshot))
    }

    /// Puts the computed `tokens` of a sequence into the prefix cache.
    pub(crate) fn publish(
        &mut self,
        sequence: &SequenceState,
        tokens: &[TokenId],
        device: &mut dyn State,
    ) -> Result<(), DeviceError> {
        // Open keys are the last page's, as long as it isn't full; entries before share pages.
        let partial = tokens.len() / PAGE_TOKENS;
        let page_at = |place: usize, group: usize| match self.groups[group].lifetime {
            PageLifetime::Open => sequence.groups[group].page(place).filter(|_| place == partial),
            PageLifetime::Full | PageLifetime::Window(_) => sequence.groups[group].page(place),
        };
        self.tree.publish(sequence.key, tokens, &page_at, &mut self.changes);
        for (group, page) in self.changes.shared.drain(..) {
            self.groups[group].pool.share(page);
        }
        self.give_back(device)
    }

    /// Keeps the windows that a row behind exactly the published `tokens` reads longer than others: where requests are likely
    /// to branch off.
    pub(crate) fn anchor(&mut self, sequence: &SequenceState, tokens: &[TokenId]) {
        self.tree.anchor(sequence.key, tokens);
    }

    /// Says how many rows of each sequence of a step stand, so that the recurrent state of those whose rows could fall is
    /// that after them.
    pub(crate) fn settle(
        &self,
        step: StepId,
        standing: &[u32],
        device: &mut dyn State,
    ) -> Result<(), DeviceError> {
        if self.is_recurrent { device.accept(step, standing) } else { Ok(()) }
    }

    /// Takes a sequence back to its first `tokens` tokens: the pages behind them are given back, since no step in flight
    /// uses them. It can go on from any of the tokens of the last page that has rows which stand, where it has no recurrent
    /// state.
    pub(crate) fn rollback(&mut self, sequence: &mut SequenceState, tokens: usize) {
        for number in 0..self.groups.len() {
            self.give_back_from(number, sequence, tokens.div_ceil(PAGE_TOKENS));
        }
    }

    /// Gives back the pages that nothing reads any more once the first `computed` tokens stand.
    pub(crate) fn commit(&mut self, sequence: &mut SequenceState, computed: usize) {
        for (group, held) in self.groups.iter_mut().zip(&mut sequence.groups) {
            let first = match group.lifetime {
                // The last row of a page is not beyond it yet.
                PageLifetime::Open => computed.saturating_sub(1) / PAGE_TOKENS,
                PageLifetime::Full | PageLifetime::Window(_) => first_page(group.lifetime, computed),
            };
            let unread = first.saturating_sub(held.released).min(held.pages.len());
            for page in held.pages.drain(..unread) {
                group.pool.give_back(page);
            }
            held.released += unread;
        }
    }

    /// Takes out of the prefix cache what a sequence has put there, and what others have put behind it.
    pub(crate) fn quarantine(
        &mut self,
        sequence: &SequenceState,
        tokens: &[TokenId],
        device: &mut dyn State,
    ) -> Result<(), DeviceError> {
        let is_own = |place: usize, pages: &[Option<PageId>]| {
            pages
                .iter()
                .zip(&sequence.groups)
                .any(|(page, group)| page.is_some() && *page == group.page(place))
        };
        self.tree.cut(sequence.key, tokens, &is_own, &mut self.changes.dropped);
        self.give_back(device)
    }

    /// Keeps the recurrent state after exactly the published `tokens`, which is in `bank`.
    pub(crate) fn checkpoint(
        &mut self,
        sequence: &SequenceState,
        bank: RecurrentBank,
        tokens: &[TokenId],
        device: &mut dyn State,
    ) -> Result<(), DeviceError> {
        if self.snapshots == 0 || self.tree.has_snapshot(sequence.key, tokens) {
            return Ok(());
        }
        if self.tree.snapshots() >= self.snapshots {
            let Some(old) = self.tree.evict_snapshot() else { return Ok(()) };
            self.counters.evicted_snapshots += 1;
            device.forget(old)?;
        }
        let snapshot = device.snapshot(bank)?;
        match self.tree.keep_snapshot(sequence.key, tokens, snapshot) {
            Ok(()) => Ok(()),
            Err(unwanted) => device.forget(unwanted),
        }
    }

    /// Gives back everything.
    pub(crate) fn release(&mut self, sequence: &mut SequenceState) {
        self.release_pages(sequence);
        if let Some(recurrent) = &mut sequence.recurrent {
            recurrent.bank = None;
        }
    }

    fn release_pages(&mut self, sequence: &mut SequenceState) {
        for (group, held) in self.groups.iter_mut().zip(&mut sequence.groups) {
            for page in held.pages.drain(..) {
                group.pool.give_back(page);
            }
            held.released = 0;
        }
    }

    /// Checks all invariants against the sequences that hold pages; panics where one doesn't hold.
    pub(crate) fn check<'a>(&mut self, holders: impl Iterator<Item = &'a SequenceState> + Clone) {
        self.tree.check();
        for (number, group) in self.groups.iter_mut().enumerate() {
            let held = holders.clone().flat_map(|holder| &holder.groups[number].pages);
            group.pool.check(self.tree.pages(number).chain(held.copied()));
        }
        assert!(self.tree.snapshots() <= self.snapshots, "snapshots stay within their budget");
    }
}

impl SequenceState {
    /// Takes the memory that a sequence of so many tokens needs for the numbers of its pages.
    pub(crate) fn make_room(&mut self, tokens: usize) {
        // A step may begin a page before the pages behind it are given back.
        let pages = tokens.div_ceil(PAGE_TOKENS) + 1;
        for GroupPages { pages: held, .. } in &mut self.groups {
            held.reserve_exact(pages.saturating_sub(held.len()));
        }
    }

    /// Numbers of pages that there is memory for.
    pub(crate) fn room(&self) -> usize {
        self.groups.iter().map(|group| group.pages.capacity()).sum()
    }

    /// Appends the sequence's pages to a batch's list, and a table a group to its tables.
    pub(crate) fn tables(&self, pages: &mut Vec<PageId>, tables: &mut Vec<PageTable>) {
        let mut table = |group: &GroupPages| {
            let start = pages.len() as u32;
            pages.extend_from_slice(&group.pages);
            PageTable { released: group.released as u32, pages: start..pages.len() as u32 }
        };
        tables.extend(self.groups.iter().map(&mut table));
    }

    /// The banks that the next step reads and writes.
    pub(crate) fn banks(&self) -> Option<RecurrentUse> {
        let RecurrentState { slot, bank } = self.recurrent?;
        let read = bank.map(|bank| RecurrentBank { slot, bank });
        let bank = RecurrentBank { slot, bank: bank.map_or(0, |bank| 1 - bank) };
        let write = if self.may_fall { RecurrentWrite::Candidates(bank) } else { RecurrentWrite::Bank(bank) };
        Some(RecurrentUse { read, write })
    }

    /// The bank that the last submitted step wrote.
    pub(crate) fn bank(&self) -> Option<RecurrentBank> {
        let RecurrentState { slot, bank } = self.recurrent?;
        bank.map(|bank| RecurrentBank { slot, bank })
    }

    /// The step that `banks` was asked for is submitted.
    pub(crate) fn step_submitted(&mut self) {
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.bank = Some(recurrent.bank.map_or(0, |bank| 1 - bank));
        }
    }

    /// The rows of the newest step, which began with `first_index`, are to be computed again.
    pub(crate) fn step_undone(&mut self, first_index: usize) {
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.bank = recurrent.bank.filter(|_| first_index > 0).map(|bank| 1 - bank);
        }
    }
}

/// How many page numbers from `first` on share an open page. Of the pages that certain rows fill only the last one's keys
/// are read again, so they share one; a row that may fall may leave its page as the one that is read.
fn open_shares(first: usize, wanted: usize, certain: usize) -> usize {
    (certain / PAGE_TOKENS + 1).clamp(first + 1, wanted) - first
}

impl GroupPages {
    /// Pages from the sequence's start to the last one held.
    fn reach(&self) -> usize {
        self.released + self.pages.len()
    }

    fn page(&self, place: usize) -> Option<PageId> {
        self.pages.get(place.checked_sub(self.released)?).copied()
    }
}
