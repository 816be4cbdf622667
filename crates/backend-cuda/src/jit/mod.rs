//! Machine code of kernels: from what was brought along, from the disk, or from the compiler.
//!
//! Kernels are CUDA C++ inside of the binary ([`sources`]). A [`Variant`] is a file with values for its defines, compiled
//! for one architecture. What a model needs is asked for at once and compiled in parallel; code is kept on disk under a
//! name that has everything it depends on, so that a second start reads it ([`cache`]).

mod cache;
mod catalogue;
mod sources;
mod variant;

pub(crate) use catalogue::{
    CODES_ROWS, EXPERT_ROWS, FEW_ROWS, Gate, HEAD_DIMS, MANY, Made, NARROW_ROWS, ROUTED_ROWS, WIDE_DIMS,
    delta_rule, embed, embed_codes, expert_linear, experts_many, linear, linear_codes, linear_few,
    linear_many, linear_narrow, linear_one, linear_one_codes, linear_one_wide, place_units, plain_attention,
    route_normed, tiled_attention, unpack, write_pages,
};
pub(crate) use variant::Variant;

use crate::driver::{Architecture, Nvrtc};
use crate::error::CudaError;
use crate::libraries::Places;
use crate::options::KernelFolders;
use cache::Cache;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What every kernel is compiled with. Nothing here may trade bits for speed.
const OPTIONS: [&str; 3] = ["--std=c++17", "--device-as-default-execution-space", "--fmad=true"];

/// Machine code, or why there is none.
type Code = Result<Vec<u8>, CudaError>;

/// Threads of the compiler.
const THREADS_MAX: usize = 16;

/// Where machine code comes from.
pub(crate) struct Jit {
    cache: Cache,
    compiler: Result<Nvrtc, CudaError>,
}

impl Jit {
    /// Looks for the compiler; without one, only code that was brought along or kept can be used.
    pub(crate) fn new(folders: &KernelFolders, places: &Places) -> Self {
        Self { cache: Cache::new(folders), compiler: Nvrtc::open(places) }
    }

    /// The compiler's version and place, or why there is none.
    pub(crate) fn compiler(&self) -> Result<(String, String), String> {
        let found = self.compiler.as_ref().map_err(ToString::to_string)?;
        Ok((found.version(), found.path().to_owned()))
    }

    /// The machine code of each variant, in order.
    ///
    /// # Errors
    /// The first that can't be had: no compiler and no code, or what the compiler said.
    pub(crate) fn code(
        &self,
        architecture: Architecture,
        variants: &[Variant],
    ) -> Result<Vec<Vec<u8>>, CudaError> {
        let results: Mutex<Vec<Option<Code>>> = Mutex::new((0..variants.len()).map(|_| None).collect());
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((place, variant)) = {
                let place = next.fetch_add(1, Ordering::Relaxed);
                variants.get(place).map(|variant| (place, variant))
            } {
                let made = self.code_of(architecture, variant);
                results.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(made);
            }
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cpus.min(variants.len()).min(THREADS_MAX) {
                scope.spawn(work);
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|result| result.expect("every variant was taken by a thread")).collect()
    }

    fn code_of(&self, architecture: Architecture, variant: &Variant) -> Result<Vec<u8>, CudaError> {
        if let Some(code) = self.cache.carried(variant, architecture) {
            return Ok(code);
        }
        let error = |reason: String| CudaError::Kernel {
            kernel: variant.to_string(),
            architecture: architecture.to_string(),
            reason,
        };
        let compiler = match &self.compiler {
            Ok(compiler) => compiler,
            // Kept code of any compiler is better than none.
            Err(missing) => {
                return self.cache.any(variant, architecture).ok_or_else(|| error(missing.to_string()));
            }
        };
        let version = compiler.version();
        if let Some(code) = self.cache.get(variant, architecture, &version) {
            return Ok(code);
        }
        let code = compiler.compile(&variant.source(&variant.options()), architecture).map_err(error)?;
        self.cache.keep(variant, architecture, &version, &code);
        Ok(code)
    }
}

/// Which variants are compiled beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Each way through each file's text: what shows that kernels compile.
    Tested,
    /// Beside them every shape of products with codes: what models may need on a machine without a compiler.
    Carried,
}

/// Compiles variants of every kernel for these architectures, into a folder that can be carried; how many there are.
///
/// # Errors
/// No compiler, a kernel that doesn't compile, or a folder that can't be written.
pub fn compile(folder: &Path, architectures: &[Architecture], extent: Extent) -> Result<usize, CudaError> {
    let folders = KernelFolders { carried: None, cache: None };
    let jit = Jit::new(&folders, &Places::here());
    let variants = match extent {
        Extent::Tested => catalogue::tested(),
        Extent::Carried => catalogue::carried(),
    };
    for architecture in architectures {
        let codes = jit.code(*architecture, &variants)?;
        for (variant, code) in variants.iter().zip(codes) {
            cache::carry(folder, variant, *architecture, &code).map_err(|source| CudaError::Kernel {
                kernel: variant.to_string(),
                architecture: architecture.to_string(),
                reason: format!("`{}` can't be written: {source}", folder.display()),
            })?;
        }
    }
    Ok(variants.len() * architectures.len())
}
