//! The repository's files: text for every rule, syntax trees for the rules about Rust.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use syn::spanned::Spanned;

use crate::process;

/// A file that git tracks or would track, as text.
pub(super) struct TextFile {
    /// From the repository's root, with `/`.
    pub path: String,
    pub text: String,
}

/// A Rust file and its syntax tree.
pub(super) struct RustFile<'a> {
    pub path: &'a str,
    pub text: &'a str,
    pub syntax: syn::File,
    /// For each line, whether it belongs to tests.
    pub test_lines: Vec<bool>,
}

/// Every text file; those that are not UTF-8 (checkpoints, pictures) are left out.
pub(super) fn read(root: &Path) -> Result<Vec<TextFile>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = process::output(&mut git).context("tidy reads the files that git lists")?;
    let mut files = Vec::new();
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let Ok(bytes) = fs::read(root.join(path)) else {
            continue; // Deleted, and the deletion is not staged yet.
        };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(TextFile { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

impl<'a> RustFile<'a> {
    /// The file as Rust, or nothing if its name is of another kind.
    pub(super) fn parse(file: &'a TextFile) -> Option<Result<Self>> {
        if !file.path.ends_with(".rs") {
            return None;
        }
        Some(Self::from_text(&file.path, &file.text))
    }

    /// A Rust file from its parts.
    pub(super) fn from_text(path: &'a str, text: &'a str) -> Result<Self> {
        let syntax = syn::parse_file(text)
            .map_err(|error| anyhow!("`{path}` line {}: no Rust: {error}", error.span().start().line))?;
        let whole = path.contains("/tests/") || path.contains("/benches/") || path.ends_with("/tests.rs");
        let mut test_lines = vec![whole; text.lines().count()];
        mark_tests(&syntax.items, &mut test_lines);
        Ok(Self { path, text, syntax, test_lines })
    }

    /// Line numbers from one, and the lines, without tests.
    pub(super) fn lines_without_tests(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let lines = self.text.lines().zip(&self.test_lines).enumerate();
        lines.filter(|(_, (_, test))| !**test).map(|(index, (line, _))| (index + 1, line))
    }
}

/// Marks the lines of items under `#[cfg(test)]`.
fn mark_tests(items: &[syn::Item], test_lines: &mut [bool]) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        if module.attrs.iter().any(is_cfg_test) {
            let first = module.attrs.first().map_or(module.span(), Spanned::span).start().line;
            let last = module.span().end().line.min(test_lines.len());
            test_lines[first - 1..last].fill(true);
        } else if let Some((_, inner)) = &module.content {
            mark_tests(inner, test_lines);
        }
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
}
