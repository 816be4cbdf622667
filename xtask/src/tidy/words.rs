//! Words that may occur in listed places only: family names, `unsafe`, `async`, names from outside the repository.

use proc_macro2::{TokenStream, TokenTree};

use super::Finding;
use super::sizes::FAMILIES;
use super::source::{RustFile, TextFile};

/// Where `unsafe` may occur: a file, or a folder that ends in `/`.
const UNSAFE_PLACES: [&str; 6] = [
    "crates/formats/src/mmap.rs",
    "crates/formats/src/shrunk.rs",
    "crates/backend-cpu/",
    "crates/backend-cuda/src/driver/",
    "crates/loader/src/machine/heap.rs",
    "crates/loader/tests/allocations.rs",
];

/// Where `async` may occur.
const ASYNC_PLACES: [&str; 1] = ["crates/server/"];

/// Families of models whose names belong to `model/families/`.
const FAMILY_NAMES: [&str; 8] =
    ["llama", "qwen", "gemma", "mistral", "mixtral", "smollm", "deepseek", "granite"];

/// Places where any family may be named, with the reason.
const FAMILY_PLACES: [(&str, &str); 5] = [
    ("crates/grammar/src/tools.rs", "formats of tool calls are named after the models that write them"),
    (FAMILIES, "the tables themselves"),
    ("crates/text/src/", "tokenizer kinds carry the names of the models that brought them"),
    ("crates/testing/", "goldens and toy checkpoints are named after their family"),
    ("xtask/", "names of the demo models and of this list"),
];

/// Terms that contain a family's name and mean something else, each where it may occur.
const FAMILY_TERMS: [(&str, &str); 8] = [
    ("crates/", "llama.cpp"),
    ("crates/", "llama-gguf-split"),
    ("crates/model/src/", "llama3"), // A kind of rope scaling, which other families use as well.
    ("crates/cli/src/commands/inspect/", "llama3"),
    ("crates/cli/src/", "smollm2"),
    ("crates/cli/src/", "gemma-3"),
    ("crates/cli/src/", "qwen3-0.6b"),
    ("crates/model/src/lib.rs", "families::"),
];

/// Names of package registries and folders of one machine. In two parts, so that this list is not found itself.
const OUTSIDE_NAMES: [(&str, &str); 7] = [
    ("pypi", ".org"),
    ("pythonhosted", ".org"),
    ("crates", ".io"),
    ("npmjs", ".org"),
    ("download.pytorch", ".org"),
    ("/wo", "rk"),
    ("/ro", "ot"),
];

/// `unsafe` stays in the listed places.
pub(super) fn unsafe_code(file: &RustFile<'_>) -> Vec<Finding> {
    keyword(file, "unsafe", &["unsafe"], &UNSAFE_PLACES)
}

/// `async` stays in the listed places.
pub(super) fn async_code(file: &RustFile<'_>) -> Vec<Finding> {
    keyword(file, "async", &["async", "await"], &ASYNC_PLACES)
}

/// A family's table holds no operation.
pub(super) fn family_file(file: &RustFile<'_>) -> Vec<Finding> {
    if !file.path.starts_with(FAMILIES) {
        return vec![];
    }
    let lines = identifier_lines(file, &["Op", "ProgramBuilder"]);
    let message = |line| format!("line {line}: a family is a table; operations belong to `model/blocks`");
    lines.into_iter().map(|line| Finding::new("family-file", file.path, message(line))).collect()
}

/// No family is named outside its table, except in tests and in the listed places.
pub(super) fn family_names(file: &RustFile<'_>) -> Vec<Finding> {
    if FAMILY_PLACES.iter().any(|(place, _)| file.path.starts_with(place)) {
        return vec![];
    }
    let mut found = Vec::new();
    for (number, line) in file.lines_without_tests() {
        let mut text = line.to_lowercase();
        for (place, term) in FAMILY_TERMS {
            if file.path.starts_with(place) {
                text = text.replace(term, "");
            }
        }
        for name in FAMILY_NAMES.iter().filter(|name| text.contains(**name)) {
            let message = format!("line {number} names the family `{name}`; only `{FAMILIES}` may");
            found.push(Finding::new("family-name", file.path, message));
        }
    }
    found
}

/// The repository names no package registry and no folder of the machine it was written on.
pub(super) fn outside_names(file: &TextFile) -> Vec<Finding> {
    if file.path.rsplit('/').next() == Some("Cargo.lock") {
        return vec![]; // Written by cargo, with its registry in every entry.
    }
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for name in OUTSIDE_NAMES.map(|(first, second)| format!("{first}{second}")) {
            if line.match_indices(&name).any(|(at, _)| stands_alone(line, at, &name)) {
                let message =
                    format!("line {} names `{name}`, which lies outside the repository", number + 1);
                found.push(Finding::new("outside-name", &file.path, message));
            }
        }
    }
    found
}

/// Whether a folder's name is the beginning of a path and ends there, unlike one inside of a longer path or word. The name
/// of a host may stand anywhere.
fn stands_alone(line: &str, at: usize, name: &str) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || "._-}".contains(letter);
    let before = line[..at].chars().next_back().is_some_and(part);
    let after = line[at + name.len()..]
        .chars()
        .next()
        .is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    !name.starts_with('/') || !(before || after)
}

fn keyword(file: &RustFile<'_>, rule: &'static str, words: &[&str], places: &[&str]) -> Vec<Finding> {
    if places.iter().any(|place| file.path.starts_with(place)) {
        return vec![];
    }
    let message = |line| format!("line {line}: `{rule}` is allowed in {places:?} only");
    identifier_lines(file, words)
        .into_iter()
        .map(|line| Finding::new(rule, file.path, message(line)))
        .collect()
}

/// The lines on which one of these identifiers or keywords stands, in code and inside macros.
fn identifier_lines(file: &RustFile<'_>, words: &[&str]) -> Vec<usize> {
    let tokens: TokenStream = file.text.parse().expect("a file that parsed as Rust is made of tokens");
    let mut lines = Vec::new();
    collect_lines(tokens, words, &mut lines);
    lines
}

fn collect_lines(tokens: TokenStream, words: &[&str], lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_lines(group.stream(), words, lines),
            TokenTree::Ident(word) if words.iter().any(|wanted| word == wanted) => {
                lines.push(word.span().start().line);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks how many findings a rule has in a file of this text.
    fn check(rule: fn(&RustFile<'_>) -> Vec<Finding>, path: &str, text: &str, expected: usize) {
        let found = rule(&RustFile::from_text(path, text).unwrap());
        assert_eq!(found.len(), expected, "{path}\n{text}\n{found:?}");
    }

    #[test]
    fn unsafe_stays_in_its_folders() {
        let block = "fn f() { unsafe { g() } }";
        check(unsafe_code, "crates/ops/src/a.rs", block, 1);
        check(unsafe_code, "crates/ops/src/a.rs", "m! { unsafe { g() } }", 1);
        check(unsafe_code, "crates/ops/src/a.rs", "unsafe fn f() {}\nunsafe impl A for B {}", 2);
        check(
            unsafe_code,
            "crates/ops/src/a.rs",
            "#![forbid(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";",
            0,
        );
        check(unsafe_code, "crates/backend-cpu/src/simd/a.rs", block, 0);
        check(unsafe_code, "crates/formats/src/mmap.rs", block, 0);
        check(unsafe_code, "crates/formats/src/gguf.rs", block, 1);
    }

    #[test]
    fn async_is_the_servers_alone() {
        check(async_code, "crates/engine/src/a.rs", "async fn f() {}", 1);
        check(async_code, "crates/engine/src/a.rs", "fn f() { /* async */ }", 0);
        check(async_code, "crates/server/src/a.rs", "async fn f() {}", 0);
    }

    #[test]
    fn family_files_hold_no_operation() {
        let path = "crates/model/src/families/a.rs";
        check(family_file, path, "fn f() -> Op { Op::Add }", 2);
        check(family_file, path, "use gannet_ops::ProgramBuilder;", 1);
        check(family_file, path, "// Op::Add\nfn f() -> Option<u8> { None }", 0);
        check(family_file, "crates/model/src/blocks/a.rs", "use gannet_ops::Op;", 0);
    }

    #[test]
    fn families_are_named_in_their_tables_only() {
        check(family_names, "crates/ops/src/a.rs", "const A: &str = \"qwen2\";", 1);
        check(family_names, "crates/ops/src/a.rs", "struct Gemma3;", 1);
        check(family_names, "crates/ops/src/a.rs", "// As Llama does.", 1);
        check(family_names, "crates/ops/src/a.rs", "// As llama.cpp does.", 0);
        check(family_names, "crates/ops/src/a.rs", "// llama3", 1);
        check(family_names, "crates/model/src/rope.rs", "const A: &str = \"llama3\";", 0);
        check(family_names, "crates/model/src/rope.rs", "const A: &str = \"llama\";", 1);
        check(family_names, "crates/model/src/families/a.rs", "const A: &str = \"qwen2\";", 0);
        check(family_names, "crates/ops/src/a.rs", "#[cfg(test)]\nmod tests {\n    // qwen\n}\n", 0);
        check(family_names, "crates/ops/tests/a.rs", "// qwen\n", 0);
    }

    #[test]
    fn outside_names_are_found_in_any_file() {
        let check = |path: &str, text: String, expected: usize| {
            let file = TextFile { path: path.to_owned(), text };
            assert_eq!(outside_names(&file).len(), expected, "{path}: {}", file.text);
        };
        for (first, second) in OUTSIDE_NAMES {
            check("README.md", format!("see `{first}{second}`"), 1);
            check("README.md", format!("see {first}{second}/x"), 1);
        }
        let (first, second) = ("/ro", "ot");
        check("README.md", format!("crates{first}{second}/x and {first}{second}s"), 0);
        check("README.md", format!("crates{first}{second}/x and {first}{second}"), 1);
        check("Cargo.lock", format!("registry+https://{}{}", "crates", ".io"), 0);
    }
}
