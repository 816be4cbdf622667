//! Who runs in the next step, and how far.
//!
//! Every running sequence advances in each step, but for prompts in those that measure decoding alone. Decoding ones have
//! their row first. What is left of the step's rows is shared among prompts: a quarter evenly, so that nobody stands
//! still, half of the rest to those that have run for long, in the order in which they came, and what is left to the
//! prompt with the fewest tokens. So a long one neither starves nor holds up short ones. Which rows a step holds changes no
//! bit of any answer, so all of this is free to change.

mod budget;
mod queue;

pub(crate) use budget::{StepBudget, StepRows};
pub(crate) use queue::{Pace, Queue};

use crate::request::RequestId;
use crate::sequence::{Running, Sequence};
use std::fmt;
use std::ops::Range;
use std::time::Duration;

/// A prompt that has run for so long has a share that shorter ones don't get.
const PROMPT_AGE_LIMIT: Duration = Duration::from_secs(2);

/// Rows of a step that say how likely the prompt's next token is: each brings a whole row of scores, a megabyte of them
/// for a large vocabulary.
const SCORED_ROWS: usize = 32;

/// The rows of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepPlan {
    pub(crate) parts: Vec<Part>,
}

/// One sequence's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) id: RequestId,
    /// The tokens to compute, by index.
    pub(crate) tokens: Range<usize>,
    /// Of these, the ones that say how likely the prompt's next token is.
    pub(crate) scores: Range<usize>,
    /// Whether the token after them is drawn.
    pub(crate) draws: bool,
    /// Whether it was to be drawn, and the rows behind `tokens` are computed again because its mask was late.
    pub(crate) is_put_off: bool,
}

impl StepPlan {
    /// The rows, by what they are there for: one that draws the token after it, or several.
    pub(crate) fn rows(&self) -> StepRows {
        let mut rows = StepRows::default();
        for part in &self.parts {
            match part.draws && part.tokens.len() == 1 {
                true => rows.decoding += 1,
                false => (rows.prompts, rows.chunks) = (rows.prompts + part.tokens.len(), rows.chunks + 1),
            }
        }
        rows
    }
}

impl fmt::Display for StepPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.parts.iter().enumerate() {
            let separator = if place == 0 { "" } else { ", " };
            let draws = if part.draws { " draws" } else { "" };
            write!(f, "{separator}r{} {}..{}{draws}", part.id.0, part.tokens.start, part.tokens.end)?;
        }
        Ok(())
    }
}

/// Plans steps, each in the memory of the one before.
#[derive(Default)]
pub(crate) struct Planner {
    /// Rows that each running sequence could have, and those that it gets.
    pending: Vec<usize>,
    shares: Vec<usize>,
    /// Places of the prompts among the running sequences.
    prompts: Vec<usize>,
    /// Parts of an earlier step, emptied.
    spare: Vec<Vec<Part>>,
}

impl Planner {
    /// Shares `rows` rows among the running sequences.
    pub(crate) fn plan(&mut self, running: &[Running], rows: usize, context: usize) -> StepPlan {
        let Self { pending, shares, prompts, spare } = self;
        let mut left = rows;
        pending.clear();
        pending.extend(running.iter().map(|running| running.sequence.pending(context)));
        shares.clear();
        shares.resize(running.len(), 0);
        prompts.clear();
        for (at, pending) in pending.iter().enumerate().filter(|(_, pending)| **pending > 0) {
            if running[at].sequence.is_decoding() {
                shares[at] = (*pending).min(left);
                left -= shares[at];
            } else {
                prompts.push(at);
            }
        }
        share_among_prompts(running, pending, prompts, left, shares);
        let mut scores = SCORED_ROWS;
        let part = |(running, share): (&Running, &usize)| part_of(&running.sequence, *share, &mut scores);
        let mut parts = spare.pop().unwrap_or_default();
        parts.extend(running.iter().zip(&*shares).filter_map(part));
        StepPlan { parts }
    }

    /// Takes a plan's memory for the next one.
    pub(crate) fn reuse(&mut self, StepPlan { mut parts }: StepPlan) {
        parts.clear();
        self.spare.push(parts);
    }
}

/// Whole prompts alone, in the order in which they started, as many as `rows` rows hold. The first goes even where it is
/// longer: the largest step holds it, and shorter ones must not pass it for ever.
pub(crate) fn plan_whole(running: &[Running], rows: usize, context: usize) -> StepPlan {
    let mut left = rows;
    let mut parts = Vec::new();
    for Running { sequence, .. } in running {
        let pending = sequence.pending(context);
        if pending == 0 {
            continue;
        }
        if pending > left && !parts.is_empty() {
            break;
        }
        left = left.saturating_sub(pending);
        parts.extend(part_of(sequence, pending, &mut 0));
    }
    StepPlan { parts }
}

fn share_among_prompts(
    running: &[Running],
    pending: &[usize],
    prompts: &mut [usize],
    mut left: usize,
    shares: &mut [usize],
) {
    let even = (left / 4).div_ceil(prompts.len().max(1));
    for &at in &*prompts {
        shares[at] = pending[at].min(even).min(left);
        left -= shares[at];
    }
    let mut give = |at: usize, most: usize, left: &mut usize| {
        let more = (pending[at] - shares[at]).min(most);
        shares[at] += more;
        *left -= more;
    };
    let is_old = |at: &usize| running[*at].sequence.clock.running_for() > PROMPT_AGE_LIMIT;
    prompts.sort_unstable_by_key(|at| running[*at].sequence.id);
    let mut for_old = left.div_ceil(2);
    for &at in prompts.iter().filter(|at| is_old(at)) {
        let before = left;
        give(at, for_old, &mut left);
        for_old -= before - left;
    }
    prompts.sort_by_key(|at| pending[*at]);
    for &at in &*prompts {
        give(at, left, &mut left);
    }
}

/// The part of a sequence that has up to `share` rows, of which `scores` may say how likely a token is; it ends at the next
/// checkpoint, since the state there is only to be had at the end of a step.
fn part_of(sequence: &Sequence, share: usize, scores: &mut usize) -> Option<Part> {
    let start = sequence.scheduled;
    let mut end = start + share;
    if let Some(checkpoint) = sequence.checkpoints.iter().find(|checkpoint| **checkpoint > start) {
        end = end.min(*checkpoint);
    }
    let to_score = sequence.to_score(start..end);
    if to_score.len() > *scores {
        end = to_score.start + *scores;
    }
    let to_score = sequence.to_score(start..end);
    *scores -= to_score.len();
    let draws = end == sequence.total();
    (end > start).then_some(Part {
        id: sequence.id,
        tokens: start..end,
        scores: to_score,
        draws,
        is_put_off: false,
    })
}
