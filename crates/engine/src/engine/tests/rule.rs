//! A constraint whose masks are a hash of all tokens that it was told of, so that one too many, one too few or another
//! order gives other tokens.

use super::simulated::{POISON, VOCABULARY};
use crate::constraint::{Constraint, ConstraintError, MayEnd, Progress};
use crossbeam_channel::{Receiver, Sender, bounded};
use gannet_ops::TokenId;

/// Holds masks up until it opens.
#[derive(Clone, Debug)]
pub(super) struct Gate(Receiver<()>);

/// Opens its gate when it is dropped.
pub(super) struct Key(#[expect(dead_code, reason = "dropped to close the channel")] Sender<()>);

impl Gate {
    pub(super) fn closed() -> (Self, Key) {
        let (key, gate) = bounded(0);
        (Self(gate), Key(key))
    }

    fn pass(&self) {
        // Nothing is ever sent: this ends when the key is dropped.
        let _ = self.0.recv();
    }
}

/// What the answer must look like.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub(super) salt: u64,
    /// The text is whole after so many tokens; said with the last of them.
    pub(super) complete_after: Option<usize>,
    /// The text may end from here on, and only that; said with the mask.
    pub(super) only_end_after: Option<usize>,
    /// After so many tokens the text must go on, and nothing may follow.
    pub(super) stuck_after: Option<usize>,
    /// The mask fails after so many tokens.
    pub(super) fails_after: Option<usize>,
    /// The mask panics after so many tokens.
    pub(super) panics_after: Option<usize>,
    /// The mask after so many tokens is not made before the gate opens.
    pub(super) gate: Option<(usize, Gate)>,
    /// What it was told of.
    pub(super) tokens: Vec<TokenId>,
}

impl Rule {
    pub(super) fn of(salt: u64) -> Self {
        Self { salt, ..Self::default() }
    }

    /// Whether a token may stand behind these.
    fn allows(&self, before: &[TokenId], token: u32) -> bool {
        let mix = |hash: u64, token: &TokenId| (hash ^ u64::from(token.0)).wrapping_mul(0x100_0000_01b3);
        let hash = before.iter().fold(self.salt ^ 0xcbf2_9ce4_8422_2325, mix);
        token != POISON.0 && (hash >> 7).wrapping_add(u64::from(token)).is_multiple_of(7)
    }

    /// The token that the simulated device draws where it would draw `wanted`.
    pub(super) fn expected(&self, before: &[TokenId], wanted: TokenId) -> TokenId {
        let allowed = |token: &u32| self.allows(before, token % VOCABULARY);
        let found = (wanted.0..wanted.0 + VOCABULARY).find(allowed).expect("a seventh is allowed");
        TokenId(found % VOCABULARY)
    }
}

impl Constraint for Rule {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<MayEnd, ConstraintError> {
        let count = self.tokens.len();
        if let Some((_, gate)) = self.gate.as_ref().filter(|(after, _)| *after == count) {
            gate.pass();
        }
        if self.fails_after == Some(count) {
            return Err(ConstraintError { reason: "the rule says so".to_owned() });
        }
        assert!(self.panics_after != Some(count), "the rule is at odds with itself");
        if self.only_end_after.is_some_and(|after| after <= count) {
            return Ok(MayEnd::Yes);
        }
        if self.stuck_after == Some(count) {
            return Ok(MayEnd::No);
        }
        for token in (0..VOCABULARY).filter(|token| self.allows(&self.tokens, *token)) {
            allowed[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(MayEnd::No)
    }

    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError> {
        if !self.allows(&self.tokens, token.0) {
            return Err(ConstraintError { reason: format!("token {} is not allowed", token.0) });
        }
        self.tokens.push(token);
        let is_complete = self.complete_after == Some(self.tokens.len());
        Ok(if is_complete { Progress::Complete } else { Progress::Open })
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        let kept = self.tokens.len().checked_sub(tokens);
        self.tokens.truncate(kept.ok_or_else(|| ConstraintError { reason: "too many".to_owned() })?);
        Ok(())
    }

    fn forced(&mut self) -> Vec<TokenId> {
        Vec::new()
    }

    fn copy(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}
