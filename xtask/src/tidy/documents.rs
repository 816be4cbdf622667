//! Paths that ARCHITECTURE.md names exist.

use std::path::Path;

use super::Finding;
use super::source::TextFile;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Endings that make a word in code marks a path even without a slash.
const ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".py", ".txt"];

/// Each path in code marks exists: from the root, as the end of a file's path (`pages.rs`), or from a crate
/// (`engine/state/pages.rs` stands for `crates/engine/src/state/pages.rs`).
pub(super) fn paths(root: &Path, texts: &[TextFile]) -> Vec<Finding> {
    let Some(file) = texts.iter().find(|file| file.path == ARCHITECTURE) else {
        return vec![Finding::new("architecture-path", ARCHITECTURE, "the file is missing")];
    };
    let missing = named(&file.text).into_iter().filter(|(_, path)| !exists(root, path, texts));
    let message = |line, path| format!("line {line} names `{path}`, which does not exist");
    missing.map(|(line, path)| Finding::new("architecture-path", ARCHITECTURE, message(line, path))).collect()
}

/// Line numbers and paths of all words in code marks that look like a path.
fn named(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let marked = line.split('`').skip(1).step_by(2);
        found.extend(marked.filter(|word| is_path(word)).map(|word| (index + 1, word)));
    }
    found
}

fn is_path(word: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/_-.".contains(letter);
    let shaped = word.contains('/') || ENDINGS.iter().any(|ending| word.ends_with(ending));
    shaped && !word.starts_with('/') && word.chars().all(plain)
}

fn exists(root: &Path, path: &str, texts: &[TextFile]) -> bool {
    let end = format!("/{path}");
    let inside =
        path.split_once('/').map(|(name, rest)| root.join("crates").join(name).join("src").join(rest));
    root.join(path).exists()
        || root.join("crates").join(path).exists()
        || inside.is_some_and(|path| path.exists())
        || texts.iter().any(|file| file.path.ends_with(&end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_code_marks_exist() {
        let check = |text: &str, expected: usize| {
            let other = TextFile { path: "crates/engine/src/state/pages.rs".into(), text: String::new() };
            let texts = [TextFile { path: ARCHITECTURE.into(), text: text.to_owned() }, other];
            assert_eq!(paths(&crate::root(), &texts).len(), expected, "{text}");
        };
        check("See `xtask/src/main.rs`, `crates/ops` and `ops/lib.rs`; `Cargo.toml`.", 0);
        check("See `pages.rs` and `state/pages.rs`.", 0);
        check("See `ages.rs` and `xtask/src/gone.rs`.", 2);
        check("`gone.rs` and `ops/gone.rs`", 2);
        check("`enum Op`, `a/{b,c}`, `crates/backend-*`, xtask/gone.rs", 0);
    }

    #[test]
    fn a_missing_architecture_page_is_found() {
        assert_eq!(paths(&crate::root(), &[]).len(), 1);
    }
}
