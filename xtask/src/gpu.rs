//! `cargo xtask gpu`: packs what a machine with a card needs into a folder of its own, with one script that runs there.
//!
//! The machine with the card may have neither cargo nor a network. The folder has the optimised binary, the writer of
//! random checkpoints, the tests of the backend and the goldens that they read. The script runs parts, each well under eight minutes,
//! and prints one table last.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process;

/// Bytes of the folder, at most: what can be carried.
const FOLDER_BYTES_MAX: u64 = 60 << 20;

/// The tests that run on the card, by the names of their files.
const TESTS: [&str; 2] = ["goldens", "exactness"];

/// The script, which is data: it runs where nothing of this repository is built.
const SCRIPT: &str = include_str!("gpu/run.sh");

/// Where to pack.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder to write [default: target/gpu]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Builds, packs, and says how to go on.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let folder = arguments.out.clone().unwrap_or_else(|| root.join("target/gpu"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let mut build = process::cargo();
    build.args(["build", "--locked", "--release", "--package", "gannet", "--package", "xtask-checkpoint"]);
    process::run(build.current_dir(root))?;
    for (from, to) in [("gannet", "gannet"), ("xtask-checkpoint", "checkpoint")] {
        strip(&root.join("target/release").join(from), &folder.join(to))?;
    }
    for test in TESTS {
        strip(&built_test(root, test)?, &folder.join(format!("test-{test}")))?;
    }
    let goldens = folder.join("goldens.tar");
    process::run(Command::new("tar").arg("-cf").arg(&goldens).arg("-C").arg(root).arg("goldens"))?;
    fs::write(folder.join("run.sh"), SCRIPT).context("cannot write the script")?;
    let bytes = size(&folder)?;
    if bytes > FOLDER_BYTES_MAX {
        bail!("`{}` has {bytes} bytes, at most {FOLDER_BYTES_MAX} can be carried", folder.display());
    }
    println!(
        "{} has {} MB; on the machine with the card: bash run.sh suite bench",
        folder.display(),
        bytes >> 20
    );
    Ok(())
}

/// Builds a test of the backend, and says where it lies.
fn built_test(root: &Path, test: &str) -> Result<PathBuf> {
    let mut command = process::cargo();
    command.args([
        "test",
        "--locked",
        "--no-run",
        "--message-format",
        "json",
        "--package",
        "gannet-backend-cuda",
    ]);
    command.args(["--test", test]).current_dir(root).stdout(Stdio::piped());
    let messages = process::output(&mut command)?;
    let executable = |line: &str| -> Option<PathBuf> {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == test)
            .then(|| message["executable"].as_str().map(PathBuf::from))
            .flatten()
    };
    messages.lines().find_map(executable).with_context(|| format!("cargo built no test `{test}`"))
}

/// Copies a program without its symbols.
fn strip(from: &Path, to: &Path) -> Result<()> {
    process::run(Command::new("strip").arg("-o").arg(to).arg(from))
}

fn size(folder: &Path) -> Result<u64> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
    entries.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
