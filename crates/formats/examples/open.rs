//! How long it takes to open a model: all headers read and checked, nothing of the weights.
//!
//! `open MODEL` opens it ten times and prints the median. `open --make FILE` first writes a GGUF file with a header of the
//! largest kind: 20,000 tensors and a vocabulary of 300,000 tokens with scores, types and merges.

#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gannet_formats::gguf::{GgufWriter, Strings};
use gannet_formats::{Checkpoint, FormatError};
use gannet_tensor::Format;

const TIMES: usize = 10;
const TENSORS: usize = 20_000;
const TOKENS: usize = 300_000;

fn main() -> Result<(), FormatError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--make", path] => {
            make(Path::new(path))?;
            PathBuf::from(path)
        }
        [path] => PathBuf::from(path),
        _ => {
            println!("usage: open MODEL | open --make FILE");
            return Ok(());
        }
    };
    let mut times = (0..TIMES).map(|_| open(&path)).collect::<Result<Vec<_>, _>>()?;
    times.sort();
    println!(
        "median of {TIMES}: {:.2?}; from {:.2?} to {:.2?}",
        times[TIMES / 2],
        times[0],
        times[TIMES - 1]
    );
    Ok(())
}

fn open(path: &Path) -> Result<Duration, FormatError> {
    let start = Instant::now();
    let checkpoint = Checkpoint::open(path)?;
    let time = start.elapsed();
    assert!(checkpoint.tensors().count() > 0, "a model has tensors");
    Ok(time)
}

fn make(path: &Path) -> Result<(), FormatError> {
    let mut writer = GgufWriter::new(path);
    writer.push_entry("general.architecture", "none")?;
    writer.push_entry("tokenizer.ggml.model", "gpt2")?;
    writer.push_entry("tokenizer.ggml.tokens", strings(|id| format!("token{id}")))?;
    writer.push_entry("tokenizer.ggml.scores", vec![0.0f32; TOKENS])?;
    writer.push_entry("tokenizer.ggml.token_type", vec![1i32; TOKENS])?;
    writer.push_entry("tokenizer.ggml.merges", strings(|id| format!("to ken{id}")))?;
    let block = vec![0; Format::Q8_0.block_bytes()];
    for index in 0..TENSORS {
        let name = format!("blk.{}.ffn_gate.{}.weight", index / 128, index % 128);
        writer.push_tensor(&name, Format::Q8_0, &[1, 32], &block)?;
    }
    let file = File::create(path).expect("the file can be made");
    writer.write(file)
}

fn strings(text: impl Fn(usize) -> String) -> Strings {
    let texts: Vec<String> = (0..TOKENS).map(text).collect();
    texts.iter().map(String::as_str).collect()
}
