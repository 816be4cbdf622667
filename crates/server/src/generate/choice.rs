//! One answer as it comes: tokens to text, held back where it may become a stop string, and where it ends.

use super::answering::{Finish, FinishKind, Token, Update};
use super::params::Params;
use super::parts::{Part, Splitter};
use crate::error::ApiError;
use gannet_engine::FinishReason;
use gannet_ops::TokenId;
use gannet_text::decode::{Decoder, Place};
use gannet_text::stop::StopStrings;
use gannet_text::tokenizer::Tokenizer;
use std::time::Duration;

/// One answer so far.
pub(crate) struct Choice {
    decoder: Decoder,
    stops: StopStrings,
    stop_texts: Vec<String>,
    stop_tokens: Vec<TokenId>,
    splitter: Splitter,
    /// Tokens so far, without an end token.
    pub(crate) tokens: usize,
}

impl Choice {
    pub(crate) fn new(tokenizer: &Tokenizer, params: &Params, place: Place) -> Result<Self, ApiError> {
        Ok(Self {
            decoder: Decoder::new(tokenizer, params.special_tokens, place),
            stops: StopStrings::new(params.stops.clone()).map_err(|error| ApiError::text("stop", &error))?,
            stop_texts: params.stops.clone(),
            stop_tokens: params.stop_tokens.clone(),
            splitter: Splitter::Plain,
            tokens: 0,
        })
    }

    /// Whether a stop string was found: what comes now isn't wanted.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stops.stopped().is_some()
    }

    /// Takes a token; true where it completes a stop string.
    pub(crate) fn push(&mut self, token: Token, update: &mut Update) -> bool {
        if self.is_stopped() {
            return false;
        }
        self.tokens += 1;
        let text = self.stops.push(&self.decoder.push(token.id.0));
        append(&mut update.parts, self.splitter.push(text));
        update.tokens.push(token);
        self.is_stopped()
    }

    /// Ends the answer.
    pub(crate) fn finish(
        &mut self,
        reason: FinishReason,
        time: Duration,
        update: &mut Update,
    ) -> Result<(), ApiError> {
        let rest = self.stops.push(&self.decoder.finish());
        let rest = rest + &self.stops.finish();
        append(&mut update.parts, self.splitter.push(rest));
        append(&mut update.parts, self.splitter.finish());
        let stop = self.stops.stopped().map(|stop| self.stop_texts[stop.index].clone());
        update.finish = Some(self.ending(reason, stop, time)?);
        Ok(())
    }

    fn ending(&self, reason: FinishReason, stop: Option<String>, time: Duration) -> Result<Finish, ApiError> {
        let kind = match &reason {
            _ if stop.is_some() => FinishKind::Stop,
            FinishReason::EndToken(_) | FinishReason::Complete | FinishReason::Truncated => FinishKind::Stop,
            FinishReason::MaxTokens | FinishReason::ContextFull => FinishKind::Length,
            FinishReason::Cancelled => return Err(ApiError::Draining),
            FinishReason::TimedOut => return Err(ApiError::TimedOut { limit: time }),
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
            | FinishReason::TimedOut
            | FinishReason::Failed(_) => None,
        };
        Ok(Finish { kind, stop_text: stop, stop_token })
    }
}

/// Adds parts, joined to the last one where they go on with it.
fn append(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        match (parts.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more)) => text.push_str(&more),
            (None, part) => parts.push(part),
        }
    }
}
