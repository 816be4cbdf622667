//! A model without weights on a device that remembers tokens instead of keys: each row reads back, through its page tables
//! and recurrent banks, what it stands on, and draws a token that is a hash of it. A wrong page, a stale row or a wrong bank
//! gives another token than [`next_token`] of the tokens alone.
//!
//! Keys in int8 are an image of a page that is made when its last row is written, by a draft too. A drafter is a second
//! plan over the same state, with pages of its own. The device runs behind its host by as many calls as its latency says.

mod calls;
mod device;

use crate::{NumericsId, Runner};
use calls::{SimulatedPlan, SimulatedState};
use device::Device;
use gannet_ops::{
    Budget, ConvLayout, DeltaLayout, GroupId, KvFormat, PAGE_TOKENS, PageGroup, PageLifetime, PagedLayout,
    Plan, RecurrentLayout, Rollback, SamplerLayout, StateEntry, StateLayout, TokenId,
};
use std::sync::{Arc, Mutex};

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

/// The plan of the drafter over the state of a runner.
pub(super) fn drafter(runner: &Runner) -> Box<dyn Plan> {
    let state = runner.state.as_any().downcast_ref::<SimulatedState>().expect("the state is simulated");
    Box::new(SimulatedPlan { device: Arc::clone(&state.device), drafts: true, team: None })
}

/// Has a runner's plan lend threads.
pub(super) fn lend_team(runner: &mut Runner) {
    let state = runner.state.as_any().downcast_ref::<SimulatedState>().expect("the state is simulated");
    let device = Arc::clone(&state.device);
    runner.plan = Box::new(SimulatedPlan { device, drafts: false, team: Some(calls::Threads) });
}

/// A runner over simulated memory, whose device is behind by so many calls unless it is waited for.
pub(super) fn late_runner(kind: Kind, budget: Budget, context: usize, latency: usize) -> Runner {
    let layout = Arc::new(layout(kind));
    let device = Arc::new(Mutex::new(Device::new(&layout, &budget, latency)));
    Runner {
        plan: Box::new(SimulatedPlan { device: Arc::clone(&device), drafts: false, team: None }),
        state: Box::new(SimulatedState { device }),
        layout,
        budget,
        vocabulary: VOCABULARY as usize,
        context,
        step_rows: 256,
        steps_in_flight: 1,
        pooling: None,
        numerics_id: NumericsId::default(),
        major_faults: Box::new(|| None),
        prefix_follower: None,
    }
}

/// A runner whose device has done everything by the time that it is told.
pub(super) fn runner(kind: Kind, budget: Budget, context: usize) -> Runner {
    late_runner(kind, budget, context, 0)
}
