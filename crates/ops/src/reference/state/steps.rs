//! What the last steps leave for later ones: captured values, sampled tokens, rejected drafts, kept rows.

use super::super::unknown;
use super::super::values::Numbers;
use super::Kept;
use crate::{Batch, CaptureId, DeviceError, STEPS_REMEMBERED, StepId, TokenId};
use std::collections::{HashMap, VecDeque};

/// The last steps over a state, oldest first.
#[derive(Debug, Default)]
pub(in crate::reference) struct Steps {
    last: VecDeque<StepMemory>,
}

/// What one step leaves for later ones.
#[derive(Debug)]
pub(in crate::reference) struct StepMemory {
    id: StepId,
    /// Rows of each sequence.
    rows: Vec<u32>,
    pub(in crate::reference) captures: HashMap<CaptureId, Numbers>,
    pub(in crate::reference) kept: Vec<Kept>,
    pub(in crate::reference) sampled: Option<Sampled>,
}

/// What sampling decided.
#[derive(Debug)]
pub(in crate::reference) struct Sampled {
    /// The token of each output.
    pub(in crate::reference) tokens: Vec<Option<TokenId>>,
    /// Drafts of each sequence that don't stand.
    pub(in crate::reference) rejected: Vec<u32>,
}

impl StepMemory {
    pub(in crate::reference) fn new(id: StepId, batch: &Batch) -> Self {
        let rows = batch.sequences.iter().map(|sequence| sequence.rows.len() as u32).collect();
        Self { id, rows, captures: HashMap::new(), kept: Vec::new(), sampled: None }
    }

    pub(super) fn check_accepted(&self, standing: &[u32]) -> Result<(), DeviceError> {
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

impl Steps {
    pub(in crate::reference) fn remember(&mut self, step: StepMemory) {
        if self.last.len() == STEPS_REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(step);
    }

    pub(in crate::reference) fn get_mut(&mut self, id: StepId) -> Result<&mut StepMemory, DeviceError> {
        self.last.iter_mut().find(|step| step.id == id).ok_or_else(|| forgotten(id))
    }

    pub(in crate::reference) fn capture(&self, id: StepId, capture: CaptureId) -> Result<&Numbers, DeviceError> {
        let captures = &self.get(id)?.captures;
        captures.get(&capture).ok_or_else(|| unknown("capture", capture.0, format!("step {} kept none", id.0)))
    }

    /// The token that an output of a step sampled.
    pub(in crate::reference) fn token(&self, id: StepId, output: u32) -> Result<TokenId, DeviceError> {
        let token = self.sampled(id)?.tokens.get(output as usize).copied().flatten();
        token.ok_or_else(|| unknown("output", output, format!("step {} sampled no token there", id.0)))
    }

    /// The drafts of a step's sequence that don't stand.
    pub(in crate::reference) fn rejected(&self, id: StepId, sequence: u32) -> Result<u32, DeviceError> {
        let rejected = self.sampled(id)?.rejected.get(sequence as usize).copied();
        rejected.ok_or_else(|| unknown("sequence", sequence, format!("step {} has fewer", id.0)))
    }

    fn get(&self, id: StepId) -> Result<&StepMemory, DeviceError> {
        self.last.iter().find(|step| step.id == id).ok_or_else(|| forgotten(id))
    }

    fn sampled(&self, id: StepId) -> Result<&Sampled, DeviceError> {
        self.get(id)?.sampled.as_ref().ok_or_else(|| unknown("step", id.0, "it was not sampled yet"))
    }
}

fn forgotten(id: StepId) -> DeviceError {
    unknown("step", id.0, format!("it did not run, or not among the last {STEPS_REMEMBERED}"))
}
