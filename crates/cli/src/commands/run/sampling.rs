//! The flags that say how tokens are drawn.

use crate::arguments::values;
use crate::failure::Failure;
use clap::Args;
use gannet_ops::TokenId;
use gannet_ops::sampling::Sampling;
use std::hash::{BuildHasher, RandomState};

/// How tokens are drawn.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArguments {
    /// Draw at random, from scores divided by this; 0 is greedy: the most likely token, the same answer each time
    #[arg(long, value_name = "T", default_value = "0", value_parser = values::temperature, allow_negative_numbers = true)]
    temperature: f32,
    /// Draw from the K most likely tokens only; 0 is off [default: 0]
    #[arg(long, value_name = "K")]
    top_k: Option<u32>,
    /// Draw from the most likely tokens that together reach this probability [default: 1, off]
    #[arg(long, value_name = "P", value_parser = values::top_p, allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Draw from tokens at least this share as likely as the likeliest [default: 0, off]
    #[arg(long, value_name = "P", value_parser = values::min_p, allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Divide the scores of tokens that prompt or answer hold already (multiply where negative); 1 is off
    #[arg(long, value_name = "F", default_value = "1", value_parser = values::repetition_penalty,
          allow_negative_numbers = true)]
    repetition_penalty: f32,
    /// Subtract this from the score of each token that the answer holds already; 0 is off
    #[arg(long, value_name = "X", default_value = "0", value_parser = values::penalty, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Subtract this from the score of a token as often as the answer holds it; 0 is off
    #[arg(long, value_name = "X", default_value = "0", value_parser = values::penalty, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Add V to the score of token ID; may be given several times
    #[arg(long, value_name = "ID=V", value_parser = values::logit_bias)]
    logit_bias: Vec<(TokenId, f32)>,
    /// The seed of the draws: the same seed gives the same answer [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SamplingArguments {
    /// The filters. A filter that could have no effect is refused rather than ignored.
    pub(crate) fn resolve(&self) -> Result<Sampling, Failure> {
        let narrowing = [
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--min-p", self.min_p.is_some()),
        ];
        if let Some((flag, _)) = narrowing.iter().find(|(_, is_given)| *is_given && self.temperature == 0.0) {
            return Err(Failure::usage(format!(
                "{flag} narrows a random draw, and nothing is drawn at temperature 0; \
                 give a --temperature above 0, such as 0.8, or leave {flag} out"
            )));
        }
        Ok(Sampling {
            logit_bias: self.logit_bias.clone(),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            temperature: self.temperature,
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            ..Sampling::greedy()
        })
    }

    /// The seed that was given, or one from the system's randomness.
    pub(crate) fn seed(&self) -> u64 {
        // 53 bits, so that a program that reads the seed as a JSON number gets it whole.
        self.seed.unwrap_or_else(|| RandomState::new().hash_one("seed") >> 11)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sampling: SamplingArguments,
    }

    fn resolve(flags: &str) -> Result<Sampling, Failure> {
        let words = std::iter::once("x").chain(flags.split_whitespace());
        Line::try_parse_from(words).map_err(Failure::Parsing)?.sampling.resolve()
    }

    #[test]
    fn greedy_is_the_default() {
        assert_eq!(resolve("").unwrap(), Sampling::greedy());
    }

    #[test]
    fn each_flag_reaches_its_filter() {
        let flags = "--temperature 0.7 --top-k 5 --top-p 0.9 --min-p 0.1 --repetition-penalty 1.1 \
                     --presence-penalty -0.5 --frequency-penalty 0.25 --logit-bias 3=-1 --logit-bias 4=2";
        let expected = Sampling {
            logit_bias: vec![(TokenId(3), -1.0), (TokenId(4), 2.0)],
            repetition_penalty: 1.1,
            presence_penalty: -0.5,
            frequency_penalty: 0.25,
            temperature: 0.7,
            top_k: 5,
            top_p: 0.9,
            min_p: 0.1,
            ..Sampling::greedy()
        };
        assert_eq!(resolve(flags).unwrap(), expected);
    }

    #[test]
    fn a_filter_without_a_draw_is_refused() {
        for flags in ["--top-k 40", "--top-p 0.9", "--min-p 0.1 --temperature 0"] {
            assert!(matches!(resolve(flags), Err(Failure::Usage(_))), "{flags}");
        }
    }

    #[test]
    fn a_given_seed_is_used_and_others_differ() {
        let given = SamplingArguments { seed: Some(7), ..SamplingArguments::default() };
        assert_eq!(given.seed(), 7);
        let free = SamplingArguments::default();
        assert_ne!(free.seed(), free.seed());
    }
}
