//! What `--backend cuda` would use here: the card, the compiler of its kernels, and where their machine code lies; or
//! what is missing.

use crate::backend::kernel_folders;
use crate::quantity::{bytes, entry};
use gannet_backend_cuda::{CudaBackend, CudaOptions, KernelFolders};
use gannet_ops::Backend;
use serde::Serialize;
use std::path::PathBuf;

/// The card or why there is none.
#[derive(Debug, Serialize)]
pub(super) struct CudaFacts {
    card: Option<CardFacts>,
    /// Why no card can be used.
    problem: Option<String>,
    /// Machine code that was brought along.
    carried_kernels: Option<PathBuf>,
    /// Where what is compiled here is kept.
    kernel_cache: Option<PathBuf>,
}

/// A card that can be used.
#[derive(Debug, Serialize)]
struct CardFacts {
    name: String,
    architecture: String,
    processors: u32,
    memory_bytes: u64,
    free_bytes: Option<u64>,
    driver_version: u32,
    /// The compiler's version and place.
    compiler: Option<(String, String)>,
    /// Why there is none.
    compiler_problem: Option<String>,
}

impl CudaFacts {
    pub(super) fn find() -> Self {
        let KernelFolders { carried, cache } = kernel_folders();
        let kernels = KernelFolders { carried: carried.clone(), cache: cache.clone() };
        let opened = CudaBackend::open(&CudaOptions { kernels, ..CudaOptions::default() });
        let (card, problem) = match opened {
            Ok(backend) => (Some(CardFacts::of(&backend)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self { card, problem, carried_kernels: carried, kernel_cache: cache }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let problem = self
            .problem
            .iter()
            .map(|problem| entry("cuda", &format!("can't be used, so models run on the CPU: {problem}")));
        let card = self.card.iter().flat_map(CardFacts::lines);
        let folder = |(what, folder): (&str, &Option<PathBuf>)| {
            let path = folder.as_ref()?;
            Some(entry(what, &path.display().to_string()))
        };
        let folders = [("carried kernels", &self.carried_kernels), ("kernel cache", &self.kernel_cache)];
        problem.chain(card).chain(folders.into_iter().filter_map(folder)).collect()
    }
}

impl CardFacts {
    fn of(backend: &CudaBackend) -> Self {
        let properties = backend.properties();
        let compiler = backend.compiler();
        Self {
            name: properties.name.clone(),
            architecture: properties.architecture(),
            processors: properties.processors,
            memory_bytes: properties.memory_bytes,
            free_bytes: backend.free_bytes(),
            driver_version: properties.driver_version,
            compiler_problem: compiler.as_ref().err().cloned(),
            compiler: compiler.ok(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let (major, minor) = (self.driver_version / 1000, self.driver_version % 1000 / 10);
        let free = self.free_bytes.map_or_else(|| "unknown".to_owned(), bytes);
        let card = format!(
            "{} ({}), {} multiprocessors, {free} of {} for models, driver for CUDA {major}.{minor}; the default is the CPU",
            self.name,
            self.architecture,
            self.processors,
            bytes(self.memory_bytes)
        );
        let compiler = match (&self.compiler, &self.compiler_problem) {
            (Some((version, path)), _) => format!("NVRTC {version}, {path}"),
            (None, problem) => {
                let why = problem.as_deref().unwrap_or("unknown");
                format!("none, so only kernels that were carried or kept can be used: {why}")
            }
        };
        vec![entry("cuda", &card), entry("kernel compiler", &compiler)]
    }
}
