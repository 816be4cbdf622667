//! What a step found becomes part of its sequences, and is told to their sinks.

use super::{Engine, InFlight};
use crate::constraint::{Progress, ask};
use crate::request::{Event, FinishReason};
use crate::scheduler::Part;
use crate::sequence::{Running, Sequence};
use crate::stats::Lap;
use gannet_ops::{DeviceError, OutputResult, PAGE_TOKENS, RecurrentBank};
use std::time::Instant;

/// What a step found for one sequence.
struct Found {
    /// How likely tokens of the prompt are.
    scores: Vec<OutputResult>,
    /// The drawn token.
    result: Option<OutputResult>,
}

impl Engine {
    /// Collects the oldest step in flight, if there is one.
    pub(super) fn collect(&mut self) -> Result<(), DeviceError> {
        let Some(flight) = self.in_flight.pop_front() else { return Ok(()) };
        let mut lap = Lap::start();
        let mut output = self.runner.wait(flight.step)?;
        lap.ends(&mut self.phases.run);
        self.measure(&flight);
        if !output.accepted.is_empty() {
            self.state.settle(flight.step, &output.accepted, self.runner.state.as_mut())?;
        }
        let mut results = output.outputs.drain(..);
        for (part, bank) in flight.plan.parts.iter().zip(&flight.banks) {
            let scores = results.by_ref().take(part.scores.len()).collect();
            let drawn = if part.draws || part.is_put_off { results.next() } else { None };
            let result = drawn.filter(|_| part.draws);
            self.commit(part, *bank, Found { scores, result })?;
        }
        drop(results);
        self.runner.plan.reuse(output);
        self.planner.reuse(flight.plan);
        self.spare_banks.push(flight.banks);
        lap.ends(&mut self.phases.commit);
        self.draw_waiting()
    }

    fn measure(&mut self, flight: &InFlight) {
        let now = Instant::now();
        let rows = flight.plan.rows();
        // One that has waited for a mask in vain says nothing of how long a step takes.
        if !flight.plan.parts.iter().any(|part| part.is_put_off) {
            self.budget.measured(rows, now - flight.begun.max(self.last_collected));
        }
        self.last_collected = now;
        self.stats.update(|stats| {
            stats.steps += 1;
            stats.failures_since_step = 0;
            stats.prompt_steps += u64::from(rows.prompts > 0);
            stats.rows += (rows.decoding + rows.prompts) as u64;
        });
    }

    fn commit(&mut self, part: &Part, bank: Option<RecurrentBank>, found: Found) -> Result<(), DeviceError> {
        let at = self.position(part.id).expect("a sequence stays among the running while a step uses it");
        let sequence = &mut self.running[at].sequence;
        sequence.steps_in_flight -= 1;
        if part.draws {
            sequence.drawing.pop_front();
        }
        if sequence.has_ended {
            return Ok(());
        }
        let before = std::mem::replace(&mut sequence.computed, part.tokens.end);
        if found.result.iter().chain(&found.scores).any(|result| result.not_finite) {
            return self.quarantine(at);
        }
        if !part.tokens.is_empty() {
            self.keep(at, before, part, bank)?;
        }
        self.tell(at, part, bank, found);
        Ok(())
    }

    /// Keeps what a part has computed behind the first `before` tokens.
    fn keep(
        &mut self,
        at: usize,
        before: usize,
        part: &Part,
        bank: Option<RecurrentBank>,
    ) -> Result<(), DeviceError> {
        let Running { sequence, state, .. } = &mut self.running[at];
        let is_checkpoint = sequence.checkpoints.contains(&part.tokens.end);
        let fills_page = part.tokens.end / PAGE_TOKENS > before / PAGE_TOKENS;
        let is_worth_it = fills_page || is_checkpoint || part.tokens.end == sequence.prompt_tokens();
        if is_worth_it && !self.runner.whole_prompt_only() {
            let tokens = &sequence.tokens[..part.tokens.end];
            self.state.publish(state, tokens, self.runner.state.as_mut())?;
            while let Some(anchor) = sequence.anchors.pop_if(|anchor| *anchor <= tokens.len()) {
                self.state.anchor(state, &tokens[..anchor]);
            }
            if let Some(bank) = bank.filter(|_| is_checkpoint) {
                self.state.checkpoint(state, bank, tokens, self.runner.state.as_mut())?;
            }
        }
        self.state.commit(state, sequence.computed);
        Ok(())
    }

    /// Scores that are not finite: the request fails, and what it computed is not given to others.
    fn quarantine(&mut self, at: usize) -> Result<(), DeviceError> {
        let Running { sequence, state, .. } = &mut self.running[at];
        self.state.quarantine(state, &sequence.tokens[..sequence.computed], self.runner.state.as_mut())?;
        let index = sequence.tokens.len();
        let why = format!("the model's scores for token {index} are not finite numbers");
        sequence.finish(FinishReason::Failed(why), &mut self.outbox);
        Ok(())
    }

    /// Tells a sequence's sink how far it came, and ends it where its token does.
    fn tell(&mut self, at: usize, part: &Part, bank: Option<RecurrentBank>, found: Found) {
        let sequence = &mut self.running[at].sequence;
        let prompt = sequence.prompt_tokens();
        if part.tokens.start < prompt {
            let (computed, prompt) = (part.tokens.end.min(prompt) as u32, prompt as u32);
            let logprobs = found.scores.into_iter().filter_map(|score| score.logprobs).collect();
            sequence.scored = sequence.scored.max(part.scores.end);
            sequence.say(Event::Prefilled { computed, prompt, logprobs }, &mut self.outbox);
        }
        let Some(result) = found.result else { return };
        if let Some(goal) = sequence.goal.clone() {
            return match result.pooled {
                Some(pooled) => sequence.finish_with(&goal, pooled, &mut self.outbox),
                None => {
                    let why = "the device gave no vector, though one was asked for".to_owned();
                    sequence.finish(FinishReason::Failed(why), &mut self.outbox);
                }
            };
        }
        let Some(token) = result.token else {
            return self.end(at, FinishReason::NothingFits, bank);
        };
        sequence.clock.token_arrives();
        sequence.running = result.running;
        sequence.tokens.push(token);
        if sequence.request.end_tokens.contains(&token) {
            return self.end(at, FinishReason::EndToken(token), bank);
        }
        let progress =
            match sequence.request.constraint.as_mut().map(|it| ask(|| it.advance(token))).transpose() {
                Ok(progress) => progress,
                Err(error) => return self.end(at, FinishReason::Failed(error.to_string()), bank),
            };
        sequence.say(Event::Token { token, logprobs: result.logprobs }, &mut self.outbox);
        let complete = progress.filter(|it| *it == Progress::Complete).map(|_| FinishReason::Complete);
        if let Some(reason) = complete.or_else(|| limit_reached(sequence, self.runner.context)) {
            self.end(at, reason, bank);
        }
    }

    /// Ends a running request. What it has computed goes to the prefix cache, with its recurrent state where `bank`
    /// still has it. An error of the device shows at the next step.
    pub(super) fn end(&mut self, at: usize, reason: FinishReason, bank: Option<RecurrentBank>) {
        let Running { sequence, state, .. } = &mut self.running[at];
        if sequence.has_ended {
            return;
        }
        let tokens = &sequence.tokens[..sequence.computed];
        let mut published = Ok(());
        if !self.runner.whole_prompt_only() {
            let device = self.runner.state.as_mut();
            published = self.state.publish(state, tokens, device);
            self.state.anchor(state, tokens);
            if let (Ok(()), Some(bank)) = (&published, bank) {
                published = self.state.checkpoint(state, bank, tokens, device);
            }
        }
        let reason = match published {
            Ok(()) => reason,
            Err(error) => FinishReason::Failed(error.to_string()),
        };
        sequence.finish(reason, &mut self.outbox);
    }

    /// Frees the memory of requests that have ended and that no step in flight uses.
    pub(super) fn retire(&mut self) {
        let mut at = 0;
        while at < self.running.len() {
            let sequence = &self.running[at].sequence;
            if sequence.has_ended && sequence.steps_in_flight == 0 {
                let mut ended = self.running.remove(at);
                self.state.release(&mut ended.state);
                self.free_slots.push(ended.slot.0);
            } else {
                at += 1;
            }
        }
    }
}

fn limit_reached(sequence: &Sequence, context: usize) -> Option<FinishReason> {
    if sequence.generated_tokens() >= sequence.request.max_tokens as usize {
        return Some(FinishReason::MaxTokens);
    }
    (sequence.tokens.len() >= context).then_some(FinishReason::ContextFull)
}
