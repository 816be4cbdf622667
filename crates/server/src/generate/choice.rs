//! One answer as it comes: tokens to text, held back where it may become a stop string, and where it ends.

use super::answering::{Finish, FinishKind, Token, Update};
use super::params::Params;
use super::parts::{Part, Reading, Splitter, append};
use crate::error::{ApiError, TimeLimit};
use gannet_engine::FinishReason;
use gannet_ops::TokenId;
use gannet_text::decode::{Decoder, Place, SpecialTokens};
use gannet_text::stop::StopStrings;
use gannet_text::tokenizer::Tokenizer;
use std::collections::HashSet;

/// One answer so far.
pub(crate) struct Choice {
    tokenizer: Tokenizer,
    decoder: Decoder,
    /// Control tokens that are read; where absent, the decoder knows which are shown.
    marks: Option<HashSet<u32>>,
    stops: StopStrings,
    stop_texts: Vec<String>,
    stop_tokens: Vec<TokenId>,
    splitter: Splitter,
    /// Tokens so far, without an end token.
    pub(crate) tokens: usize,
    /// Those of them that the model thought by.
    pub(crate) reasoning_tokens: u64,
}

impl Choice {
    pub(crate) fn new(
        tokenizer: &Tokenizer,
        params: &Params,
        reading: &Reading,
        place: Place,
    ) -> Result<Self, ApiError> {
        let splitter = Splitter::new(reading);
        let marks = splitter.marks(tokenizer).filter(|_| params.special_tokens == SpecialTokens::Skip);
        let shown = if marks.is_some() { SpecialTokens::Show } else { params.special_tokens };
        Ok(Self {
            tokenizer: tokenizer.clone(),
            decoder: Decoder::new(tokenizer, shown, place),
            marks,
            stops: StopStrings::new(params.stops.clone()).map_err(|error| ApiError::text("stop", &error))?,
            stop_texts: params.stops.clone(),
            stop_tokens: params.stop_tokens.clone(),
            splitter,
            tokens: 0,
            reasoning_tokens: 0,
        })
    }

    /// Whether a stop string was found, or the one call is there: what comes now isn't wanted.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.stopped().is_some() || self.splitter.is_done()
    }

    /// Takes a token; true where the answer ends with it.
    pub(crate) fn push(&mut self, token: Token, update: &mut Update) -> bool {
        if self.is_stopped() {
            return false;
        }
        self.tokens += 1;
        let was_reasoning = self.splitter.is_reasoning();
        let is_hidden = self
            .marks
            .as_ref()
            .is_some_and(|marks| self.tokenizer.is_special(token.id.0) && !marks.contains(&token.id.0));
        if !is_hidden {
            let text = self.decoder.push(token.id.0);
            let parts = self.splitter.push(&text);
            self.take(parts, update);
        }
        self.reasoning_tokens += u64::from(was_reasoning || self.splitter.is_reasoning());
        update.tokens.push(token);
        self.is_stopped()
    }

    /// Adds parts up to a stop string, which is looked for in content alone: what a model thinks, and what it calls a tool
    /// with, are no answer that a string could end.
    fn take(&mut self, parts: Vec<Part>, update: &mut Update) {
        for part in parts {
            if self.stops.stopped().is_some() {
                return;
            }
            let part = match part {
                Part::Content(text) => Part::Content(self.stops.push(&text)),
                Part::Reasoning(_) | Part::Call { .. } | Part::Arguments { .. } => {
                    self.release(update);
                    part
                }
            };
            if part != Part::Content(String::new()) {
                append(&mut update.parts, vec![part]);
            }
        }
    }

    /// Adds content that was held back and has become no stop string.
    fn release(&mut self, update: &mut Update) {
        let rest = self.stops.finish();
        if !rest.is_empty() {
            append(&mut update.parts, vec![Part::Content(rest)]);
        }
    }

    /// Ends the answer.
    pub(crate) fn finish(
        &mut self,
        reason: FinishReason,
        time: TimeLimit,
        update: &mut Update,
    ) -> Result<(), ApiError> {
        let rest = self.decoder.finish();
        for parts in [self.splitter.push(&rest), self.splitter.finish()] {
            self.take(parts, update);
        }
        self.release(update);
        let stop = self.stops.stopped().map(|stop| self.stop_texts[stop.index].clone());
        update.finish = Some(self.ending(reason, stop, time)?);
        Ok(())
    }

    fn ending(
        &self,
        reason: FinishReason,
        stop: Option<String>,
        time: TimeLimit,
    ) -> Result<Finish, ApiError> {
        let kind = match &reason {
            _ if stop.is_some() => self.whole(),
            FinishReason::EndToken(_) | FinishReason::Complete | FinishReason::Truncated => self.whole(),
            FinishReason::MaxTokens | FinishReason::ContextFull => FinishKind::Length,
            FinishReason::Cancelled => return Err(ApiError::Draining),
            FinishReason::TimedOut => return Err(ApiError::TimedOut { limit: time }),
            FinishReason::NothingFits => return Err(ApiError::NothingFits { tokens: self.tokens }),
            FinishReason::Unheard => return Err(ApiError::Failed(reason.to_string())),
            FinishReason::Failed(why) => return Err(ApiError::Failed(why.clone())),
        };
        let stop_token = match reason {
            FinishReason::EndToken(token) if self.stop_tokens.contains(&token) => Some(token),
            FinishReason::EndToken(_)
            | FinishReason::Complete
            | FinishReason::Truncated
            | FinishReason::MaxTokens
            | FinishReason::ContextFull
            | FinishReason::Cancelled
            | FinishReason::Unheard
            | FinishReason::NothingFits
            | FinishReason::TimedOut
            | FinishReason::Failed(_) => None,
        };
        Ok(Finish { kind, stop_text: stop, stop_token })
    }

    /// How a whole answer ends.
    fn whole(&self) -> FinishKind {
        if self.splitter.has_calls() { FinishKind::Calls } else { FinishKind::Stop }
    }
}
