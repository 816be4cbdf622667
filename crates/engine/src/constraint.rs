//! What an answer may go on with: a grammar's view of the tokens, one a request.
//!
//! The engine asks for a mask while the forward pass of the row before runs, draws inside of it, and tells the
//! constraint what it drew. A request that goes back to the queue and is computed again draws nothing twice, so its
//! constraint goes on where it was. Which tokens end an answer the request says, not the constraint: it says only where
//! the text may end.
//!
//! Knows no text and no grammar: `gannet-grammar` implements it.

use crate::containment::contained;
use gannet_ops::TokenId;

/// Which tokens a request's answer may have, one after the other.
pub trait Constraint: Send {
    /// Sets the bits of the tokens that may come next, lowest id first in each word, and says whether the text may end
    /// here instead. All bits are clear before; there is a bit for each id of the model's vocabulary, so that ids that
    /// the constraint doesn't know stay clear. The tokens that end an answer are the caller's to add. Where no bit is set and
    /// the text may not end, the request ends with [`crate::FinishReason::NothingFits`].
    ///
    /// # Errors
    /// The constraint can't say, by its own limits; the request fails then, and nothing else does.
    fn mask(&mut self, allowed: &mut [u32]) -> Result<MayEnd, ConstraintError>;

    /// The answer goes on with this token, which is one of the last mask.
    ///
    /// # Errors
    /// The token doesn't fit.
    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError>;

    /// Takes back the last `tokens` that it advanced by: drafts that were rejected.
    ///
    /// # Errors
    /// There are fewer.
    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError>;

    /// Tokens that spell what the answer must go on with; none where there is a choice. Others may spell the same.
    fn forced(&mut self) -> Vec<TokenId>;

    /// Another one that stands where this does, for another answer to the same prompt.
    fn copy(&self) -> Box<dyn Constraint>;
}

/// Whether the text is whole where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayEnd {
    /// It may end here.
    Yes,
    /// It must go on.
    No,
}

/// Where a token brought a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something may follow.
    Open,
    /// It is whole, and nothing may follow.
    Complete,
}

/// Why a constraint can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the grammar of the answer failed: {reason}")]
pub struct ConstraintError {
    /// The facts.
    pub reason: String,
}

/// What a constraint says, with a panic of its as an error: it ends its own request and no other.
pub(crate) fn ask<T>(work: impl FnOnce() -> Result<T, ConstraintError>) -> Result<T, ConstraintError> {
    contained(work).unwrap_or_else(|panic| Err(ConstraintError { reason: panic.to_string() }))
}
