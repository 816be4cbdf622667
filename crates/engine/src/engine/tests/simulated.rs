//! A device that remembers tokens instead of keys: each row reads back, through its page tables and recurrent banks,
//! what it stands on, and draws a token that is a hash of it. A wrong page, a stale row or a wrong bank gives another
//! token than [`next_token`] of the tokens alone.
//!
//! Keys in int8 are an image of a page that is made when its last row is written, by a draft too. A drafter is a second
//! plan over the same state, with pages of its own.

use crate::{NumericsId, Runner};
use gannet_ops::sampling::{History, SampleRow};
use gannet_ops::{
    Batch, Budget, ConvLayout, DeltaLayout, DeviceError, GroupId, Interrupter, KvFormat, NodeObserver,
    OutputResult, PAGE_TOKENS, PageGroup, PageId, PageLifetime, PagedLayout, Plan, RecurrentBank,
    RecurrentLayout, RecurrentWrite, Rollback, Row, SampleRows, SamplerLayout, SamplerSlot, SnapshotId,
    State, StateEntry, StateLayout, StepId, StepOutput, TokenId, TokenLogprobs, TokenSource,
};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) const VOCABULARY: u32 = 1000;
/// What the simulated model says after this token is not a number.
pub(super) const POISON: TokenId = TokenId(998);
/// Tokens of the window of the simulated window layer.
pub(super) const WINDOW: u32 = 100;

/// Which state the simulated model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dense,
    Windowed,
    Hybrid,
    /// Keys in int8: a row sees those of its own page in an open page.
    Quantised,
    QuantisedHybrid,
    /// With a drafter, whose pages are of the same kinds.
    Drafted,
    QuantisedHybridDrafted,
}

impl Kind {
    /// Those that the engine runs alone.
    pub(super) const ALL: [Kind; 5] =
        [Kind::Dense, Kind::Windowed, Kind::Hybrid, Kind::Quantised, Kind::QuantisedHybrid];

    pub(super) const DRAFTED: [Kind; 2] = [Kind::Drafted, Kind::QuantisedHybridDrafted];

    pub(super) fn is_recurrent(self) -> bool {
        matches!(self, Kind::Hybrid | Kind::QuantisedHybrid | Kind::QuantisedHybridDrafted)
    }

    fn is_quantised(self) -> bool {
        matches!(self, Kind::Quantised | Kind::QuantisedHybrid | Kind::QuantisedHybridDrafted)
    }
}

/// What the drafter's groups of pages are called.
const DRAFT: &str = "draft";

fn mix(hash: u64, token: TokenId) -> u64 {
    (hash ^ u64::from(token.0 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

fn drawn(full: u64, window: u64, recurrent: u64) -> TokenId {
    let hash =
        (full ^ window.rotate_left(17) ^ recurrent.rotate_left(41)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    TokenId((hash >> 33) as u32 % VOCABULARY)
}

/// What the simulated model says after these tokens.
pub(super) fn next_token(kind: Kind, tokens: &[TokenId]) -> TokenId {
    let hash = |tokens: &[TokenId]| tokens.iter().fold(0, |hash, token| mix(hash, *token));
    let window = &tokens[tokens.len().saturating_sub(WINDOW as usize)..];
    let own_page = &tokens[(tokens.len() - 1) / PAGE_TOKENS * PAGE_TOKENS..];
    let second = match kind {
        Kind::Windowed => hash(window),
        Kind::Quantised | Kind::QuantisedHybrid | Kind::QuantisedHybridDrafted => hash(own_page),
        Kind::Dense | Kind::Hybrid | Kind::Drafted => 0,
    };
    drawn(hash(tokens), second, if kind.is_recurrent() { hash(tokens) } else { 0 })
}

/// What its drafter says.
pub(super) fn drafted_token(kind: Kind, tokens: &[TokenId]) -> TokenId {
    let without_recurrent = if kind.is_quantised() { Kind::Quantised } else { Kind::Dense };
    next_token(without_recurrent, tokens)
}

pub(super) fn layout(kind: Kind) -> StateLayout {
    let group = |name: &str, lifetime| PageGroup { name: name.to_owned(), lifetime };
    let paged = |group, key_format, open| {
        let value_format = KvFormat::F16;
        let (key_dim, value_dim) = (1, 1);
        StateEntry::Paged(PagedLayout {
            kv_heads: 1,
            key_dim,
            value_dim,
            key_format,
            value_format,
            group,
            open,
        })
    };
    let exact = |group| paged(GroupId(group), KvFormat::F16, None);
    let quantised = |group| paged(GroupId(group), KvFormat::Int8, Some(GroupId(group + 1)));
    let recurrent = StateEntry::Recurrent(RecurrentLayout {
        conv: ConvLayout { channels: 1, kernel: 2 },
        state: DeltaLayout { value_heads: 1, key_dim: 1, value_dim: 1 },
        rollback: Rollback::Replay,
    });
    let full = group("full", PageLifetime::Full);
    let open = group("open keys", PageLifetime::Open);
    let draft = group(DRAFT, PageLifetime::Full);
    let (groups, entries) = match kind {
        Kind::Dense => (vec![full], vec![exact(0)]),
        Kind::Windowed => {
            (vec![full, group("window", PageLifetime::Window(WINDOW))], vec![exact(0), exact(1)])
        }
        Kind::Hybrid => (vec![full], vec![exact(0), recurrent]),
        Kind::Quantised => (vec![full, open], vec![quantised(0)]),
        Kind::QuantisedHybrid => (vec![full, open], vec![quantised(0), recurrent]),
        Kind::Drafted => (vec![full, draft], vec![exact(0), exact(1)]),
        Kind::QuantisedHybridDrafted => {
            let open_draft = group("draft open keys", PageLifetime::Open);
            (vec![full, open, draft, open_draft], vec![quantised(0), recurrent, quantised(2)])
        }
    };
    StateLayout { groups, entries, sampler: Some(SamplerLayout { vocabulary: VOCABULARY as usize }) }
}

/// The plan of the drafter over the same state.
pub(super) fn drafter() -> Box<dyn Plan> {
    Box::new(SimulatedPlan { drafts: true, ..SimulatedPlan::default() })
}

/// A runner over simulated memory.
pub(super) fn runner(kind: Kind, budget: Budget, context: usize) -> Runner {
    let state = SimulatedState {
        layout: layout(kind),
        pages: budget.pages.iter().map(|pages| vec![[None; PAGE_TOKENS]; *pages as usize]).collect(),
        images: budget.pages.iter().map(|pages| vec![[None; PAGE_TOKENS]; *pages as usize]).collect(),
        banks: HashMap::new(),
        candidates: HashMap::new(),
        snapshots: HashMap::new(),
        snapshots_max: budget.snapshots as usize,
        next_snapshot: 0,
    };
    Runner {
        plan: Box::new(SimulatedPlan::default()),
        state: Box::new(state),
        layout: Arc::new(layout(kind)),
        budget,
        vocabulary: VOCABULARY as usize,
        context,
        step_rows: 256,
        pooling: None,
        numerics_id: NumericsId::default(),
        major_faults: Box::new(|| None),
        prefix_follower: None,
    }
}

/// A token and its index, where a row was written.
type Slot = Option<(TokenId, u32)>;

struct SimulatedState {
    layout: StateLayout,
    pages: Vec<Vec<[Slot; PAGE_TOKENS]>>,
    /// The keys of the pages in int8.
    images: Vec<Vec<[Slot; PAGE_TOKENS]>>,
    banks: HashMap<RecurrentBank, u64>,
    /// Of each step and sequence whose rows may fall: the bank that waits, and the state before its rows and after each.
    candidates: HashMap<(StepId, usize), (RecurrentBank, Vec<u64>)>,
    snapshots: HashMap<SnapshotId, u64>,
    snapshots_max: usize,
    next_snapshot: u32,
}

#[derive(Default)]
struct SimulatedPlan {
    /// Runs the drafter, which has no recurrent state.
    drafts: bool,
    next_step: u64,
    /// The token that each output of each step draws; none where its scores are not finite.
    drawn: HashMap<StepId, Vec<Option<TokenId>>>,
    /// The outputs of each step whose tokens are drawn.
    draws: HashMap<StepId, Vec<usize>>,
    /// Steps whose draws were asked for.
    sampled: Vec<StepId>,
}

impl Plan for SimulatedPlan {
    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        let state = state.as_any_mut().downcast_mut::<SimulatedState>().expect("the state is simulated");
        batch.check(&state.layout)?;
        let mut drawn_by_row = HashMap::new();
        self.next_step += 1;
        let step = StepId(self.next_step);
        for sequence in 0..batch.sequences.len() {
            let rows = batch.sequences[sequence].rows.clone();
            for (row, token) in rows.zip(self.run_sequence(step, batch, sequence, state)) {
                drawn_by_row.insert(row, token);
            }
        }
        let draws = batch.outputs.iter().enumerate().filter(|(_, output)| output.want.token);
        self.draws.insert(step, draws.map(|(place, _)| place).collect());
        self.drawn.insert(step, batch.outputs.iter().map(|output| drawn_by_row[&output.row]).collect());
        Ok(step)
    }

    fn submit_traced(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        _observe: &mut NodeObserver<'_>,
    ) -> Result<StepId, DeviceError> {
        self.submit(batch, state)
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, _state: &mut dyn State) -> Result<(), DeviceError> {
        let drawn = self.drawn.get_mut(&step).expect("the step was submitted");
        let draws = &self.draws[&step];
        assert_eq!(rows.rows.len(), draws.len(), "a draw for each output that wants a token");
        for (place, row) in draws.iter().zip(&rows.rows) {
            drawn[*place] = drawn[*place].and_then(|wanted| masked(wanted, row));
        }
        self.sampled.push(step);
        Ok(())
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        let result = |token: &Option<TokenId>| OutputResult {
            token: *token,
            logprobs: Some(TokenLogprobs::default()),
            not_finite: token.is_none(),
            ..OutputResult::default()
        };
        Ok(StepOutput { outputs: self.drawn[&step].iter().map(result).collect(), accepted: Vec::new() })
    }

    fn interrupter(&self) -> Interrupter {
        Interrupter::default()
    }
}

/// The first token from `wanted` on that the row may draw, from the lowest again after the highest.
fn masked(wanted: TokenId, row: &SampleRow) -> Option<TokenId> {
    let Some(allowed) = &row.allowed else { return Some(wanted) };
    let is_set = |token: &u32| allowed[*token as usize / 32] >> (token % 32) & 1 == 1;
    (wanted.0..wanted.0 + VOCABULARY).map(|token| token % VOCABULARY).find(is_set).map(TokenId)
}

impl SimulatedPlan {
    /// Writes a sequence's rows and returns what each of them draws.
    fn run_sequence(
        &self,
        step: StepId,
        batch: &Batch,
        sequence: usize,
        state: &mut SimulatedState,
    ) -> Vec<Option<TokenId>> {
        let part = &batch.sequences[sequence];
        let used = part.recurrent.filter(|_| !self.drafts);
        let mut recurrent = vec![used.and_then(|used| used.read).map_or(0, |read| state.banks[&read])];
        let mut drawn_tokens = Vec::new();
        let groups = state.groups_of(self.drafts);
        state.check_open(batch, sequence, &groups);
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
            groups.iter().for_each(|group| state.write(batch, sequence, *group, row.index, token));
            groups.iter().for_each(|group| state.fill(batch, sequence, *group, row.index));
            let mut hashes = [0; 2];
            for (group, hash) in groups.iter().zip(&mut hashes) {
                *hash = state.read(batch, sequence, *group, row.index);
            }
            let recurrent = if used.is_some() { recurrent[recurrent.len() - 1] } else { 0 };
            drawn_tokens.push((token != POISON).then_some(drawn(hashes[0], hashes[1], recurrent)));
        }
        match used.map(|used| used.write) {
            Some(RecurrentWrite::Bank(bank)) => _ = state.banks.insert(bank, recurrent[recurrent.len() - 1]),
            Some(RecurrentWrite::Candidates(bank)) => {
                state.banks.remove(&bank);
                state.candidates.insert((step, sequence), (bank, recurrent));
            }
            None => {}
        }
        drawn_tokens
    }
}

impl SimulatedState {
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
}

impl State for SimulatedState {
    fn copy_pages(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        for pages in [&mut self.pages[group.0 as usize], &mut self.images[group.0 as usize]] {
            for (from, to) in copies {
                pages[to.0 as usize] = pages[from.0 as usize];
            }
        }
        Ok(())
    }

    fn forget_pages(&mut self, group: GroupId, pages: &[PageId]) -> Result<(), DeviceError> {
        for page in pages {
            self.pages[group.0 as usize][page.0 as usize] = [None; PAGE_TOKENS];
        }
        Ok(())
    }

    fn accept(&mut self, step: StepId, rows: &[u32]) -> Result<(), DeviceError> {
        for (sequence, standing) in rows.iter().enumerate() {
            if let Some((bank, states)) = self.candidates.remove(&(step, sequence)) {
                self.banks.insert(bank, states[*standing as usize]);
            }
        }
        Ok(())
    }

    fn snapshot(&mut self, bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        assert!(self.snapshots.len() < self.snapshots_max, "snapshots stay within their budget");
        self.next_snapshot += 1;
        let id = SnapshotId(self.next_snapshot);
        self.snapshots.insert(id, self.banks[&bank]);
        Ok(id)
    }

    fn restore(&mut self, snapshot: SnapshotId, bank: RecurrentBank) -> Result<(), DeviceError> {
        self.banks.insert(bank, self.snapshots[&snapshot]);
        Ok(())
    }

    fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError> {
        self.snapshots.remove(&snapshot).map(|_| ()).ok_or(DeviceError::Interrupted)
    }

    fn start_history(&mut self, _slot: SamplerSlot, _history: History) -> Result<(), DeviceError> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
