//! `gannet eval perplexity`: how well a model foresees a text.
//!
//! The text's ids are cut into consecutive windows, and each is computed from scratch. The beginning of text stands
//! before each window where the tokenizer adds one, and counts as one of its tokens. The perplexity is exp of the mean
//! of -ln p(token | window before it) over all tokens of all windows but the first of each, or over the last few.

use super::{STEP_ROWS, check_ids};
use crate::arguments::values;
use crate::arguments::{KvArguments, ModelArguments};
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Bar};
use crate::report::rate;
use clap::Args;
use gannet_engine::{Runner, evaluate};
use gannet_loader::LoadOptions;
use gannet_model::RopeOverride;
use gannet_ops::TokenId;
use gannet_text::tokenizer::{Specials, Tokenizer};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

const HELP: &str = "\
The text is tokenised as it is and cut into windows of --context tokens, each computed from scratch. The beginning of
text stands before each window, as one of its tokens, where the tokenizer adds one. Printed is exp of the mean negative
log-probability of all tokens of all windows but the first of each; with --last N of the last N of each window.

Examples:
  gannet eval perplexity model.gguf --file book.txt --context 512
  gannet eval perplexity model.gguf --file book.txt --context 24000 --rope-scaling yarn:4 --windows 1 --last 4000";

/// Measure how well a model foresees a text
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct PerplexityArguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    kv: KvArguments,
    /// The text, UTF-8
    #[arg(long, value_name = "TEXT")]
    file: PathBuf,
    /// Tokens of a window
    #[arg(long, value_name = "TOKENS", default_value = "512", value_parser = values::token_count)]
    context: usize,
    /// Count only the last tokens of each window, which have the most before them
    #[arg(long, value_name = "TOKENS", value_parser = values::token_count)]
    last: Option<usize>,
    /// Windows that are read [default: all of the text]
    #[arg(long, value_name = "N", value_parser = values::times)]
    windows: Option<usize>,
    /// Stretch the rope for contexts beyond the model's own: yarn:FACTOR, linear:FACTOR or dynamic:FACTOR
    #[arg(long, value_name = "KIND:FACTOR")]
    rope_scaling: Option<RopeOverride>,
    /// Take a --context beyond what the model and its rope were made for, where answers get worse
    #[arg(long)]
    force_context: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Measured {
    perplexity: f64,
    /// The mean of -ln p, in nats.
    nll: f64,
    /// Tokens that were foreseen.
    tokens: usize,
    windows: usize,
    context: usize,
    tokens_per_second: Option<f64>,
}

/// Runs the command.
pub(crate) fn run(arguments: &PerplexityArguments) -> Result<(), Failure> {
    let text = values::read_text(&arguments.file)?;
    let backend = arguments.model.device.open()?;
    let options = LoadOptions {
        context: Some(arguments.context),
        step_rows: Some(STEP_ROWS.min(arguments.context)),
        kv_format: arguments.kv.format,
        rope_scaling: arguments.rope_scaling,
        force_context: arguments.force_context,
        ..LoadOptions::default()
    };
    let mut loaded = progress::load(&arguments.model.reference.locate()?, backend.as_ref(), &options)?;
    let tokenizer = match &loaded.text {
        Ok(text) => &text.tokenizer,
        Err(error) => return Err(anyhow::anyhow!("a perplexity needs a tokenizer: {error}").into()),
    };
    let mut windows = text_windows(tokenizer, &text, arguments.context)?;
    windows.truncate(arguments.windows.unwrap_or(windows.len()));
    if windows.is_empty() {
        return Err(
            anyhow::anyhow!("`{}` has no two tokens to foresee one of", arguments.file.display()).into()
        );
    }
    let measured = measure(&mut loaded.runner, &windows, arguments)?;
    if arguments.json { output::show_json(&measured) } else { output::show_line(&measured.line()) }
}

fn text_windows(tokenizer: &Tokenizer, text: &str, size: usize) -> Result<Vec<Vec<TokenId>>, Failure> {
    let prefix: Vec<TokenId> = tokenizer.prompt_prefix().iter().copied().map(TokenId).collect();
    if size < prefix.len().max(1) + 1 {
        let least = prefix.len().max(1) + 1;
        return Err(Failure::usage(format!(
            "--context {size} leaves nothing to foresee, expected at least {least}"
        )));
    }
    let ids: Vec<TokenId> = tokenizer.encode(text, Specials::Parse)?.into_iter().map(TokenId).collect();
    Ok(windows(&ids, &prefix, size))
}

/// The windows, each with the prefix before it. A last one in which nothing is foreseen is left out.
fn windows(ids: &[TokenId], prefix: &[TokenId], size: usize) -> Vec<Vec<TokenId>> {
    let parts = ids.chunks(size - prefix.len());
    parts.map(|part| [prefix, part].concat()).filter(|window| window.len() > 1).collect()
}

fn measure(
    runner: &mut Runner,
    windows: &[Vec<TokenId>],
    arguments: &PerplexityArguments,
) -> Result<Measured, Failure> {
    let started = Instant::now();
    let bar = Bar::new("evaluating");
    let counted = |window: &Vec<TokenId>| arguments.last.unwrap_or(usize::MAX).min(window.len() - 1);
    let total: usize = windows.iter().map(counted).sum();
    let (mut sum, mut foreseen) = (0.0, 0);
    for window in windows {
        check_ids(window, runner.vocabulary)?;
        let wanted_from = window.len() - 1 - counted(window);
        evaluate(runner, window, wanted_from, |index, scores| {
            if let Some(next) = window.get(index + 1) {
                sum += negative_log_probability(scores, next.0 as usize);
                foreseen += 1;
                bar.show(foreseen, total);
            }
        })?;
    }
    let nll = sum / total as f64;
    let tokens_per_second = rate(u32::try_from(total).unwrap_or(u32::MAX), started.elapsed());
    Ok(Measured {
        perplexity: nll.exp(),
        nll,
        tokens: total,
        windows: windows.len(),
        context: arguments.context,
        tokens_per_second,
    })
}

/// -ln softmax(scores)[token], in nats.
fn negative_log_probability(scores: &[f32], token: usize) -> f64 {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from(score - largest).exp()).sum();
    f64::from(largest) + sum.ln() - f64::from(scores[token])
}

impl Measured {
    fn line(&self) -> String {
        let Self { perplexity, nll, tokens, windows, context, tokens_per_second } = self;
        let rate = tokens_per_second.map_or(String::new(), |rate| format!("; {rate:.1} tokens/s"));
        format!(
            "perplexity {perplexity:.4} (mean negative log-probability {nll:.6} nats) of {tokens} tokens in {windows} \
             windows of {context}{rate}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u32]) -> Vec<TokenId> {
        ids.iter().copied().map(TokenId).collect()
    }

    #[test]
    fn windows_follow_each_other_and_each_has_the_prefix() {
        let check = |text: &[u32], prefix: &[u32], size: usize, expected: &[&[u32]]| {
            let expected: Vec<_> = expected.iter().map(|window| ids(window)).collect();
            assert_eq!(windows(&ids(text), &ids(prefix), size), expected);
        };
        check(&[1, 2, 3, 4, 5], &[], 2, &[&[1, 2], &[3, 4]]);
        check(&[1, 2, 3, 4, 5], &[0], 3, &[&[0, 1, 2], &[0, 3, 4], &[0, 5]]);
        check(&[1], &[], 4, &[]);
        check(&[], &[0], 4, &[]);
    }

    #[test]
    fn the_negative_log_probability_is_that_of_the_softmax() {
        let uniform = negative_log_probability(&[3.0; 8], 5);
        assert!((uniform - 8f64.ln()).abs() < 1e-12);
        let likely = negative_log_probability(&[0.0, 1000.0], 1);
        assert!(likely.abs() < 1e-12);
        let ratio = negative_log_probability(&[0.0, 2.0], 0) - negative_log_probability(&[0.0, 2.0], 1);
        assert!((ratio - 2.0).abs() < 1e-12);
    }
}
