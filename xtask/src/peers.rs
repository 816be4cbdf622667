//! `cargo xtask bench-peers`: Gannet beside llama.cpp on this machine, in turns, as a table for `docs/experiments.md`.
//!
//! llama.cpp comes as the source tree in the source package of `llama-cpp-python`, which `pip` fetches, and is built
//! for this processor under `target/peers`; `cmake` comes by `pip` too where there is none. Runs alternate, so that
//! whatever else the machine does meets both, and the median of the runs counts.

mod build;
mod runs;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{models, process};
use runs::{Case, Pair};

/// What to compare on what.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// GGUF files [default: the two test models]
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Rounds; in each, both run each case once
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Threads of both [default: as many as Gannet takes]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Depth of the decode case behind a long context
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    depth: u32,
}

/// The unpacked source tree of llama.cpp.
pub(crate) fn source(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/peers");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    build::source(&folder)
}

/// Builds what is missing, measures, prints the table and writes it to `target/peers.md`.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let paths = models(root, arguments)?;
    let peers = build::build(root)?;
    process::run_aside(
        process::cargo().args(["build", "--release", "--package", "gannet"]).current_dir(root),
    )?;
    let gannet = root.join("target/release").join(format!("gannet{}", std::env::consts::EXE_SUFFIX));
    let threads = match arguments.threads {
        Some(threads) => threads,
        None => runs::default_threads(&gannet)?,
    };
    let cases = Case::all(arguments.depth);
    let mut text = heading(&peers, threads, arguments.rounds)?;
    for path in &paths {
        let pairs = runs::measure(&gannet, &peers, (path, threads), &cases, arguments.rounds)?;
        text += &table(path, &pairs);
    }
    let file = root.join("target/peers.md");
    fs::write(&file, &text).with_context(|| format!("cannot write `{}`", file.display()))?;
    print!("{text}");
    eprintln!("written to {}; results belong to docs/experiments.md", file.display());
    Ok(())
}

fn models(root: &Path, arguments: &Arguments) -> Result<Vec<PathBuf>> {
    if let Some(missing) = arguments.models.iter().find(|path| !path.is_file()) {
        bail!("`{}` is no file; give GGUF files", missing.display());
    }
    if arguments.models.is_empty() {
        return [&models::SMOLLM2, &models::GEMMA3]
            .map(|model| models::fetch(root, model))
            .into_iter()
            .collect();
    }
    Ok(arguments.models.clone())
}

/// Date, machine and commands.
fn heading(peers: &build::Peers, threads: u32, rounds: u32) -> Result<String> {
    let date = process::output(std::process::Command::new("date").args(["-u", "+%Y-%m-%d"]))?;
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name);
    let mut text = format!("## {}: beside llama.cpp\n\n", date.trim());
    writeln!(
        text,
        "Machine: {name}, {threads} threads. llama.cpp of llama-cpp-python {}, built natively.",
        peers.version
    )?;
    writeln!(text, "Tokens/s, medians of {rounds} alternating runs. Commands:\n\n```text")?;
    writeln!(
        text,
        "gannet bench MODEL --threads {threads} --repeat 1 --json --prefill P --decode N --depth D --streams S"
    )?;
    writeln!(text, "llama-bench -m MODEL -t {threads} -r 1 -o json -p P -n N -d D")?;
    writeln!(
        text,
        "llama-batched-bench -m MODEL -t {threads} -npp 1 -ntg N -npl S -c CONTEXT --output-format jsonl\n```\n"
    )?;
    Ok(text)
}

fn table(path: &Path, pairs: &[Pair]) -> String {
    let name =
        path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into());
    let mut text = format!("| {name} | llama.cpp | Gannet | ratio |\n|---|--:|--:|--:|\n");
    for pair in pairs {
        let (peer, own) = (median(&pair.peer), median(&pair.own));
        text += &format!("| {} | {peer:.1} | {own:.1} | {:.2}x |\n", pair.case.name(), own / peer);
    }
    text + "\n"
}

/// The middle one; there is at least one.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { sorted[middle - 1].midpoint(sorted[middle]) } else { sorted[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_medians_and_their_ratio() {
        let pair =
            Pair { case: Case::Prefill { tokens: 512 }, peer: vec![10.0, 30.0, 20.0], own: vec![50.0, 70.0] };
        let text = table(Path::new("models/a.gguf"), &[pair]);
        assert_eq!(text.lines().next(), Some("| a.gguf | llama.cpp | Gannet | ratio |"));
        assert_eq!(text.lines().nth(2), Some("| prefill 512 | 20.0 | 60.0 | 3.00x |"));
    }
}
