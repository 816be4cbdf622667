//! The cases, and one run of each by either program, as tokens a second.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::build::Peers;
use crate::process;

/// Tokens that a decode case draws in each stream.
const DECODED: u32 = 64;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Prefill { tokens: u32 },
    Decode { depth: u32 },
    Streams { streams: u32 },
}

/// A case and what its runs gave.
pub(super) struct Pair {
    pub(super) case: Case,
    pub(super) peer: Vec<f64>,
    pub(super) own: Vec<f64>,
}

impl Case {
    /// All of them, by the depth of the decode case behind a context.
    pub(super) fn all(depth: u32) -> [Case; 5] {
        [
            Case::Prefill { tokens: 512 },
            Case::Decode { depth: 0 },
            Case::Decode { depth },
            Case::Streams { streams: 8 },
            Case::Streams { streams: 16 },
        ]
    }

    pub(super) fn name(self) -> String {
        match self {
            Case::Prefill { tokens } => format!("prefill {tokens}"),
            Case::Decode { depth: 0 } => "decode".to_owned(),
            Case::Decode { depth } => format!("decode at depth {depth}"),
            Case::Streams { streams } => format!("{streams} streams decoding, in all"),
        }
    }

    /// What Gannet is asked for.
    fn own(self) -> String {
        match self {
            Case::Prefill { tokens } => format!("--prefill {tokens} --decode 0"),
            Case::Decode { depth } => format!("--prefill 0 --decode {DECODED} --depth {depth}"),
            Case::Streams { streams } => format!("--prefill 0 --decode {DECODED} --streams {streams}"),
        }
    }

    /// What the peer is asked for.
    fn peer(self) -> String {
        match self {
            Case::Prefill { tokens } => format!("-r 1 -o json -p {tokens} -n 0"),
            Case::Decode { depth } => format!("-r 1 -o json -p 0 -n {DECODED} -d {depth}"),
            Case::Streams { streams } => {
                let context = streams * (DECODED + 1).next_multiple_of(256);
                format!("-npp 1 -ntg {DECODED} -npl {streams} -c {context} --output-format jsonl")
            }
        }
    }
}

/// Runs every case in turns, so often.
pub(super) fn measure(
    gannet: &Path,
    peers: &Peers,
    (model, threads): (&Path, u32),
    cases: &[Case],
    rounds: u32,
) -> Result<Vec<Pair>> {
    let empty = |case: &Case| Pair { case: *case, peer: Vec::new(), own: Vec::new() };
    let mut pairs: Vec<Pair> = cases.iter().map(empty).collect();
    for round in 1..=rounds {
        for pair in &mut pairs {
            eprintln!("{}: {}, round {round} of {rounds}", model.display(), pair.case.name());
            pair.peer.push(run_peer(peers, (model, threads), pair.case)?);
            pair.own.push(run_own(gannet, (model, threads), pair.case)?);
        }
    }
    Ok(pairs)
}

/// The threads that Gannet takes where nobody says.
pub(super) fn default_threads(gannet: &Path) -> Result<u32> {
    let text = process::output(Command::new(gannet).args(["doctor", "--json"]))?;
    let facts: Value = serde_json::from_str(&text).context("`gannet doctor --json` printed no JSON")?;
    let threads = facts.pointer("/processor/threads/used").and_then(Value::as_u64);
    threads
        .and_then(|threads| u32::try_from(threads).ok())
        .context("`gannet doctor` names no number of threads")
}

fn run_own(gannet: &Path, (model, threads): (&Path, u32), case: Case) -> Result<f64> {
    let mut command = Command::new(gannet);
    command.arg("bench").arg(model).args(["--repeat", "1", "--json", "--threads", &threads.to_string()]);
    own_rate(&process::output(command.args(case.own().split(' ')))?)
        .with_context(|| format!("`{}` printed no rate", process::line(&command)))
}

fn run_peer(peers: &Peers, (model, threads): (&Path, u32), case: Case) -> Result<f64> {
    let program = if matches!(case, Case::Streams { .. }) { &peers.batched } else { &peers.bench };
    let mut command = Command::new(program);
    command.arg("-m").arg(model).args(["-t", &threads.to_string()]).args(case.peer().split(' '));
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("`{}` did not start", process::line(&command)))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    peer_rate(&printed).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!(
            "`{}` printed no rate: {}",
            process::line(&command),
            errors.lines().last().unwrap_or("nothing")
        )
    })
}

/// The median of the row after that of the first request.
fn own_rate(printed: &str) -> Option<f64> {
    let rows: Value = serde_json::from_str(printed).ok()?;
    rows.get(1)?.pointer("/tokens_per_second/median")?.as_f64()
}

/// `avg_ts` of llama-bench's only test, or `speed_tg` of llama-batched-bench's only line.
fn peer_rate(printed: &str) -> Option<f64> {
    if let Ok(Value::Array(tests)) = serde_json::from_str(printed) {
        return tests.first()?.get("avg_ts")?.as_f64();
    }
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line.get("speed_tg")?.as_f64()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_found_in_what_each_program_prints() {
        assert_eq!(peer_rate(r#"[{"n_prompt": 512, "avg_ts": 460.5}]"#), Some(460.5));
        assert_eq!(peer_rate("\nnoise\n{\"pl\": 8, \"speed_pp\": 1.0, \"speed_tg\": 281.5}\n"), Some(281.5));
        assert_eq!(peer_rate("error"), None);
        let own = r#"[{"tokens_per_second": {"median": 1.0}}, {"tokens_per_second": {"median": 2.5}}]"#;
        assert_eq!((own_rate(own), own_rate("[]")), (Some(2.5), None));
    }
}
