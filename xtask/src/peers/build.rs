//! llama.cpp from source: fetched, unpacked and built under `target/peers`, each step once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{models, process};

/// The package whose source holds llama.cpp, and its pinned version.
const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";
/// Newer ones drop policies that the tree needs.
const CMAKE: &str = "cmake>=3.27,<4";
/// Programs of the tree that measure.
const PROGRAMS: [&str; 2] = ["llama-bench", "llama-batched-bench"];
/// Nothing but the programs, as fast as this processor allows.
const OPTIONS: [&str; 9] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_SERVER=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_OPENSSL=OFF",
];

/// Programs that are ready to run.
pub(super) struct Peers {
    pub(super) bench: PathBuf,
    pub(super) batched: PathBuf,
    pub(super) version: &'static str,
}

/// Builds what is missing.
pub(super) fn build(root: &Path) -> Result<Peers> {
    let folder = root.join("target/peers");
    let output = folder.join("build");
    let program = |name: &str| output.join("bin").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let [bench, batched] = PROGRAMS.map(program);
    let peers = Peers { bench, batched, version: VERSION };
    if [&peers.bench, &peers.batched]
        .into_iter()
        .all(|program| process::works(Command::new(program).arg("--help")))
    {
        return Ok(peers);
    }
    check_compiler()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let cmake = cmake(&folder)?;
    let source = source(&folder)?;
    eprintln!("building llama.cpp in {}; this takes some minutes", output.display());
    let mut configure = Command::new(&cmake);
    process::run_aside(configure.arg("-S").arg(&source).arg("-B").arg(&output).args(OPTIONS))?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let mut compile = Command::new(&cmake);
    compile.arg("--build").arg(&output).args(["--config", "Release", "-j", &jobs, "--target"]).args(PROGRAMS);
    process::run_aside(&mut compile)?;
    Ok(peers)
}

fn check_compiler() -> Result<()> {
    let chosen = std::env::var_os("CXX").unwrap_or_default();
    let names =
        [chosen.to_string_lossy().into_owned(), "c++".to_owned(), "g++".to_owned(), "clang++".to_owned()];
    let is_there = |name: &&String| !name.is_empty() && process::works(Command::new(name).arg("--version"));
    if names.iter().find(is_there).is_none() {
        bail!(
            "llama.cpp is built from source, and no C++ compiler is in PATH (c++, g++, clang++, or what CXX names); \
             install one (on Debian: the package `g++`)"
        );
    }
    Ok(())
}

/// `cmake` of this system, or one from `pip` in an environment of its own.
fn cmake(folder: &Path) -> Result<PathBuf> {
    if process::works(Command::new("cmake").arg("--version")) {
        return Ok("cmake".into());
    }
    let tools = folder.join("tools");
    let programs = tools.join(if cfg!(windows) { "Scripts" } else { "bin" });
    let cmake = programs.join(format!("cmake{}", std::env::consts::EXE_SUFFIX));
    if process::works(Command::new(&cmake).arg("--version")) {
        return Ok(cmake);
    }
    process::run_aside(models::python()?.args(["-m", "venv", "--clear"]).arg(&tools)).context(
        "there is no `cmake`, and to install it Python's `venv` module is needed (on Debian: `python3-venv`)",
    )?;
    let mut install = Command::new(programs.join("python"));
    process::run_aside(install.args(["-m", "pip", "install", "--disable-pip-version-check", CMAKE]))
        .context("there is no `cmake`, and `pip` cannot install it")?;
    Ok(cmake)
}

/// The unpacked source tree of llama.cpp.
pub(super) fn source(folder: &Path) -> Result<PathBuf> {
    let name = format!("{}-{VERSION}", PACKAGE.replace('-', "_"));
    let tree = folder.join(&name).join("vendor/llama.cpp");
    if tree.join("tools/llama-bench/llama-bench.cpp").is_file() {
        return Ok(tree);
    }
    let archive = folder.join(format!("{name}.tar.gz"));
    if !archive.is_file() {
        let mut fetch = models::pip()?;
        fetch.args(["download", "--no-deps", "--no-binary", PACKAGE]);
        fetch
            .args(["--disable-pip-version-check", "--dest"])
            .arg(folder)
            .arg(format!("{PACKAGE}=={VERSION}"));
        process::run_aside(&mut fetch).with_context(|| {
            format!("cannot download {PACKAGE} {VERSION}; is the package index reachable?")
        })?;
    }
    process::run_aside(models::python()?.args(["-m", "tarfile", "-e"]).arg(&archive).arg(folder))?;
    if !tree.is_dir() {
        bail!("`{}` holds no `vendor/llama.cpp`", archive.display());
    }
    Ok(tree)
}
