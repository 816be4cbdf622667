//! Which tokens constrained rows may draw, and when a step may be sampled.
//!
//! A mask needs all tokens before it. Where the last of them is still being drawn by a step in flight, the step that
//! follows is submitted without its draws, so that the device has work, and sampled when that step is collected.
//!
//! Masks are made several at once: by the backend's team where it computes on the host, else by workers while the device
//! computes. A worker's mask that takes longer than a step is late: nobody waits for it. Its row draws nothing, and is
//! computed and drawn again in the first step after the mask is there; no token depends on that.
//!
//! Invariant: a step is sampled before the next one is submitted, so only the newest in flight may wait for its draws.

use super::{Engine, InFlight};
use crate::constraint::MayEnd;
use crate::masker::{Answer, Mask, Masking, Patience, Question, answer_together};
use crate::request::FinishReason;
use crate::scheduler::{Part, StepPlan};
use crossbeam_channel::RecvTimeoutError;
use gannet_ops::sampling::SampleRow;
use gannet_ops::{DeviceError, SampleRows, TokenId};
use std::sync::Arc;

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
        if self.in_flight.len() == 1 { self.draw_newest() } else { Ok(()) }
    }

    /// Samples the newest step in flight, if it was not yet.
    pub(super) fn draw_newest(&mut self) -> Result<(), DeviceError> {
        let Some(flight) = self.in_flight.back_mut() else { return Ok(()) };
        let Some(mut draws) = flight.waiting.take() else { return Ok(()) };
        let InFlight { step, plan, .. } = flight;
        let (step, mut plan) = (*step, std::mem::take(plan));
        self.make_masks(&plan);
        self.mask(&mut plan, &mut draws);
        self.in_flight.back_mut().expect("masks leave the steps in flight").plan = plan;
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
            sequence.is_constrained() && !sequence.drawing.is_empty()
        })
    }

    /// Asks workers for the masks of a step's draws, so that they make them while the device computes. A team is asked when
    /// it has computed.
    pub(super) fn ask_workers(&mut self, plan: &StepPlan) {
        if self.runner.plan.team().is_none() {
            let questions = self.questions(plan);
            if !questions.is_empty() {
                self.masker.send(questions);
            }
        }
    }

    /// Has all masks of a step's draws made that are not late.
    fn make_masks(&mut self, plan: &StepPlan) {
        self.ask_workers(plan);
        if self.runner.plan.team().is_none() {
            return self.await_workers(plan);
        }
        let questions = self.questions(plan);
        if let Some(team) = self.runner.plan.team().filter(|_| !questions.is_empty()) {
            answer_together(team, questions).into_iter().for_each(|answer| self.hear(answer));
        }
    }

    /// What is to be asked for a step's draws, with the constraints.
    fn questions(&mut self, plan: &StepPlan) -> Vec<Question> {
        let mut questions = Vec::new();
        for part in plan.parts.iter().filter(|part| part.draws) {
            let at = self.position(part.id).expect("a part's sequence is running");
            let sequence = &mut self.running[at].sequence;
            if sequence.has_ended || !matches!(sequence.masking, Masking::Unasked) {
                continue;
            }
            if let Some(constraint) = sequence.request.constraint.take() {
                sequence.masking = Masking::Asked;
                questions.push(self.masker.question(part.id, constraint));
            }
        }
        questions
    }

    /// Waits for the masks of a step's draws, as long as it has patience.
    fn await_workers(&mut self, plan: &StepPlan) {
        let asked = |part: &&Part| {
            let at = self.position(part.id).expect("a part's sequence is running");
            part.draws && self.running[at].sequence.awaits_mask()
        };
        let mut missing: Vec<_> = plan.parts.iter().filter(asked).map(|part| part.id).collect();
        let Patience { bounds: (least, most), alone } = self.masker.patience;
        let beside_others = self.budget.decoding().clamp(least, most);
        while !missing.is_empty() {
            let patience = if missing.len() == plan.parts.len() { alone } else { beside_others };
            match self.masker.answers.recv_deadline(self.masker.last_asked + patience) {
                Ok(answer) => {
                    missing.retain(|id| *id != answer.id);
                    self.hear(answer);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes what workers have made since somebody waited for it.
    pub(super) fn hear_workers(&mut self) {
        while let Ok(answer) = self.masker.answers.try_recv() {
            self.hear(answer);
        }
    }

    /// Takes a mask, and the constraint with it. Of a request that has ended nobody wants it.
    pub(super) fn hear(&mut self, answer: Answer) {
        let Answer { id, constraint, mask } = answer;
        let sequence = match self.position(id) {
            Some(at) => Some(&mut self.running[at].sequence),
            None => self.queue.find(id),
        };
        if let Some(sequence) = sequence {
            sequence.request.constraint = Some(constraint);
            sequence.masking = Masking::Answered(mask);
        }
    }

    /// Gives each constrained draw of a step its mask. A request whose constraint fails, has no token to go on with, or lets it only
    /// end, ends here; its draw then counts for nothing. A draw whose mask is late is put off.
    fn mask(&mut self, plan: &mut StepPlan, draws: &mut SampleRows) {
        let parts = plan.parts.iter_mut().filter(|part| part.draws);
        for (part, row) in parts.zip(&mut draws.rows) {
            let at = self.position(part.id).expect("a part's sequence is running");
            let sequence = &mut self.running[at].sequence;
            if sequence.has_ended {
                continue;
            }
            match std::mem::take(&mut sequence.masking) {
                Masking::Unasked => {}
                Masking::Asked => {
                    sequence.masking = Masking::Asked;
                    row.allowed = Some(Arc::clone(&self.masker.nothing));
                    self.put_off(at, part);
                }
                Masking::Answered(Ok(Mask { goes_on: false, may_end: MayEnd::No, .. })) => {
                    self.end(at, FinishReason::NothingFits, None);
                }
                Masking::Answered(Ok(mask)) => {
                    if let Some(mask) = allowed(mask, &sequence.request.end_tokens, row) {
                        self.masker.reuse(Arc::clone(&mask));
                        row.allowed = Some(mask);
                    } else {
                        self.end(at, FinishReason::Complete, None);
                    }
                }
                Masking::Answered(Err(error)) => {
                    self.end(at, FinishReason::Failed(error.to_string()), None);
                }
            }
        }
    }

    /// Takes the draw of a part back, and with it what has to be computed again for it: its last row, or all of it where its
    /// recurrent state can't be had in between.
    fn put_off(&mut self, at: usize, part: &mut Part) {
        let from = if self.state.is_recurrent() { part.tokens.start } else { part.tokens.end - 1 };
        let running = &mut self.running[at];
        running.sequence.drawing.pop_back();
        running.sequence.scheduled = from;
        running.state.step_undone(part.tokens.start);
        part.tokens.end = from;
        (part.draws, part.is_put_off) = (false, true);
        self.stats.update(|stats| stats.late_masks += 1);
    }
}

/// The tokens that a row may draw, with those that end the answer where it may end; none where the text is whole and can
/// only end.
fn allowed(mask: Mask, end_tokens: &[TokenId], row: &SampleRow) -> Option<Arc<[u32]>> {
    let Mask { mut bits, goes_on, may_end } = mask;
    if may_end == MayEnd::Yes {
        let words = Arc::get_mut(&mut bits).expect("no draw has it yet");
        end_tokens.iter().for_each(|token| set(words, *token));
        if !goes_on && (end_tokens.is_empty() || row.banned.is_some()) {
            return None;
        }
    }
    Some(bits)
}

fn set(allowed: &mut [u32], token: TokenId) {
    if let Some(word) = allowed.get_mut(token.0 as usize / 32) {
        *word |= 1 << (token.0 % 32);
    }
}
