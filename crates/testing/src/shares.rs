//! A constraint for tests.

use gannet_engine::{Constraint, ConstraintError, MayEnd, Progress};
use gannet_ops::TokenId;

/// Lets every `share`-th token of the vocabulary through, others after each token: which follows from all tokens that it was told of.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Tokens of the vocabulary.
    pub vocabulary: u32,
    /// 2 for half of them, 3 for a third.
    pub share: u32,
    /// A hash of the tokens so far; any number at first.
    pub hash: u32,
}

impl Constraint for Shares {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<MayEnd, ConstraintError> {
        let is_let_through = |token: &u32| token.wrapping_add(self.hash).is_multiple_of(self.share);
        for token in (0..self.vocabulary).filter(is_let_through) {
            allowed[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(MayEnd::No)
    }

    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError> {
        self.hash = self.hash.rotate_left(5).wrapping_mul(31) ^ token.0;
        Ok(Progress::Open)
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        Err(ConstraintError { reason: format!("{tokens} tokens: nothing is drafted here") })
    }

    fn forced(&mut self) -> Vec<TokenId> {
        Vec::new()
    }

    fn copy(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
