//! The simulated device itself: its memory, and what it still has to do, in the order in which it was told.

use super::{DRAFT, POISON, VOCABULARY, drawn, mix};
use gannet_ops::sampling::SampleRow;
use gannet_ops::{
    Batch, Budget, GroupId, PAGE_TOKENS, PageId, PageLifetime, RecurrentBank, RecurrentWrite, Row,
    SampleRows, SnapshotId, StateBytes, StateEntry, StateLayout, StepId, TokenId, TokenSource,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// A token and its index, where a row was written.
type Slot = Option<(TokenId, u32)>;

/// What a device is told to do.
pub(super) enum Work {
    /// Rows of a target's step, or of a drafter's.
    Step {
        step: StepId,
        batch: Batch,
        drafts: bool,
    },
    Sample(StepId, SampleRows),
    Copy(GroupId, Vec<(PageId, PageId)>),
    ForgetPages(GroupId, Vec<PageId>),
    Accept(StepId, Vec<u32>),
    Snapshot(SnapshotId, RecurrentBank),
    Restore(SnapshotId, RecurrentBank),
    Forget(SnapshotId),
}

/// What target and drafter share.
pub(super) struct Device {
    pub(super) layout: StateLayout,
    /// What it has not done yet.
    queue: VecDeque<Work>,
    /// Calls that it is behind, unless it is waited for.
    latency: usize,
    next_step: u64,
    pages: Vec<Vec<[Slot; PAGE_TOKENS]>>,
    /// The keys of the pages in int8.
    images: Vec<Vec<[Slot; PAGE_TOKENS]>>,
    banks: HashMap<RecurrentBank, u64>,
    /// Of each step and sequence whose rows may fall: the bank that waits, and the state before its rows and after each.
    candidates: HashMap<(StepId, usize), (RecurrentBank, Vec<u64>)>,
    snapshots: HashMap<SnapshotId, u64>,
    /// Snapshots that were asked for and not forgotten.
    pub(super) taken: HashSet<SnapshotId>,
    pub(super) snapshots_max: usize,
    next_snapshot: u32,
    /// The token that each output of each step draws; none where its scores are not finite.
    drawn: HashMap<StepId, Vec<Option<TokenId>>>,
    /// The outputs of each step whose tokens are drawn.
    draws: HashMap<StepId, Vec<usize>>,
    /// Steps whose tokens are drawn.
    sampled: HashSet<StepId>,
}

impl Device {
    pub(super) fn new(layout: &StateLayout, budget: &Budget, latency: usize) -> Self {
        let empty = |pages: &u32| vec![[None; PAGE_TOKENS]; *pages as usize];
        Self {
            layout: layout.clone(),
            queue: VecDeque::new(),
            latency,
            next_step: 0,
            pages: budget.pages.iter().map(empty).collect(),
            images: budget.pages.iter().map(empty).collect(),
            banks: HashMap::new(),
            candidates: HashMap::new(),
            snapshots: HashMap::new(),
            taken: HashSet::new(),
            snapshots_max: budget.snapshots as usize,
            next_snapshot: 0,
            drawn: HashMap::new(),
            draws: HashMap::new(),
            sampled: HashSet::new(),
        }
    }

    /// Takes work, and does what it is behind with by more than its latency.
    pub(super) fn tell(&mut self, work: Work) {
        self.queue.push_back(work);
        while self.queue.len() > self.latency {
            self.work();
        }
    }

    pub(super) fn name_step(&mut self) -> StepId {
        self.next_step += 1;
        StepId(self.next_step)
    }

    pub(super) fn name_snapshot(&mut self) -> SnapshotId {
        self.next_snapshot += 1;
        let id = SnapshotId(self.next_snapshot);
        self.taken.insert(id);
        id
    }

    /// Works until the tokens of a step are drawn.
    pub(super) fn wait(&mut self, step: StepId) -> Vec<Option<TokenId>> {
        while !self.sampled.contains(&step) {
            assert!(!self.queue.is_empty(), "a step that is waited for was sampled");
            self.work();
        }
        self.drawn[&step].clone()
    }

    /// Does what it was told first.
    fn work(&mut self) {
        match self.queue.pop_front().expect("somebody looked") {
            Work::Step { step, batch, drafts } => self.run(step, &batch, drafts),
            Work::Sample(step, rows) => self.sample(step, &rows),
            Work::Copy(group, copies) => {
                for pages in [&mut self.pages[group.0 as usize], &mut self.images[group.0 as usize]] {
                    for (from, to) in &copies {
                        pages[to.0 as usize] = pages[from.0 as usize];
                    }
                }
            }
            Work::ForgetPages(group, pages) => {
                for page in pages {
                    self.pages[group.0 as usize][page.0 as usize] = [None; PAGE_TOKENS];
                }
            }
            Work::Accept(step, rows) => {
                for (sequence, standing) in rows.iter().enumerate() {
                    if let Some((bank, states)) = self.candidates.remove(&(step, sequence)) {
                        self.banks.insert(bank, states[*standing as usize]);
                    }
                }
            }
            Work::Snapshot(id, bank) => _ = self.snapshots.insert(id, self.banks[&bank]),
            Work::Restore(id, bank) => _ = self.banks.insert(bank, self.snapshots[&id]),
            Work::Forget(id) => _ = self.snapshots.remove(&id).expect("it was taken before"),
        }
    }

    fn run(&mut self, step: StepId, batch: &Batch, drafts: bool) {
        let mut drawn_by_row = HashMap::new();
        for sequence in 0..batch.sequences.len() {
            let rows = batch.sequences[sequence].rows.clone();
            for (row, token) in rows.zip(self.run_sequence(step, batch, sequence, drafts)) {
                drawn_by_row.insert(row, token);
            }
        }
        let draws = batch.outputs.iter().enumerate().filter(|(_, output)| output.want.token);
        self.draws.insert(step, draws.map(|(place, _)| place).collect());
        self.drawn.insert(step, batch.outputs.iter().map(|output| drawn_by_row[&output.row]).collect());
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows) {
        let drawn = self.drawn.get_mut(&step).expect("the step was submitted");
        let draws = &self.draws[&step];
        assert_eq!(rows.rows.len(), draws.len(), "a draw for each output that wants a token");
        for (place, row) in draws.iter().zip(&rows.rows) {
            drawn[*place] = drawn[*place].and_then(|wanted| masked(wanted, row));
        }
        self.sampled.insert(step);
    }

    /// Writes a sequence's rows and returns what each of them draws.
    fn run_sequence(
        &mut self,
        step: StepId,
        batch: &Batch,
        sequence: usize,
        drafts: bool,
    ) -> Vec<Option<TokenId>> {
        let part = &batch.sequences[sequence];
        let used = part.recurrent.filter(|_| !drafts);
        let mut recurrent = vec![used.and_then(|used| used.read).map_or(0, |read| self.banks[&read])];
        let mut drawn_tokens = Vec::new();
        let groups = self.groups_of(drafts);
        self.check_open(batch, sequence, &groups);
        for row in batch.rows_of(sequence) {
            let token = match row.token {
                TokenSource::Known(token) => token,
                TokenSource::Sampled { step, output } => {
                    assert!(self.sampled.contains(&step), "the token was drawn");
                    // A device goes on with something; the request ends when the host hears of it.
                    self.drawn[&step][output as usize].unwrap_or(POISON)
                }
                TokenSource::Embedding(_) => panic!("no request brings embeddings"),
            };
            recurrent.push(mix(recurrent[recurrent.len() - 1], token));
            groups.iter().for_each(|group| self.write(batch, sequence, *group, row.index, token));
            groups.iter().for_each(|group| self.fill(batch, sequence, *group, row.index));
            let mut hashes = [0; 2];
            for (group, hash) in groups.iter().zip(&mut hashes) {
                *hash = self.read(batch, sequence, *group, row.index);
            }
            let recurrent = if used.is_some() { recurrent[recurrent.len() - 1] } else { 0 };
            drawn_tokens.push((token != POISON).then_some(drawn(hashes[0], hashes[1], recurrent)));
        }
        match used.map(|used| used.write) {
            Some(RecurrentWrite::Bank(bank)) => _ = self.banks.insert(bank, recurrent[recurrent.len() - 1]),
            Some(RecurrentWrite::Candidates(bank)) => {
                self.banks.remove(&bank);
                self.candidates.insert((step, sequence), (bank, recurrent));
            }
            None => {}
        }
        drawn_tokens
    }

    /// The groups of the target's pages, or of its drafter's.
    fn groups_of(&self, drafts: bool) -> Vec<usize> {
        let is_its = |group: &usize| self.layout.groups[*group].name.starts_with(DRAFT) == drafts;
        (0..self.layout.groups.len()).filter(is_its).collect()
    }

    /// The group of the open keys of a group in int8.
    fn open_of(&self, group: usize) -> Option<usize> {
        self.layout.entries.iter().find_map(|entry| match entry {
            StateEntry::Paged(paged) if paged.group.0 as usize == group => {
                paged.open.map(|open| open.0 as usize)
            }
            StateEntry::Paged(_) | StateEntry::Recurrent(_) => None,
        })
    }

    fn page(&self, batch: &Batch, sequence: usize, group: usize, index: u32) -> usize {
        let table = &batch.sequences[sequence].tables[group];
        let place = (index as usize / PAGE_TOKENS).checked_sub(table.released as usize);
        batch.pages_of(table)[place.expect("no row reads a released page")].0 as usize
    }

    fn slot(&mut self, batch: &Batch, sequence: usize, group: usize, index: u32) -> &mut Slot {
        let page = self.page(batch, sequence, group, index);
        &mut self.pages[group][page][index as usize % PAGE_TOKENS]
    }

    /// A device writes all rows of a layer before it reads the first row's open page.
    fn check_open(&self, batch: &Batch, sequence: usize, groups: &[usize]) {
        let rows = batch.rows_of(sequence);
        let number = |row: Option<&Row>| row.expect("a sequence has rows").index as usize / PAGE_TOKENS;
        let (first, last) = (number(rows.first()), number(rows.last()));
        for &group in groups {
            if self.layout.groups[group].lifetime == PageLifetime::Open {
                let page = |number: usize| self.page(batch, sequence, group, (number * PAGE_TOKENS) as u32);
                let is_shared = (first + 1..=last).any(|number| page(number) == page(first));
                let is_read = !(rows[0].index as usize).is_multiple_of(PAGE_TOKENS);
                assert!(!is_read || !is_shared, "the first row's open page is written by others");
            }
        }
    }

    fn write(&mut self, batch: &Batch, sequence: usize, group: usize, index: u32, token: TokenId) {
        *self.slot(batch, sequence, group, index) = Some((token, index));
    }

    /// The last row of a page makes the image of its keys.
    fn fill(&mut self, batch: &Batch, sequence: usize, group: usize, index: u32) {
        let is_last = (index as usize + 1).is_multiple_of(PAGE_TOKENS);
        if let Some(open) = self.open_of(group).filter(|_| is_last) {
            let from = self.page(batch, sequence, open, index);
            let to = self.page(batch, sequence, group, index);
            self.images[group][to] = self.pages[open][from];
        }
    }

    /// The hash of all tokens that a row at this index sees.
    fn read(&mut self, batch: &Batch, sequence: usize, group: usize, index: u32) -> u64 {
        let first = match self.layout.groups[group].lifetime {
            PageLifetime::Full => 0,
            PageLifetime::Window(window) => (index + 1).saturating_sub(window),
            PageLifetime::Open => index - index % PAGE_TOKENS as u32,
        };
        (first..=index).fold(0, |hash, at| {
            let slot = *self.slot(batch, sequence, group, at);
            let (token, written_as) = slot.expect("the row was written");
            assert_eq!(written_as, at, "a page is read at the place where it was written");
            let is_earlier_page = at as usize / PAGE_TOKENS < index as usize / PAGE_TOKENS;
            if self.open_of(group).is_some() && is_earlier_page {
                let page = self.page(batch, sequence, group, at);
                let image = self.images[group][page][at as usize % PAGE_TOKENS];
                assert_eq!(image, slot, "the image of a page has the keys of its rows");
            }
            mix(hash, token)
        })
    }

    /// A page that was written counts as a whole one.
    pub(super) fn bytes(&self) -> StateBytes {
        let written = |pages: &[[Slot; PAGE_TOKENS]]| {
            pages.iter().filter(|page| page.iter().any(Option::is_some)).count()
        };
        let of_group = |(group, pages): (usize, &Vec<_>)| {
            (self.layout.page_bytes(GroupId(group as u32)) * written(pages)) as u64
        };
        let recurrent = |units: usize| (self.layout.recurrent_bytes() * units) as u64;
        StateBytes {
            pages: self.pages.iter().enumerate().map(of_group).sum(),
            slots: recurrent(self.banks.len()),
            candidates: recurrent(self.candidates.values().map(|(_, states)| states.len()).sum()),
            snapshots: recurrent(self.snapshots.len()),
        }
    }
}

/// The first token from `wanted` on that the row may draw, from the lowest again after the highest.
fn masked(wanted: TokenId, row: &SampleRow) -> Option<TokenId> {
    let Some(allowed) = &row.allowed else { return Some(wanted) };
    let is_set = |token: &u32| allowed[*token as usize / 32] >> (token % 32) & 1 == 1;
    (wanted.0..wanted.0 + VOCABULARY).map(|token| token % VOCABULARY).find(is_set).map(TokenId)
}
