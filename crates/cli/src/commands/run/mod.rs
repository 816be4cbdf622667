//! `gannet run`: a model answers a prompt, or chats.
//!
//! A prompt's way: `prompt` finds out what is asked and turns it into token ids, `session` has the engine that
//! continues them, `answer` turns what comes back into text as it comes.

mod answer;
mod chat;
mod grammar;
pub(crate) mod history;
mod prompt;
mod sampling;
mod session;

use crate::arguments::values::{self, TokenIds};
use crate::arguments::{ContextArguments, MemoryArguments, ModelArguments};
use crate::failure::Failure;
use crate::output;
use crate::report::Timings;
use answer::{Answer, Ending};
use clap::Args;
use gannet_ops::TokenLogprobs;
use prompt::{Prompt, Task};
use serde::Serialize;
use session::Session;
use std::io::{IsTerminal, stdin, stdout};

const HELP: &str = "\
Without PROMPT, on a terminal, a chat begins. The text goes to standard output as it comes, timings to standard error.
Answers are greedy unless --temperature says otherwise, so the same command gives the same answer.
Ctrl-C stops the answer, and what there is of it stays.

Examples:
  gannet run model.gguf \"Why is the sky blue?\"
  gannet run model.gguf --temperature 0.8 --top-p 0.95 --seed 1 \"Tell me a story.\"
  gannet run folder --raw \"Once upon a time\" --max-tokens 50
  gannet run folder --ids 1,2,3 --json
  gannet run model.gguf --regex \"(yes|no)\" \"Is the sky blue?\"
  gannet run model.gguf --json-schema person.json \"Invent a person.\"";

/// Answer a prompt, or chat
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// What to say to the model; - reads it from standard input, as it is
    #[arg(value_name = "PROMPT", conflicts_with = "ids")]
    prompt: Option<String>,
    /// Token ids to continue instead of text, as 1,2,3 or @FILE; needs no tokenizer
    #[arg(long, value_name = "LIST", conflicts_with_all = ["raw", "system"])]
    ids: Option<TokenIds>,
    /// Continue the text as it is, without the chat template; special tokens in it are parsed
    #[arg(long, conflicts_with = "system")]
    raw: bool,
    /// What the system message says
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Most tokens of an answer
    #[arg(long, value_name = "N", default_value = "1024", value_parser = values::token_count)]
    max_tokens: usize,
    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = values::stop_text, allow_hyphen_values = true)]
    stop: Vec<String>,
    /// Go on after tokens that end a text
    #[arg(long, alias = "ignore-eos")]
    ignore_end: bool,
    /// Draw no token that ends a text before so many tokens
    #[arg(long, value_name = "N", default_value = "0", value_parser = values::token_count_or_none,
          conflicts_with = "ignore_end")]
    min_tokens: usize,
    /// With each token its log-probability and those of so many most likely ones; needs --json
    #[arg(long, value_name = "N", value_parser = values::logprobs, requires = "json")]
    logprobs: Option<u32>,
    /// The same for each token of the prompt but the first; needs --json
    #[arg(long, value_name = "N", value_parser = values::logprobs, requires = "json")]
    prompt_logprobs: Option<u32>,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    memory: MemoryArguments,
    #[command(flatten)]
    grammar: grammar::GrammarArguments,
    #[command(flatten)]
    sampling: sampling::SamplingArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let (least, most) = (arguments.min_tokens, arguments.max_tokens);
    if least > most {
        return Err(Failure::usage(format!(
            "--min-tokens {least} are more than the {most} that an answer may have (--max-tokens)"
        )));
    }
    let task = Task::choose(arguments, stdin().is_terminal() && stdout().is_terminal())?;
    let session = Session::start(arguments)?;
    match task {
        Task::Answer(prompt) => answer_once(arguments, &session, &prompt)?,
        Task::Chat => chat::run(&session, arguments.system.as_deref())?,
    }
    session.end();
    Ok(())
}

fn answer_once(arguments: &RunArguments, session: &Session, prompt: &Prompt) -> Result<(), Failure> {
    let encoded = session.encode(prompt)?;
    let answer = if arguments.json {
        let answer = session.answer(&encoded, prompt.place(), &mut |_| Ok(()))?;
        let ids = |ids: &[gannet_ops::TokenId]| ids.iter().map(|id| id.0).collect();
        output::show_json(&AnswerObject {
            prompt_ids: ids(&encoded.ids),
            token_ids: ids(&answer.token_ids),
            text: session.has_text().then_some(answer.text.as_str()),
            logprobs: arguments.logprobs.map(|_| logprob_objects(&answer.logprobs)),
            prompt_logprobs: arguments.prompt_logprobs.map(|_| logprob_objects(&answer.prompt_logprobs)),
            finish_reason: answer.ending.name(),
            seed: (!session.is_greedy()).then_some(session.seed),
            timings: Timings::new(session.load_time, &answer.usage),
        })?;
        answer
    } else {
        let answer = session.answer(&encoded, prompt.place(), &mut output::show)?;
        if !answer.text.ends_with('\n') {
            output::show("\n")?;
        }
        report(session, &answer);
        answer
    };
    if answer.ending == Ending::Interrupted { Err(Failure::Interrupted) } else { Ok(()) }
}

/// What `--json` prints.
#[derive(Serialize)]
struct AnswerObject<'a> {
    prompt_ids: Vec<u32>,
    /// Without the end token.
    token_ids: Vec<u32>,
    /// Null where the model has no tokenizer.
    text: Option<&'a str>,
    /// Of each token; absent where not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<LogprobObject>>,
    /// Of each token of the prompt but the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<LogprobObject>>,
    finish_reason: &'static str,
    /// Null where nothing is drawn.
    seed: Option<u64>,
    timings: Timings,
}

/// The log-probability of a token, and the most likely ones in its place with theirs.
#[derive(Serialize)]
struct LogprobObject {
    logprob: Option<f32>,
    top: Vec<(u32, f32)>,
}

fn logprob_objects(logprobs: &[TokenLogprobs]) -> Vec<LogprobObject> {
    let object = |one: &TokenLogprobs| LogprobObject {
        logprob: one.sampled,
        top: one.top.iter().map(|(token, logprob)| (token.0, *logprob)).collect(),
    };
    logprobs.iter().map(object).collect()
}

fn report(session: &Session, answer: &Answer) {
    let timings = Timings::new(session.load_time, &answer.usage).line();
    let seed = if session.is_greedy() { String::new() } else { format!("; seed {}", session.seed) };
    eprintln!("{timings}; ended by {}{seed}", session.describe(answer));
}
