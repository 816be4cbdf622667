//! One row of scores as a draw sees it: the model's scores, the few that the request changes, and the mask.
//!
//! A row is read in groups of 64 tokens with a known maximum, so that looking for the likeliest tokens touches only the
//! groups that have some. What a request changes (biases, penalties, bans) is a short list beside the row.

use super::changes::Changes;
use super::filters::{Candidate, by_likelihood};
use super::passes::{GROUP, MaskedRow, Passes, Scale};
use super::{History, SampleRow};
use crate::numerics::VOCABULARY_PARTITION;

/// Memory of draws, kept from one to the next.
#[derive(Debug, Default)]
pub struct Workspace {
    maxima: Vec<f32>,
    /// Of the groups, for picking thresholds.
    ranked: Vec<f32>,
    mask: Vec<u32>,
    sums: Vec<f32>,
    masses: Vec<f64>,
    /// A whole changed row, where one is needed.
    row: Vec<f32>,
    changes: Changes,
    candidates: Vec<Candidate>,
}

/// One row of scores.
pub(crate) struct Scores<'a> {
    logits: &'a [f32],
    mask: Option<&'a [u32]>,
    changes: &'a Changes,
    maxima: &'a [f32],
    room: Room<'a>,
}

/// What reading a row needs memory for.
struct Room<'a> {
    ranked: &'a mut Vec<f32>,
    sums: &'a mut Vec<f32>,
    masses: &'a mut Vec<f64>,
    row: &'a mut Vec<f32>,
}

impl Workspace {
    /// The row of a draw, and an empty list for its candidates; `None` where a score is not finite.
    pub(crate) fn row<'a>(
        &'a mut self,
        logits: &'a [f32],
        row: &'a SampleRow,
        history: &History,
        passes: &mut dyn Passes,
    ) -> Option<(Scores<'a>, &'a mut Vec<Candidate>)> {
        let mask = self.mask_of(logits.len(), row);
        let Self { maxima, ranked, mask: words, sums, masses, row: whole, changes, candidates } = self;
        let mask = match mask {
            Mask::None => None,
            Mask::OfRow => row.allowed.as_deref(),
            Mask::Made => Some(&words[..]),
        };
        maxima.resize(logits.len().div_ceil(GROUP), 0.0);
        if !passes.maxima(MaskedRow { scores: logits, mask }, maxima) {
            return None;
        }
        changes.collect(logits, row, history);
        candidates.clear();
        let room = Room { ranked, sums, masses, row: whole };
        let mut scores = Scores { logits, mask, changes, maxima: &[], room };
        scores.raise_changed(maxima);
        scores.maxima = maxima;
        Some((scores, candidates))
    }

    /// The scores of a row that no request changes; `None` where one is not finite.
    pub(crate) fn plain<'a>(
        &'a mut self,
        logits: &'a [f32],
        passes: &mut dyn Passes,
    ) -> Option<(Scores<'a>, &'a mut Vec<Candidate>)> {
        let Self { maxima, ranked, sums, masses, row, changes, candidates, .. } = self;
        maxima.resize(logits.len().div_ceil(GROUP), 0.0);
        if !passes.maxima(MaskedRow { scores: logits, mask: None }, maxima) {
            return None;
        }
        changes.clear();
        candidates.clear();
        let room = Room { ranked, sums, masses, row };
        Some((Scores { logits, mask: None, changes, maxima, room }, candidates))
    }

    /// The row's mask and the request's own list of tokens as one mask.
    fn mask_of(&mut self, vocabulary: usize, row: &SampleRow) -> Mask {
        let only = &row.sampling.only;
        if only.is_empty() {
            return if row.allowed.is_some() { Mask::OfRow } else { Mask::None };
        }
        self.mask.clear();
        self.mask.resize(vocabulary.div_ceil(u32::BITS as usize), 0);
        for token in only {
            let (word, bit) = (token.0 as usize / 32, token.0 % 32);
            let allowed =
                row.allowed.as_ref().map_or(u32::MAX, |words| words.get(word).copied().unwrap_or(0));
            if let Some(place) = self.mask.get_mut(word) {
                *place |= allowed & 1 << bit;
            }
        }
        Mask::Made
    }
}

/// Where a row's mask is.
enum Mask {
    None,
    OfRow,
    Made,
}

impl Scores<'_> {
    /// Corrects the maxima of the groups with changed scores.
    fn raise_changed(&self, maxima: &mut [f32]) {
        let mut changes = self.changes.list();
        while let Some(first) = changes.first() {
            let group = first.token as usize / GROUP;
            let (of_group, rest) =
                changes.split_at(changes.partition_point(|change| change.token as usize / GROUP == group));
            let allowed = of_group.iter().filter(|change| self.may_be_drawn(change.token));
            let lowers = allowed.clone().any(|change| self.logits[change.token as usize] == maxima[group]);
            if lowers {
                maxima[group] = self.group(group).map(|found| found.score).fold(f32::NEG_INFINITY, f32::max);
            } else {
                maxima[group] = allowed.map(|change| change.score).fold(maxima[group], f32::max);
            }
            changes = rest;
        }
    }

    fn may_be_drawn(&self, token: u32) -> bool {
        let word = |words: &[u32]| words.get(token as usize / 32).copied().unwrap_or(0);
        self.mask.is_none_or(|words| word(words) >> (token % 32) & 1 == 1)
    }

    /// The tokens of a group that may be drawn, ascending.
    fn group(&self, group: usize) -> impl Iterator<Item = Candidate> + '_ {
        let first = group * GROUP;
        let scores = &self.logits[first..self.logits.len().min(first + GROUP)];
        let mut changes = self.changes.from(first as u32).iter().peekable();
        let candidates = scores.iter().zip(first as u32..).map(move |(score, token)| {
            let changed = changes.next_if(|change| change.token == token);
            // Zeros are equal, whatever their sign.
            Candidate { token, score: changed.map_or(*score, |change| change.score) + 0.0 }
        });
        candidates.filter(|found| found.score > f32::NEG_INFINITY && self.may_be_drawn(found.token))
    }

    /// The largest score; minus infinity where no token may be drawn.
    pub(crate) fn max(&self) -> f32 {
        self.maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max)
    }

    /// The token with the largest score, the lowest of equal ones.
    pub(crate) fn likeliest(&self) -> Option<u32> {
        let max = self.max();
        let group = self.maxima.iter().position(|largest| *largest == max)?;
        self.group(group).find(|found| found.score == max).map(|found| found.token)
    }

    /// All tokens with at least this score, ascending.
    pub(crate) fn at_least(&self, least: f32, candidates: &mut Vec<Candidate>) {
        candidates.clear();
        for (group, _) in self.maxima.iter().enumerate().filter(|(_, largest)| **largest >= least) {
            candidates.extend(self.group(group).filter(|found| found.score >= least));
        }
    }

    /// The `count` likeliest tokens, in no order, ties to the lower ids; all where there are fewer.
    pub(crate) fn top(&mut self, count: usize, candidates: &mut Vec<Candidate>) {
        // As many groups have a token that is at least this likely.
        let mut least = f32::NEG_INFINITY;
        if count < self.maxima.len() {
            let ranked = &mut self.room.ranked;
            ranked.clear();
            ranked.extend_from_slice(self.maxima);
            least = *ranked.select_nth_unstable_by(count - 1, |a, b| b.total_cmp(a)).1;
        }
        self.at_least(least, candidates);
        if count < candidates.len() {
            candidates.select_nth_unstable_by(count - 1, by_likelihood);
            candidates.truncate(count);
        }
    }

    /// The sum of `exp(score / temperature - max)` over all tokens that may be drawn, in the named order.
    pub(crate) fn denominator(&mut self, scale: Scale, passes: &mut dyn Passes) -> f32 {
        let Room { row, sums, .. } = &mut self.room;
        let scores = changed_row((self.logits, self.changes), row);
        sums.resize(scores.len().div_ceil(VOCABULARY_PARTITION), 0.0);
        passes.exponentials(MaskedRow { scores, mask: self.mask }, scale, sums);
        sums.iter().fold(0.0, |sum, part| sum + part)
    }

    /// The mass of all tokens that may be drawn.
    pub(crate) fn mass(&mut self, scale: Scale, passes: &mut dyn Passes) -> f64 {
        let Room { row, masses, .. } = &mut self.room;
        let scores = changed_row((self.logits, self.changes), row);
        masses.resize(scores.len().div_ceil(VOCABULARY_PARTITION), 0.0);
        passes.masses(MaskedRow { scores, mask: self.mask }, scale, masses);
        masses.iter().sum()
    }
}

/// The row with its changes, in `room` where there are any.
fn changed_row<'a>((logits, changes): (&'a [f32], &Changes), room: &'a mut Vec<f32>) -> &'a [f32] {
    if changes.list().is_empty() {
        return logits;
    }
    room.clear();
    room.extend_from_slice(logits);
    for change in changes.list() {
        room[change.token as usize] = change.score;
    }
    room
}
