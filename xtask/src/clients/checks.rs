//! The checks: how each program is installed, which server it gets, how it is called.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::server::Server;
use super::{Bench, Form};
use crate::{page, peers, process};

/// What the model is called.
const NAME: &str = "smollm2";
/// What it is called where it makes vectors.
const VECTORS: &str = "smollm2-vectors";
/// The pinned scanner.
const CANARY: &str = "compatcanary@0.2.2";
/// The part of the server's processor time that threads beside the engine's may take.
const OTHER_SHARE: f64 = 0.05;
/// Of the engine's rate without a server, the part that clients get at least.
const SERVED_SHARE: f64 = 0.8;
/// Clients of the load, and tokens of its prompts and answers.
const STREAMS: &str = "64";
const PROMPT: &str = "64";
const ANSWER: &str = "48";
/// Files of llama.cpp's tests that are about what both servers have.
const LLAMA_TESTS: [&str; 6] =
    ["basic", "chat_completion", "compat_anthropic", "compat_oai_responses", "embedding", "security"];

/// A server of both kinds of models, with products in single precision, so that scores are those of other
/// implementations.
fn exact(bench: &Bench<'_>, context: &str, more: &[&str]) -> Result<Server> {
    let [named, vectors] = [NAME, VECTORS].map(|name| format!("{name}={}", bench.model.display()));
    let own =
        ["--context", context, "--activations", "f32", "--model", &named, "--embedding-model", &vectors];
    Server::start(&bench.binary, &[&own[..], &["--pooling", "mean"], more].concat())
}

/// A server as a person starts it.
fn plain(bench: &Bench<'_>, context: &str, more: &[&str]) -> Result<Server> {
    let named = format!("{NAME}={}", bench.model.display());
    Server::start(&bench.binary, &[&["--context", context, "--model", &named], more].concat())
}

fn script(bench: &Bench<'_>, python: &Path, file: &str, arguments: &[&str]) -> Result<()> {
    process::run(Command::new(python).arg("-B").arg(bench.file(file)).args(arguments))
}

pub(super) fn sdk(bench: &Bench<'_>) -> Result<()> {
    let python = bench.python("clients-python", "requirements.txt")?;
    let server = exact(bench, "2048", &[])?;
    script(bench, &python, "cases.py", &[&server.address, NAME, VECTORS])
}

pub(super) fn page(bench: &Bench<'_>) -> Result<()> {
    let server = exact(bench, "2048", &[])?;
    page::run(bench.root, &server.address)
}

pub(super) fn canary(bench: &Bench<'_>) -> Result<()> {
    if !process::works(Command::new("npm").arg("--version")) {
        bail!(
            "`npm` is not in PATH; install Node.js 20 or newer with npm (the scanner is one of its packages)"
        );
    }
    let folder = bench.root.join("target/compatcanary");
    let program = folder.join("node_modules/compatcanary/src/cli.js");
    let mut install = Command::new("npm");
    install
        .args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(&folder)
        .arg(CANARY);
    process::run(&mut install)?;
    let server = plain(bench, "2048", &[])?;
    let address = format!("{}/v1", server.address);
    let mut scan = Command::new("node");
    scan.arg(program).args(["scan", "--base-url", &address, "--model", NAME, "--fail-on", "any"]);
    process::run(scan.args(["--timeout", "1200"]))
}

pub(super) fn schemas(bench: &Bench<'_>) -> Result<()> {
    let python = bench.python("clients-python", "requirements.txt")?;
    let server = plain(bench, "2048", &[])?;
    let count = match bench.form {
        Form::Short => "10",
        Form::Long => "300",
    };
    script(bench, &python, "schemas.py", &[&server.address, NAME, count])
}

pub(super) fn contract(bench: &Bench<'_>) -> Result<()> {
    let python = bench.python("contract-python", "contract/requirements.txt")?;
    // A short context makes short answers, and few sequences a queue that fills.
    let server = exact(bench, "96", &["--max-sequences", "4", "--max-waiting", "4"])?;
    // What is made up depends on the seed alone, never on the time that it takes.
    let (seeds, examples) = match bench.form {
        Form::Short => (1..=1, "20"),
        Form::Long => (2..=6, "200"),
    };
    let folder = bench.file("contract");
    for seed in seeds {
        // The phase of coverage has thousands of cases of each large body, the same whatever the seed.
        let phases = if seed == 2 { "coverage,fuzzing" } else { "fuzzing" };
        let mut command = Command::new(&python);
        command.args(["-B", "-m", "schemathesis.cli", "--config-file"]).arg(folder.join("schemathesis.toml"));
        command.args(["run", &format!("{}/openapi.json", server.address), "--seed", &seed.to_string()]);
        command.args(["--phases", phases, "--max-examples", examples, "--workers", "1"]);
        command.args(["--generation-database", "none"]);
        command.env("SCHEMATHESIS_HOOKS", "contract").env("PYTHONPATH", &folder);
        process::run(command.current_dir(bench.root.join("target")))?;
    }
    Ok(())
}

pub(super) fn harness(bench: &Bench<'_>) -> Result<()> {
    let python = bench.python("harness-python", "harness/requirements.txt")?;
    // The harness encodes by a route that it doesn't tell which model, so that there can be one alone.
    let server = plain(bench, "2048", &["--activations", "f32"])?;
    script(bench, &python, "harness/check.py", &[&server.address, NAME])
}

pub(super) fn llama_cpp(bench: &Bench<'_>) -> Result<()> {
    let python = bench.python("llama-python", "llama_cpp/requirements.txt")?;
    let tests = peers::source(bench.root)?.join("tools/server/tests");
    let own = bench.file("llama_cpp");
    let paths = std::env::join_paths([&own, &tests]).context("a folder's name holds a separator of paths")?;
    let mut command = Command::new(&python);
    command.args(["-B", "-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", "--quiet"]);
    command.args(LLAMA_TESTS.map(|name| format!("unit/test_{name}.py")));
    command.env("PYTHONPATH", paths).env("LLAMA_SERVER_BIN_PATH", own.join("server.py"));
    command.env("GANNET", &bench.binary).env("GANNET_MODEL", &bench.model).env("PORT", "18090");
    process::run(command.current_dir(tests))
}

pub(super) fn load(bench: &Bench<'_>) -> Result<()> {
    let python = bench.python("clients-python", "requirements.txt")?;
    let (seconds, requests) = match bench.form {
        Form::Short => ("5", "64"),
        Form::Long => ("120", "512"),
    };
    let alone = rate_alone(bench, requests)?;
    let many = ["--max-sequences", STREAMS, "--max-waiting", "1024", "--header-timeout", "10"];
    let server = plain(bench, "512", &many)?;
    let process_id = server.process().to_string();
    let mut command = Command::new(&bench.binary);
    command.args(["bench", NAME, "--serve", &server.address, "--server-process", &process_id, "--json"]);
    command.args(["--shapes", &format!("{PROMPT}/{ANSWER}"), "--clients", STREAMS, "--for-seconds", seconds]);
    let report: Value = serde_json::from_str(&process::output(&mut command)?)?;
    eprintln!("{}", serde_json::to_string_pretty(&report)?);
    let case = &report["cases"][0];
    let share = case["server"]["other_share"].as_f64().context("the report tells no threads")?;
    if share >= OTHER_SHARE {
        bail!(
            "threads beside the engine's took {share:.3} of the server's processor time, aim {OTHER_SHARE}"
        );
    }
    let served = case["tokens_per_second"].as_f64().context("the report tells no rate")?;
    eprintln!("{served:.1} tokens/s over HTTP, {alone:.1} of the engine alone: {:.3}", served / alone);
    if served < SERVED_SHARE * alone {
        bail!("{served:.1} tokens/s over HTTP, {alone:.1} of the engine alone, aim {SERVED_SHARE} of that");
    }
    script(bench, &python, "soak.py", &[&server.address, NAME, &process_id])
}

/// Tokens a second that the engine makes of the same load without a server.
fn rate_alone(bench: &Bench<'_>, requests: &str) -> Result<f64> {
    let mut command = Command::new(&bench.binary);
    command.arg("bench").arg(&bench.model).args(["--serve-sim", "--rate", "0", "--shared", "0", "--json"]);
    command.args(["--streams", STREAMS, "--requests", requests]);
    command.args(["--prompt-tokens", PROMPT, "--answer-tokens", ANSWER]);
    let report: Value = serde_json::from_str(&process::output(&mut command)?)?;
    report["generated_tokens_per_second"].as_f64().context("the report tells no rate")
}
