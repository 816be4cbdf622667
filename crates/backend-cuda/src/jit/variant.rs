//! A kernel's file with values for its defines: what is compiled at once.

use super::OPTIONS;
use super::sources::{HEADERS, text_of};
use crate::driver::Architecture;
use crate::driver::nvrtc::Source;
use sha2::{Digest, Sha256};
use std::fmt;

/// Defines of a variant, at most.
const DEFINES_MAX: usize = 7;

/// A define's name and value.
pub(crate) type Define = (&'static str, &'static str);

/// A file of kernels and its defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Variant {
    file: &'static str,
    /// Empty names come last and are none.
    defines: [Define; DEFINES_MAX],
}

impl Variant {
    pub(crate) fn new(file: &'static str, given: &[Define]) -> Self {
        let mut defines = [("", ""); DEFINES_MAX];
        defines[..given.len()].copy_from_slice(given);
        Self { file, defines }
    }

    fn defines(&self) -> impl Iterator<Item = &Define> {
        self.defines.iter().filter(|(name, _)| !name.is_empty())
    }

    /// The value of a define.
    pub(crate) fn define(&self, name: &str) -> Option<&'static str> {
        self.defines().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }

    /// What the compiler is told beside the architecture.
    pub(super) fn options(&self) -> Vec<String> {
        let defines = self.defines().map(|(name, value)| format!("-D{name}={value}"));
        OPTIONS.iter().map(|option| (*option).to_owned()).chain(defines).collect()
    }

    /// What is compiled.
    pub(super) fn source<'a>(&self, options: &'a [String]) -> Source<'a> {
        let (name, text) = text_of(self.file);
        Source { name, text, headers: &HEADERS, options }
    }

    /// A number of all that the machine code depends on beside the compiler.
    pub(super) fn fingerprint(&self, architecture: Architecture) -> String {
        let options = self.options();
        let source = self.source(&options);
        let mut hash = Sha256::new();
        let mut add = |part: &str| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(source.name);
        add(source.text);
        for (name, text) in source.headers {
            add(name);
            add(text);
        }
        options.iter().for_each(|option| add(option));
        add(&architecture.to_string());
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The file, as part of another file's name.
    pub(super) fn stem(&self) -> &'static str {
        self.file
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file)?;
        self.defines().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}
