//! What cargo says about the packages: the part of `cargo metadata` that the rules read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::process;

/// All packages for this machine's platform, and how they depend on each other.
#[derive(Deserialize)]
pub(super) struct Metadata {
    pub packages: Vec<Package>,
    pub workspace_members: BTreeSet<String>,
    pub resolve: Resolve,
}

#[derive(Deserialize)]
pub(super) struct Package {
    pub id: String,
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    pub dependencies: Vec<Dependency>,
}

/// A dependency as a manifest declares it.
#[derive(Deserialize)]
pub(super) struct Dependency {
    pub name: String,
    /// `None` is an ordinary one, else `dev` or `build`.
    pub kind: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Resolve {
    pub nodes: Vec<Node>,
}

/// A package and what it resolved its dependencies to.
#[derive(Deserialize)]
pub(super) struct Node {
    pub id: String,
    pub deps: Vec<Edge>,
}

#[derive(Deserialize)]
pub(super) struct Edge {
    pub pkg: String,
    pub dep_kinds: Vec<EdgeKind>,
}

#[derive(Deserialize)]
pub(super) struct EdgeKind {
    pub kind: Option<String>,
}

/// Asks cargo. The lock file has to be up to date.
pub(super) fn read(root: &Path) -> Result<Metadata> {
    let version = process::output(Command::new("rustc").arg("-vV"))?;
    let host =
        version.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` names no host")?;
    let mut cargo = process::cargo();
    cargo
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host])
        .current_dir(root);
    let text = process::output(&mut cargo)?;
    serde_json::from_str(&text).context("`cargo metadata` printed something unexpected")
}

impl Metadata {
    /// The packages that get compiled for a workspace package: itself, and what it needs to run and to build.
    pub(super) fn compiled_for(&self, name: &str) -> Vec<&Package> {
        let packages: BTreeMap<&str, &Package> = self.packages.iter().map(|p| (p.id.as_str(), p)).collect();
        let nodes: BTreeMap<&str, &Node> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let start = self.packages.iter().find(|p| p.name == name && self.workspace_members.contains(&p.id));
        let mut open: Vec<&str> = start.map(|package| package.id.as_str()).into_iter().collect();
        let mut reached = BTreeSet::new();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(
                    nodes[id].deps.iter().filter(|edge| edge.is_compiled()).map(|edge| edge.pkg.as_str()),
                );
            }
        }
        reached.into_iter().map(|id| packages[id]).collect()
    }

    /// The packages that a package is compiled with; optional ones only where they are switched on.
    pub(super) fn needs(&self, package: &Package) -> Vec<&Package> {
        let node = self.resolve.nodes.iter().find(|node| node.id == package.id);
        let edges = node.into_iter().flat_map(|node| &node.deps).filter(|edge| edge.is_compiled());
        let ids: BTreeSet<&str> = edges.map(|edge| edge.pkg.as_str()).collect();
        self.packages.iter().filter(|package| ids.contains(package.id.as_str())).collect()
    }
}

impl Edge {
    fn is_compiled(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"))
    }
}
