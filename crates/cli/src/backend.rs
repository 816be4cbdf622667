//! The choice of what computes.

use crate::arguments::DeviceArguments;
use crate::failure::Failure;
use clap::ValueEnum;
use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuError, CpuOptions};
use gannet_ops::Backend;
use gannet_ops::reference::ReferenceBackend;
use std::fmt;

/// A backend by the name that people choose it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// The CPU's vector units
    Cpu,
    /// The slow reference that defines each operation
    Reference,
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendName::Cpu => "cpu",
            BackendName::Reference => "reference",
        })
    }
}

/// What rows are made, by the name that people choose it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActivationsName {
    /// Codes of 8 bits with a scale for each 32: fast
    Int8,
    /// Single precision: exact but for the order of sums, and slow
    F32,
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
            BackendName::Cpu => match CpuBackend::new(self.cpu_options()) {
                Ok(backend) => Ok(Box::new(backend)),
                Err(error @ (CpuError::NoThreads { .. } | CpuError::TooManyThreads { .. })) => {
                    Err(Failure::usage(format!("--threads: {error}")))
                }
                Err(error @ CpuError::MissingIsa { .. }) => {
                    Err(Failure::usage(format!("--cpu-isa: {error}")))
                }
                Err(error @ CpuError::Spawn { .. }) => Err(error.into()),
            },
            BackendName::Reference if self.threads.is_some() => Err(Failure::usage(
                "--threads can't be given with --backend reference, which computes on one thread",
            )),
            BackendName::Reference if self.cpu_isa.is_some() => Err(Failure::usage(
                "--cpu-isa can't be given with --backend reference, which uses no vector instructions",
            )),
            BackendName::Reference if self.activations.is_some() => Err(Failure::usage(
                "--activations can't be given with --backend reference, which computes in single precision",
            )),
            BackendName::Reference => Ok(Box::new(ReferenceBackend::new())),
        }
    }

    /// The device, with products in single precision where nothing else is asked for: for what is there to be held against
    /// others' results.
    pub(crate) fn exact(self) -> Self {
        let exact = (self.backend == BackendName::Cpu).then_some(ActivationsName::F32);
        Self { activations: self.activations.or(exact), ..self }
    }

    /// What the CPU backend is asked for.
    pub(crate) fn cpu_options(&self) -> CpuOptions {
        let activations = self.activations.map(ActivationFormat::from).unwrap_or_default();
        CpuOptions { threads: self.threads, isa: self.cpu_isa, activations }
    }
}
