//! What kernels read about a step's rows: one list of words, copied to the device at once.
//!
//! ```text
//! ids [rows] · positions [rows][3] · row_sequence [rows] · row_index [rows] · output_rows [outputs]
//! then for each page group: pages [..] · table_base [sequences]
//! then for each way in which layers attend: its lists of work
//! ```
//!
//! The page of index i of sequence s is `pages[table_base[s] + i / 64]`, where the base is signed: what was released at
//! the front is taken off it. Everything that a kernel would follow is checked here.

use super::work::{Shape, Work};
use crate::driver::Address;
use crate::error::unknown;
use crate::state::CudaState;
use gannet_ops::{Batch, DeviceError, PAGE_TOKENS, PageLifetime, SequenceRows, StateLayout, TokenSource};
use std::ops::Range;

/// Words that lists begin at multiples of: 16 bytes.
const ALIGNMENT: usize = 4;
/// An id that is none: the row brings an embedding.
const NO_ID: u32 = u32::MAX;

/// Lists one after the other, each beginning at a multiple of 16 bytes.
#[derive(Debug, Default)]
pub(super) struct Words(Vec<u32>);

impl Words {
    /// Adds a list; where it begins.
    pub(super) fn add(&mut self, list: impl IntoIterator<Item = u32>) -> usize {
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        let start = self.0.len();
        self.0.extend(list);
        start
    }

    /// All lists.
    pub(super) fn list(&self) -> &[u32] {
        &self.0
    }
}

/// A step's words, and where each list begins.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    words: Words,
    ids: usize,
    positions: usize,
    row_sequence: usize,
    row_index: usize,
    output_rows: usize,
    /// For each page group, its pages and bases.
    groups: Vec<[usize; 2]>,
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

    /// What kernels find pages by: each row's sequence and index, the group's pages, and where each sequence's begin.
    pub(super) fn tables(&self, group: usize) -> [Address; 4] {
        let [pages, base] = self.metadata.groups[group];
        [self.metadata.row_sequence, self.metadata.row_index, pages, base].map(|word| self.at(word))
    }
}

impl Metadata {
    /// As if all lists lay nowhere, to learn which kernels a program needs.
    pub(super) fn nowhere(groups: usize, ways: usize) -> Self {
        // With a row to be split and one in a tile, both kinds of kernels are needed.
        let runs = std::iter::once(0..1).collect();
        let work = Work { partials: 1, tile_count: 1, split_lines: 16, runs, ..Work::default() };
        Self { groups: vec![[0; 2]; groups], work: vec![work; ways], ..Self::default() }
    }

    /// The most partial sums of any way.
    pub(super) fn partials(&self) -> usize {
        self.work.iter().map(|work| work.partials).max().unwrap_or(0)
    }

    /// Fills the lists from a batch in which everything is known; `vocabulary` is that of the ids.
    pub(super) fn fill(
        &mut self,
        batch: &Batch,
        vocabulary: usize,
        (layout, state): (&StateLayout, &CudaState),
        ways: &[Shape],
    ) -> Result<(), DeviceError> {
        self.words.0.clear();
        self.groups.clear();
        let ids: Vec<u32> =
            batch.rows.iter().map(|row| id_of(row.token, vocabulary)).collect::<Result<_, _>>()?;
        self.ids = self.words.add(ids);
        self.positions = self.words.add(batch.rows.iter().flat_map(|row| row.position));
        self.row_sequence = self.words.add(batch.rows.iter().map(|row| row.sequence));
        self.row_index = self.words.add(batch.rows.iter().map(|row| row.index));
        self.output_rows = self.words.add(batch.outputs.iter().map(|output| output.row));
        for (group, lifetime) in layout.groups.iter().map(|group| group.lifetime).enumerate() {
            for sequence in &batch.sequences {
                check_pages(batch, sequence, (group, lifetime), state)?;
            }
            let pages = self.words.add(batch.pages.iter().map(|page| page.0));
            let base = |sequence: &SequenceRows| {
                let table = &sequence.tables[group];
                table.pages.start.wrapping_sub(table.released)
            };
            let bases = self.words.add(batch.sequences.iter().map(base));
            self.groups.push([pages, bases]);
        }
        self.work = ways.iter().map(|way| way.plan(batch, &mut self.words)).collect();
        Ok(())
    }

    /// All words.
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.words.list())
    }
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
        PageLifetime::Full | PageLifetime::Open => 0,
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
