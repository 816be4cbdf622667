//! A compiled grammar at one place of one answer.

use gannet_engine::{Constraint, ConstraintError, MayEnd, Progress};
use gannet_ops::TokenId;
use llguidance::Matcher;
use llguidance::api::StopReason;
use llguidance::toktrie::TokEnv;

/// A compiled grammar at one place of one answer; see [`crate::Grammars::compile`].
pub struct GrammarConstraint {
    matcher: Matcher,
    tokens: TokEnv,
}

impl GrammarConstraint {
    /// At the beginning of an answer.
    pub(crate) fn new(matcher: Matcher, tokens: TokEnv) -> Self {
        Self { matcher, tokens }
    }

    /// Whether the answer is whole where it stands; more may follow.
    ///
    /// # Errors
    /// As [`Constraint::mask`].
    pub fn may_end(&mut self) -> Result<bool, ConstraintError> {
        if self.has_stopped()? {
            return Ok(true);
        }
        self.matcher.is_accepting().map_err(error)
    }

    /// Whether nothing may follow.
    fn has_stopped(&self) -> Result<bool, ConstraintError> {
        match self.matcher.stop_reason() {
            StopReason::NotStopped => Ok(false),
            StopReason::NoExtension | StopReason::NoExtensionBias | StopReason::EndOfSentence => Ok(true),
            StopReason::LexerTooComplex => Err(failed("its terminals are too complex".to_owned())),
            StopReason::ParserTooComplex => Err(failed("it is too ambiguous".to_owned())),
            StopReason::MaxTokensTotal | StopReason::MaxTokensParser => {
                Err(failed("it has its own limit of tokens, which is reached".to_owned()))
            }
            StopReason::InternalError | StopReason::Cancelled => {
                Err(failed(self.matcher.get_error().unwrap_or_default()))
            }
        }
    }
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<MayEnd, ConstraintError> {
        if self.has_stopped()? {
            return Ok(MayEnd::Yes);
        }
        let mask = match self.matcher.compute_mask() {
            Ok(mask) => mask,
            // The text must go on, with bytes that no token has.
            Err(why) if why.to_string().starts_with(&StopReason::NoExtensionBias.to_string()) => {
                return Ok(MayEnd::No);
            }
            Err(why) => return Err(error(why)),
        };
        let end = self.tokens.eos_token();
        let may_end = if mask.is_allowed(end) { MayEnd::Yes } else { MayEnd::No };
        for (to, from) in allowed.iter_mut().zip(mask.as_slice()) {
            *to = *from;
        }
        if let Some(word) = allowed.get_mut(end as usize / 32) {
            *word &= !(1 << (end % 32));
        }
        Ok(may_end)
    }

    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError> {
        self.matcher.consume_token(token.0).map_err(error)?;
        Ok(if self.has_stopped()? { Progress::Complete } else { Progress::Open })
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        self.matcher.rollback(tokens).map_err(error)
    }

    fn forced(&mut self) -> Vec<TokenId> {
        let bytes = self.matcher.compute_ff_bytes();
        self.tokens.tokenize_bytes(&bytes).into_iter().map(TokenId).collect()
    }

    fn copy(&self) -> Box<dyn Constraint> {
        Box::new(Self { matcher: self.matcher.deep_clone(), tokens: self.tokens.clone() })
    }
}

fn error(error: impl std::fmt::Display) -> ConstraintError {
    failed(error.to_string())
}

fn failed(reason: String) -> ConstraintError {
    ConstraintError { reason }
}
