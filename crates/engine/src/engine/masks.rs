//! Which tokens constrained rows may draw, and when a step may be sampled.
//!
//! A mask needs all tokens before it. Where the last of them is still being drawn by a step in flight, the step that
//! follows is submitted without its draws, so that the device has work, and sampled when that step is collected.
//!
//! Invariant: a step is sampled before the next one is submitted, so only the newest in flight may wait for its draws.

use super::{Engine, InFlight};
use crate::constraint::{Constraint, ConstraintError, MayEnd, ask};
use crate::request::FinishReason;
use crate::scheduler::StepPlan;
use gannet_ops::sampling::SampleRow;
use gannet_ops::{DeviceError, SampleRows, TokenId};

/// What the mask of a row says.
enum Masked {
    Row,
    /// The text is whole and can only end.
    Complete,
}

impl Engine {
    /// Collects steps until the newest in flight is sampled.
    pub(super) fn finish_draws(&mut self) -> Result<(), DeviceError> {
        while self.in_flight.back().is_some_and(|flight| flight.waiting.is_some()) {
            self.collect()?;
        }
        Ok(())
    }

    /// Samples the only step in flight, if it waits for that: all tokens before its draws are known now.
    pub(super) fn draw_waiting(&mut self) -> Result<(), DeviceError> {
        if self.in_flight.len() > 1 {
            return Ok(());
        }
        let Some(mut draws) = self.in_flight.front_mut().and_then(|flight| flight.waiting.take()) else {
            return Ok(());
        };
        let InFlight { step, plan, .. } = &self.in_flight[0];
        let (step, plan) = (*step, plan.clone());
        self.mask(&plan, &mut draws);
        loop {
            match self.runner.sample(step, &draws) {
                // A request was cancelled; the others of the step go on.
                Err(DeviceError::Interrupted) => {}
                sampled => {
                    self.spare_draws.push(draws);
                    return sampled;
                }
            }
        }
    }

    /// Whether a constrained request of the plan has a token that a step in flight still draws.
    pub(super) fn waits_for_tokens(&self, plan: &StepPlan) -> bool {
        plan.parts.iter().filter(|part| part.draws).any(|part| {
            let at = self.position(part.id).expect("a part's sequence is running");
            let sequence = &self.running[at].sequence;
            sequence.request.constraint.is_some() && !sequence.drawing.is_empty()
        })
    }

    /// Gives each constrained draw of a step its mask. A request whose constraint fails, or lets it only end, ends here;
    /// its draw then counts for nothing.
    pub(super) fn mask(&mut self, plan: &StepPlan, draws: &mut SampleRows) {
        let words = self.runner.vocabulary.div_ceil(32);
        let parts = plan.parts.iter().filter(|part| part.draws);
        for (part, row) in parts.zip(&mut draws.rows) {
            let at = self.position(part.id).expect("a part's sequence is running");
            let sequence = &mut self.running[at].sequence;
            let request = &mut sequence.request;
            let Some(constraint) = request.constraint.as_mut().filter(|_| !sequence.has_ended) else {
                continue;
            };
            let masked = ask(|| mask_row(constraint.as_mut(), &request.end_tokens, words, row));
            match masked {
                Ok(Masked::Row) => {}
                Ok(Masked::Complete) => self.end(at, FinishReason::Complete, None),
                Err(error) => self.end(at, FinishReason::Failed(error.to_string()), None),
            }
        }
    }
}

fn mask_row(
    constraint: &mut dyn Constraint,
    end_tokens: &[TokenId],
    words: usize,
    row: &mut SampleRow,
) -> Result<Masked, ConstraintError> {
    let mut allowed = vec![0; words];
    let may_end = constraint.mask(&mut allowed)?;
    let goes_on = allowed.iter().any(|word| *word != 0);
    if may_end == MayEnd::Yes {
        end_tokens.iter().for_each(|token| set(&mut allowed, *token));
        if !goes_on && (end_tokens.is_empty() || row.banned.is_some()) {
            return Ok(Masked::Complete);
        }
    }
    row.allowed = Some(allowed.into());
    Ok(Masked::Row)
}

fn set(allowed: &mut [u32], token: TokenId) {
    if let Some(word) = allowed.get_mut(token.0 as usize / 32) {
        *word |= 1 << (token.0 % 32);
    }
}
