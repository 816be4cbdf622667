//! `gannet bench NAME --serve URL`: load on a server that runs already, by streams over HTTP, whoever made the server.
//!
//! Each case is a shape (tokens of prompt and answer) and a number of clients. A client sends a request, reads its stream to
//! the end, and sends the next. Prompts are made-up token ids, different for each request, so that nothing is known of them.
//! All times are the client's: from the moment that a request is written.

mod client;
mod plot;
mod processor;
mod report;

use super::BenchArguments;
use crate::arguments::values;
use crate::failure::Failure;
use crate::output;
use anyhow::Context;
use clap::Args;
use client::{Address, Sample};
use processor::ThreadTimes;
use report::{Case, Report};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The variable that holds the server's key.
const KEY_VARIABLE: &str = "GANNET_API_KEY";
/// Ids of made-up prompts: ordinary tokens of every vocabulary that there is.
const TOKEN_IDS: std::ops::Range<u64> = 1000..20_000;

/// What load to make.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load on a server (with --serve)")]
pub(crate) struct LoadArguments {
    /// Send load to the server at this address, such as http://127.0.0.1:8080; MODEL is then what the server calls it
    #[arg(long = "serve", value_name = "URL", conflicts_with_all = ["serve_sim", "is_loop", "profile"])]
    pub(super) address: Option<Address>,
    /// Tokens of prompts and answers
    #[arg(
        long,
        value_name = "LIST",
        default_value = "128/1024,1024/128,2048/2048,8192/512",
        value_delimiter = ',',
        requires = "address"
    )]
    shapes: Vec<Shape>,
    /// Clients at once
    #[arg(long, value_name = "LIST", default_value = "1,8", value_delimiter = ',', value_parser = values::streams,
          requires = "address")]
    clients: Vec<usize>,
    /// Requests of each client
    #[arg(long, value_name = "N", default_value = "4", value_parser = values::times, requires = "address")]
    rounds: usize,
    /// Send requests for so long instead, and let those that run end
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400),
          conflicts_with = "rounds", requires = "address")]
    for_seconds: Option<u64>,
    /// Hold all answers to the JSON schema in this file; it should allow answers that are as long as the shapes say
    #[arg(long, value_name = "FILE", requires = "address")]
    schema: Option<PathBuf>,
    /// Process of the server on this machine, whose processor time is told by threads (Linux)
    #[arg(long, value_name = "PID", requires = "address")]
    server_process: Option<u32>,
    /// Most milliseconds to a first token of a request that counts as good
    #[arg(long, value_name = "MS", default_value = "1000", value_parser = values::rate, requires = "address")]
    good_first: f64,
    /// Most milliseconds between tokens, on average, of a request that counts as good
    #[arg(long, value_name = "MS", default_value = "100", value_parser = values::rate, requires = "address")]
    good_gap: f64,
    /// Write a plot as SVG
    #[arg(long, value_name = "FILE", requires = "address")]
    plot: Option<PathBuf>,
}

/// Tokens of a prompt and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    prompt: usize,
    answer: usize,
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no shape; expected PROMPT/ANSWER in tokens, such as 128/1024");
        let (prompt, answer) = text.split_once('/').ok_or_else(wrong)?;
        let count = |text: &str| text.parse().ok().filter(|count| (1..=1 << 20).contains(count));
        Ok(Self { prompt: count(prompt).ok_or_else(wrong)?, answer: count(answer).ok_or_else(wrong)? })
    }
}

/// Makes the load and prints what came of it.
pub(super) fn run(arguments: &BenchArguments, address: &Address) -> Result<(), Failure> {
    let given = &arguments.load;
    let model = arguments.model.reference.to_string();
    let key = std::env::var(KEY_VARIABLE).ok();
    // No prompt of this run was sent before, by this run or by an earlier one.
    let moment = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
    let next = AtomicUsize::new(moment as usize);
    let schema = given.schema.as_deref().map(read_schema).transpose()?;
    let mut cases = Vec::new();
    for &shape in &given.shapes {
        for &clients in &given.clients {
            let target = Target {
                address,
                model: &model,
                key: key.as_deref(),
                shape,
                schema: schema.as_ref(),
                next: &next,
            };
            let case = target.measure(clients, given)?;
            if !arguments.json {
                if cases.is_empty() {
                    output::show_line(&Case::head())?;
                }
                output::show_line(&case.line())?;
                if let Some(server) = &case.server {
                    output::show_line(&server.line(report::own_cpu_seconds()))?;
                }
            }
            cases.push(case);
        }
    }
    if let Some(file) = &given.plot {
        std::fs::write(file, plot::svg(&cases))
            .map_err(|error| anyhow::anyhow!("can't write `{}`: {error}", file.display()))?;
    }
    if arguments.json {
        let own_cpu_seconds = report::own_cpu_seconds();
        output::show_json(&Report { address: address.to_string(), model, own_cpu_seconds, cases })?;
    }
    Ok(())
}

/// Where requests of a case go and what they ask for.
struct Target<'a> {
    address: &'a Address,
    model: &'a str,
    key: Option<&'a str>,
    shape: Shape,
    /// What answers are held to.
    schema: Option<&'a Value>,
    /// The number of the next prompt.
    next: &'a AtomicUsize,
}

impl Target<'_> {
    fn measure(&self, clients: usize, given: &LoadArguments) -> Result<Case, Failure> {
        let before = given.server_process.map(ThreadTimes::of).transpose()?;
        let started = Instant::now();
        let goes_on = |sent: usize| match given.for_seconds {
            Some(seconds) => started.elapsed().as_secs() < seconds,
            None => sent < given.rounds,
        };
        let results: Vec<anyhow::Result<Vec<Sample>>> = thread::scope(|scope| {
            let work = || {
                (0..)
                    .take_while(|sent| goes_on(*sent))
                    .map(|_| self.one(self.next.fetch_add(1, Ordering::Relaxed)))
                    .collect::<Result<_, _>>()
            };
            let threads: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().expect("a client doesn't panic")).collect()
        });
        let seconds = started.elapsed().as_secs_f64();
        let samples: Vec<Sample> = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        let good = |sample: &Sample| {
            1000.0 * sample.first <= given.good_first && 1000.0 * sample.gap() <= given.good_gap
        };
        let good = samples.iter().filter(|sample| good(sample)).count();
        let Shape { prompt, answer } = self.shape;
        let mut case = Case::new((prompt, answer), clients, &samples, good, seconds);
        if let (Some(before), Some(process)) = (before, given.server_process) {
            case.server = Some(ThreadTimes::of(process)?.since(&before, process));
        }
        Ok(case)
    }

    fn one(&self, number: usize) -> anyhow::Result<Sample> {
        let mut body = json!({
            "model": self.model, "prompt": made_up(number as u64, self.shape.prompt), "max_tokens": self.shape.answer,
            "ignore_eos": true, "temperature": 0, "stream": true,
        });
        if let Some(schema) = self.schema {
            body["response_format"] =
                json!({"type": "json_schema", "json_schema": {"name": "load", "schema": schema}});
        }
        client::stream(self.address, self.key, &body.to_string())
    }
}

fn read_schema(file: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read(file).with_context(|| format!("can't read `{}`", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("`{}` is no JSON", file.display()))
}

/// Token ids of a prompt, other ones for each number (SplitMix64).
fn made_up(number: u64, tokens: usize) -> Vec<u64> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let draw = |_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        TOKEN_IDS.start + (mixed ^ (mixed >> 31)) % (TOKEN_IDS.end - TOKEN_IDS.start)
    };
    (0..tokens).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_two_numbers_of_tokens() {
        assert_eq!("128/1024".parse(), Ok(Shape { prompt: 128, answer: 1024 }));
        for wrong in ["128", "0/5", "5/0", "a/b", "1/2/3", "1/99999999"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn prompts_differ_from_their_first_tokens_on() {
        let firsts: std::collections::HashSet<u64> = (0..50).map(|number| made_up(number, 4)[0]).collect();
        assert!(firsts.len() > 45);
        assert!(made_up(3, 1000).iter().all(|id| TOKEN_IDS.contains(id)));
        assert_eq!(made_up(3, 8), made_up(3, 16)[..8]);
    }
}
