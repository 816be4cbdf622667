//! The official clients of the protocols against the real server with a real model.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::{models, process, python};

/// What the model is called while the cases run.
const NAME: &str = "smollm2";
/// What it is called where it makes vectors.
const VECTORS: &str = "smollm2-vectors";
/// Enough for the longest conversation of the cases.
const CONTEXT: &str = "2048";

/// Builds the binary, serves the model and runs every case.
pub(crate) fn run(root: &Path) -> Result<()> {
    let model = models::fetch(root, &models::SMOLLM2)?;
    let folder = "crates/server/tests/clients";
    let python = python::environment(root, "clients-python", &format!("{folder}/requirements.txt"))?;
    let server = Server::of_this_build(root, &model)?;
    let cases = root.join(folder).join("cases.py");
    process::run(Command::new(&python).arg("-B").arg(cases).args([server.address(), NAME, VECTORS]))
}

/// A running server, which is ended when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Builds the binary and serves this model with it.
    pub(crate) fn of_this_build(root: &Path, model: &Path) -> Result<Self> {
        process::run(process::cargo().args(["build", "--locked", "--package", "gannet"]).current_dir(root))?;
        let binary = root.join("target/debug").join(format!("gannet{}", std::env::consts::EXE_SUFFIX));
        Self::start(&binary, model)
    }

    /// Where it listens, as the beginning of its paths.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn start(binary: &Path, model: &Path) -> Result<Self> {
        let [named, vectors] = [NAME, VECTORS].map(|name| format!("{name}={}", model.display()));
        let mut command = Command::new(binary);
        command.args([
            "serve",
            "--port",
            "0",
            "--log-level",
            "warn",
            "--context",
            CONTEXT,
            // Products in single precision, so that scores are those of other implementations.
            "--activations",
            "f32",
            "--model",
            &named,
            "--embedding-model",
            &vectors,
            "--pooling",
            "mean",
        ]);
        let mut child = command.stderr(Stdio::piped()).spawn().with_context(|| process::line(&command))?;
        let mut lines = BufReader::new(child.stderr.take().context("the server's messages were asked for")?);
        let mut told = String::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                bail!("the server ended before it listened: {told}");
            }
            if let Some((_, address)) = line.trim().split_once("listening on ") {
                let address = address.to_owned();
                // What it says later must not wait for a reader.
                thread::spawn(move || {
                    let mut rest = String::new();
                    let _ = lines.read_to_string(&mut rest);
                });
                return Ok(Self { child, address });
            }
            told += &line;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended by itself is gone already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}
