//! The flags that say how tokens are drawn.

use crate::arguments::values;
use crate::failure::Failure;
use clap::Args;
use gannet_ops::TokenId;
use gannet_ops::sampling::{Adaptive, Dry, DynamicTemperature, Mirostat, Sampling, Xtc};
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
    /// Draw from the tokens whose surprise is nearest to the entropy and that reach this probability [default: 1, off]
    #[arg(long, value_name = "P", value_parser = values::top_p, allow_negative_numbers = true)]
    typical_p: Option<f32>,
    /// Draw from tokens whose score is within N standard deviations of the largest [default: 0, off]
    #[arg(long, value_name = "N", value_parser = values::at_least_0, allow_negative_numbers = true)]
    top_n_sigma: Option<f32>,
    /// How often the likeliest choices but the last are left out [default: 0, off]
    #[arg(long, value_name = "P", value_parser = values::min_p, allow_negative_numbers = true)]
    xtc_probability: Option<f32>,
    /// The probability from which a token is such a choice [default: 0.1]
    #[arg(long, value_name = "P", value_parser = values::min_p, allow_negative_numbers = true,
          requires = "xtc_probability")]
    xtc_threshold: Option<f32>,
    /// Let the temperature follow the entropy, up and down by this [default: 0, off]
    #[arg(long, value_name = "X", value_parser = values::at_least_0, allow_negative_numbers = true)]
    dynatemp_range: Option<f32>,
    /// The bend of the way between the two temperatures [default: 1]
    #[arg(long, value_name = "X", value_parser = values::at_least_0, allow_negative_numbers = true,
          requires = "dynatemp_range")]
    dynatemp_exponent: Option<f32>,
    /// Hold the surprise of the answer (mirostat 2): the surprise in bits, such as 5
    #[arg(long, value_name = "BITS", value_parser = values::above_0, allow_negative_numbers = true)]
    mirostat: Option<f32>,
    /// How fast its limit moves [default: 0.1]
    #[arg(long, value_name = "RATE", value_parser = values::min_p, allow_negative_numbers = true,
          requires = "mirostat")]
    mirostat_rate: Option<f32>,
    /// Favour tokens near this probability (adaptive-p); best with --min-p
    #[arg(long, value_name = "P", value_parser = values::min_p, allow_negative_numbers = true,
          conflicts_with = "mirostat")]
    adaptive_p: Option<f32>,
    /// How much each token before counts less than the next, up to 0.99 [default: 0.9]
    #[arg(long, value_name = "SHARE", value_parser = values::adaptive_decay, allow_negative_numbers = true,
          requires = "adaptive_p")]
    adaptive_decay: Option<f32>,
    /// Lower what would repeat an earlier passage: the penalty of the shortest that counts [default: 0, off]
    #[arg(long, value_name = "X", value_parser = values::at_least_0, allow_negative_numbers = true)]
    dry_multiplier: Option<f32>,
    /// How the penalty grows with each token more [default: 1.75]
    #[arg(long, value_name = "X", value_parser = values::above_0, allow_negative_numbers = true,
          requires = "dry_multiplier")]
    dry_base: Option<f32>,
    /// Tokens of the shortest passage that counts [default: 2]
    #[arg(long, value_name = "N", value_parser = values::small_count, requires = "dry_multiplier")]
    dry_allowed_length: Option<u32>,
    /// Tokens at the end that are looked at; 0 is all [default: 0]
    #[arg(long, value_name = "N", requires = "dry_multiplier")]
    dry_last_tokens: Option<u32>,
    /// Token ids that no passage reaches across, as 1,2,3
    #[arg(long, value_name = "LIST", value_parser = values::token_id, value_delimiter = ',',
          requires = "dry_multiplier")]
    dry_breakers: Vec<TokenId>,
    /// Token ids that are never drawn, as 1,2,3
    #[arg(long, value_name = "LIST", value_parser = values::token_id, value_delimiter = ',')]
    ban_tokens: Vec<TokenId>,
    /// The only token ids that are drawn, as 1,2,3
    #[arg(long, value_name = "LIST", value_parser = values::token_id, value_delimiter = ',')]
    allow_tokens: Vec<TokenId>,
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
            ("--typical-p", self.typical_p.is_some()),
            ("--top-n-sigma", self.top_n_sigma.is_some()),
            ("--xtc-probability", self.xtc_probability.is_some()),
            ("--mirostat", self.mirostat.is_some()),
            ("--adaptive-p", self.adaptive_p.is_some()),
        ];
        let is_greedy = self.temperature == 0.0 && self.dynatemp_range.is_none_or(|range| range == 0.0);
        if let Some((flag, _)) = narrowing.iter().find(|(_, is_given)| *is_given && is_greedy) {
            return Err(Failure::usage(format!(
                "{flag} narrows a random draw, and nothing is drawn at temperature 0; \
                 give a --temperature above 0, such as 0.8, or leave {flag} out"
            )));
        }
        Ok(Sampling {
            logit_bias: self.logit_bias.clone(),
            banned: self.ban_tokens.clone(),
            only: self.allow_tokens.clone(),
            repetition_penalty: self.repetition_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry: self
                .dry_multiplier
                .filter(|multiplier| *multiplier > 0.0)
                .map(|multiplier| self.dry(multiplier)),
            temperature: self.temperature,
            dynamic_temperature: self
                .dynatemp_range
                .filter(|range| *range > 0.0)
                .map(|range| DynamicTemperature { range, exponent: self.dynatemp_exponent.unwrap_or(1.0) }),
            top_n_sigma: self.top_n_sigma.unwrap_or(0.0),
            top_k: self.top_k.unwrap_or(0),
            typical_p: self.typical_p.unwrap_or(1.0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            xtc: self
                .xtc_probability
                .filter(|probability| *probability > 0.0)
                .map(|probability| Xtc { probability, threshold: self.xtc_threshold.unwrap_or(0.1) }),
            mirostat: self
                .mirostat
                .map(|target| Mirostat { target, rate: self.mirostat_rate.unwrap_or(0.1) }),
            adaptive: self
                .adaptive_p
                .map(|target| Adaptive { target, decay: self.adaptive_decay.unwrap_or(0.9) }),
        })
    }

    fn dry(&self, multiplier: f32) -> Dry {
        Dry {
            multiplier,
            base: self.dry_base.unwrap_or(1.75),
            allowed_length: self.dry_allowed_length.unwrap_or(2),
            last_tokens: self.dry_last_tokens.unwrap_or(0),
            breakers: self.dry_breakers.clone(),
        }
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
        let flags = "--temperature 1 --typical-p 0.9 --top-n-sigma 1.5 --xtc-probability 0.5 --xtc-threshold 0.2 \
                     --dynatemp-range 0.3 --dynatemp-exponent 2 --mirostat 5 --mirostat-rate 0.2 \
                     --dry-multiplier 0.8 --dry-base 2 --dry-allowed-length 3 --dry-last-tokens 64 --dry-breakers 1,2 \
                     --ban-tokens 5,6 --allow-tokens 7,8";
        let breakers = vec![TokenId(1), TokenId(2)];
        let expected = Sampling {
            banned: vec![TokenId(5), TokenId(6)],
            only: vec![TokenId(7), TokenId(8)],
            dry: Some(Dry { multiplier: 0.8, base: 2.0, allowed_length: 3, last_tokens: 64, breakers }),
            temperature: 1.0,
            dynamic_temperature: Some(DynamicTemperature { range: 0.3, exponent: 2.0 }),
            top_n_sigma: 1.5,
            typical_p: 0.9,
            xtc: Some(Xtc { probability: 0.5, threshold: 0.2 }),
            mirostat: Some(Mirostat { target: 5.0, rate: 0.2 }),
            ..Sampling::greedy()
        };
        assert_eq!(resolve(flags).unwrap(), expected);
        let adaptive = resolve("--temperature 1 --adaptive-p 0.4 --adaptive-decay 0.8").unwrap().adaptive;
        assert_eq!(adaptive, Some(Adaptive { target: 0.4, decay: 0.8 }));
    }

    #[test]
    fn bad_values_and_parts_without_their_whole_are_refused() {
        for flags in [
            "--temperature 1 --typical-p 0",
            "--temperature 1 --top-n-sigma -1",
            "--temperature 1 --xtc-probability 2",
            "--temperature 1 --mirostat 0",
            "--temperature 1 --mirostat 5 --adaptive-p 0.5",
            "--temperature 1 --adaptive-p 0.5 --adaptive-decay 1",
            "--dry-multiplier nan",
            "--dry-multiplier 1 --dry-allowed-length 0",
            "--dry-base 2",
            "--xtc-threshold 0.1",
            "--ban-tokens x",
            "--allow-tokens -1",
        ] {
            assert!(matches!(resolve(flags), Err(Failure::Parsing(_))), "{flags}");
        }
    }

    #[test]
    fn a_filter_without_a_draw_is_refused() {
        for flags in
            ["--top-k 40", "--top-p 0.9", "--min-p 0.1 --temperature 0", "--mirostat 5", "--adaptive-p 0.5"]
        {
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
