//! Who runs in the next step, and how far.
//!
//! One sequence runs at a time; the others wait in the order in which they came. A prompt longer than a step's
//! rows is computed in chunks, which changes no bit of the result.

use crate::sequence::Sequence;
use std::collections::VecDeque;
use std::ops::Range;

/// Sequences that may run at once.
pub(crate) const MAX_RUNNING: usize = 1;

/// Requests that may wait.
pub(crate) const MAX_WAITING: usize = 64;

/// The running and the waiting.
#[derive(Default)]
pub(crate) struct Scheduler {
    pub(crate) running: Vec<Sequence>,
    pub(crate) waiting: VecDeque<Sequence>,
}

/// The rows of a step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StepPlan {
    pub(crate) scheduled: Vec<Scheduled>,
}

/// A running sequence's part of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scheduled {
    /// Its place among the running.
    pub(crate) running: usize,
    /// The tokens to compute, by index.
    pub(crate) tokens: Range<usize>,
    /// Whether they are the last pending ones, so that the next token can be drawn.
    pub(crate) draws: bool,
}

impl Scheduler {
    /// The waiting sequence that may start now.
    pub(crate) fn next_to_start(&mut self) -> Option<Sequence> {
        if self.running.len() < MAX_RUNNING { self.waiting.pop_front() } else { None }
    }

    /// Shares a step's rows among the running sequences, in order.
    pub(crate) fn plan(&self, step_rows: usize) -> StepPlan {
        let mut left = step_rows;
        let mut plan = StepPlan::default();
        for (running, sequence) in self.running.iter().enumerate() {
            let rows = sequence.pending().min(left);
            if rows > 0 {
                let tokens = sequence.computed..sequence.computed + rows;
                plan.scheduled.push(Scheduled { running, tokens, draws: rows == sequence.pending() });
                left -= rows;
            }
        }
        plan
    }
}
