//! The crate graph is the architecture: which of our crates may depend on which, exactly. A new edge is an
//! architectural change and starts here. Development dependencies are free.

use std::collections::BTreeSet;

use super::Finding;
use super::metadata::{Metadata, Package};

/// Each crate and all it depends on, lowest first.
const EDGES: [(&str, &[&str]); 17] = [
    ("gannet-json", &[]),
    ("gannet-tensor", &[]),
    ("gannet-formats", &["gannet-json", "gannet-tensor"]),
    ("gannet-ops", &["gannet-tensor"]),
    ("gannet-model", &["gannet-formats", "gannet-json", "gannet-ops", "gannet-tensor"]),
    ("gannet-text", &["gannet-json"]),
    ("gannet-engine", &["gannet-ops", "gannet-tensor"]),
    ("gannet-grammar", &["gannet-engine", "gannet-ops", "gannet-text"]),
    (
        "gannet-loader",
        &["gannet-engine", "gannet-formats", "gannet-model", "gannet-ops", "gannet-tensor", "gannet-text"],
    ),
    ("gannet-backend-cpu", &["gannet-ops", "gannet-tensor"]),
    ("gannet-backend-cuda", &["gannet-ops", "gannet-tensor"]),
    ("gannet-hub", &[]),
    ("gannet-server", &["gannet-engine", "gannet-grammar", "gannet-json", "gannet-ops", "gannet-text"]),
    (
        "gannet",
        &[
            "gannet-backend-cpu",
            "gannet-backend-cuda",
            "gannet-engine",
            "gannet-formats",
            "gannet-grammar",
            "gannet-hub",
            "gannet-loader",
            "gannet-model",
            "gannet-ops",
            "gannet-server",
            "gannet-tensor",
            "gannet-text",
        ],
    ),
    (
        "gannet-testing",
        &[
            "gannet-backend-cuda",
            "gannet-engine",
            "gannet-formats",
            "gannet-model",
            "gannet-ops",
            "gannet-tensor",
        ],
    ),
    ("xtask", &[]),
    // Random checkpoints: the formats and their decoders, nothing that runs them.
    ("xtask-checkpoint", &["gannet-formats", "gannet-tensor"]),
];

/// The workspace's edges are those of the table.
pub(super) fn edges(metadata: &Metadata) -> Vec<Finding> {
    let members: Vec<&Package> =
        metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id)).collect();
    let names: BTreeSet<&str> = members.iter().map(|package| package.name.as_str()).collect();
    let mut found: Vec<Finding> = members.iter().flat_map(|package| judge(package, &names)).collect();
    for (name, _) in EDGES.iter().filter(|(name, _)| !names.contains(name)) {
        found.push(Finding::new(
            "crate-graph",
            *name,
            "the table in `xtask` lists a crate that does not exist",
        ));
    }
    found
}

fn judge(package: &Package, ours: &BTreeSet<&str>) -> Vec<Finding> {
    let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == package.name) else {
        return vec![Finding::new("crate-graph", &package.name, "the crate is not in the table in `xtask`")];
    };
    let declared = package.dependencies.iter().filter(|dependency| dependency.kind.as_deref() != Some("dev"));
    let declared: BTreeSet<&str> =
        declared.map(|dependency| dependency.name.as_str()).filter(|name| ours.contains(name)).collect();
    let allowed: BTreeSet<&str> = allowed.iter().copied().collect();
    let new = declared.difference(&allowed).map(|name| format!("may not depend on `{name}`"));
    let gone =
        allowed.difference(&declared).map(|name| format!("no longer depends on `{name}`: shorten the table"));
    new.chain(gone).map(|message| Finding::new("crate-graph", &package.name, message)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Dependency;
    use super::*;

    #[test]
    fn the_graph_is_the_table() {
        let check = |name: &str, dependencies: &[(&str, Option<&str>)], expected: usize| {
            let declare = |(name, kind): &(&str, Option<&str>)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(str::to_owned),
            };
            let package = Package {
                id: name.to_owned(),
                name: name.to_owned(),
                version: "0.1.0".to_owned(),
                license: None,
                dependencies: dependencies.iter().map(declare).collect(),
            };
            let ours = EDGES.iter().map(|(name, _)| *name).collect();
            assert_eq!(judge(&package, &ours).len(), expected, "{name} -> {dependencies:?}");
        };
        let (json, tensor) = (("gannet-json", None), ("gannet-tensor", None));
        check("gannet-formats", &[json, tensor, ("serde", None)], 0);
        check("gannet-formats", &[json, tensor, ("gannet-ops", None)], 1);
        check("gannet-formats", &[json, tensor, ("gannet-ops", Some("build"))], 1);
        check("gannet-formats", &[json, tensor, ("gannet-testing", Some("dev"))], 0);
        check("gannet-formats", &[], 2);
        check("gannet-unheard-of", &[], 1);
    }
}
