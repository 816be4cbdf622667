//! What the engine drags in: how many crates, which build C, which come twice, under which licences. The lists are
//! those of deny.toml, so that they hold where cargo-deny is not installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::metadata::{Metadata, Package};
use super::{Finding, licences};

/// Crates that get compiled for the binary with its default features.
const CRATES_MAX: usize = 260;

/// The binary whose dependencies count.
const BINARY: &str = "gannet";

/// The part of deny.toml that the rules read.
#[derive(Deserialize)]
pub(super) struct Lists {
    bans: Bans,
    licenses: Licences,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Ban>,
    skip: Vec<Skip>,
}

/// A crate that only its wrappers may depend on.
#[derive(Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    #[serde(default)]
    wrappers: Vec<String>,
}

/// A crate that may come in several versions.
#[derive(Deserialize)]
struct Skip {
    #[serde(rename = "crate")]
    name: String,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
}

/// Reads deny.toml.
pub(super) fn lists(root: &Path) -> Result<Lists> {
    let text = fs::read_to_string(root.join("deny.toml")).context("cannot read `deny.toml`")?;
    toml::from_str(&text).context("`deny.toml` is not as tidy expects it")
}

/// All rules about dependencies.
pub(super) fn check(metadata: &Metadata, lists: &Lists) -> Vec<Finding> {
    let compiled = metadata.compiled_for(BINARY);
    let mut found = count(compiled.len());
    found.extend(
        compiled.iter().flat_map(|package| banned(package, &metadata.needs(package), &lists.bans.deny)),
    );
    found.extend(duplicates(&compiled, &lists.bans.skip));
    found.extend(compiled.iter().flat_map(|package| licence(package, &lists.licenses.allow)));
    found
}

fn count(crates: usize) -> Vec<Finding> {
    if (1..=CRATES_MAX).contains(&crates) {
        return vec![];
    }
    vec![Finding::new(
        "crate-count",
        BINARY,
        format!("{crates} crates are compiled for it, at most {CRATES_MAX}"),
    )]
}

/// Crates that build C code or look for it on the machine, by what they are compiled with.
fn banned(package: &Package, needs: &[&Package], bans: &[Ban]) -> Vec<Finding> {
    let is_broken = |ban: &&Ban| {
        needs.iter().any(|other| other.name == ban.name) && !ban.wrappers.contains(&package.name)
    };
    let message = |ban: &Ban| format!("depends on `{}`, which builds code that is not Rust", ban.name);
    bans.iter().filter(is_broken).map(|ban| Finding::new("c-code", &package.name, message(ban))).collect()
}

/// Crates in several versions, and entries of the list that are no longer needed.
fn duplicates(compiled: &[&Package], skips: &[Skip]) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in compiled {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    let skipped: BTreeSet<&str> = skips.iter().map(|skip| skip.name.as_str()).collect();
    let new = versions.iter().filter(|(name, _)| !skipped.contains(*name));
    let message = |versions: &BTreeSet<&str>| format!("comes in several versions: {versions:?}");
    let mut found: Vec<Finding> =
        new.map(|(name, versions)| Finding::new("duplicate-crate", *name, message(versions))).collect();
    for name in skipped.iter().filter(|name| !versions.contains_key(*name)) {
        found.push(Finding::new(
            "duplicate-crate",
            *name,
            "comes once: remove it from `bans.skip` in deny.toml",
        ));
    }
    found
}

fn licence(package: &Package, allowed: &[String]) -> Vec<Finding> {
    let Some(expression) = &package.license else {
        return vec![Finding::new("licence", &package.name, "declares no licence")];
    };
    if licences::is_allowed(expression, allowed) {
        return vec![];
    }
    vec![Finding::new("licence", &package.name, format!("`{expression}` is not allowed by deny.toml"))]
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Dependency;
    use super::*;

    fn package(name: &str, version: &str, needs: &[(&str, Option<&str>)]) -> Package {
        let declare = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
        };
        Package {
            id: format!("{name} {version}"),
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some("MIT".to_owned()),
            dependencies: needs.iter().map(declare).collect(),
        }
    }

    #[test]
    fn too_many_crates_are_found() {
        for (crates, expected) in [(1, 0), (260, 0), (261, 1), (0, 1)] {
            assert_eq!(count(crates).len(), expected, "{crates}");
        }
    }

    #[test]
    fn only_wrappers_may_build_c() {
        let bans = [Ban { name: "cc".into(), wrappers: vec!["ring".into()] }];
        let cc = package("cc", "1.0.0", &[]);
        let check = |name: &str, needs: &[&Package], expected: usize| {
            let user = package(name, "1.0.0", &[]);
            assert_eq!(banned(&user, needs, &bans).len(), expected, "{name}");
        };
        check("ring", &[&cc], 0);
        check("onig_sys", &[&cc], 1);
        check("onig_sys", &[], 0);
    }

    #[test]
    fn duplicates_need_an_entry_and_entries_need_a_duplicate() {
        let packages = [package("a", "1.0.0", &[]), package("a", "2.0.0", &[]), package("b", "1.0.0", &[])];
        let compiled: Vec<&Package> = packages.iter().collect();
        let check = |skips: &[&str], expected: &[&str]| {
            let skips: Vec<Skip> = skips.iter().map(|name| Skip { name: (*name).to_owned() }).collect();
            let found = duplicates(&compiled, &skips);
            assert_eq!(found.iter().map(|finding| finding.place.as_str()).collect::<Vec<_>>(), expected);
        };
        check(&[], &["a"]);
        check(&["a"], &[]);
        check(&["a", "b"], &["b"]);
    }
}
