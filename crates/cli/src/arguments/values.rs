//! From the text of one argument to a checked value; each complaint says what was expected.

use crate::failure::Failure;
use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use gannet_backend_cpu::IsaLevel;
use gannet_engine::LOGPROBS_MAX;
use gannet_ops::sampling::ADAPTIVE_DECAY_MAX;
use gannet_ops::{KvFormat, TokenId};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;

/// Most threads that may be asked for.
const MAX_THREADS: usize = 1024;
/// Most tokens that a context, an answer or a window may be asked to have.
const MAX_TOKENS: usize = 1 << 28;
/// Most elements that a vector may be asked to have.
const MAX_DIMENSIONS: usize = 1 << 20;
/// Most sequences that may be asked for at once.
const MAX_STREAMS: usize = 4096;
/// Most repetitions, and most requests of a trace.
const MAX_TIMES: usize = 1 << 20;
/// Largest file of token ids or of text that is read.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    count(text, "threads", MAX_THREADS)
}

/// A set of vector instructions.
pub(crate) fn isa_level(text: &str) -> Result<IsaLevel, String> {
    let names: Vec<&str> = IsaLevel::ALL.iter().map(|level| level.name()).collect();
    let found = IsaLevel::ALL.into_iter().find(|level| level.name() == text);
    found.ok_or_else(|| format!("expected one of {}", names.join(", ")))
}

/// A number of tokens.
pub(crate) fn token_count(text: &str) -> Result<usize, String> {
    count(text, "tokens", MAX_TOKENS)
}

/// A number of elements of a vector.
pub(crate) fn dimensions(text: &str) -> Result<usize, String> {
    count(text, "dimensions", MAX_DIMENSIONS)
}

/// A number of tokens, or 0 for what is left out.
pub(crate) fn token_count_or_none(text: &str) -> Result<usize, String> {
    count_from(0, text, "tokens", MAX_TOKENS)
}

/// A number of sequences that run at once.
pub(crate) fn streams(text: &str) -> Result<usize, String> {
    count(text, "streams", MAX_STREAMS)
}

/// How often something is done.
pub(crate) fn times(text: &str) -> Result<usize, String> {
    count(text, "times", MAX_TIMES)
}

/// A format of keys and values, by its name.
pub(crate) fn kv_format() -> impl TypedValueParser<Value = KvFormat> {
    let names = PossibleValuesParser::new(KvFormat::ALL.map(KvFormat::name));
    names.map(|name| KvFormat::named(&name).expect("the parser lets the formats' own names through"))
}

/// Bytes of memory: a number, with a unit or without.
pub(crate) fn memory_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        "t" | "tib" => Some(40),
        _ => None,
    };
    let bytes =
        digits.parse().ok().zip(shift).and_then(|(count, shift)| 1u64.checked_shl(shift)?.checked_mul(count));
    let expected =
        "expected a number of bytes above 0, such as 800MiB or 4GiB (K, M, G and T are powers of 1024)";
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| expected.to_owned())
}

/// Events a second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "expected a finite number of at least 0 (0 is all at once)".to_owned())
}

/// A share of a whole.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (0.0..=1.0).contains(value));
    value.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

fn count(text: &str, unit: &str, most: usize) -> Result<usize, String> {
    count_from(1, text, unit, most)
}

fn count_from(least: usize, text: &str, unit: &str, most: usize) -> Result<usize, String> {
    let accepted = text.parse().ok().filter(|count| (least..=most).contains(count));
    accepted.ok_or_else(|| format!("expected a number of {unit} from {least} to {most}"))
}

/// Divides the scores.
pub(crate) fn temperature(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "a finite number of at least 0 (0 is greedy)")
}

/// A share of probability that is kept.
pub(crate) fn top_p(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0 && value <= 1.0, "a number above 0 and up to 1 (1 is off)")
}

/// A share of the largest probability.
pub(crate) fn min_p(text: &str) -> Result<f32, String> {
    number(text, |value| (0.0..=1.0).contains(&value), "a number from 0 (off) to 1")
}

/// A factor on the scores of tokens seen.
pub(crate) fn repetition_penalty(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0, "a finite number above 0 (1 is off)")
}

/// Any number that is not negative.
pub(crate) fn at_least_0(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "a finite number of at least 0 (0 is off)")
}

/// A positive number.
pub(crate) fn above_0(text: &str) -> Result<f32, String> {
    number(text, |value| value > 0.0, "a finite number above 0")
}

/// How fast a moving mean forgets.
pub(crate) fn adaptive_decay(text: &str) -> Result<f32, String> {
    number(text, |value| (0.0..=ADAPTIVE_DECAY_MAX).contains(&value), "a number from 0 to 0.99")
}

/// Tokens of a short passage.
pub(crate) fn small_count(text: &str) -> Result<u32, String> {
    count(text, "tokens", MAX_STREAMS).map(|count| count as u32)
}

/// Log-probabilities beside each token, 0 for that of the token alone.
pub(crate) fn logprobs(text: &str) -> Result<u32, String> {
    count_from(0, text, "log-probabilities", LOGPROBS_MAX as usize).map(|count| count as u32)
}

/// A token's number.
pub(crate) fn token_id(text: &str) -> Result<TokenId, String> {
    text.trim().parse().map(TokenId).map_err(|_| "expected a token id, such as 42".to_owned())
}

/// An amount subtracted from scores.
pub(crate) fn penalty(text: &str) -> Result<f32, String> {
    number(text, |_| true, "a finite number (0 is off)")
}

/// A largest relative difference.
pub(crate) fn tolerance(text: &str) -> Result<f32, String> {
    number(text, |value| value >= 0.0, "a finite number of at least 0")
}

fn number(text: &str, accepts: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    let value = text.parse().ok().filter(|value: &f32| value.is_finite() && accepts(*value));
    value.ok_or_else(|| format!("expected {expected}"))
}

/// A stop string.
pub(crate) fn stop_text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("expected at least one character".to_owned()) } else { Ok(text.to_owned()) }
}

/// `ID=BIAS`.
pub(crate) fn logit_bias(text: &str) -> Result<(TokenId, f32), String> {
    let parts = text.split_once('=').and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    match parts {
        Some((id, bias)) if f32::is_finite(bias) => Ok((TokenId(id), bias)),
        Some(_) | None => Err("expected a token id, `=` and a finite number, such as 42=-1.5".to_owned()),
    }
}

/// Token ids on the command line: `1,2,3`, or `@FILE` with ids between commas or white space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenIds {
    /// The ids themselves.
    List(Vec<TokenId>),
    /// Where they are.
    File(PathBuf),
}

impl FromStr for TokenIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some("") => Err("expected a file's name after `@`".to_owned()),
            Some(path) => Ok(TokenIds::File(path.into())),
            None => parse_ids(text).map(TokenIds::List),
        }
    }
}

impl TokenIds {
    /// The ids.
    pub(crate) fn read(&self) -> Result<Vec<TokenId>, Failure> {
        match self {
            TokenIds::List(ids) => Ok(ids.clone()),
            TokenIds::File(path) => {
                let text = read_text(path)?;
                let ids = parse_ids(&text).map_err(|why| anyhow::anyhow!("`{}`: {why}", path.display()))?;
                Ok(ids)
            }
        }
    }
}

fn parse_ids(text: &str) -> Result<Vec<TokenId>, String> {
    let is_separator = |letter: char| letter == ',' || letter.is_whitespace();
    let parts = text.split(is_separator).filter(|part| !part.is_empty());
    let parse = |part: &str| {
        let shown: String = part.chars().take(40).collect();
        part.parse()
            .map(TokenId)
            .map_err(|_| format!("`{shown}` is no token id; expected numbers such as 1,2,3"))
    };
    let ids = parts.map(parse).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() { Err("expected at least one token id, such as 1,2,3".to_owned()) } else { Ok(ids) }
}

/// A text file, up to a limit.
pub(crate) fn read_text(path: &PathBuf) -> Result<String, Failure> {
    let shown = format!("`{}`", path.display());
    let file = File::open(path).with_context(|| format!("can't open {shown}"))?;
    read_utf8(file, &shown)
}

/// Everything that `source`, called `name`, holds, as text.
pub(crate) fn read_utf8(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    source.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).with_context(|| format!("can't read {name}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(anyhow::anyhow!("{name} is longer than the limit of {MAX_FILE_BYTES} bytes").into());
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{name} is not UTF-8 text: the byte at offset {offset} begins no character").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_within_their_ranges_only() {
        type Parser = fn(&str) -> Result<f32, String>;
        let check = |parse: Parser, good: &[&str], bad: &[&str]| {
            for text in good {
                assert_eq!(parse(text), Ok(text.parse().unwrap()), "{text}");
            }
            for text in bad {
                assert!(parse(text).is_err_and(|why| why.starts_with("expected ")), "{text}");
            }
        };
        check(temperature, &["0", "0.8", "2"], &["-0.1", "nan", "inf", "warm", ""]);
        check(top_p, &["0.1", "1"], &["0", "1.01", "-1", "nan"]);
        check(min_p, &["0", "0.05", "1"], &["-0.1", "1.1", "nan"]);
        check(repetition_penalty, &["0.9", "1.1"], &["0", "-1", "inf"]);
        check(penalty, &["-2", "0", "1.5"], &["nan", "x"]);
    }

    #[test]
    fn counts_start_at_one() {
        assert_eq!(threads("2"), Ok(2));
        assert_eq!(token_count("4096"), Ok(4096));
        for text in ["0", "-1", "1.5", "many", "99999999999999999999"] {
            assert!(token_count(text).is_err(), "{text}");
        }
        assert!(threads("1025").is_err());
        assert_eq!((token_count_or_none("0"), streams("8"), times("5")), (Ok(0), Ok(8), Ok(5)));
        assert!(streams("0").is_err() && times("0").is_err());
    }

    #[test]
    fn rates_and_shares_have_their_ranges() {
        assert_eq!((rate("0"), rate("2.5")), (Ok(0.0), Ok(2.5)));
        assert_eq!((share("0"), share("1")), (Ok(0.0), Ok(1.0)));
        assert!(["-1", "inf", "nan", "x"].iter().all(|text| rate(text).is_err()));
        assert!(["-0.1", "1.1", "nan", "x"].iter().all(|text| share(text).is_err()));
    }

    #[test]
    fn a_bias_names_its_token() {
        assert_eq!(logit_bias("42=-1.5"), Ok((TokenId(42), -1.5)));
        for text in ["42", "42=", "=1", "-1=2", "4=nan"] {
            assert!(logit_bias(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ids_come_from_a_list_or_a_file() {
        let list = |ids: &[u32]| Ok(TokenIds::List(ids.iter().copied().map(TokenId).collect()));
        assert_eq!("1,2,3".parse(), list(&[1, 2, 3]));
        assert_eq!(" 7 , 8\n9 ".parse(), list(&[7, 8, 9]));
        assert_eq!("@ids.txt".parse(), Ok(TokenIds::File("ids.txt".into())));
        for text in ["", ",", "1,x", "-1", "4294967296", "@"] {
            assert!(text.parse::<TokenIds>().is_err(), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_utf8_is_refused_with_the_place() {
        let Err(Failure::Failed(error)) = read_utf8(&b"ab\xffc"[..], "standard input") else {
            panic!("broken text was taken")
        };
        assert!(error.to_string().contains("standard input is not UTF-8 text: the byte at offset 2"));
    }
}
