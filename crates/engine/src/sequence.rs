//! A running request: its tokens and how far they are computed.

use crate::request::{Event, FinishReason, Request, RequestId, SinkClosed, Usage};
use crate::state::SequencePages;
use crate::stats::Clock;
use gannet_ops::{SamplerSlot, TokenId};

/// A running request.
pub(crate) struct Sequence {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    /// The prompt, then what was generated.
    pub(crate) tokens: Vec<TokenId>,
    /// Tokens whose keys and values are in the pages; less than all tokens by one while decoding.
    pub(crate) computed: usize,
    pub(crate) pages: SequencePages,
    pub(crate) sampler: SamplerSlot,
    pub(crate) clock: Clock,
}

impl Sequence {
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.request.prompt.len()
    }

    pub(crate) fn generated_tokens(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Tokens that have still to be computed before the next one can be drawn.
    pub(crate) fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    pub(crate) fn deliver(&mut self, event: Event) -> Result<(), SinkClosed> {
        self.request.sink.deliver(event)
    }

    /// Says the last word. A sink that is gone can't hear it, which changes nothing.
    pub(crate) fn finish(&mut self, reason: FinishReason) {
        let usage = Usage {
            prompt_tokens: self.prompt_tokens() as u32,
            generated_tokens: self.generated_tokens() as u32,
            timings: self.clock.timings(),
        };
        let _ = self.request.sink.deliver(Event::Finished { reason, usage });
    }
}
