//! What the last steps over a state leave for later ones: sampled tokens, rejected drafts, and what the
//! backend keeps.

use super::unknown;
use crate::{Batch, DeviceError, STEPS_REMEMBERED, StepId, TokenId, TokenSource};
use std::collections::VecDeque;

/// The last steps over a state, oldest first; `K` is what a backend keeps of each: captured values, drafted
/// rows.
#[derive(Debug)]
pub struct Steps<K> {
    last: VecDeque<StepMemory<K>>,
}

/// What one step leaves for later ones.
#[derive(Debug)]
pub struct StepMemory<K> {
    id: StepId,
    /// Rows of each sequence.
    rows: Vec<u32>,
    /// What the backend keeps.
    pub kept: K,
    // What sampling decided, once it has.
    sampled: Sampled,
    draws: Draws,
}

/// How far the draws of a step are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draws {
    /// Nobody has said how to make them.
    Missing,
    /// The device makes them, and the host has not looked yet.
    OnDevice,
    Decided,
}

/// What sampling decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// The token of each output.
    pub tokens: Vec<Option<TokenId>>,
    /// Drafts of each sequence that don't stand.
    pub rejected: Vec<u32>,
}

impl<K> StepMemory<K> {
    /// Lets `sample` say what sampling decided, in the memory of an earlier step's.
    pub fn decide(
        &mut self,
        sample: impl FnOnce(&mut Sampled) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        sample(&mut self.sampled)?;
        self.draws = Draws::Decided;
        Ok(())
    }

    /// The device makes the draws: until [`StepMemory::decide`], later steps name its tokens and only the device knows them.
    pub fn draw_on_device(&mut self) {
        self.draws = Draws::OnDevice;
    }

    /// Checks how many rows of each sequence are said to stand.
    pub fn check_accepted(&self, standing: &[u32]) -> Result<(), DeviceError> {
        if standing.len() != self.rows.len() {
            let reason = format!("it has {} sequences, {} were accepted", self.rows.len(), standing.len());
            return Err(unknown("sequence of the step", standing.len() as u64, reason));
        }
        match standing.iter().zip(&self.rows).find(|(standing, rows)| standing > rows) {
            Some((standing, rows)) => {
                Err(unknown("row of a sequence of the step", *standing, format!("it has {rows} rows")))
            }
            None => Ok(()),
        }
    }
}

impl<K> Default for Steps<K> {
    fn default() -> Self {
        Self { last: VecDeque::with_capacity(STEPS_REMEMBERED) }
    }
}

impl<K> Steps<K> {
    /// Remembers a step over a batch, and returns what was kept of the one that is forgotten for it, whose memory it
    /// takes over.
    pub fn remember(&mut self, id: StepId, batch: &Batch, kept: K) -> Option<K> {
        let forgotten = if self.last.len() == STEPS_REMEMBERED { self.last.pop_front() } else { None };
        let (mut rows, sampled, forgotten) = match forgotten {
            Some(StepMemory { rows, sampled, kept, .. }) => (rows, sampled, Some(kept)),
            None => (Vec::new(), Sampled::default(), None),
        };
        rows.clear();
        rows.extend(batch.sequences.iter().map(|sequence| sequence.rows.len() as u32));
        self.last.push_back(StepMemory { id, rows, kept, sampled, draws: Draws::Missing });
        forgotten
    }

    /// A step that is remembered.
    pub fn get(&self, id: StepId) -> Result<&StepMemory<K>, DeviceError> {
        self.last.iter().find(|step| step.id == id).ok_or_else(|| forgotten(id))
    }

    /// A step that is remembered.
    pub fn get_mut(&mut self, id: StepId) -> Result<&mut StepMemory<K>, DeviceError> {
        self.last.iter_mut().find(|step| step.id == id).ok_or_else(|| forgotten(id))
    }

    /// What the backend keeps of each.
    pub fn kept(&self) -> impl Iterator<Item = &K> {
        self.last.iter().map(|step| &step.kept)
    }

    /// The token that an output of a step sampled.
    pub fn token(&self, id: StepId, output: u32) -> Result<TokenId, DeviceError> {
        let token = self.sampled(id)?.tokens.get(output as usize).copied().flatten();
        token.ok_or_else(|| unknown("output", output, format!("step {} sampled no token there", id.0)))
    }

    /// What an output of a step sampled: a token, or where the device finds it while only the device knows.
    pub fn source(&self, id: StepId, output: u32) -> Result<TokenSource, DeviceError> {
        if self.get(id)?.draws == Draws::OnDevice {
            return Ok(TokenSource::Sampled { step: id, output });
        }
        self.token(id, output).map(TokenSource::Known)
    }

    /// The drafts of a step's sequence that don't stand.
    pub fn rejected(&self, id: StepId, sequence: u32) -> Result<u32, DeviceError> {
        let rejected = self.sampled(id)?.rejected.get(sequence as usize).copied();
        rejected.ok_or_else(|| unknown("sequence", sequence, format!("step {} has fewer", id.0)))
    }

    fn sampled(&self, id: StepId) -> Result<&Sampled, DeviceError> {
        let memory = self.get(id)?;
        let sampled = (memory.draws == Draws::Decided).then_some(&memory.sampled);
        sampled.ok_or_else(|| unknown("step", id.0, "it was not sampled yet"))
    }
}

fn forgotten(id: StepId) -> DeviceError {
    unknown("step", id.0, format!("it did not run, or not among the last {STEPS_REMEMBERED}"))
}
