//! From a context length to numbers of pages and bytes.

use gannet_ops::{Budget, GroupId, PAGE_TOKENS, PageLifetime, StateBytes, StateLayout};

/// Windows that the prefix cache has room for, for each sequence: the end of what stands before a chat's messages, and that
/// of its last turn.
const CACHED_WINDOWS: usize = 2;

/// What the state has to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Tokens of the longest sequence.
    pub context: usize,
    /// Rows of the largest step.
    pub step_rows: usize,
    /// Steps in flight.
    pub depth: usize,
    /// Sequences of the whole context that run at once.
    pub sequences: u32,
    /// Recurrent snapshots of the prefix cache, where the model has recurrent state.
    pub snapshots: u32,
    /// Rows of each sequence that a step may draft; 0 where nothing drafts.
    pub drafts: u32,
}

/// The state that a wish needs.
pub fn for_wish(layout: &StateLayout, wish: &Wish) -> Budget {
    let snapshots = if layout.is_recurrent() { wish.snapshots } else { 0 };
    let pages = |lifetime: PageLifetime| {
        let tokens = match lifetime {
            PageLifetime::Full => wish.context,
            // The rows of the steps in flight, and the window before the first of them, which may begin in a page; and the
            // windows of places where requests branch off, for the prefix cache.
            PageLifetime::Window(window) => {
                let window = window as usize + PAGE_TOKENS;
                wish.context.min(window * (1 + CACHED_WINDOWS) + wish.depth * wish.step_rows)
            }
            // The page before the steps in flight and one that each of them leaves; the prefix cache has what a
            // snapshot inside of a page needs, and what sequences leave over.
            PageLifetime::Open => {
                return (wish.depth as u32 + 1).saturating_mul(wish.sequences).saturating_add(snapshots);
            }
        };
        u32::try_from(tokens.div_ceil(PAGE_TOKENS)).unwrap_or(u32::MAX).saturating_mul(wish.sequences)
    };
    // The row before the drafts is one of those whose states wait.
    let (candidates, candidate_rows) = match wish.drafts {
        drafts if drafts > 0 && layout.is_recurrent() => {
            (wish.sequences.saturating_mul(wish.depth as u32), drafts.saturating_add(1))
        }
        _ => (0, 0),
    };
    Budget {
        pages: layout.groups.iter().map(|group| pages(group.lifetime)).collect(),
        recurrent_slots: if layout.is_recurrent() { wish.sequences } else { 0 },
        candidates,
        candidate_rows,
        snapshots,
        sampler_slots: if layout.sampler.is_some() { wish.sequences } else { 0 },
    }
}

/// Bytes of the state that a budget is for, by what they are for.
pub fn bytes(layout: &StateLayout, budget: &Budget) -> StateBytes {
    let of_group = |(group, pages): (usize, &u32)| {
        (layout.page_bytes(GroupId(group as u32)) as u64).saturating_mul(u64::from(*pages))
    };
    let units = |bytes: usize, units: u64| (bytes as u64).saturating_mul(units);
    let bank = layout.recurrent_bytes();
    StateBytes {
        pages: budget.pages.iter().enumerate().map(of_group).fold(0, u64::saturating_add),
        slots: units(bank, 2 * u64::from(budget.recurrent_slots)),
        candidates: units(
            layout.candidate_bytes(budget.candidate_rows as usize),
            u64::from(budget.candidates),
        ),
        snapshots: units(bank, u64::from(budget.snapshots)),
    }
}

/// The longest context, at most that of the wish and in whole pages below it, whose state fits into `available`
/// bytes; 0 where none does.
pub fn largest_context(layout: &StateLayout, wish: &Wish, available: u64) -> usize {
    let fits =
        |context: usize| bytes(layout, &for_wish(layout, &Wish { context, ..*wish })).total() <= available;
    if fits(wish.context) {
        return wish.context;
    }
    let (mut fitting, mut too_many) = (0, wish.context.div_ceil(PAGE_TOKENS));
    while fitting + 1 < too_many {
        let middle = fitting.midpoint(too_many);
        if fits(middle * PAGE_TOKENS) {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    fitting * PAGE_TOKENS
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_ops::{
        ConvLayout, DeltaLayout, KvFormat, PageGroup, PagedLayout, RecurrentLayout, Rollback, StateEntry,
    };

    /// A layer of keys and values in half precision and one of recurrent state: a window of 3 inputs of 10 channels, and 2
    /// matrices of 4 x 3.
    fn layout(rollback: Rollback) -> StateLayout {
        let paged = PagedLayout {
            kv_heads: 2,
            key_dim: 8,
            value_dim: 8,
            key_format: KvFormat::F16,
            value_format: KvFormat::F16,
            group: GroupId(0),
            open: None,
        };
        let recurrent = RecurrentLayout {
            conv: ConvLayout { channels: 10, kernel: 4 },
            state: DeltaLayout { value_heads: 2, key_dim: 4, value_dim: 3 },
            rollback,
        };
        StateLayout {
            groups: vec![PageGroup { name: "full".to_owned(), lifetime: PageLifetime::Full }],
            entries: vec![StateEntry::Paged(paged), StateEntry::Recurrent(recurrent)],
            sampler: None,
        }
    }

    #[test]
    fn every_class_of_state_has_its_price() {
        let wish = Wish { context: 1000, step_rows: 64, depth: 2, sequences: 3, snapshots: 5, drafts: 4 };
        let (page, bank) = (2 * 2 * 8 * 64 * 2, (3 * 10 + 2 * 4 * 3) * 4);
        // Of five rows, of which four are drafts: the state before and after each, or the window and what each brings.
        let candidates =
            [(Rollback::Candidates, 6 * bank), (Rollback::Replay, (3 * 10 + 5 * 2 * (10 + 2)) * 4)];
        for (rollback, candidate) in candidates {
            let layout = layout(rollback);
            let expected = StateBytes {
                pages: 3 * 16 * page,
                slots: 3 * 2 * bank,
                candidates: 3 * 2 * candidate,
                snapshots: 5 * bank,
            };
            assert_eq!(bytes(&layout, &for_wish(&layout, &wish)), expected, "{rollback:?}");
            let plain = for_wish(&layout, &Wish { drafts: 0, ..wish });
            assert_eq!(bytes(&layout, &plain), StateBytes { candidates: 0, ..expected });
            // Drafts leave less for the context.
            let all = expected.total();
            assert_eq!(largest_context(&layout, &wish, all), 1000);
            assert_eq!(largest_context(&layout, &wish, all - 1), 15 * 64);
            assert_eq!(largest_context(&layout, &Wish { drafts: 0, ..wish }, all - 6 * candidate), 1000);
        }
    }

    #[test]
    fn a_wish_beyond_all_memory_fits_nowhere() {
        let layout = layout(Rollback::Replay);
        let most = Wish {
            context: usize::MAX,
            step_rows: 64,
            depth: 2,
            sequences: u32::MAX,
            snapshots: u32::MAX,
            drafts: u32::MAX,
        };
        assert_eq!(largest_context(&layout, &most, u64::MAX - 1), 0);
    }
}
