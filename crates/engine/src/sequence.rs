//! A request from its submission to its end: its tokens, and how far they are computed.

use crate::embedding::{Embedding, Goal};
use crate::masker::Masking;
use crate::outbox::Outbox;
use crate::request::{Event, FinishReason, Request, RequestId, Usage};
use crate::state::{PrefixHit, SequenceState};
use crate::stats::Clock;
use gannet_ops::{SamplerSlot, StepId, TokenId, TokenSource, sampling};
use std::collections::VecDeque;
use std::ops::Range;

/// A request in the queue or among the running.
pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    /// The request whose prompt is the same and is computed first.
    pub(crate) after: Option<RequestId>,
    /// The prompt, then what was generated.
    pub(crate) tokens: Vec<TokenId>,
    /// Tokens behind these that steps in flight draw.
    pub(crate) drawing: VecDeque<(StepId, u32)>,
    /// Which tokens the next draw may have, where a constraint says so.
    pub(crate) masking: Masking,
    /// Tokens that submitted steps compute, the collected ones included.
    pub(crate) scheduled: usize,
    /// Tokens that collected steps have computed.
    pub(crate) computed: usize,
    /// Steps in flight with rows of this sequence.
    pub(crate) steps_in_flight: u32,
    /// What was said when it ended; its memory is freed when no step in flight uses it.
    pub(crate) has_ended: bool,
    pub(crate) hit: PrefixHit,
    pub(crate) preemptions: u32,
    /// Rows of the prompt whose log-probabilities were told, where they are asked for.
    pub(crate) scored: usize,
    /// What the last committed draw left, where a sampler steers.
    pub(crate) running: Option<sampling::Running>,
    /// Indices after which recurrent state is kept, ascending.
    pub(crate) checkpoints: Vec<usize>,
    /// Indices at which others are likely to branch off, where layers see windows alone; the next one last.
    pub(crate) anchors: Vec<usize>,
    pub(crate) clock: Clock,
    /// The vector that it ends in, where it isn't continued.
    pub(crate) goal: Option<Goal>,
}

/// What a running sequence holds of the engine's memory.
pub(crate) struct Running {
    pub(crate) sequence: Sequence,
    pub(crate) state: SequenceState,
    pub(crate) slot: SamplerSlot,
}

impl Sequence {
    pub(crate) fn new(id: RequestId, request: Request, after: Option<RequestId>, clock: Clock) -> Self {
        Self {
            id,
            tokens: request.prompt.clone(),
            request,
            after,
            drawing: VecDeque::new(),
            masking: Masking::default(),
            scheduled: 0,
            computed: 0,
            steps_in_flight: 0,
            has_ended: false,
            hit: PrefixHit::default(),
            preemptions: 0,
            scored: 0,
            running: None,
            checkpoints: Vec::new(),
            anchors: Vec::new(),
            clock,
            goal: None,
        }
    }

    pub(crate) fn prompt_tokens(&self) -> usize {
        self.request.prompt.len()
    }

    pub(crate) fn generated_tokens(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Tokens that it may still have, at most.
    pub(crate) fn tokens_to_come(&self, context: usize) -> usize {
        let most = self.prompt_tokens().saturating_add(self.request.max_tokens as usize).min(context);
        most.saturating_sub(self.tokens.len())
    }

    /// Tokens that are known or being drawn.
    pub(crate) fn total(&self) -> usize {
        self.tokens.len() + self.drawing.len()
    }

    /// Whether its next draw waits for a mask that is being made.
    pub(crate) fn awaits_mask(&self) -> bool {
        matches!(self.masking, Masking::Asked)
    }

    /// Whether a constraint says which tokens it may have.
    pub(crate) fn is_constrained(&self) -> bool {
        self.request.constraint.is_some() || self.awaits_mask()
    }

    /// Tokens that no submitted step computes yet; none where the last token is drawn already, or a mask is late.
    pub(crate) fn pending(&self, context: usize) -> usize {
        let most = match self.goal {
            // Its last row gives the vector, so that the context may be full.
            Some(_) => self.prompt_tokens() + 1,
            None => self.prompt_tokens().saturating_add(self.request.max_tokens as usize).min(context),
        };
        if self.has_ended || self.awaits_mask() || self.total() >= most {
            0
        } else {
            self.total() - self.scheduled
        }
    }

    /// Rows at these indices that say how likely the prompt's next token is, and have not said so yet.
    pub(crate) fn to_score(&self, rows: Range<usize>) -> Range<usize> {
        let end = if self.request.prompt_logprobs.is_some() { self.prompt_tokens() - 1 } else { 0 };
        let start = rows.start.max(self.scored);
        start..rows.end.min(end).max(start)
    }

    /// Tokens that the prefix cache may give, at most: a row that says something is computed.
    pub(crate) fn reusable(&self) -> usize {
        let most = self.tokens.len() - 1;
        if self.request.prompt_logprobs.is_some() { most.min(self.scored) } else { most }
    }

    /// Whether its next row is the last token that is certain.
    pub(crate) fn is_decoding(&self) -> bool {
        let is_live = !self.has_ended && !self.awaits_mask();
        is_live && self.total() > self.prompt_tokens() && self.total() - self.scheduled <= 1
    }

    /// The tokens of these indices, as a batch names them.
    pub(crate) fn sources(&self, indices: Range<usize>) -> impl Iterator<Item = TokenSource> + '_ {
        indices.map(|index| match self.tokens.get(index) {
            Some(token) => TokenSource::Known(*token),
            None => {
                let (step, output) = self.drawing[index - self.tokens.len()];
                TokenSource::Sampled { step, output }
            }
        })
    }

    pub(crate) fn say(&self, event: Event, outbox: &mut Outbox) {
        outbox.push(&self.request.sink, self.id, event);
    }

    /// Says the last word.
    pub(crate) fn finish(&mut self, reason: FinishReason, outbox: &mut Outbox) {
        self.has_ended = true;
        match &self.goal {
            Some(goal) => outbox.push_embedding(goal.sink(), self.id, Err(reason)),
            None => self.say(Event::Finished { reason, usage: self.usage() }, outbox),
        }
    }

    /// Ends with the vector that was the goal.
    pub(crate) fn finish_with(&mut self, goal: &Goal, pooled: Vec<f32>, outbox: &mut Outbox) {
        self.has_ended = true;
        let embedding = Embedding { vector: goal.cut(pooled), usage: self.usage() };
        outbox.push_embedding(goal.sink(), self.id, Ok(embedding));
    }

    fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens() as u32,
            reused_tokens: self.hit.reused as u32,
            generated_tokens: self.generated_tokens() as u32,
            preemptions: self.preemptions,
            timings: self.clock.timings(),
        }
    }

    /// Goes back to the state of a waiting request, all tokens kept, to be computed again.
    pub(crate) fn preempted(&mut self) {
        self.scheduled = 0;
        self.computed = 0;
        self.preemptions += 1;
    }
}
