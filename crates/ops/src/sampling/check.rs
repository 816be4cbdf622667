//! Which values of the filters make sense.

use super::{ADAPTIVE_DECAY_MAX, Sampling};
use crate::TokenId;

/// Why the filters of a request are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SamplingError {
    /// A value outside of its range.
    #[error("`{parameter}` is {found}; expected {expected}")]
    OutOfRange {
        /// The parameter.
        parameter: &'static str,
        /// Its value.
        found: String,
        /// The range.
        expected: &'static str,
    },
    /// A token that the model doesn't have.
    #[error("`{parameter}` names token id {id}, which is outside of the model's vocabulary of {vocabulary}")]
    UnknownToken {
        /// The parameter.
        parameter: &'static str,
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// Two samplers that both steer.
    #[error("`mirostat` and `adaptive_p` both steer the answer; give one of them")]
    TwoAims,
    /// No token is left.
    #[error("`banned` has every token of `only`, so that none is left")]
    NothingAllowed,
}

type Range = (&'static str, f32, &'static str, fn(f32) -> bool);

const AT_LEAST_0: &str = "a finite number of at least 0";
const FROM_0_TO_1: &str = "a number from 0 to 1";
const ABOVE_0_TO_1: &str = "a number above 0 and up to 1";
const ABOVE_0: &str = "a finite number above 0";
const FINITE: &str = "a finite number";

fn is_at_least_0(x: f32) -> bool {
    x >= 0.0
}

fn is_above_0(x: f32) -> bool {
    x > 0.0
}

fn is_share(x: f32) -> bool {
    (0.0..=1.0).contains(&x)
}

fn is_positive_share(x: f32) -> bool {
    x > 0.0 && x <= 1.0
}

impl Sampling {
    /// Checks every value, and every token against the vocabulary.
    pub fn check(&self, vocabulary: usize) -> Result<(), SamplingError> {
        for (parameter, found, expected, is_in) in self.ranges() {
            if !found.is_finite() || !is_in(found) {
                let found = found.to_string();
                return Err(SamplingError::OutOfRange { parameter, found, expected });
            }
        }
        self.check_tokens(vocabulary)?;
        if self.mirostat.is_some() && self.adaptive.is_some() {
            return Err(SamplingError::TwoAims);
        }
        if !self.only.is_empty() && self.only.iter().all(|token| self.banned.contains(token)) {
            return Err(SamplingError::NothingAllowed);
        }
        Ok(())
    }

    fn ranges(&self) -> impl Iterator<Item = Range> {
        let any: fn(f32) -> bool = |_| true;
        let plain: [Range; 8] = [
            ("temperature", self.temperature, AT_LEAST_0, is_at_least_0),
            ("top_p", self.top_p, ABOVE_0_TO_1, is_positive_share),
            ("min_p", self.min_p, FROM_0_TO_1, is_share),
            ("typical_p", self.typical_p, ABOVE_0_TO_1, is_positive_share),
            ("top_n_sigma", self.top_n_sigma, AT_LEAST_0, is_at_least_0),
            ("repetition_penalty", self.repetition_penalty, ABOVE_0, is_above_0),
            ("presence_penalty", self.presence_penalty, FINITE, any),
            ("frequency_penalty", self.frequency_penalty, FINITE, any),
        ];
        let biases = self.logit_bias.iter().map(move |(_, bias)| ("logit_bias", *bias, FINITE, any));
        plain.into_iter().chain(biases.collect::<Vec<_>>()).chain(self.optional_ranges())
    }

    fn optional_ranges(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        if let Some(dry) = &self.dry {
            ranges.push(("dry_multiplier", dry.multiplier, AT_LEAST_0, is_at_least_0));
            ranges.push(("dry_base", dry.base, ABOVE_0, is_above_0));
        }
        if let Some(dynamic) = &self.dynamic_temperature {
            ranges.push(("dynatemp_range", dynamic.range, AT_LEAST_0, is_at_least_0));
            ranges.push(("dynatemp_exponent", dynamic.exponent, AT_LEAST_0, is_at_least_0));
        }
        if let Some(xtc) = &self.xtc {
            ranges.push(("xtc_probability", xtc.probability, FROM_0_TO_1, is_share));
            ranges.push(("xtc_threshold", xtc.threshold, FROM_0_TO_1, is_share));
        }
        if let Some(mirostat) = &self.mirostat {
            ranges.push(("mirostat_tau", mirostat.target, ABOVE_0, is_above_0));
            ranges.push(("mirostat_eta", mirostat.rate, FROM_0_TO_1, is_share));
        }
        if let Some(adaptive) = &self.adaptive {
            ranges.push(("adaptive_target", adaptive.target, FROM_0_TO_1, is_share));
            let is_decay = |x| (0.0..=ADAPTIVE_DECAY_MAX).contains(&x);
            ranges.push(("adaptive_decay", adaptive.decay, "a number from 0 to 0.99", is_decay));
        }
        ranges
    }

    fn check_tokens(&self, vocabulary: usize) -> Result<(), SamplingError> {
        let biased: Vec<TokenId> = self.logit_bias.iter().map(|(token, _)| *token).collect();
        let breakers = self.dry.as_ref().map_or(&[][..], |dry| &dry.breakers);
        let lists = [
            ("logit_bias", &biased[..]),
            ("banned", &self.banned),
            ("only", &self.only),
            ("dry_breakers", breakers),
        ];
        for (parameter, tokens) in lists {
            if let Some(TokenId(id)) = tokens.iter().find(|token| token.0 as usize >= vocabulary) {
                return Err(SamplingError::UnknownToken { parameter, id: *id, vocabulary });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Adaptive, Dry, DynamicTemperature, Mirostat, Xtc};
    use super::*;

    fn check(change: impl FnOnce(&mut Sampling), expected: Option<&str>) {
        let mut sampling = Sampling::greedy();
        change(&mut sampling);
        let found = sampling.check(100).err().map(|error| error.to_string());
        match (found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) if found.contains(expected) => {}
            (found, expected) => panic!("{sampling:?}: {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn values_outside_of_their_ranges_are_named() {
        check(|_| (), None);
        for bad in [-0.1, f32::NAN, f32::INFINITY] {
            check(|s| s.temperature = bad, Some("`temperature`"));
            check(|s| s.top_n_sigma = bad, Some("`top_n_sigma`"));
            check(|s| s.min_p = bad, Some("`min_p`"));
            check(|s| s.top_p = bad, Some("`top_p`"));
            check(|s| s.typical_p = bad, Some("`typical_p`"));
            check(|s| s.repetition_penalty = bad, Some("`repetition_penalty`"));
            check(|s| s.xtc = Some(Xtc { probability: bad, threshold: 0.1 }), Some("`xtc_probability`"));
            check(|s| s.mirostat = Some(Mirostat { target: bad, rate: 0.1 }), Some("`mirostat_tau`"));
            let dry = Dry { multiplier: bad, base: 1.0, allowed_length: 1, last_tokens: 0, breakers: vec![] };
            check(|s| s.dry = Some(dry), Some("`dry_multiplier`"));
            let dynamic = DynamicTemperature { range: 1.0, exponent: bad };
            check(|s| s.dynamic_temperature = Some(dynamic), Some("`dynatemp_exponent`"));
        }
        check(|s| s.presence_penalty = f32::NAN, Some("`presence_penalty` is NaN; expected a finite number"));
        check(|s| s.adaptive = Some(Adaptive { target: 0.5, decay: 1.0 }), Some("from 0 to 0.99"));
        check(|s| s.logit_bias = vec![(TokenId(1), f32::INFINITY)], Some("`logit_bias`"));
    }

    #[test]
    fn tokens_are_of_the_vocabulary_and_some_are_left() {
        check(|s| s.banned = vec![TokenId(100)], Some("`banned` names token id 100"));
        check(|s| s.only = vec![TokenId(99)], None);
        check(|s| (s.only, s.banned) = (vec![TokenId(9)], vec![TokenId(9)]), Some("none is left"));
        let steered = |s: &mut Sampling| {
            s.mirostat = Some(Mirostat { target: 5.0, rate: 0.1 });
            s.adaptive = Some(Adaptive { target: 0.5, decay: 0.9 });
        };
        check(steered, Some("give one of them"));
    }
}
