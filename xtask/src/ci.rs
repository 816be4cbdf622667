//! All checks, cheap ones first, with a summary at the end.
//!
//! The cheap checks all run, so that one round shows all their complaints; the costly ones start only when the cheap
//! ones passed, and stop at the first failure.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{arm, clients, cubins, models, process, suite, tidy};

/// One check and how to run it.
struct Check {
    name: &'static str,
    run: fn(&Path) -> Result<Outcome>,
}

/// How a check ended when it did not fail.
enum Outcome {
    Passed,
    Skipped(&'static str),
}

const CHEAP: [Check; 4] = [
    Check { name: "formatting", run: |root| cargo(root, &["fmt", "--all", "--check"]) },
    Check { name: "tidy", run: |root| tidy::run(root).map(|()| Outcome::Passed) },
    Check { name: "cargo-deny", run: deny },
    Check {
        name: "clippy",
        run: |root| {
            cargo(root, &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])
        },
    },
];

const COSTLY: [Check; 5] = [
    Check { name: "kernels", run: kernels },
    Check { name: "models", run: |root| models::fetch_all(root).map(|()| Outcome::Passed) },
    Check { name: "tests and doctests", run: |root| suite::run(root).map(|()| Outcome::Passed) },
    Check { name: "arm", run: arm },
    Check { name: "clients", run: |root| clients::run_short(root).map(|()| Outcome::Passed) },
];

/// Runs everything; an error if any check failed.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut summary = Summary::default();
    for check in &CHEAP {
        summary.record(check, root);
    }
    for check in &COSTLY {
        if summary.failed == 0 {
            summary.record(check, root);
        } else {
            summary.lines.push(format!("  not run  {}", check.name));
        }
    }
    summary.finish()
}

/// One line a check, in the order they ran.
#[derive(Default)]
struct Summary {
    lines: Vec<String>,
    failed: usize,
}

impl Summary {
    fn record(&mut self, check: &Check, root: &Path) {
        eprintln!("\n== {}", check.name);
        let start = Instant::now();
        let outcome = (check.run)(root);
        let word = match &outcome {
            Ok(Outcome::Passed) => "passed",
            Ok(Outcome::Skipped(_)) => "skipped",
            Err(_) => "FAILED",
        };
        let mut line = format!("{word:>9}  {} ({})", check.name, seconds(start.elapsed()));
        match outcome {
            Ok(Outcome::Passed) => {}
            Ok(Outcome::Skipped(why)) => line += &format!(": {why}"),
            Err(error) => {
                self.failed += 1;
                line += &format!(": {error:#}");
            }
        }
        self.lines.push(line);
    }

    fn finish(self) -> Result<()> {
        eprintln!("\n== summary\n{}", self.lines.join("\n"));
        if self.failed > 0 {
            bail!("{} of {} checks failed", self.failed, self.lines.len());
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Outcome> {
    process::run(process::cargo().args(arguments).current_dir(root))?;
    Ok(Outcome::Passed)
}

/// The kernels of the CUDA backend, where their compiler can be had.
fn kernels(root: &Path) -> Result<Outcome> {
    let compiled = cubins::run(root)?;
    Ok(compiled.map_or(Outcome::Skipped("NVRTC can't be had as a Python package"), |_| Outcome::Passed))
}

/// The CPU backend on emulated processors, where that can be had.
fn arm(root: &Path) -> Result<Outcome> {
    Ok(arm::run(root, arm::Extent::Short)?.map_or_else(Outcome::Skipped, |()| Outcome::Passed))
}

/// cargo-deny where it is installed; its essential checks are part of tidy either way.
fn deny(root: &Path) -> Result<Outcome> {
    if !process::works(process::cargo().args(["deny", "--version"])) {
        return Ok(Outcome::Skipped("cargo-deny is not installed; tidy has checked its lists"));
    }
    cargo(root, &["deny", "check", "bans", "licenses", "sources"])
}
