//! Findings that are accepted for now, one a line: `RULE PLACE  # reason`. The list can only shrink: an entry that
//! matches nothing is a finding itself.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Finding;

const FILE: &str = "xtask/tidy-exceptions.txt";

/// The findings that stay when the exceptions file has had its say.
pub(super) fn filter(root: &Path, found: Vec<Finding>) -> Result<Vec<Finding>> {
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read `{FILE}`"))?;
    apply(&parse(&text)?, found)
}

/// Pairs of rule and place.
fn parse(text: &str) -> Result<Vec<(&str, &str)>> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (entry, reason) = line.split_once('#').unwrap_or((line, ""));
        let words: Vec<&str> = entry.split_whitespace().collect();
        let [rule, place] = words[..] else {
            bail!("`{FILE}` line {}: expected `RULE PLACE  # reason`, found `{line}`", index + 1);
        };
        if reason.trim().is_empty() {
            bail!("`{FILE}` line {}: an exception needs a reason after `#`", index + 1);
        }
        entries.push((rule, place));
    }
    Ok(entries)
}

fn apply(entries: &[(&str, &str)], found: Vec<Finding>) -> Result<Vec<Finding>> {
    let matches = |entry: &(&str, &str), finding: &Finding| *entry == (finding.rule, finding.place.as_str());
    let unused = entries.iter().filter(|entry| !found.iter().any(|finding| matches(entry, finding)));
    let message = |rule: &str, place: &str| format!("`{rule} {place}` no longer occurs: remove the line");
    let unused: Vec<Finding> =
        unused.map(|(rule, place)| Finding::new("unused-exception", FILE, message(rule, place))).collect();
    let mut rest = found;
    rest.retain(|finding| !entries.iter().any(|entry| matches(entry, finding)));
    rest.extend(unused);
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_hides_its_finding_and_has_to_be_used() {
        let check = |text: &str, expected: &[&str]| {
            let found = vec![Finding::new("header", "a.rs", ""), Finding::new("header", "b.rs", "")];
            let rest = apply(&parse(text).unwrap(), found).unwrap();
            let places: Vec<&str> = rest.iter().map(|finding| finding.place.as_str()).collect();
            assert_eq!(places, expected, "{text}");
        };
        check("# nothing\n\n", &["a.rs", "b.rs"]);
        check("header a.rs  # generated\n", &["b.rs"]);
        check("header a.rs # x\nheader b.rs # x\n", &[]);
        check("header c.rs # x\n", &["a.rs", "b.rs", FILE]);
        check("file-length a.rs # x\n", &["a.rs", "b.rs", FILE]);
    }

    #[test]
    fn an_exception_without_reason_is_refused() {
        assert!(parse("header a.rs").is_err());
        assert!(parse("header # reason").is_err());
        assert!(parse("header a.rs b.rs # reason").is_err());
    }
}
