//! The project's automation: `cargo xtask COMMAND`. Everything that a person or a build machine runs is a command
//! here; there are no shell scripts but the one that `gpu` packs.
//!
//! Knows the repository's layout and the tools around it; no crate of the engine depends on it.

mod arm;
mod checkpoint;
mod ci;
mod clients;
mod cubins;
mod demo;
mod goldens;
mod gpu;
mod models;
mod page;
mod peers;
mod process;
mod python;
mod shapes;
mod soak;
mod suite;
mod tidy;
mod tokenizers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's automation.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every check: formatting, tidy, clippy, models, tests and doctests, cargo-deny where it is installed
    Ci,
    /// Check the rules that no other tool checks: sizes, headers, crate graph, words, dependencies
    Tidy,
    /// Fetch a small model and answer with it
    #[command(after_help = "Example: cargo xtask demo \"Why is the sky blue?\"")]
    Demo(demo::Arguments),
    /// Fetch the models and tokenizers that the tests run on into `models/`
    Models,
    /// Run programs that others wrote against the server: official clients, scanners, another server's tests
    Clients(clients::Arguments),
    /// Test the CPU backend on emulated Arm processors
    Arm {
        /// Every format's formula and the suite by operation as well
        #[arg(long)]
        long: bool,
    },
    /// Compile every kernel of the CUDA backend for every architecture that is tested; needs no card
    Cubins,
    /// Run what takes too long for every change: the whole exactness matrix, the long random runs, true shapes
    Soak(soak::Arguments),
    /// Write a checkpoint of a known model's shape with random weights
    #[command(disable_help_flag = true)]
    Checkpoint(checkpoint::Arguments),
    /// Measure Gannet beside llama.cpp, which is built for this machine, in turns
    BenchPeers(peers::Arguments),
    /// Pack the binary, the tests of the CUDA backend and a script for a machine with a card
    Gpu(gpu::Arguments),
    /// Make the golden files again with the pinned Python packages
    Goldens,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let root = root();
    match command {
        Command::Ci => ci::run(&root),
        Command::Tidy => tidy::run(&root),
        Command::Demo(arguments) => demo::run(&root, &arguments),
        Command::Models => models::fetch_all(&root),
        Command::Clients(arguments) => clients::run(&root, &arguments),
        Command::Arm { long } => {
            let extent = if long { arm::Extent::Long } else { arm::Extent::Short };
            arm::run(&root, extent)?.map_err(|why| anyhow::anyhow!("the tests for Arm can't run: {why}"))
        }
        Command::Cubins => cubins::run(&root).map(|_| ()),
        Command::Soak(arguments) => soak::run(&root, &arguments),
        Command::Checkpoint(arguments) => checkpoint::run(&root, &arguments),
        Command::BenchPeers(arguments) => peers::run(&root, &arguments),
        Command::Gpu(arguments) => gpu::run(&root, &arguments),
        Command::Goldens => goldens::run(&root),
    }
}

/// The repository's root, one folder above this package.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the repository").to_owned()
}
