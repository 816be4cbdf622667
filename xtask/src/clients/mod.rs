//! The server against programs that others wrote: the official clients, scanners, fuzzers, another server's tests.
//!
//! Each check runs the real binary with SmolLM2. Those of every change are short; `--long` runs the long forms of all,
//! as `cargo xtask soak --clients` does. What they need is installed under `target/`.

mod checks;
mod server;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::{models, process, python, suite};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which checks [default: those of every change; with --long, all]
    #[arg(value_name = "CHECK", value_enum)]
    checks: Vec<Check>,
    /// Their long forms
    #[arg(long)]
    long: bool,
}

/// A check by programs of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Check {
    /// The official clients of OpenAI and Anthropic
    Sdk,
    /// The npm package compatcanary
    Canary,
    /// schemathesis over /openapi.json
    Contract,
    /// JSON schemas, whose answers jsonschema judges
    Schemas,
    /// The server's page in a browser
    Page,
    /// lm-eval's local-completions, against log-likelihoods of transformers
    Harness,
    /// The tests of llama.cpp's server that Gannet can pass
    LlamaCpp,
    /// Load for two minutes, aborts, silent connections
    Load,
}

impl Check {
    /// The checks of every change.
    const SHORT: [Check; 5] = [Check::Sdk, Check::Canary, Check::Schemas, Check::Contract, Check::Page];

    fn run(self, bench: &Bench<'_>) -> Result<()> {
        match self {
            Check::Sdk => checks::sdk(bench),
            Check::Canary => checks::canary(bench),
            Check::Contract => checks::contract(bench),
            Check::Schemas => checks::schemas(bench),
            Check::Page => checks::page(bench),
            Check::Harness => checks::harness(bench),
            Check::LlamaCpp => checks::llama_cpp(bench),
            Check::Load => checks::load(bench),
        }
    }
}

/// How much of a check is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Short,
    Long,
}

/// What all checks need.
struct Bench<'a> {
    root: &'a Path,
    /// The program under test.
    binary: PathBuf,
    model: PathBuf,
    form: Form,
}

impl Bench<'_> {
    /// A file among those of these checks.
    fn file(&self, name: &str) -> PathBuf {
        self.root.join(FOLDER).join(name)
    }

    /// The Python of an environment with the packages of this file.
    fn python(&self, name: &str, requirements: &str) -> Result<PathBuf> {
        python::environment(self.root, name, &format!("{FOLDER}/{requirements}"))
    }
}

/// Where the checks' files are.
const FOLDER: &str = "crates/server/tests/clients";

/// Builds the program and runs the checks that are asked for, or those of every change.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let form = if arguments.long { Form::Long } else { Form::Short };
    let own = if arguments.long { Check::value_variants() } else { &Check::SHORT[..] };
    run_checks(root, if arguments.checks.is_empty() { own } else { &arguments.checks }, form)
}

/// The checks of every change.
pub(crate) fn run_short(root: &Path) -> Result<()> {
    run_checks(root, &Check::SHORT, Form::Short)
}

/// The long forms of all checks.
pub(crate) fn run_long(root: &Path) -> Result<()> {
    run_checks(root, Check::value_variants(), Form::Long)
}

fn run_checks(root: &Path, checks: &[Check], form: Form) -> Result<()> {
    let model = models::fetch(root, &models::SMOLLM2)?;
    let bench = Bench { root, binary: built(root, form)?, model, form };
    for check in checks {
        let name = check.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
        eprintln!("\n-- {name}");
        check.run(&bench).with_context(|| format!("the check `{name}`"))?;
    }
    Ok(())
}

/// The binary; optimised for the long forms.
fn built(root: &Path, form: Form) -> Result<PathBuf> {
    match form {
        Form::Short => suite::program(root),
        Form::Long => {
            let build = ["build", "--locked", "--package", "gannet", "--release"];
            process::run(process::cargo().args(build).current_dir(root))?;
            Ok(root.join("target/release").join(format!("gannet{}", std::env::consts::EXE_SUFFIX)))
        }
    }
}
