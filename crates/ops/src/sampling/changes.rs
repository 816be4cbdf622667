//! The scores that a request changes: by biases, by penalties on tokens seen before, by bans.

use super::dry::repeats;
use super::{History, SampleRow, Sampling};

/// A score in place of the model's; minus infinity where the token may not be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) token: u32,
    pub(crate) score: f32,
}

/// The changed scores of a row.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    // Invariant: ascending by token, each once.
    list: Vec<Change>,
}

impl Changes {
    pub(crate) fn list(&self) -> &[Change] {
        &self.list
    }

    /// Those from a token on.
    pub(crate) fn from(&self, token: u32) -> &[Change] {
        &self.list[self.list.partition_point(|change| change.token < token)..]
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Collects what a row changes: biases first, then penalties, then what repeats, then bans.
    pub(crate) fn collect(&mut self, logits: &[f32], row: &SampleRow, history: &History) {
        let sampling = &*row.sampling;
        self.list.clear();
        let repeated = sampling.dry.as_ref().map(|dry| repeats(dry, history.tokens()));
        let seen = if sampling.counts_tokens() { history.counts() } else { &[] };
        let biased = sampling.logit_bias.iter().map(|(token, _)| token.0);
        let penalised = seen.iter().map(|(token, _)| token.0);
        let repeating = repeated.iter().flatten().map(|(token, _)| token.0);
        let bans = || sampling.banned.iter().chain(row.banned.as_deref().unwrap_or_default());
        let touched = biased.chain(penalised).chain(repeating).chain(bans().map(|token| token.0));
        let known = |token: u32| Some(Change { token, score: *logits.get(token as usize)? });
        self.list.extend(touched.filter_map(known));
        self.list.sort_unstable_by_key(|change| change.token);
        self.list.dedup_by_key(|change| change.token);

        for (token, added) in &sampling.logit_bias {
            self.change(token.0, |score| score + added);
        }
        self.penalise(sampling, seen);
        if let (Some(dry), Some(repeated)) = (&sampling.dry, &repeated) {
            for (token, length) in repeated {
                let exponent = (*length - dry.allowed_length as usize) as i32;
                self.change(token.0, |score| score - dry.multiplier * dry.base.powi(exponent));
            }
        }
        for change in &mut self.list {
            // A score that overflows is still that of a token that may be drawn.
            change.score = change.score.clamp(f32::MIN, f32::MAX);
        }
        for token in bans() {
            self.change(token.0, |_| f32::NEG_INFINITY);
        }
    }

    /// Changes the score of a token; one outside of the vocabulary, which was refused with the request, is none's.
    fn change(&mut self, token: u32, change: impl FnOnce(f32) -> f32) {
        if let Ok(place) = self.list.binary_search_by_key(&token, |change| change.token) {
            self.list[place].score = change(self.list[place].score);
        }
    }

    /// Repetition, presence and frequency penalties over the tokens seen, which are ascending as the list is.
    fn penalise(&mut self, sampling: &Sampling, seen: &[(crate::TokenId, u32)]) {
        let mut changes = self.list.iter_mut();
        for (token, generated) in seen {
            let Some(Change { score, .. }) = changes.find(|change| change.token == token.0) else { return };
            *score = if *score > 0.0 {
                *score / sampling.repetition_penalty
            } else {
                *score * sampling.repetition_penalty
            };
            if *generated > 0 {
                *score -= sampling.presence_penalty + *generated as f32 * sampling.frequency_penalty;
            }
        }
    }
}
