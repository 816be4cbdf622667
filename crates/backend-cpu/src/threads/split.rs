//! Cutting one buffer into parts that members write at the same time.
//!
//! Sizes of parts are the caller's, never a function of the number of members. Small work stays on the
//! caller.

use super::Turn;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Turn<'_> {
    /// Calls `work` for each run of `rows_per_part` rows of `width` elements, with the first row's number and
    /// the scratch of the member that works on it: `scratch` has one a member.
    pub(crate) fn rows<T: Send, S: Send>(
        &mut self,
        out: &mut [T],
        width: usize,
        rows_per_part: usize,
        scratch: &mut [S],
        work: impl Fn(usize, &mut [T], &mut S) + Sync,
    ) {
        assert!(scratch.len() >= self.members(), "a scratch for each member");
        let part_length = (width * rows_per_part).max(1);
        let (length, parts) = (out.len(), out.len().div_ceil(part_length));
        let (out, scratch) = (Shared::new(out), Shared::new(scratch));
        self.each_member(parts, |member, part| {
            let start = part * part_length;
            // SAFETY: parts are distinct runs of the buffer's elements, and each part is worked on once.
            let rows = unsafe { out.run(start, part_length.min(length - start)) };
            // SAFETY: a member works on one part at a time, so nobody else has its scratch.
            let scratch = unsafe { &mut scratch.run(member, 1)[0] };
            work(part * rows_per_part, rows, scratch);
        });
    }

    /// Calls `work` for each run of `step` elements of a buffer, with its start and the same run of a second one, which is as
    /// long or empty.
    pub(crate) fn runs_of_both<T: Send, U: Send>(
        &mut self,
        first: &mut [T],
        second: &mut [U],
        step: usize,
        work: impl Fn(usize, &mut [T], &mut [U]) + Sync,
    ) {
        let (length, has_second) = (first.len(), !second.is_empty());
        assert!(step > 0 && (!has_second || second.len() == length), "the buffers are alike");
        let (first, second) = (Shared::new(first), Shared::new(second));
        self.each_member(length.div_ceil(step), |_, part| {
            let start = part * step;
            let run = step.min(length - start);
            // SAFETY: parts are distinct runs of the buffer's elements, and each part is worked on once.
            let first = unsafe { first.run(start, run) };
            // SAFETY: as above, or nothing of an empty buffer.
            let second = unsafe { if has_second { second.run(start, run) } else { second.run(0, 0) } };
            work(start, first, second);
        });
    }

    /// Calls `work` for each run of `step` columns of a buffer of rows of `width`, with the scratch of the
    /// member that works on it: `scratch` has one a member.
    pub(crate) fn columns<T: Send, S: Send>(
        &mut self,
        out: &mut [T],
        width: usize,
        step: usize,
        scratch: &mut [S],
        work: impl Fn(Columns<'_, T>, &mut S) + Sync,
    ) {
        assert!(scratch.len() >= self.members(), "a scratch for each member");
        assert!(width > 0 && step > 0 && out.len().is_multiple_of(width), "the buffer holds whole rows");
        let rows = out.len() / width;
        let (out, scratch) = (Shared::new(out), Shared::new(scratch));
        self.each_member(width.div_ceil(step), |member, part| {
            let range = part * step..((part + 1) * step).min(width);
            // SAFETY: a member works on one part at a time, so nobody else has its scratch.
            let scratch = unsafe { &mut scratch.run(member, 1)[0] };
            work(Columns { out: &out, width, rows: 0..rows, range }, scratch);
        });
    }

    /// As [`Turn::columns`], of each of some blocks of rows alone, which ascend: `work` gets the block's number.
    pub(crate) fn tiles<T: Send, S: Send>(
        &mut self,
        (out, width, step): (&mut [T], usize, usize),
        blocks: &[Range<usize>],
        scratch: &mut [S],
        work: impl Fn(usize, Columns<'_, T>, &mut S) + Sync,
    ) {
        assert!(scratch.len() >= self.members(), "a scratch for each member");
        assert!(width > 0 && step > 0 && out.len().is_multiple_of(width), "the buffer holds whole rows");
        assert!(blocks.windows(2).all(|pair| pair[0].end <= pair[1].start), "no two blocks share a row");
        assert!(blocks.last().is_none_or(|last| last.end <= out.len() / width), "the buffer has their rows");
        let tiles = width.div_ceil(step);
        let (out, scratch) = (Shared::new(out), Shared::new(scratch));
        self.each_member(blocks.len() * tiles, |member, part| {
            let (block, tile) = (part / tiles, part % tiles);
            let range = tile * step..((tile + 1) * step).min(width);
            // SAFETY: a member works on one part at a time, so nobody else has its scratch.
            let scratch = unsafe { &mut scratch.run(member, 1)[0] };
            work(block, Columns { out: &out, width, rows: blocks[block].clone(), range }, scratch);
        });
    }

    /// Calls `work` for each run of `rows_step` rows and `step` columns of several buffers of as many rows, each with its
    /// width; `work` hears which buffer. Runs of the same rows follow each other.
    pub(crate) fn tiles_of_each<T: Send, const N: usize>(
        &mut self,
        outs: [Option<(&mut [T], usize)>; N],
        (rows_step, step): (usize, usize),
        work: impl Fn(usize, Columns<'_, T>) + Sync,
    ) {
        // (buffer, width, tiles of a run of rows up to its last)
        let (mut tiles, mut rows) = (0, 0);
        let buffers = outs.map(|out| {
            let (out, width) = out?;
            assert!(width > 0 && step > 0 && out.len().is_multiple_of(width), "the buffer holds whole rows");
            assert!(tiles == 0 || rows == out.len() / width, "the buffers have the same rows");
            tiles += width.div_ceil(step);
            rows = out.len() / width;
            Some((Shared::new(out), width, tiles))
        });
        self.each_member(tiles * rows.div_ceil(rows_step), |_, part| {
            let (run, tile) = (part / tiles, part % tiles);
            let mut there =
                buffers.iter().enumerate().filter_map(|(number, it)| Some((number, it.as_ref()?)));
            let found = there.find(|(_, (.., end))| tile < *end);
            let (number, (out, width, end)) = found.expect("the last ends with all");
            let start = (tile + width.div_ceil(step) - end) * step;
            let range = start..(start + step).min(*width);
            let rows = run * rows_step..((run + 1) * rows_step).min(rows);
            work(number, Columns { out, width: *width, rows, range });
        });
    }

    /// As [`Turn::columns`], with run n of `run_length` elements of a second buffer for the part that has
    /// columns `n * step ..`.
    pub(crate) fn columns_and_runs<T: Send>(
        &mut self,
        (out, width, step): (&mut [T], usize, usize),
        (runs, run_length): (&mut [T], usize),
        work: impl Fn(Columns<'_, T>, &mut [T]) + Sync,
    ) {
        assert!(width > 0 && step > 0 && out.len().is_multiple_of(width), "the buffer holds whole rows");
        let (rows, parts) = (out.len() / width, width.div_ceil(step));
        let (out, runs) = (Shared::new(out), Shared::new(runs));
        self.each_member(parts, |_, part| {
            let range = part * step..((part + 1) * step).min(width);
            // SAFETY: parts have distinct runs, and each part is worked on once.
            let run = unsafe { runs.run(part * run_length, run_length) };
            work(Columns { out: &out, width, rows: 0..rows, range }, run);
        });
    }

    /// Calls `work` once for each part below `parts`, with the number of the member that does it: each member has an equal run
    /// of them as its share, and who is done with that helps the others.
    pub(crate) fn each_member(&mut self, parts: usize, work: impl Fn(usize, usize) + Sync) {
        if parts <= 1 || self.is_alone() {
            (0..parts).for_each(|part| work(0, part));
            return;
        }
        let taken = &self.team.shared.taken;
        let members = taken.len();
        taken.iter().for_each(|taken| taken.0.store(0, Ordering::Relaxed));
        self.run(&|member| {
            for share in (member..members).chain(0..member) {
                let (start, end) = (parts * share / members, parts * (share + 1) / members);
                loop {
                    let part = start + taken[share].0.fetch_add(1, Ordering::Relaxed);
                    if part >= end {
                        break;
                    }
                    work(member, part);
                }
            }
        });
    }
}

/// A run of columns of a buffer, or of some of its rows, for one part of the work.
pub(crate) struct Columns<'a, T> {
    out: &'a Shared<'a, T>,
    width: usize,
    rows: Range<usize>,
    // Invariant: within the width, and no other part has any of it in these rows.
    range: Range<usize>,
}

impl<T> Columns<'_, T> {
    /// The rows.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The columns.
    pub(crate) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// These columns of a row.
    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "the part has this row");
        // SAFETY: row and columns lie within the buffer; no other part has these columns of it, and `&mut self`
        // keeps this part from having them twice.
        unsafe { self.out.run(row * self.width + self.range.start, self.range.len()) }
    }
}

/// A borrowed buffer of which members write distinct runs.
struct Shared<'a, T> {
    start: *mut T,
    length: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: it gives out elements by an unsafe function alone, whose callers vouch that no two members have the
// same.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    fn new(buffer: &'a mut [T]) -> Self {
        Self { start: buffer.as_mut_ptr(), length: buffer.len(), borrowed: PhantomData }
    }

    /// Some elements.
    ///
    /// # Safety
    /// Nobody else has any of these elements as long as the result lives.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "the caller vouches that runs are distinct")]
    unsafe fn run(&self, start: usize, length: usize) -> &mut [T] {
        assert!(start <= self.length && length <= self.length - start, "a run lies within its buffer");
        // SAFETY: the run lies within the buffer, which is borrowed for 'a, and the caller vouches for the
        // rest.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }
}
