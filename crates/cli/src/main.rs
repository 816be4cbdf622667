//! The binary `gannet`: arguments in, one command runs, an exit code out.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted. An error is one line on standard error that begins
//! with `gannet:`.
//!
//! Knows how people talk to the engine; knows no family, no kernel and no file format.

mod arguments;
mod backend;
mod commands;
mod download;
mod failure;
mod interrupt;
mod model_reference;
mod output;
mod progress;
mod quantity;
mod report;

use arguments::{Arguments, Command};
use clap::Parser;
use commands::{bench, doctor, embed, eval, inspect, models, pull, rm, run, serve};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    gannet_formats::explain_shrunk_files();
    let result = match Arguments::try_parse() {
        Ok(arguments) => dispatch(&arguments.command),
        Err(error) => Err(Failure::Parsing(error)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(arguments) => run::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Embed(arguments) => embed::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Eval(arguments) => eval::run(&arguments.command),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Pull(arguments) => pull::run(arguments),
        Command::Models(arguments) => models::run(arguments),
        Command::Rm(arguments) => rm::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
    }
}
