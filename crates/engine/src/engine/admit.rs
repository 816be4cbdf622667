//! From the queue to the running, and back where others need the room.

use super::Engine;
use crate::request::{Event, FinishReason, RequestId};
use crate::sequence::{Running, Sequence};
use crate::state::{PrefixHit, PrefixKey};
use gannet_ops::sampling::History;
use gannet_ops::{DeviceError, PAGE_TOKENS, SamplerSlot};

/// Recurrent checkpoints inside a prompt beside those that the request names: at a half of it, a quarter, and so on.
const LOG_SPACED: usize = 4;

impl Engine {
    /// Starts waiting requests, in order, as long as there are slots and the pages that their prompts need.
    pub(super) fn admit(&mut self) -> Result<(), DeviceError> {
        while let Some(place) = self.queue.first(|sequence| !self.waits_for_other(sequence)) {
            let Some(&slot) = self.free_slots.last() else {
                if self.preempt_for(self.queue.get(place).request.priority)? {
                    continue;
                }
                return Ok(());
            };
            if self.start(place, slot)? || self.take_lent() {
                continue;
            }
            if !self.preempt_for(self.queue.get(place).request.priority)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the request's prompt is being computed for another one.
    fn waits_for_other(&self, sequence: &Sequence) -> bool {
        let is_computing = |id: RequestId| {
            let is_early = |other: &Sequence| other.id == id && other.computed < other.prompt_tokens();
            self.queue.iter().any(is_early)
                || self.running.iter().any(|other| !other.sequence.has_ended && is_early(&other.sequence))
        };
        sequence.after.is_some_and(is_computing)
    }

    /// Starts the request at a place of the queue, if there are pages for all of its tokens and the next one.
    fn start(&mut self, place: usize, slot: u32) -> Result<bool, DeviceError> {
        let is_whole = self.runner.whole_prompt_only();
        let device = self.runner.state.as_mut();
        let waiting = self.queue.get(place);
        let key = PrefixKey { numerics: self.runner.numerics_id, salt: waiting.request.cache_salt };
        let mut state = self.state.empty(key, slot);
        let hit = match is_whole {
            true => PrefixHit::default(),
            false => self.state.match_prefix(&mut state, &waiting.tokens, waiting.reusable(), device)?,
        };
        let needed = (waiting.tokens.len() + 1).min(self.runner.context);
        if self.state.reserve_whole(&mut state, needed, device)?.is_err() {
            self.state.release(&mut state);
            return Ok(false);
        }
        let (prompt, generated) = waiting.tokens.split_at(waiting.prompt_tokens());
        let more = waiting.tokens_to_come(self.runner.context);
        if waiting.goal.is_none() {
            let history = History::new(prompt, generated).with_running(waiting.running).with_room(more);
            device.start_history(SamplerSlot(slot), history)?;
        }
        let mut sequence = self.queue.take(place);
        self.free_slots.pop();
        sequence.tokens.reserve_exact(more);
        state.make_room(sequence.tokens.len() + more);
        sequence.clock.starts_running();
        (sequence.scheduled, sequence.computed) = (hit.reused, hit.reused);
        sequence.checkpoints = if self.state.is_recurrent() && !is_whole {
            checkpoints(&sequence, hit.common)
        } else {
            Vec::new()
        };
        if self.state.has_windows() && !is_whole {
            sequence.anchors = anchors(&sequence, hit);
        }
        if sequence.preemptions == 0 {
            self.stats.no_longer_waits();
            sequence.hit = hit;
            let (reused_tokens, common_tokens) = (hit.reused as u32, hit.common as u32);
            sequence.say(Event::Started { reused_tokens, common_tokens }, &mut self.outbox);
        }
        self.running.push(Running { sequence, state, slot: SamplerSlot(slot) });
        Ok(true)
    }

    /// Sends a running request of lower priority back to the queue; false where there is none.
    fn preempt_for(&mut self, priority: i32) -> Result<bool, DeviceError> {
        match self.victim() {
            Some(at) if self.running[at].sequence.request.priority < priority => {
                let id = self.running[at].sequence.id;
                while !self.in_flight.is_empty() {
                    self.collect()?;
                }
                self.retire();
                // What was collected may have ended it, which makes room as well.
                if let Some(at) = self.position(id) {
                    self.preempt(at)?;
                }
                Ok(true)
            }
            Some(_) | None => Ok(false),
        }
    }

    /// The running request that makes room first: of the lowest priority the newest.
    fn victim(&self) -> Option<usize> {
        let key = |at: &usize| {
            let sequence = &self.running[*at].sequence;
            (sequence.request.priority, std::cmp::Reverse(sequence.id))
        };
        (0..self.running.len()).filter(|at| !self.running[*at].sequence.has_ended).min_by_key(key)
    }

    /// Makes room for a running request that has no page for its next rows. No step is in flight.
    pub(super) fn make_room(&mut self, id: RequestId, why: &str) -> Result<(), DeviceError> {
        let live = self.running.iter().filter(|running| !running.sequence.has_ended).count();
        if live <= 1 {
            self.cancel(id, FinishReason::Failed(why.to_owned()));
            self.retire();
            return Ok(());
        }
        let victim = self.victim().expect("several are running");
        self.preempt(victim)
    }

    /// Sends a running request back to the queue. What it has computed stays in the prefix cache as long as there is
    /// room, and is computed again otherwise, to the same bits.
    fn preempt(&mut self, at: usize) -> Result<(), DeviceError> {
        let Running { mut sequence, mut state, slot } = self.running.remove(at);
        if !self.runner.whole_prompt_only() {
            let device = self.runner.state.as_mut();
            self.state.publish(&state, &sequence.tokens[..sequence.computed], device)?;
        }
        self.state.release(&mut state);
        self.free_slots.push(slot.0);
        sequence.preempted();
        self.queue.push(sequence);
        self.stats.update(|stats| stats.preemptions += 1);
        Ok(())
    }
}

/// Where recurrent state is kept on the way through a prompt: where the request says, at its end, just before its end
/// where others have the same prompt, log-spaced, and at the page before a branch that was seen.
fn checkpoints(sequence: &Sequence, common: usize) -> Vec<usize> {
    let prompt = sequence.prompt_tokens();
    let named = sequence.request.boundaries.iter().map(|index| *index as usize);
    let spaced = (1..=LOG_SPACED).map(|halvings| (prompt >> halvings) / PAGE_TOKENS * PAGE_TOKENS);
    let branch = common / PAGE_TOKENS * PAGE_TOKENS;
    let all = named.chain(spaced).chain([prompt, prompt - 1, branch]);
    let mut checkpoints: Vec<usize> = all.filter(|index| (1..=prompt).contains(index)).collect();
    checkpoints.sort_unstable();
    checkpoints.dedup();
    checkpoints
}

/// Where the windows are kept that a row reads, on the way through a prompt: where the request says, where it branched off
/// from another, and at its end. Descending.
fn anchors(sequence: &Sequence, hit: PrefixHit) -> Vec<usize> {
    let prompt = sequence.prompt_tokens();
    let named = sequence.request.boundaries.iter().map(|index| *index as usize);
    let all = named.chain([hit.common, prompt]);
    let mut anchors: Vec<usize> = all.filter(|index| (hit.reused.max(1)..=prompt).contains(index)).collect();
    anchors.sort_unstable_by(|a, b| b.cmp(a));
    anchors.dedup();
    anchors
}
