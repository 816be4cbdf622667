//! From a context length to numbers of pages and bytes.

use gannet_ops::{Budget, GroupId, PAGE_TOKENS, PageLifetime, StateLayout};

/// The state that `sequences` sequences of up to `context` tokens need, with steps of up to `step_rows` rows.
pub fn for_context(layout: &StateLayout, context: usize, step_rows: usize, sequences: u32) -> Budget {
    let pages = |lifetime: PageLifetime| {
        let tokens = match lifetime {
            PageLifetime::Full => context,
            // The rows of a step and the window before the first of them, which may begin inside a page.
            PageLifetime::Window(window) => context.min(window as usize + step_rows + PAGE_TOKENS),
        };
        (tokens.div_ceil(PAGE_TOKENS) as u32).saturating_mul(sequences)
    };
    Budget {
        pages: layout.groups.iter().map(|group| pages(group.lifetime)).collect(),
        recurrent_slots: if layout.is_recurrent() { sequences } else { 0 },
        snapshots: 0,
        sampler_slots: if layout.sampler.is_some() { sequences } else { 0 },
    }
}

/// Bytes of the state that a budget allocates.
pub fn bytes(layout: &StateLayout, budget: &Budget) -> u64 {
    let of_group =
        |(group, pages): (usize, &u32)| layout.page_bytes(GroupId(group as u32)) as u64 * u64::from(*pages);
    let paged: u64 = budget.pages.iter().enumerate().map(of_group).sum();
    let banks = 2 * u64::from(budget.recurrent_slots) + u64::from(budget.snapshots);
    paged + layout.recurrent_bytes() as u64 * banks
}

/// The longest context, in whole pages, whose state fits into `available` bytes; 0 where none does.
pub fn largest_context(layout: &StateLayout, at_most: usize, step_rows: usize, available: u64) -> usize {
    let fits = |context: usize| bytes(layout, &for_context(layout, context, step_rows, 1)) <= available;
    if fits(at_most) {
        return at_most;
    }
    let (mut fitting, mut too_many) = (0, at_most.div_ceil(PAGE_TOKENS));
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
