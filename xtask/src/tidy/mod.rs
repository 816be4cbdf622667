//! The rules that no other tool checks. `cargo xtask tidy` prints what breaks them, and `cargo test` fails on it.
//!
//! A rule is a function from text to findings, so that each is tested on snippets. `source` reads the repository,
//! `sizes`, `words`, `kernels`, `documents` and `faults` judge files, `edges` and `dependencies` judge cargo's metadata.
//! `tidy-exceptions.txt` lists findings that are accepted for now; one that no longer occurs has to go.

mod dependencies;
mod documents;
mod edges;
mod exceptions;
mod faults;
mod kernels;
mod licences;
mod metadata;
mod sizes;
mod source;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use source::{RustFile, TextFile};

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// The rule's name, as the exceptions file writes it.
    rule: &'static str,
    /// What breaks it: a path, `path::function`, a crate. With the rule it is the key of an exception.
    place: String,
    /// The facts, and what to do.
    message: String,
}

impl Finding {
    fn new(rule: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { rule, place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}: {}", self.rule, self.place, self.message)
    }
}

/// Rules about one Rust file.
const RUST_RULES: [fn(&RustFile) -> Vec<Finding>; 8] = [
    sizes::header,
    sizes::file_length,
    sizes::function_length,
    sizes::parameters,
    words::unsafe_code,
    words::async_code,
    words::family_names,
    words::family_file,
];

/// Rules about one text file of any kind.
const TEXT_RULES: [fn(&TextFile) -> Vec<Finding>; 2] = [sizes::shader_length, words::outside_names];

/// Prints every finding; an error if there is one.
pub(crate) fn run(root: &Path) -> Result<()> {
    let findings = findings(root)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy found {} broken rules", findings.len());
    }
    Ok(())
}

/// All findings of the repository that the exceptions file does not accept.
fn findings(root: &Path) -> Result<Vec<Finding>> {
    let texts = source::read(root)?;
    let rust = texts.iter().filter_map(RustFile::parse).collect::<Result<Vec<_>>>()?;
    let metadata = metadata::read(root)?;
    let lists = dependencies::lists(root)?;
    let mut found: Vec<Finding> =
        rust.iter().flat_map(|file| RUST_RULES.iter().flat_map(|rule| rule(file))).collect();
    found.extend(texts.iter().flat_map(|file| TEXT_RULES.iter().flat_map(|rule| rule(file))));
    found.extend(kernels::stems(&rust, &texts));
    found.extend(documents::paths(root, &texts));
    found.extend(faults::tests(&texts, &rust));
    found.extend(edges::edges(&metadata));
    found.extend(dependencies::check(&metadata, &lists));
    found.sort();
    exceptions::filter(root, found)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_is_tidy() {
        let found = super::findings(&crate::root()).unwrap();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{}", lines.join("\n"));
    }
}
