//! `gannet eval logits`: the scores of every position, as a safetensors file.
//!
//! The file is written as the scores come, under another name until it is whole.

use super::{STEP_ROWS, check_ids};
use crate::arguments::ModelArguments;
use crate::arguments::values::TokenIds;
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Bar};
use anyhow::Context;
use clap::Args;
use gannet_engine::evaluate;
use gannet_loader::LoadOptions;
use gannet_ops::KvFormat;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

const HELP: &str = "\
The file holds one tensor, `logits`, float32 [tokens, vocabulary]. The context in force is the number of ids, which
matters for models whose rope depends on it. Keys and values are kept in float32, whatever the weights are, and products
are in float32 unless --activations asks for int8.

Example: gannet eval logits folder --ids 1,2,3 --output logits.safetensors";

/// Write the scores of every position of a sequence of token ids
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct LogitsArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The token ids, as 1,2,3 or @FILE
    #[arg(long, value_name = "LIST")]
    ids: TokenIds,
    /// The safetensors file to write
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &LogitsArguments) -> Result<(), Failure> {
    let ids = arguments.ids.read()?;
    check_place(&arguments.output)?;
    let backend = arguments.model.device.clone().exact().open()?;
    let options = LoadOptions {
        context: Some(ids.len()),
        step_rows: Some(STEP_ROWS.min(ids.len())),
        kv_format: Some(KvFormat::F32),
        ..LoadOptions::default()
    };
    let mut loaded = progress::load(&arguments.model.reference.locate()?, backend.as_ref(), &options)?;
    let vocabulary = loaded.runner.vocabulary;
    check_ids(&ids, vocabulary)?;
    let mut file = MatrixFile::create(&arguments.output, ids.len(), vocabulary)?;
    let bar = Bar::new("evaluating");
    let mut written = Ok(());
    evaluate(&mut loaded.runner, &ids, 0, |index, scores| {
        bar.show(index + 1, ids.len());
        if written.is_ok() {
            written = file.write_row(scores);
        }
    })?;
    drop(bar);
    written
        .and_then(|()| file.finish())
        .with_context(|| format!("can't write `{}`", arguments.output.display()))?;
    output::show_line(&format!("{}: logits, f32 [{}, {vocabulary}]", arguments.output.display(), ids.len()))
}

/// Refuses a place that can't be written to before a model is loaded for nothing.
fn check_place(output: &Path) -> Result<(), Failure> {
    let folder = folder_of(output);
    if output.is_dir() || output.file_name().is_none() {
        return Err(Failure::usage(format!(
            "--output `{}` is a folder, expected a file's name",
            output.display()
        )));
    }
    if !folder.is_dir() {
        return Err(Failure::usage(format!("--output: there is no folder `{}`", folder.display())));
    }
    Ok(())
}

fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

/// A safetensors file with the one tensor `logits`, which appears under its name when it is whole.
struct MatrixFile {
    writer: BufWriter<File>,
    partial: PathBuf,
    target: PathBuf,
    is_finished: bool,
}

impl MatrixFile {
    fn create(target: &Path, rows: usize, columns: usize) -> Result<Self, Failure> {
        let name = target.file_name().expect("the place was checked").to_string_lossy();
        let partial = folder_of(target).join(format!(".{name}.{}.partial", std::process::id()));
        let file = File::create(&partial).with_context(|| format!("can't create `{}`", partial.display()))?;
        let (writer, target) = (BufWriter::new(file), target.to_path_buf());
        let mut file = Self { writer, partial, target, is_finished: false };
        let header = header(rows, columns);
        file.writer
            .write_all(&header)
            .with_context(|| format!("can't write `{}`", file.partial.display()))?;
        Ok(file)
    }

    fn write_row(&mut self, row: &[f32]) -> io::Result<()> {
        row.iter().try_for_each(|number| self.writer.write_all(&number.to_le_bytes()))
    }

    fn finish(mut self) -> io::Result<()> {
        self.writer.flush()?;
        fs::rename(&self.partial, &self.target)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for MatrixFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // The error that led here is the one to report.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Length and JSON, filled up with spaces so that the numbers are aligned (<https://github.com/huggingface/safetensors>).
fn header(rows: usize, columns: usize) -> Vec<u8> {
    let bytes = rows * columns * size_of::<f32>();
    let tensor = serde_json::json!({"dtype": "F32", "shape": [rows, columns], "data_offsets": [0, bytes]});
    let mut json = serde_json::json!({ "logits": tensor }).to_string();
    json.push_str(&" ".repeat(json.len().next_multiple_of(8) - json.len()));
    [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_file_is_what_the_safetensors_crate_reads() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.safetensors");
        let rows = [[1.0f32, -2.5, 3.0], [4.0, 5.0, f32::MIN_POSITIVE]];
        let mut file = MatrixFile::create(&target, 2, 3).unwrap();
        rows.iter().for_each(|row| file.write_row(row).unwrap());
        assert!(!target.exists());
        file.finish().unwrap();
        let bytes = fs::read(&target).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let logits = tensors.tensor("logits").unwrap();
        assert_eq!((logits.dtype(), logits.shape()), (safetensors::Dtype::F32, &[2, 3][..]));
        let numbers: Vec<u8> = rows.as_flattened().iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(logits.data(), numbers);
    }

    #[test]
    fn an_unfinished_file_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = MatrixFile::create(&folder.path().join("out.safetensors"), 2, 3).unwrap();
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
