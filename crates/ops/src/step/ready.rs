//! The draws of a step that depend on no other draw of it, so that a backend may make them in any order and on any thread.

use super::PendingStep;
use crate::sampling::{History, SampleRow};
use crate::{DeviceError, SampleRows, SequenceRows};
use std::borrow::Cow;

/// Draws that may be made now.
#[derive(Debug)]
pub struct ReadyDraws<'a> {
    rows: Cow<'a, [SampleRow]>,
    histories: &'a [History],
    none: History,
    /// For each draw its output, its row of parameters, and the slot of its history.
    places: Vec<(usize, usize, Option<usize>)>,
}

impl<'a> ReadyDraws<'a> {
    /// Those of a step: the first of each sequence, since later ones look back at it; of sequences that share a slot, which
    /// look back at one another, none but the first sequence's.
    ///
    /// # Errors
    /// Another number of rows than outputs that want a token. A slot that the state has not is the sampling's error.
    pub fn of<V>(
        step: &PendingStep<V>,
        rows: &'a SampleRows,
        histories: &'a [History],
    ) -> Result<Self, DeviceError> {
        let batch = &step.resolved.batch;
        let rows = step.resolved.moved(&rows.rows)?;
        let mut places: Vec<(usize, usize, Option<usize>)> = Vec::with_capacity(batch.sequences.len());
        let mut used = vec![false; histories.len()];
        let mut last = None;
        let wanted = batch.outputs.iter().enumerate().filter(|(_, asked)| asked.want.token);
        for (row, (output, asked)) in wanted.enumerate() {
            let sequence = batch.rows[asked.row as usize].sequence;
            let slot = |sequence: &SequenceRows| sequence.sampler.map(|slot| slot.0 as usize);
            let slot = slot(&batch.sequences[sequence as usize]);
            let is_first = last.replace(sequence) != Some(sequence);
            let is_free =
                slot.is_none_or(|slot| used.get_mut(slot).is_some_and(|used| !std::mem::replace(used, true)));
            if is_first && is_free {
                places.push((output, row, slot));
            }
        }
        Ok(Self { rows, histories, none: History::default(), places })
    }

    /// Those of some outputs.
    pub fn only(mut self, is_wanted: impl Fn(usize) -> bool) -> Self {
        self.places.retain(|(output, ..)| is_wanted(*output));
        self
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// One of them: its output, its parameters, and what it looks back at.
    pub fn get(&self, number: usize) -> (usize, &SampleRow, &History) {
        let (output, row, slot) = self.places[number];
        (output, &self.rows[row], slot.map_or(&self.none, |slot| &self.histories[slot]))
    }
}
