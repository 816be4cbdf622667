//! Rows in groups, as products with panels read them: item after item, those of all rows of a group side by side.
//!
//! ```text
//! [groups, items, rows of a group]
//! ```
//!
//! A product goes over the items of a group's rows from front to back, so what it needs next is what a processor
//! fetches ahead. The last group may have fewer rows, and the places of the others mean nothing.

/// Most rows of a group.
pub(super) const GROUP_ROWS: usize = 16;

/// How many rows the groups of so many rows have: a power of two, so that a tile that more than half fill has room.
pub(super) fn group_of(rows: usize) -> usize {
    rows.clamp(1, GROUP_ROWS).next_power_of_two()
}

/// Rows of so many items each.
pub(super) struct Groups<T> {
    rows: usize,
    group: usize,
    row_items: usize,
    pub(super) items: Vec<T>,
}

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self { rows: 0, group: 1, row_items: 0, items: Vec::new() }
    }
}

impl<T: Copy + Default> Groups<T> {
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// How many rows a group has.
    pub(super) fn group(&self) -> usize {
        self.group
    }

    /// Items of a group.
    pub(super) fn length(&self) -> usize {
        self.row_items * self.group
    }

    /// For each item, those of the rows of a group from this row on.
    //
    // From where the row's first item is: with the place in a group added each time, every operand in memory had two registers
    // for its address, which takes some processors two steps in place of one.
    #[inline(always)]
    pub(super) fn tile(&self, row: usize) -> impl Iterator<Item = &[T]> {
        self.items.get(self.start(row)..).unwrap_or(&[]).chunks(self.group).take(self.row_items)
    }

    /// Makes room for rows of any value.
    pub(super) fn resize(&mut self, rows: usize, group: usize, row_items: usize) {
        (self.rows, self.group, self.row_items) = (rows, group, row_items);
        self.items.resize(rows.next_multiple_of(group) * row_items, T::default());
    }

    /// Replaces the rows by rows of others, the first numbers of pairs; each run of pairs starts a group.
    pub(super) fn gather<'r>(&mut self, from: &Self, runs: impl Iterator<Item = &'r [(u32, u32)]> + Clone) {
        let longest = runs.clone().map(<[_]>::len).max().unwrap_or(0);
        let group = group_of(longest);
        let rows = runs.clone().map(|run| run.len().next_multiple_of(group)).sum();
        self.resize(rows, group, from.row_items);
        let mut first = 0;
        for run in runs {
            for (to, (row, _)) in (first..).zip(run) {
                let (from_start, to_start) = (from.start(*row as usize), self.start(to));
                for item in 0..self.row_items {
                    self.items[to_start + item * group] = from.items[from_start + item * from.group];
                }
            }
            first += run.len().next_multiple_of(group);
        }
    }

    /// Where a row's first item is.
    #[inline(always)]
    fn start(&self, row: usize) -> usize {
        row / self.group * self.length() + row % self.group
    }
}
