//! What kernels read about a step's rows: lists of words, copied to the device before the step's first kernel.
//!
//! ```text
//! ids [rows] · taken [rows][2] · positions [rows][3] · row_sequence [rows] · row_index [rows] · output_rows [outputs] · sequence_length [sequences]
//! with keys in int8: fills [rows that are the last of their page]
//! with recurrent state: runs [sequences][4] · row_unit [rows]
//! for each page group: table_base [sequences]
//! for each way in which layers attend: split_count [1] · partial_offset [rows]
//! items of the first way · pages of all groups · tiles of rows · items of the other ways
//! ```
//!
//! The page of index i of sequence s is word `table_base[s] + i / 64` of all, where the base is signed: what was released at
//! the front is taken off it. Everything that a kernel would follow is checked here.
//!
//! A captured graph finds each list where it was when it was captured. So with [`Fit::Padded`] the places of the lists follow from
//! the number of rows alone, and rows that are none belong to a sequence of their own, over a page that no other has.

use super::work::{Items, Shape, Work};
use crate::driver::Address;
use crate::error::unknown;
use crate::state::CudaState;
use crate::units::{NO_UNIT, Uses};
use gannet_ops::{
    Batch, DeviceError, PAGE_TOKENS, PageLifetime, PageTable, SequenceRows, StateLayout, StepId, TokenSource,
};
use std::ops::Range;

/// Words that lists begin at multiples of: 16 bytes.
const ALIGNMENT: usize = 4;
/// An id that is none: the row brings an embedding.
const NO_ID: u32 = u32::MAX;
/// A row that is none.
const NO_ROW: u32 = u32::MAX;
/// Words of an item of work.
const ITEM_WORDS: usize = 4;

/// How long the lists of a step are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// As the batch needs.
    Exact,
    /// As a graph needs.
    Padded(Padding),
}

/// Up to which sizes the lists of a graph have room; their places follow from these alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Padding {
    /// Rows, and outputs.
    pub(super) rows: usize,
    /// Rows of a sequence: what an item of work has at most follows from them.
    pub(super) sequence_rows: usize,
    /// No row is at an index of so much.
    pub(super) context: usize,
}

/// Lists one after the other, each beginning at a multiple of 16 bytes.
#[derive(Debug, Default)]
struct Words(Vec<u32>);

impl Words {
    /// Adds a list; where it begins.
    fn add(&mut self, list: impl IntoIterator<Item = u32>) -> usize {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.0.len();
        self.0.extend(list);
        start
    }

    /// Adds a list and as many more words as make it `count`.
    fn add_padded(
        &mut self,
        list: impl IntoIterator<Item = u32>,
        count: usize,
        more: impl FnMut(usize) -> u32,
    ) -> usize {
        let start = self.add(list);
        let have = self.0.len() - start;
        self.0.extend((have..count).map(more));
        start
    }
}

/// A step's words, and where each list begins.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    words: Words,
    /// Lists that lie beyond the others, and where.
    far: Vec<(usize, Vec<u32>)>,
    ids: usize,
    /// Rows whose tokens earlier steps drew and only the device knows: of each step where its pairs of row and output begin, and
    /// how many there are.
    taken: Vec<(StepId, usize, usize)>,
    positions: usize,
    row_sequence: usize,
    row_index: usize,
    output_rows: usize,
    /// Rows that are the last of their page, and places for more where a graph has such.
    fills: usize,
    fill_count: usize,
    sequence_length: usize,
    /// Places in the lists that follow from the number of sequences.
    sequences: usize,
    runs: usize,
    row_unit: usize,
    /// For each page group, its bases.
    groups: Vec<usize>,
    /// For each way in which layers attend, its work.
    work: Vec<Work>,
}

/// The lists of a step on the device.
pub(super) struct Lists<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) start: Address,
}

impl Lists<'_> {
    pub(super) fn at(&self, word: usize) -> Address {
        self.start.offset(word * size_of::<u32>())
    }

    pub(super) fn ids(&self) -> Address {
        self.at(self.metadata.ids)
    }

    pub(super) fn positions(&self) -> Address {
        self.at(self.metadata.positions)
    }

    pub(super) fn work(&self, way: usize) -> &Work {
        &self.metadata.work[way]
    }

    pub(super) fn output_rows(&self) -> Address {
        self.at(self.metadata.output_rows)
    }

    pub(super) fn sequence_length(&self) -> Address {
        self.at(self.metadata.sequence_length)
    }

    /// Rows that are the last of their page, and how many places they have.
    pub(super) fn fills(&self) -> (Address, usize) {
        (self.at(self.metadata.fills), self.metadata.fill_count)
    }

    /// Sequences, and places for more where a graph has such.
    pub(super) fn sequences(&self) -> usize {
        self.metadata.sequences
    }

    /// What kernels find recurrent state by: each sequence's rows and unit, each row's sequence, and the unit after each row.
    pub(super) fn units(&self) -> [Address; 3] {
        let Metadata { runs, row_sequence, row_unit, .. } = self.metadata;
        [*runs, *row_sequence, *row_unit].map(|word| self.at(word))
    }

    /// What kernels find pages by: each row's sequence and index, all words, and where each sequence's pages begin in them.
    pub(super) fn tables(&self, group: usize) -> [Address; 4] {
        let Metadata { row_sequence, row_index, groups, .. } = self.metadata;
        [*row_sequence, *row_index, 0, groups[group]].map(|word| self.at(word))
    }
}

impl Metadata {
    /// As if all lists lay nowhere, to learn which kernels a program needs.
    pub(super) fn nowhere(groups: usize, ways: usize) -> Self {
        // With a row to be split and one in a tile, both kinds of kernels are needed.
        let runs = std::iter::once(0..1).collect();
        let work = Work { has_folds: true, tile_count: 1, split_lines: 16, runs, ..Work::default() };
        let (groups, work) = (vec![0; groups], vec![work; ways]);
        Self { groups, sequences: 1, work, fill_count: 1, ..Self::default() }
    }

    /// The most partial sums of any way.
    pub(super) fn partials(&self) -> usize {
        self.work.iter().map(|work| work.partials).max().unwrap_or(0)
    }

    /// Words that a padded batch of so many rows takes, at most.
    pub(super) fn words_at_most(padding: Padding, (groups, ways): (usize, &[Shape])) -> usize {
        let later = ways.iter().skip(1).map(|way| items_at_most(way, padding));
        near_at_most(padding, (groups, ways)) + later.sum::<usize>()
    }

    /// Whether a padded batch has room for this one.
    pub(super) fn fits(batch: &Batch, padding: Padding, groups: usize) -> bool {
        let Padding { rows, sequence_rows, context } = padding;
        let few = batch.sequences.iter().all(|sequence| sequence.rows.len() <= sequence_rows);
        let below = batch.rows.iter().all(|row| (row.index as usize) < context);
        few && below
            && batch.rows.len() <= rows
            && batch.outputs.len() <= rows
            && batch.pages.len() + groups <= pages_at_most(padding, groups)
    }

    /// Fills the lists from a batch in which everything is known; `vocabulary` is that of the ids, and `open_pages` are the pages of
    /// the scratch for keys of pages that the step both begins and fills.
    pub(super) fn fill(
        &mut self,
        (batch, fit): (&Batch, Fit),
        (vocabulary, open_pages): (usize, usize),
        (layout, state, uses): (&StateLayout, &CudaState, &Uses),
        ways: &[Shape],
    ) -> Result<(), DeviceError> {
        self.words.0.clear();
        self.far.clear();
        self.fill_rows((batch, fit), vocabulary)?;
        let sequences = match fit {
            Fit::Exact => batch.sequences.len(),
            Fit::Padded(Padding { rows, .. }) => rows + 1,
        };
        let lengths = batch.sequences.iter().map(|sequence| sequence.length.at_most());
        self.sequence_length = self.words.add_padded(lengths, sequences, |_| 0);
        self.sequences = sequences;
        if layout.groups.iter().any(|group| group.lifetime == PageLifetime::Open) {
            self.fill_full_pages(batch, fit);
        }
        if layout.is_recurrent() {
            let rows = if let Fit::Padded(Padding { rows, .. }) = fit { rows } else { batch.rows.len() };
            // A place beyond the sequences has no rows.
            self.runs = self.words.add_padded(uses.runs.iter().flatten().copied(), sequences * 4, |_| 0);
            self.row_unit = self.words.add_padded(uses.after.iter().copied(), rows, |_| NO_UNIT);
        }
        self.groups = layout.groups.iter().map(|_| self.words.add_padded([], sequences, |_| 0)).collect();
        let mut items: Vec<Items> = ways.iter().map(|way| way.items(batch)).collect();
        self.place_work(fit, ways, &mut items);
        if let Some((work, items)) = self.work.first_mut().zip(items.first()) {
            work.splits = self.words.add(items.splits.iter().flatten().copied());
        }
        self.place_pages((batch, fit), (layout, state), open_pages)?;
        match fit {
            Fit::Exact => self.place_exactly(&items),
            Fit::Padded(padding) => {
                let start = near_at_most(padding, (layout.groups.len(), ways));
                self.place_far(start, &items, |way| items_at_most(&ways[way], padding));
            }
        }
        Ok(())
    }

    fn fill_rows(&mut self, (batch, fit): (&Batch, Fit), vocabulary: usize) -> Result<(), DeviceError> {
        let (rows, outputs) = match fit {
            Fit::Exact => (batch.rows.len(), batch.outputs.len()),
            Fit::Padded(Padding { rows, .. }) => (rows, rows),
        };
        let ids: Vec<u32> =
            batch.rows.iter().map(|row| id_of(row.token, vocabulary)).collect::<Result<_, _>>()?;
        let words = &mut self.words;
        self.ids = words.add_padded(ids, rows, |_| 0);
        let taken = words.add_padded(list_taken(batch, &mut self.taken), 2 * rows, |_| 0);
        self.taken.iter_mut().for_each(|(_, start, _)| *start += taken);
        self.positions = words.add_padded(batch.rows.iter().flat_map(|row| row.position), rows * 3, |_| 0);
        // The last sequence is that of rows that are none.
        self.row_sequence =
            words.add_padded(batch.rows.iter().map(|row| row.sequence), rows, |_| rows as u32);
        let within_page = |row: usize| (row % PAGE_TOKENS) as u32;
        self.row_index = words.add_padded(batch.rows.iter().map(|row| row.index), rows, within_page);
        self.output_rows = words.add_padded(batch.outputs.iter().map(|output| output.row), outputs, |_| 0);
        Ok(())
    }

    fn fill_full_pages(&mut self, batch: &Batch, fit: Fit) {
        let is_last = |index: u32| index as usize % PAGE_TOKENS == PAGE_TOKENS - 1;
        let rows = (0..).zip(&batch.rows).filter(|(_, row)| is_last(row.index)).map(|(row, _)| row);
        let places = if let Fit::Padded(Padding { rows, .. }) = fit { rows } else { 0 };
        self.fills = self.words.add_padded(rows, places, |_| NO_ROW);
        self.fill_count = self.words.0.len() - self.fills;
    }

    /// Adds what each way makes of the batch, but for its items.
    fn place_work(&mut self, fit: Fit, ways: &[Shape], items: &mut [Items]) {
        self.work.clear();
        for (shape, items) in ways.iter().zip(items) {
            let offsets = std::mem::take(&mut items.partial_offset);
            let (rows, split_lines, runs) = match fit {
                Fit::Exact => (offsets.len(), items.split_lines, std::mem::take(&mut items.runs)),
                Fit::Padded(Padding { rows, sequence_rows, .. }) => {
                    let lines = shape.lines_at_most(rows.min(sequence_rows));
                    (rows, lines, std::iter::once(0..rows).collect())
                }
            };
            self.work.push(Work {
                split_lines,
                runs,
                split_count: self.words.add([items.splits.len() as u32]),
                partial_offset: self.words.add_padded(offsets, rows, |_| 0),
                partials: items.partials,
                // A graph serves steps with rows of several splits too.
                has_folds: items.partials > 0 || fit != Fit::Exact,
                tile_count: items.tiles.len(),
                ..Work::default()
            });
        }
    }

    /// Adds all pages, and says where each sequence's begin.
    fn place_pages(
        &mut self,
        (batch, fit): (&Batch, Fit),
        (layout, state): (&StateLayout, &CudaState),
        open_pages: usize,
    ) -> Result<(), DeviceError> {
        let pages = self.words.add(batch.pages.iter().map(|page| page.0)) as u32;
        for (group, lifetime) in layout.groups.iter().map(|group| group.lifetime).enumerate() {
            let from = state.scratch_from(group);
            let mut scratch = from..from + open_pages as u32;
            for (number, sequence) in batch.sequences.iter().enumerate() {
                check_pages(batch, sequence, (group, lifetime), state)?;
                if lifetime == PageLifetime::Open {
                    self.place_open_pages(batch, (pages, &sequence.tables[group]), &mut scratch)?;
                }
                let table = &sequence.tables[group];
                let base = (pages + table.pages.start).wrapping_sub(table.released);
                self.words.0[self.groups[group] + number] = base;
            }
            if let Fit::Padded(Padding { rows, .. }) = fit {
                self.words.0.push(state.spare_page(group));
                self.words.0[self.groups[group] + rows] = self.words.0.len() as u32 - 1;
            }
        }
        Ok(())
    }

    /// Names pages of the scratch where a page of open keys is that of a later page too: a sequence's rows are written at once, and
    /// only the keys of the last of such pages are read by later steps.
    fn place_open_pages(
        &mut self,
        batch: &Batch,
        (pages, table): (u32, &PageTable),
        scratch: &mut Range<u32>,
    ) -> Result<(), DeviceError> {
        let listed = batch.pages_of(table);
        for (place, page) in listed.iter().enumerate() {
            if listed[place + 1..].contains(page) {
                let missing = || {
                    let reason = "more pages share it than the step has rows for".to_owned();
                    unknown("page of open keys", u64::from(page.0), reason)
                };
                self.words.0[(pages + table.pages.start) as usize + place] =
                    scratch.next().ok_or_else(missing)?;
            }
        }
        Ok(())
    }

    /// Adds the tiles, and the items of the ways after the first.
    fn place_exactly(&mut self, items: &[Items]) {
        for (way, (work, items)) in self.work.iter_mut().zip(items).enumerate() {
            work.tiles = self.words.add(items.tiles.iter().flatten().copied());
            if way > 0 {
                work.splits = self.words.add(items.splits.iter().flatten().copied());
            }
        }
    }

    /// Adds the items of the ways after the first where all others are sure to have ended. Sequences with few rows have no tiles.
    fn place_far(&mut self, start: usize, items: &[Items], room: impl Fn(usize) -> usize) {
        let mut place = start;
        for (way, (work, items)) in self.work.iter_mut().zip(items).enumerate().skip(1) {
            work.splits = place;
            self.far.push((place, items.splits.concat()));
            place += room(way);
        }
    }

    /// Of each step whose tokens rows take: its pairs of row and output, and how many.
    pub(super) fn taken(&self) -> &[(StepId, usize, usize)] {
        &self.taken
    }

    /// All words, in pieces, and at which byte each begins.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let first = std::iter::once((0, &self.words.0));
        let all = first.chain(self.far.iter().map(|(place, list)| (*place, list)));
        all.map(|(place, list)| (place * size_of::<u32>(), bytemuck::cast_slice(list)))
    }

    /// Bytes that the pieces reach to.
    pub(super) fn bytes(&self) -> usize {
        self.pieces().map(|(start, bytes)| start + bytes.len()).max().unwrap_or(0)
    }
}

/// Words of a padded batch before the items of the ways after the first, at most.
fn near_at_most(padding: Padding, (groups, ways): (usize, &[Shape])) -> usize {
    // Of a row: id, what it takes, position, sequence, index, output, whether it fills a page, length, run and unit; a base in each
    // group; partial sums and a count in each way.
    let lists = 16 + groups + 2 * ways.len();
    let items = ways.first().map_or(0, |way| items_at_most(way, padding));
    let near = lists * (padding.rows + 1 + ALIGNMENT) + items + pages_at_most(padding, groups) + ALIGNMENT;
    near.next_multiple_of(ALIGNMENT)
}

/// Words of the items of a way, at most.
fn items_at_most(way: &Shape, Padding { rows, context, .. }: Padding) -> usize {
    way.splits_at_most(rows, context) * ITEM_WORDS + ALIGNMENT
}

/// Pages that sequences of so many rows list, at most, with a spare one of each group.
fn pages_at_most(Padding { rows, context, .. }: Padding, groups: usize) -> usize {
    groups * (rows * (context.div_ceil(PAGE_TOKENS) + 1) + 1)
}

/// Pairs of row and output for the tokens that only the device knows, step by step, and where each step's begin.
fn list_taken(batch: &Batch, taken: &mut Vec<(StepId, usize, usize)>) -> Vec<u32> {
    let mut rows: Vec<(StepId, u32, u32)> = Vec::new();
    for (row, facts) in (0..).zip(&batch.rows) {
        if let TokenSource::Sampled { step, output } = facts.token {
            rows.push((step, row, output));
        }
    }
    rows.sort_unstable_by_key(|(step, row, _)| (*step, *row));
    taken.clear();
    for (place, (step, ..)) in rows.iter().enumerate() {
        match taken.last_mut() {
            Some((last, _, count)) if last == step => *count += 1,
            Some(_) | None => taken.push((*step, 2 * place, 1)),
        }
    }
    rows.iter().flat_map(|(_, row, output)| [*row, *output]).collect()
}

fn id_of(token: TokenSource, vocabulary: usize) -> Result<u32, DeviceError> {
    match token {
        TokenSource::Known(id) if (id.0 as usize) < vocabulary => Ok(id.0),
        TokenSource::Known(id) => Err(DeviceError::UnknownToken { id: id.0, vocabulary }),
        TokenSource::Embedding(_) | TokenSource::Sampled { .. } => Ok(NO_ID),
    }
}

/// Checks that a sequence lists the pages of a group that its rows read and write, and that these exist.
fn check_pages(
    batch: &Batch,
    sequence: &SequenceRows,
    (group, lifetime): (usize, PageLifetime),
    state: &CudaState,
) -> Result<(), DeviceError> {
    let first = sequence.length.at_most() as usize;
    let end = first + sequence.rows.len();
    let start = match lifetime {
        PageLifetime::Full => 0,
        PageLifetime::Open => first,
        PageLifetime::Window(window) => (first + 1).saturating_sub(window as usize),
    };
    let table = &sequence.tables[group];
    let pages = batch.pages_of(table);
    let listed: Range<usize> = table.released as usize..table.released as usize + pages.len();
    let (low, high) = (start / PAGE_TOKENS, (end - 1) / PAGE_TOKENS);
    if low < listed.start || high >= listed.end {
        let index = if low < listed.start { start } else { end - 1 };
        let reason = format!("the table lists pages {listed:?} of the sequence");
        return Err(unknown("page with the token at index", index as u64, reason));
    }
    pages[low - listed.start..=high - listed.start].iter().try_for_each(|page| state.check_page(group, *page))
}
