//! Where libraries of graphics processors lie, in the order in which a loader would look for them.
//!
//! The cache of the dynamic loader is a list of paths between zero bytes, so it is searched as text; nothing is loaded.

use crate::quantity::entry;
use gannet_loader::machine::System;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How the names of the libraries begin.
const LIBRARIES: [&str; 3] = ["libcuda.so.1", "libnvrtc.so", "libnccl.so"];
const LOADER_CACHE: &str = "/etc/ld.so.cache";
const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
];

/// Looks up a variable of the environment.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// One library.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct LibraryFacts {
    name: &'static str,
    /// The first place; null where it wasn't found.
    path: Option<String>,
}

/// The libraries, and where they were looked for.
#[derive(Debug, Serialize)]
pub(super) struct Libraries {
    found: Vec<LibraryFacts>,
    looked_in: Vec<String>,
}

impl Libraries {
    pub(super) fn find(system: &System, variables: Variables<'_>) -> Self {
        let path_list = folders_of(variables("LD_LIBRARY_PATH"));
        let cached = cached_paths(system);
        let rest = [system_folders(), toolkit_folders(system), package_folders(system, variables)].concat();
        let find = |name: &'static str| {
            let in_folders =
                |folders: &[PathBuf]| folders.iter().find_map(|folder| library_in(system, folder, name));
            let in_cache = || cached.iter().find(|path| has_name(path, name)).cloned();
            let path = in_folders(&path_list).or_else(in_cache).or_else(|| in_folders(&rest));
            LibraryFacts { name, path }
        };
        let found = LIBRARIES.map(find).into();
        let shown = |folders: &[PathBuf]| folders.iter().map(|folder| folder.display().to_string()).collect();
        let before: Vec<String> = shown(&path_list);
        let looked_in = [before, vec![LOADER_CACHE.to_owned()], shown(&rest)].concat();
        Self { found, looked_in }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let text =
            |library: &LibraryFacts| entry(library.name, library.path.as_deref().unwrap_or("not found"));
        let mut lines: Vec<String> = self.found.iter().map(text).collect();
        if self.found.iter().any(|library| library.path.is_none()) {
            lines.push(entry("looked in", &self.looked_in.join(", ")));
        }
        lines
    }
}

fn has_name(path: &str, name: &str) -> bool {
    path.rsplit('/').next().is_some_and(|file| file.starts_with(name))
}

fn library_in(system: &System, folder: &Path, name: &str) -> Option<String> {
    let file = system.names(folder).into_iter().find(|file| file.starts_with(name))?;
    Some(folder.join(file).display().to_string())
}

/// The folders of a variable such as LD_LIBRARY_PATH; relative ones are left out.
fn folders_of(list: Option<String>) -> Vec<PathBuf> {
    let list = list.unwrap_or_default();
    list.split(':').filter(|folder| folder.starts_with('/')).map(PathBuf::from).collect()
}

/// The paths that the dynamic loader knows.
fn cached_paths(system: &System) -> Vec<String> {
    let bytes = system.bytes(LOADER_CACHE).unwrap_or_default();
    let parts = bytes.split(|byte| *byte == 0).filter(|part| part.starts_with(b"/"));
    parts.filter_map(|part| String::from_utf8(part.to_vec()).ok()).collect()
}

fn system_folders() -> Vec<PathBuf> {
    SYSTEM_FOLDERS.map(PathBuf::from).into()
}

/// CUDA toolkits, the newest name last.
fn toolkit_folders(system: &System) -> Vec<PathBuf> {
    let toolkits = system.names("/usr/local").into_iter().filter(|name| name.starts_with("cuda"));
    let folders =
        |name: String| ["lib64", "targets/x86_64-linux/lib"].map(|rest| format!("/usr/local/{name}/{rest}"));
    toolkits.flat_map(folders).map(PathBuf::from).collect()
}

/// The `nvidia/*/lib` folders of Python packages, in the active environment and the usual places.
fn package_folders(system: &System, variables: Variables<'_>) -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variables);
    let home = variables("HOME").map(|home| format!("{home}/.local"));
    let prefixes = environments.chain(home).chain(["/usr/local".to_owned(), "/usr".to_owned()]);
    let mut folders = Vec::new();
    for prefix in prefixes.filter(|prefix| prefix.starts_with('/')) {
        let lib = Path::new(&prefix).join("lib");
        let versions = system.names(&lib).into_iter().filter(|name| name.starts_with("python3"));
        for packages in versions.flat_map(|version| {
            [lib.join(&version).join("site-packages"), lib.join(&version).join("dist-packages")]
        }) {
            let nvidia = packages.join("nvidia");
            folders.extend(system.names(&nvidia).into_iter().map(|part| nvidia.join(part).join("lib")));
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::system;
    use super::*;

    #[test]
    fn a_library_is_found_where_a_loader_would_find_it_first() {
        let (_folder, system) = system(&[
            ("/opt/driver/libcuda.so.1", ""),
            (
                "/etc/ld.so.cache",
                "glibc-ld.so.cache1.1\0\0libnccl.so.2\0/usr/lib64/libnccl.so.2\0/usr/lib64/libcuda.so.1\0",
            ),
            ("/usr/local/cuda-12.9/lib64/libnvrtc-builtins.so.12.9", ""),
            ("/venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.13", ""),
        ]);
        let variables = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some("relative::/opt/driver".to_owned()),
            "VIRTUAL_ENV" => Some("/venv".to_owned()),
            _ => None,
        };
        let libraries = Libraries::find(&system, &variables);
        let paths: Vec<Option<&str>> =
            libraries.found.iter().map(|library| library.path.as_deref()).collect();
        assert_eq!(
            paths,
            [
                Some("/opt/driver/libcuda.so.1"),
                Some("/venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.13"),
                Some("/usr/lib64/libnccl.so.2"),
            ]
        );
    }

    #[test]
    fn where_one_is_missing_it_says_where_it_was_looked_for() {
        let (_folder, system) = system(&[("/usr/local/cuda/lib64/readme", "")]);
        let lines = Libraries::find(&system, &|_| None).lines();
        assert_eq!(lines[0], entry("libcuda.so.1", "not found"));
        let last = lines.last().unwrap();
        assert!(last.contains("/etc/ld.so.cache, ") && last.contains("/usr/local/cuda/lib64"), "{last}");
    }
}
