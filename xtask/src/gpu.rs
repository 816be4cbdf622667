//! `cargo xtask gpu`: packs what a machine with a card needs into a folder of its own, with one script that runs there.
//!
//! The machine with the card may have neither cargo nor a network, nor a compiler of kernels. The folder has the optimised binary, the
//! tests of the backend with the goldens that they read, machine code for the card, and descriptions of models whose weights are made up.
//! The script runs parts, each well under eight minutes, and prints one table last. `docs/gpu.md` says how it is used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{cubins, process};

/// Bytes of the folder, at most: what can be carried.
const FOLDER_BYTES_MAX: u64 = 60 << 20;

/// The tests that run on the card, by the names of their files.
const TESTS: [&str; 5] = ["goldens", "exactness", "draws", "ahead", "recurrent"];

/// Descriptions of models that are measured, by the names of their folders.
const SHAPES: [(&str, &str); 3] = [
    ("qwen3-0.6b", include_str!("gpu/qwen3-0.6b/config.json")),
    ("qwen3-8b", include_str!("gpu/qwen3-8b/config.json")),
    ("qwen3-30b-a3b", include_str!("gpu/qwen3-30b-a3b/config.json")),
];

/// The scripts, which are data: they run where nothing of this repository is built.
const SCRIPTS: [(&str, &str); 4] = [
    ("run.sh", include_str!("gpu/run.sh")),
    ("serve.py", include_str!("gpu/serve.py")),
    ("beside.py", include_str!("gpu/beside.py")),
    ("start.py", include_str!("gpu/start.py")),
];

/// The programs that are packed, by their packages and names.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("gannet", "gannet", "gannet"), ("xtask-checkpoint", "xtask-checkpoint", "checkpoint")];

/// Where to pack.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The folder to write [default: target/gpu]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The compute capability of the card
    #[arg(long, value_name = "MAJOR.MINOR", default_value = "9.0")]
    capability: String,
}

/// Builds, packs, and says how to go on.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let folder = arguments.out.clone().unwrap_or_else(|| root.join("target/gpu"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    for (package, program, name) in PROGRAMS {
        let mut build = process::cargo();
        build.args(["build", "--locked", "--release", "--package", package]);
        process::run(build.current_dir(root))?;
        strip(&root.join("target/release").join(program), &folder.join(name))?;
    }
    for test in TESTS {
        strip(&built_test(root, test)?, &folder.join(format!("test-{test}")))?;
    }
    let goldens = folder.join("goldens.tar");
    process::run(Command::new("tar").arg("-cf").arg(&goldens).arg("-C").arg(root).arg("goldens"))?;
    if !cubins::compile(root, &folder.join("kernels"), &[&arguments.capability])? {
        bail!("without NVRTC there is no machine code to carry");
    }
    for (name, config) in SHAPES {
        fs::create_dir_all(folder.join(name))?;
        fs::write(folder.join(name).join("config.json"), config).context("cannot write a description")?;
    }
    for (name, text) in SCRIPTS {
        fs::write(folder.join(name), text).context("cannot write a script")?;
    }
    let bytes = size(&folder)?;
    if bytes > FOLDER_BYTES_MAX {
        bail!("`{}` has {bytes} bytes, at most {FOLDER_BYTES_MAX} can be carried", folder.display());
    }
    println!(
        "{} has {} MB; on the machine with the card: bash run.sh suite matrix bench soak beside start",
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
    let bytes = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() { size(&entry.path()) } else { Ok(metadata.len()) }
    };
    entries.map(bytes).sum()
}
