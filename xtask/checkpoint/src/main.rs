//! `cargo xtask checkpoint SHAPE --format FORMAT OUT`: a checkpoint of a known model's shape with random weights, for
//! speed work where the real weights can't be had.
//!
//! Other engines load it as well: names, keys, tokenizer and mixture of formats are those of the field. A checkpoint is
//! a function of shape, format and seed; how many threads made it doesn't matter. It streams to disk, so that the
//! memory needed doesn't grow with the model.
//!
//! ```text
//! shapes -> weights (names, shapes, content) -> mixture (a format each) -> pipeline (bytes, in order) -> file
//! ```

mod gguf;
mod hugging_face;
mod mixture;
mod pipeline;
mod random;
mod shapes;
mod tokenizer;
mod vocabulary;
mod weights;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use mixture::Mixture;
use shapes::Shape;

/// Write a checkpoint of a known model's shape with random weights.
#[derive(Parser)]
#[command(
    name = "cargo xtask checkpoint",
    bin_name = "cargo xtask checkpoint",
    after_help = "Example: cargo xtask checkpoint qwen3-0.6b --format q4_k_m target/qwen3-0.6b.gguf"
)]
struct Arguments {
    #[arg(value_parser = shapes::find, help = shapes::help())]
    shape: Shape,
    #[arg(long, value_parser = Mixture::parse, help = mixture::help())]
    format: Mixture,
    /// Which random weights; f32, f16 and bf16 of one seed are the same numbers, rounded
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only so many layers
    #[arg(long, value_name = "N")]
    layers: Option<usize>,
    /// A Hugging Face directory instead of a GGUF file; formats f32, f16 and bf16
    #[arg(long)]
    safetensors: bool,
    /// The file or the directory to write
    out: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut shape = arguments.shape;
    if let Some(layers) = arguments.layers {
        if !(1..=shape.layers).contains(&layers) {
            bail!("`{}` has {} layers, so `--layers` can't be {layers}", shape.name, shape.layers);
        }
        shape.layers = layers;
    }
    let start = Instant::now();
    let written = match arguments.safetensors {
        true => hugging_face::write(&shape, arguments.format, arguments.seed, &arguments.out)?,
        false => write_gguf(&shape, arguments)?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = written as f64 / 1e6;
    eprintln!(
        "`{}`: {megabytes:.0} MB of `{}` in {seconds:.1} s, {:.0} MB/s",
        arguments.out.display(),
        shape.name,
        megabytes / seconds
    );
    Ok(())
}

/// Writes beside the file and renames, so that a file of this name is whole.
fn write_gguf(shape: &Shape, arguments: &Arguments) -> Result<u64> {
    let out = &arguments.out;
    if out.is_dir() {
        bail!(
            "`{}` is a directory; a GGUF file needs a name, a directory needs `--safetensors`",
            out.display()
        );
    }
    let partial = out.with_added_extension("partial");
    let written = gguf::write(shape, arguments.format, arguments.seed, &partial);
    let written = written.inspect_err(|_| drop(fs::remove_file(&partial)))?;
    fs::rename(&partial, out).with_context(|| format!("cannot rename to `{}`", out.display()))?;
    Ok(written)
}

#[cfg(test)]
mod tests;
