//! The choice of what computes.

use crate::arguments::DeviceArguments;
use crate::failure::Failure;
use clap::ValueEnum;
use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuError, CpuOptions};
use gannet_backend_cuda::{CudaBackend, CudaError, CudaOptions, KernelFolders};
use gannet_ops::Backend;
use gannet_ops::reference::ReferenceBackend;
use std::env;
use std::fmt;
use std::path::PathBuf;

/// The folder of the variable that names what can be made again, or that of the home folder, with what follows in it.
const CACHES: [(&str, &str); 3] = [("XDG_CACHE_HOME", ""), ("HOME", ".cache"), ("LOCALAPPDATA", "")];

/// A backend by the name that people choose it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// The CPU's vector units
    Cpu,
    /// An NVIDIA card, for dense models and hybrids in bf16, f16, f32 and quantised formats
    Cuda,
    /// The card where there is one, else the CPU
    Auto,
    /// The slow reference that defines each operation
    Reference,
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendName::Cpu => "cpu",
            BackendName::Cuda => "cuda",
            BackendName::Auto => "auto",
            BackendName::Reference => "reference",
        })
    }
}

/// What rows are made, by the name that people choose it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationsName {
    /// Codes of 8 bits with a scale for each 32, or bf16 where the weights are bf16: fast
    Int8,
    /// Single precision: exact but for the order of sums, and slow
    F32,
}

/// How kernels are launched, by the name that people choose it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaunchesName {
    /// A captured graph a step, where one fits
    Graphs,
    /// One by one, each beginning while the one before ends
    Kernels,
    /// As graphs, and each kernel after the end of the one before
    Serial,
}

impl From<ActivationsName> for ActivationFormat {
    fn from(name: ActivationsName) -> Self {
        match name {
            ActivationsName::Int8 => ActivationFormat::Int8,
            ActivationsName::F32 => ActivationFormat::Float32,
        }
    }
}

impl DeviceArguments {
    /// The chosen backend.
    pub(crate) fn open(&self) -> Result<Box<dyn Backend>, Failure> {
        match self.backend {
            BackendName::Cpu => self.open_cpu(),
            BackendName::Cuda => {
                self.refuse_threads("computes on the card")?;
                Ok(Box::new(CudaBackend::open(&self.cuda_options()?).map_err(anyhow::Error::from)?))
            }
            BackendName::Auto => match CudaBackend::open(&self.cuda_options()?) {
                Ok(backend) => Ok(Box::new(backend)),
                Err(error) if is_absence(&error) => self.open_cpu(),
                Err(error) => Err(anyhow::Error::from(error).into()),
            },
            BackendName::Reference => {
                self.refuse_threads("computes on one thread")?;
                if self.activations.is_some() {
                    return Err(Failure::usage(
                        "--activations can't be given with --backend reference, which computes in single precision",
                    ));
                }
                Ok(Box::new(ReferenceBackend::new()))
            }
        }
    }

    fn open_cpu(&self) -> Result<Box<dyn Backend>, Failure> {
        match CpuBackend::new(self.cpu_options()) {
            Ok(backend) => Ok(Box::new(backend)),
            Err(error @ (CpuError::NoThreads { .. } | CpuError::TooManyThreads { .. })) => {
                Err(Failure::usage(format!("--threads: {error}")))
            }
            Err(error @ CpuError::MissingIsa { .. }) => Err(Failure::usage(format!("--cpu-isa: {error}"))),
            Err(error @ CpuError::Spawn { .. }) => Err(error.into()),
        }
    }

    /// Refuses what only the CPU's threads can be told.
    fn refuse_threads(&self, why: &str) -> Result<(), Failure> {
        let backend = self.backend;
        if self.threads.is_some() {
            let text = format!("--threads can't be given with --backend {backend}, which {why}");
            return Err(Failure::usage(text));
        }
        if self.cpu_isa.is_some() {
            let text = format!(
                "--cpu-isa can't be given with --backend {backend}, which uses no vector instructions"
            );
            return Err(Failure::usage(text));
        }
        Ok(())
    }

    /// The device, with products in single precision where nothing else is asked for: for what is there to be held against
    /// others' results.
    pub(crate) fn exact(self) -> Self {
        let exact = (self.backend != BackendName::Reference).then_some(ActivationsName::F32);
        Self { activations: self.activations.or(exact), ..self }
    }

    /// What the CPU backend is asked for.
    pub(crate) fn cpu_options(&self) -> CpuOptions {
        let activations = self.activations.map(ActivationFormat::from).unwrap_or_default();
        CpuOptions { threads: self.threads, isa: self.cpu_isa, activations }
    }

    /// What the CUDA backend is asked for.
    pub(crate) fn cuda_options(&self) -> Result<CudaOptions, Failure> {
        let is_auto = self.backend == BackendName::Auto;
        if self.activations == Some(ActivationsName::Int8) && !is_auto {
            return Err(Failure::usage(
                "--activations int8 can't be given with --backend cuda, which multiplies in the weights' format or f32",
            ));
        }
        let single_precision = self.activations == Some(ActivationsName::F32);
        Ok(CudaOptions {
            kernels: kernel_folders(),
            single_precision,
            no_graphs: self.cuda_launches == Some(LaunchesName::Kernels),
            serial_launches: self.cuda_launches == Some(LaunchesName::Serial),
            ..CudaOptions::default()
        })
    }
}

/// Whether the card is missing, in contrast to one that fails.
fn is_absence(error: &CudaError) -> bool {
    match error {
        CudaError::NoLibrary { .. }
        | CudaError::NoSymbol { .. }
        | CudaError::NoDevice(_)
        | CudaError::OldDevice { .. } => true,
        CudaError::UnknownDevice { .. }
        | CudaError::Call { .. }
        | CudaError::OutOfMemory { .. }
        | CudaError::Kernel { .. }
        | CudaError::Simulated { .. } => false,
    }
}

/// Where machine code of kernels lies: `kernels` beside the program, and a folder of the user's.
pub(crate) fn kernel_folders() -> KernelFolders {
    let beside = env::current_exe().ok().and_then(|path| Some(path.parent()?.join("kernels")));
    let place = |(name, rest): (&str, &str)| {
        let base = PathBuf::from(env::var_os(name)?);
        base.is_absolute().then(|| base.join(rest).join("gannet").join("kernels"))
    };
    KernelFolders {
        carried: beside.filter(|folder| folder.is_dir()),
        cache: CACHES.into_iter().find_map(place),
    }
}
