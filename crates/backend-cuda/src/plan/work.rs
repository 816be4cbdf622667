//! Which rows attend together: the lists of items that the attention kernels walk, made once a step for each way in which
//! layers attend.
//!
//! A sequence with few rows is split over its keys: an item is some of its rows and one split of 256 keys, and leaves
//! partial sums that are folded in the order of position. A sequence with many rows goes in tiles of rows, each over all
//! its keys. Both give the same bits, so the choice follows the number of rows.

use gannet_ops::numerics::KEY_SPLIT;
use gannet_ops::{Batch, PAGE_TOKENS, SequenceRows};
use std::ops::Range;

/// Rows of a sequence that are split over its keys, at most.
pub(super) const SPLIT_ROWS_MAX: usize = 16;
/// Lines (rows times the heads that share a kv head) of an item of a split, at most, where a row has no more: what a warp takes at once. Then
/// items are many, and none of them ends long after the others.
const SPLIT_LINES_MAX: usize = 16;
/// What the kernel rounds the lines of an item to.
const LINES: usize = 16;

/// A way in which layers attend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Heads that share a kv head.
    pub(super) group: usize,
    /// Keys that a row sees; all where it is the largest number.
    pub(super) window: u32,
    /// Lines of a tile of rows, at most.
    pub(super) tile_lines: usize,
    /// Rows see the keys of their own page in another form than others do, so that the rows of an item share their page.
    pub(super) has_open_keys: bool,
}

/// The lists of one way, as places in the step's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) splits: usize,
    pub(super) split_count: usize,
    /// The most lines of an item, as the kernel wants them.
    pub(super) split_lines: usize,
    /// For each row, where its partial sums lie, less its first split.
    pub(super) partial_offset: usize,
    /// Partial sums of all rows that see more than one split.
    pub(super) partials: usize,
    /// Whether partial sums are folded.
    pub(super) has_folds: bool,
    pub(super) tiles: usize,
    pub(super) tile_count: usize,
    /// Neighbouring rows that are split.
    pub(super) runs: Vec<Range<usize>>,
}

/// What one way makes of a batch, before it has a place.
#[derive(Debug, Default)]
pub(super) struct Items {
    pub(super) splits: Vec<[u32; 4]>,
    pub(super) split_lines: usize,
    /// For each row.
    pub(super) partial_offset: Vec<u32>,
    pub(super) partials: usize,
    pub(super) tiles: Vec<[u32; 4]>,
    pub(super) runs: Vec<Range<usize>>,
}

impl Shape {
    /// The splits of keys that a row at an index sees.
    fn splits(&self, index: u32) -> Range<usize> {
        let first = (index + 1).saturating_sub(self.window) as usize;
        first / KEY_SPLIT..index as usize / KEY_SPLIT + 1
    }

    /// Items of a batch whose sequences have few rows, at most, where it has so many rows, each at an index below `context`.
    pub(super) fn splits_at_most(&self, rows: usize, context: usize) -> usize {
        let seen = context.min(self.window as usize).div_ceil(KEY_SPLIT) + 1;
        rows * seen
    }

    /// Lines of an item of a batch with so many rows, at most, as the kernel wants them.
    pub(super) fn lines_at_most(&self, rows: usize) -> usize {
        (rows.min(self.rows_of_item()) * self.group).next_multiple_of(LINES)
    }

    fn rows_of_item(&self) -> usize {
        (SPLIT_LINES_MAX / self.group).max(1)
    }

    /// The items of a batch.
    pub(super) fn items(&self, batch: &Batch) -> Items {
        let mut items = Items { partial_offset: vec![0; batch.rows.len()], ..Items::default() };
        let mut tiles: Vec<(u32, [u32; 4])> = Vec::new();
        for (number, sequence) in batch.sequences.iter().enumerate() {
            if sequence.rows.len() > SPLIT_ROWS_MAX {
                self.add_tiles(batch, (number, sequence), &mut tiles);
                continue;
            }
            let rows = sequence.rows.start as usize..sequence.rows.end as usize;
            match items.runs.last_mut() {
                Some(run) if run.end == rows.start => run.end = rows.end,
                Some(_) | None => items.runs.push(rows.clone()),
            }
            for row in rows {
                let seen = self.splits(batch.rows[row].index);
                if seen.len() > 1 {
                    // Signed: the first split may be later than the first partial sum.
                    items.partial_offset[row] = (items.partials as u32).wrapping_sub(seen.start as u32);
                    items.partials += seen.len();
                }
            }
            self.add_splits(batch, (number, sequence), &mut items.splits, &mut items.split_lines);
        }
        // Those that see most begin, so that none of them ends last.
        tiles.sort_by_key(|(last, _)| std::cmp::Reverse(*last));
        items.tiles = tiles.into_iter().map(|(_, tile)| tile).collect();
        items.split_lines = items.split_lines.next_multiple_of(LINES);
        items
    }

    /// Items `[first row, rows, sequence, split]`.
    fn add_splits(
        &self,
        batch: &Batch,
        (number, sequence): (usize, &SequenceRows),
        splits: &mut Vec<[u32; 4]>,
        lines: &mut usize,
    ) {
        for Range { start, end } in self.cut(batch, sequence, self.rows_of_item()) {
            let rows = end - start;
            *lines = (*lines).max(rows as usize * self.group);
            let [low, high] = [start, end - 1].map(|row| batch.rows[row as usize].index);
            let seen = self.splits(low).start..self.splits(high).end;
            splits.extend(seen.map(|split| [start, rows, number as u32, split as u32]));
        }
    }

    /// The rows of a sequence in pieces of at most so many, cut at the edges of pages where it matters.
    fn cut(&self, batch: &Batch, sequence: &SequenceRows, rows_max: usize) -> Vec<Range<u32>> {
        let mut pieces = Vec::new();
        let mut start = sequence.rows.start;
        while start < sequence.rows.end {
            let of_page = PAGE_TOKENS - batch.rows[start as usize].index as usize % PAGE_TOKENS;
            let rows = if self.has_open_keys { rows_max.min(of_page) } else { rows_max };
            let end = sequence.rows.end.min(start + rows as u32);
            pieces.push(start..end);
            start = end;
        }
        pieces
    }

    /// Items `[first row, rows, sequence, 0]`, each with the index of its last row.
    fn add_tiles(
        &self,
        batch: &Batch,
        (number, sequence): (usize, &SequenceRows),
        tiles: &mut Vec<(u32, [u32; 4])>,
    ) {
        for Range { start, end } in self.cut(batch, sequence, (self.tile_lines / self.group).max(1)) {
            let last = batch.rows[end as usize - 1].index;
            tiles.push((last, [start, end - start, number as u32, 0]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_ops::{Length, Row, RowKind, TokenId, TokenSource};

    const CONTEXT: usize = 2048;

    fn batch(sequences: &[(u32, u32)]) -> Batch {
        let mut batch = Batch::default();
        for (number, (length, rows)) in sequences.iter().enumerate() {
            let first = batch.rows.len() as u32;
            batch.rows.extend((*length..length + rows).map(|index| Row {
                sequence: number as u32,
                token: TokenSource::Known(TokenId(0)),
                index,
                position: [index; 3],
                kind: RowKind::Prompt,
            }));
            batch.sequences.push(SequenceRows {
                rows: first..first + rows,
                length: Length::Exact(*length),
                tables: Vec::new(),
                recurrent: None,
                sampler: None,
                adapter: None,
            });
        }
        batch
    }

    /// Rows of an item share their page where they have to.
    fn check_page(shape: Shape, batch: &Batch, first: u32, row: u32) {
        let [first, row] = [first, row].map(|row| batch.rows[row as usize].index as usize / PAGE_TOKENS);
        assert!(!shape.has_open_keys || first == row, "an item reaches from page {first} to {row}");
    }

    fn check(shape: Shape, sequences: &[(u32, u32)]) {
        let batch = batch(sequences);
        let work = shape.items(&batch);
        let mut partials = vec![0; work.partials];
        let (mut rows_of_tiles, mut whole_rows) = (0, vec![0; batch.rows.len()]);
        assert!(work.splits.len() <= shape.splits_at_most(batch.rows.len(), CONTEXT));
        assert!(work.split_lines <= shape.lines_at_most(batch.rows.len()));
        for [first, count, sequence, split] in &work.splits {
            assert!(*count as usize * shape.group <= SPLIT_LINES_MAX.max(shape.group));
            for row in *first..first + count {
                let row_facts = batch.rows[row as usize];
                check_page(shape, &batch, *first, row);
                assert_eq!(row_facts.sequence, *sequence);
                let seen = shape.splits(row_facts.index);
                if !seen.contains(&(*split as usize)) {
                    continue;
                }
                if seen.len() == 1 {
                    whole_rows[row as usize] += 1;
                } else {
                    let offset = work.partial_offset[row as usize];
                    partials[offset.wrapping_add(*split) as usize] += 1;
                }
            }
        }
        assert!(partials.iter().all(|times| *times == 1), "each split that a row sees is in one item");
        assert!(whole_rows.iter().all(|times| *times <= 1), "a row of one split is in one item");
        for [first, count, ..] in &work.tiles {
            rows_of_tiles += count;
            (*first..first + count).for_each(|row| check_page(shape, &batch, *first, row));
            assert!(!work.runs.iter().any(|run| run.contains(&(*first as usize))));
        }
        let rows_of_runs: usize = work.runs.iter().map(Range::len).sum();
        assert_eq!(rows_of_runs + rows_of_tiles as usize, batch.rows.len(), "every row attends once");
    }

    #[test]
    fn each_row_attends_once_over_all_splits_that_it_sees() {
        for window in [u32::MAX, 300, 1] {
            for group in [1, 4, 16, 48] {
                for has_open_keys in [false, true] {
                    let shape = Shape { group, window, tile_lines: 128, has_open_keys };
                    check(shape, &[(0, 1)]);
                    check(shape, &[(1000, 1), (0, 700), (255, 16), (256, 3), (2000, 17), (5, 5)]);
                }
            }
        }
    }
}
