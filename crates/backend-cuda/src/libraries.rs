//! Where libraries of graphics processors lie, in the order in which a loader would look for them.
//!
//! The cache of the dynamic loader is a list of paths between zero bytes, so it is searched as text; nothing is loaded
//! to look.

use std::fs;
use std::path::{Path, PathBuf};

const LOADER_CACHE: &str = "/etc/ld.so.cache";
const SYSTEM_FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
];
/// Folders of a toolkit that have its libraries.
const TOOLKIT_FOLDERS: [&str; 3] = ["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];

/// The driver's library.
pub const DRIVER: &str = "libcuda.so.1";
/// The compiler's library, without its version.
pub const NVRTC: &str = "libnvrtc.so";
/// The library of collectives, without its version.
pub const NCCL: &str = "libnccl.so";

/// Looks up a variable of the environment.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// All places of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The folder below which they lie; `/` but for tests.
    root: PathBuf,
    /// Of `LD_LIBRARY_PATH`.
    before: Vec<PathBuf>,
    /// Paths of libraries that the dynamic loader knows.
    cached: Vec<String>,
    /// The system's, those of toolkits and those of Python packages.
    rest: Vec<PathBuf>,
}

impl Places {
    /// Those of the system that we run on.
    pub fn here() -> Self {
        Self::below(Path::new("/"), &|name| std::env::var(name).ok())
    }

    /// Those of a system whose files lie below a folder.
    pub fn below(root: &Path, variables: Variables<'_>) -> Self {
        let mut places = Self { root: root.to_owned(), ..Self::default() };
        places.before = folders_of(variables("LD_LIBRARY_PATH"));
        places.cached = places.cached_paths();
        let toolkits = places.toolkit_folders(variables);
        let system = SYSTEM_FOLDERS.map(PathBuf::from).to_vec();
        places.rest = [system, toolkits, places.package_folders(variables)].concat();
        places
    }

    /// The files whose names begin so, best first.
    pub fn find(&self, name: &str) -> Vec<PathBuf> {
        let in_folders = |folders: &[PathBuf]| -> Vec<PathBuf> {
            folders.iter().filter_map(|folder| self.library_in(folder, name)).collect()
        };
        let has_name = |path: &&String| path.rsplit('/').next().is_some_and(|file| file.starts_with(name));
        let cached = self.cached.iter().filter(has_name).map(PathBuf::from).collect();
        [in_folders(&self.before), cached, in_folders(&self.rest)].concat()
    }

    /// All places, for people.
    pub fn looked_in(&self) -> Vec<String> {
        let shown = |folders: &[PathBuf]| folders.iter().map(|folder| folder.display().to_string()).collect();
        let before: Vec<String> = shown(&self.before);
        [before, vec![LOADER_CACHE.to_owned()], shown(&self.rest)].concat()
    }

    fn place(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The names in a folder, ascending.
    fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.place(folder.as_ref())).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn library_in(&self, folder: &Path, name: &str) -> Option<PathBuf> {
        let is_it = |file: &String| {
            let rest = file.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.names(folder).into_iter().find(is_it).map(|file| folder.join(file))
    }

    /// The paths that the dynamic loader knows.
    fn cached_paths(&self) -> Vec<String> {
        let bytes = fs::read(self.place(Path::new(LOADER_CACHE))).unwrap_or_default();
        let parts = bytes.split(|byte| *byte == 0).filter(|part| part.starts_with(b"/"));
        parts.filter_map(|part| String::from_utf8(part.to_vec()).ok()).collect()
    }

    /// CUDA toolkits: those that variables name, then those in the usual place.
    fn toolkit_folders(&self, variables: Variables<'_>) -> Vec<PathBuf> {
        let named = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(variables);
        let usual = self.names("/usr/local").into_iter().filter(|name| name.starts_with("cuda"));
        let toolkits = named.chain(usual.map(|name| format!("/usr/local/{name}")));
        let folders = |toolkit: String| TOOLKIT_FOLDERS.map(|rest| Path::new(&toolkit).join(rest));
        toolkits.filter(|toolkit| toolkit.starts_with('/')).flat_map(folders).collect()
    }

    /// The `nvidia/*/lib` folders of Python packages, in the active environment and the usual places.
    fn package_folders(&self, variables: Variables<'_>) -> Vec<PathBuf> {
        let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variables);
        let home = variables("HOME").map(|home| format!("{home}/.local"));
        let prefixes = environments.chain(home).chain(["/usr/local".to_owned(), "/usr".to_owned()]);
        let mut folders = Vec::new();
        for prefix in prefixes.filter(|prefix| prefix.starts_with('/')) {
            let lib = Path::new(&prefix).join("lib");
            let versions = self.names(&lib).into_iter().filter(|name| name.starts_with("python3"));
            for packages in versions.flat_map(|version| {
                [lib.join(&version).join("site-packages"), lib.join(&version).join("dist-packages")]
            }) {
                let nvidia = packages.join("nvidia");
                folders.extend(self.names(&nvidia).into_iter().map(|part| nvidia.join(part).join("lib")));
            }
        }
        folders
    }
}

/// The folders of a variable such as LD_LIBRARY_PATH; relative ones are left out.
fn folders_of(list: Option<String>) -> Vec<PathBuf> {
    let list = list.unwrap_or_default();
    list.split(':').filter(|folder| folder.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(files: &[(&str, &str)], variables: Variables<'_>) -> Places {
        let folder = tempfile::tempdir().expect("a folder can be made");
        for (path, text) in files {
            let place = folder.path().join(&path[1..]);
            fs::create_dir_all(place.parent().expect("files lie in folders")).expect("a folder can be made");
            fs::write(place, text).expect("a file can be written");
        }
        let places = Places::below(folder.path(), variables);
        // What is looked for is found while the files are there.
        let found = [DRIVER, NVRTC, NCCL].map(|name| places.find(name));
        FOUND.with_borrow_mut(|all| *all = found.to_vec());
        places
    }

    thread_local! {
        static FOUND: std::cell::RefCell<Vec<Vec<PathBuf>>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    #[test]
    fn a_library_is_found_where_a_loader_would_find_it_first() {
        let variables = |name: &str| match name {
            "LD_LIBRARY_PATH" => Some("relative::/opt/driver".to_owned()),
            "VIRTUAL_ENV" => Some("/venv".to_owned()),
            _ => None,
        };
        below(
            &[
                ("/opt/driver/libcuda.so.1", ""),
                (
                    "/etc/ld.so.cache",
                    "glibc-ld.so.cache1.1\0\0libnccl.so.2\0/usr/lib64/libnccl.so.2\0/usr/lib64/libcuda.so.1\0",
                ),
                ("/usr/local/cuda-12.9/lib64/libnvrtc-builtins.so.12.9", ""),
                ("/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13", ""),
            ],
            &variables,
        );
        let found = FOUND.with_borrow(Clone::clone);
        let paths: Vec<Option<&str>> =
            found.iter().map(|paths| paths.first().and_then(|path| path.to_str())).collect();
        let nvrtc = "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
        assert_eq!(paths, [Some("/opt/driver/libcuda.so.1"), Some(nvrtc), Some("/usr/lib64/libnccl.so.2")]);
        assert_eq!(found[0].len(), 2, "both places of the driver are tried");
    }

    #[test]
    fn where_it_was_looked_for_names_every_folder() {
        let places = below(&[("/usr/local/cuda/lib64/readme", "")], &|_| None);
        let looked_in = places.looked_in().join(", ");
        assert!(looked_in.contains("/etc/ld.so.cache, ") && looked_in.contains("/usr/local/cuda/lib64"));
    }
}
