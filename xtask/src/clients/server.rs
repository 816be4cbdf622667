//! A running server, which ends with its value.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::process;

/// What every checked server is told: no check depends on luck, nor on how fast its machine is. Answers to requests that
/// name no seed are the same everywhere, since kernels give the same bits on every processor.
const STEADY: [&str; 6] = ["--seed", "1", "--compile-timeout", "120", "--request-timeout", "3600"];

/// A running server.
pub(super) struct Server {
    child: Child,
    pub(super) address: String,
}

impl Server {
    /// Starts `gannet serve` with these arguments on a port of its own, and waits until it listens.
    pub(super) fn start(binary: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(binary);
        command.args(["serve", "--port", "0", "--log-level", "warn"]).args(STEADY).args(arguments);
        let child = command.stderr(Stdio::piped()).spawn().with_context(|| process::line(&command))?;
        let mut server = Self { child, address: String::new() };
        let output = server.child.stderr.take().context("the server's messages were asked for")?;
        let mut lines = BufReader::new(output);
        let mut told = String::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                bail!("the server ended before it listened: {told}");
            }
            if let Some((_, address)) = line.trim().split_once("listening on ") {
                server.address = address.to_owned();
                // What it says later must not wait for a reader.
                thread::spawn(move || {
                    let mut rest = String::new();
                    let _ = lines.read_to_string(&mut rest);
                });
                return Ok(server);
            }
            told += &line;
        }
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already where that fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
