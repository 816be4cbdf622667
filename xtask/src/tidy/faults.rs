//! Tests that docs/faults.md names exist, and each of its rows names one.

use std::collections::BTreeSet;

use super::Finding;
use super::source::{RustFile, TextFile};

const FAULTS: &str = "docs/faults.md";

/// Each row of a table has a test in code marks in its last column, and each of them is a function in the lines of tests.
pub(super) fn tests(texts: &[TextFile], rust: &[RustFile<'_>]) -> Vec<Finding> {
    let Some(file) = texts.iter().find(|file| file.path == FAULTS) else {
        return vec![Finding::new("faults", FAULTS, "the file is missing")];
    };
    let known: BTreeSet<&str> = rust.iter().flat_map(test_functions).collect();
    let rows = file.text.lines().enumerate().filter_map(|(index, line)| Some((index + 1, tests_of(line)?)));
    rows.flat_map(|(line, named)| judge(line, &named, &known)).collect()
}

/// What a row of a table has in code marks in its last column; nothing for other lines and heads.
fn tests_of(line: &str) -> Option<Vec<&str>> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
    let last = cells.last()?.trim();
    let is_head = last == "tests" || last.chars().all(|letter| "-:".contains(letter));
    (!is_head).then(|| last.split('`').skip(1).step_by(2).collect())
}

fn judge(line: usize, named: &[&str], known: &BTreeSet<&str>) -> Vec<Finding> {
    let finding = |message| Finding::new("faults", FAULTS, message);
    if named.is_empty() {
        return vec![finding(format!("line {line} names no test"))];
    }
    let gone = named.iter().filter(|test| !known.contains(*test));
    gone.map(|test| finding(format!("line {line} names the test `{test}`, which does not exist"))).collect()
}

/// Names of functions in the lines of tests.
fn test_functions<'a>(file: &RustFile<'a>) -> impl Iterator<Item = &'a str> {
    let lines = file.text.lines().zip(&file.test_lines).filter(|(_, test)| **test);
    let names: Vec<&'a str> = lines
        .filter_map(|(line, _)| {
            let rest = line.trim_start().strip_prefix("fn ")?;
            rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
        })
        .collect();
    names.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_tests_that_exist() {
        let code = "fn no_test() {}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn it_works() {}\n}\n";
        let rust = [RustFile::from_text("crates/a/src/lib.rs", code).unwrap()];
        let check = |row: &str, expected: usize| {
            let text = format!("| no. | tests |\n|--:|---|\n{row}\n");
            let texts = [TextFile { path: FAULTS.to_owned(), text }];
            assert_eq!(tests(&texts, &rust).len(), expected, "{row}");
        };
        check("| 1 | `it_works` |", 0);
        check("| `gone` | `it_works`; *open: more* |", 0);
        check("| 1 | `it_works`, `gone` |", 1);
        check("| 1 | `no_test` |", 1);
        check("| 1 | it_works |", 1);
        check("No row: `gone`.", 0);
    }
}
