//! `cargo xtask arm`: the CPU backend's tests as programs for 64-bit Arm, by an emulator.
//!
//! Kernels have code of their own for Arm, which no other check runs. The tests run for several processors: one with
//! everything, one without products of byte matrices, and one without dot products.
//!
//! The emulator comes from the path, or unpacked from the distribution's package, which is not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::process;

const TARGET: &str = "aarch64-unknown-linux-musl";
/// Names of the emulator.
const EMULATORS: [&str; 2] = ["qemu-aarch64", "qemu-aarch64-static"];
/// The package of Debian and its relatives that has it in one file.
const PACKAGE: &str = "qemu-user-static";
/// Processors to be emulated.
const PROCESSORS: [&str; 3] = ["max", "cortex-a76", "cortex-a57"];
/// What of the tests is short: every operation of every level, but not every format's formula over many rows.
const SHORT: [&str; 4] = ["--lib", "--", "--skip", "every_format_and_level_and_row_count"];

/// How much of the tests runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Short,
    /// Every formula, and the suite by operation, optimised.
    Long,
}

/// Runs the tests; `None` and why where the machine can't build or emulate them.
pub(crate) fn run(root: &Path, extent: Extent) -> Result<Result<(), &'static str>> {
    if !has_target()? {
        return Ok(Err("the standard library of aarch64-unknown-linux-musl is not installed"));
    }
    let Some(emulator) = emulator(root)? else {
        return Ok(Err("qemu-aarch64 is neither installed nor to be had as a package"));
    };
    for processor in PROCESSORS {
        eprintln!("on {processor}");
        let mut command = process::cargo();
        command.args(["test", "--locked", "--package", "gannet-backend-cpu", "--target", TARGET]);
        match extent {
            Extent::Short => command.args(SHORT),
            Extent::Long => command.args(["--release", "--lib", "--test", "suite"]),
        };
        let runner = format!("{} -cpu {processor}", emulator.display());
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER", runner);
        // The toolchain's own linker: no other for Arm has to be there.
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", "rust-lld");
        process::run(command.current_dir(root))?;
    }
    Ok(Ok(()))
}

/// Whether programs for the target can be built.
fn has_target() -> Result<bool> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let folder = process::output(command.args(["--print", "target-libdir", "--target", TARGET]))?;
    Ok(fs::read_dir(folder.trim()).is_ok_and(|mut files| files.next().is_some()))
}

/// The emulator, unpacked below `target/` where it isn't installed.
fn emulator(root: &Path) -> Result<Option<PathBuf>> {
    let installed = EMULATORS.into_iter().find(|name| process::works(Command::new(name).arg("--version")));
    if let Some(name) = installed {
        return Ok(Some(PathBuf::from(name)));
    }
    let folder = root.join("target/qemu");
    let unpacked = folder.join("usr/bin/qemu-aarch64-static");
    if !unpacked.exists() && !unpack(&folder)? {
        return Ok(None);
    }
    Ok(unpacked.exists().then_some(unpacked))
}

/// Gets the package and unpacks it; `false` where it can't be had.
fn unpack(folder: &Path) -> Result<bool> {
    fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    let mut download = Command::new("apt-get");
    download.args(["download", PACKAGE]).current_dir(folder).stdin(Stdio::null());
    if !download.status().is_ok_and(|status| status.success()) {
        return Ok(false);
    }
    let is_package = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "deb");
    let package = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).find(is_package);
    let Some(package) = package else { return Ok(false) };
    process::run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(folder))?;
    fs::remove_file(&package).with_context(|| format!("can't remove {}", package.display()))?;
    Ok(true)
}
