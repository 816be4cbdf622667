//! The server's page in a real browser against the real server with a real model.
//!
//! Needs Node with npm and a Chromium; the one package that drives it is installed below `target/`, in the version and with
//! the checksum of the committed lock file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Where the script and the list of its packages lie.
const SOURCE: &str = "crates/server/tests/page";
/// Files that are copied to where the packages are installed.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "page.mjs"];
/// Names of the browser, where the variable `CHROMIUM` says no other.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Goes through the page of the server at this address; pictures of it stay in `target/page/pictures`.
pub(crate) fn run(root: &Path, address: &str) -> Result<()> {
    let browser = browser()?;
    let folder = packages(root)?;
    fs::create_dir_all(folder.join("pictures"))?;
    let mut node = Command::new("node");
    process::run(node.current_dir(&folder).env("CHROMIUM", browser).args(["page.mjs", address, "pictures"]))
}

/// The folder with the script and its packages.
fn packages(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/page");
    fs::create_dir_all(&folder)?;
    let lock = fs::read(root.join(SOURCE).join("package-lock.json"))?;
    let is_installed = fs::read(folder.join("package-lock.json")).is_ok_and(|known| known == lock)
        && folder.join("node_modules").is_dir();
    for file in FILES {
        fs::copy(root.join(SOURCE).join(file), folder.join(file))
            .with_context(|| format!("can't copy `{file}`"))?;
    }
    if !is_installed {
        let mut npm = Command::new("npm");
        npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
        process::run(&mut npm)?;
    }
    Ok(folder)
}

/// A browser that is installed, or gets installed where this system is Debian and lets us.
fn browser() -> Result<PathBuf> {
    if let Some(chosen) = std::env::var_os("CHROMIUM") {
        return Ok(chosen.into());
    }
    if let Some(found) = installed() {
        return Ok(found);
    }
    // Where these fail, the message below says what to do.
    let _ = process::run_aside(Command::new("apt-get").args(["update", "--quiet"]));
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", "chromium"];
    let _ = process::run_aside(Command::new("apt-get").args(install));
    match installed() {
        Some(found) => Ok(found),
        None => bail!("no Chromium is installed (on Debian: the package `chromium`); CHROMIUM may name one"),
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}
