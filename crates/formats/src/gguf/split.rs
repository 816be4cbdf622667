//! A GGUF model in one file or in several: finds the parts of a split one beside the one that was opened.
//!
//! The parts are named `NAME-00001-of-00003.gguf`. Each says in `split.count` how many there are and in `split.no`
//! which one it is, counted from 0; `split.tensors.count` is the number of tensors of all. The first one has the
//! metadata of the model; offsets count within a part. Source: `llama-gguf-split` of the llama.cpp project.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::metadata::Metadata;
use super::reader::read;
use crate::mmap::MappedFile;
use crate::tensor::TensorRecord;
use crate::{FormatError, limits};

const COUNT_KEY: &str = "split.count";
const NUMBER_KEY: &str = "split.no";
const TENSORS_KEY: &str = "split.tensors.count";

/// One file and its tensors.
type Part = (MappedFile, Vec<TensorRecord>);

/// Reads the headers of the model at `path` and of the other parts where it is one of several. The metadata is that of
/// the first part.
pub(crate) fn open(path: &Path) -> Result<(Metadata, Vec<Part>), FormatError> {
    let (metadata, part) = open_part(path)?;
    let count = metadata.opt_u32(COUNT_KEY)?.unwrap_or(1);
    if count <= 1 {
        return Ok((metadata, vec![part]));
    }
    if count as usize > limits::SHARDS {
        return Err(FormatError::OverLimit {
            file: path.to_path_buf(),
            what: format!("the number of parts (`{COUNT_KEY}`)"),
            found: count.into(),
            limit: limits::SHARDS,
            name: "SHARDS",
        });
    }
    open_all(path, metadata, part, count)
}

fn open_part(path: &Path) -> Result<(Metadata, Part), FormatError> {
    let file = MappedFile::open(path)?;
    let (metadata, records) = read(path, file.bytes())?;
    Ok((metadata, (file, records)))
}

fn open_all(
    opened: &Path,
    metadata: Metadata,
    part: Part,
    count: u32,
) -> Result<(Metadata, Vec<Part>), FormatError> {
    let own = metadata.u32(NUMBER_KEY)?;
    let stem = stem_of(opened, own, count)?;
    let mut opened_part = Some((metadata, part));
    let mut first: Option<Metadata> = None;
    let mut parts = Vec::new();
    for number in 0..count {
        let taken = if number == own { opened_part.take() } else { None };
        let (metadata, part) = match taken {
            Some(part) => part,
            None => open_part(&part_path(opened, &stem, number, count))?,
        };
        check(&metadata, first.as_ref(), number, count)?;
        first.get_or_insert(metadata);
        parts.push(part);
    }
    let first = first.expect("there are at least two parts");
    check_tensors(&first, parts.iter().map(|(_, records)| records.len()).sum())?;
    Ok((first, parts))
}

/// What the name of a part begins with; it has to end with its number and the count.
fn stem_of(path: &Path, number: u32, count: u32) -> Result<String, FormatError> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let ending = ending(number, count);
    match name.strip_suffix(&ending) {
        Some(stem) => Ok(stem.to_owned()),
        None => Err(FormatError::PartName {
            file: path.to_path_buf(),
            part: u64::from(number) + 1,
            count,
            ending,
        }),
    }
}

fn part_path(opened: &Path, stem: &str, number: u32, count: u32) -> PathBuf {
    opened.with_file_name(format!("{stem}{}", ending(number, count)))
}

fn ending(number: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", u64::from(number) + 1)
}

/// Whether a part is the one that it is taken for.
fn check(metadata: &Metadata, first: Option<&Metadata>, number: u32, count: u32) -> Result<(), FormatError> {
    let wrong = |key: &str, found: String, expected: String| FormatError::WrongPart {
        file: metadata.file().to_path_buf(),
        key: key.to_owned(),
        found,
        expected,
    };
    let shown = |found: Option<u32>| found.map_or("missing".to_owned(), |found| found.to_string());
    for (key, expected) in [(COUNT_KEY, count), (NUMBER_KEY, number)] {
        let found = metadata.opt_u32(key)?;
        if found != Some(expected) {
            return Err(wrong(key, shown(found), expected.to_string()));
        }
    }
    let Some(first) = first else { return Ok(()) };
    let (found, expected) = (metadata.opt_u64(TENSORS_KEY)?, first.opt_u64(TENSORS_KEY)?);
    if found != expected {
        let shown = |count: Option<u64>| count.map_or("missing".to_owned(), |count| count.to_string());
        return Err(wrong(TENSORS_KEY, shown(found), format!("{} as in the first part", shown(expected))));
    }
    for key in ["general.architecture", "general.name"] {
        // Most writers give these to the first part alone.
        let Some(found) = metadata.opt_str(key)? else { continue };
        let expected = first.opt_str(key)?.unwrap_or("missing");
        if found != expected {
            return Err(wrong(key, format!("`{found}`"), format!("`{expected}` as in the first part")));
        }
    }
    Ok(())
}

fn check_tensors(first: &Metadata, found: usize) -> Result<(), FormatError> {
    let file = first.file().to_path_buf();
    if found > limits::TENSORS {
        let what = "the number of tensors of all parts".to_owned();
        return Err(FormatError::OverLimit {
            file,
            what,
            found: found as u64,
            limit: limits::TENSORS,
            name: "TENSORS",
        });
    }
    match first.opt_u64(TENSORS_KEY)? {
        Some(expected) if expected != found as u64 => Err(FormatError::PartTensors { file, expected, found }),
        Some(_) | None => Ok(()),
    }
}
