//! The choice of what computes.

use crate::arguments::DeviceArguments;
use crate::failure::Failure;
use clap::ValueEnum;
use gannet_backend_cpu::{CpuBackend, CpuError, CpuOptions};
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

impl BackendName {
    /// The backend, with so many threads where it has a choice.
    pub(crate) fn open(self, threads: Option<usize>) -> Result<Box<dyn Backend>, Failure> {
        Ok(self.open_counted(threads)?.0)
    }

    /// The backend, and how many threads compute.
    fn open_counted(self, threads: Option<usize>) -> Result<(Box<dyn Backend>, usize), Failure> {
        match self {
            BackendName::Cpu => match CpuBackend::new(CpuOptions { threads, ..CpuOptions::default() }) {
                Ok(backend) => {
                    let threads = backend.threads();
                    Ok((Box::new(backend), threads))
                }
                Err(error @ (CpuError::NoThreads { .. } | CpuError::TooManyThreads { .. })) => {
                    Err(Failure::usage(format!("--threads: {error}")))
                }
                Err(error @ (CpuError::MissingIsa { .. } | CpuError::Spawn { .. })) => Err(error.into()),
            },
            BackendName::Reference if threads.is_some() => Err(Failure::usage(
                "--threads can't be given with --backend reference, which computes on one thread",
            )),
            BackendName::Reference => Ok((Box::new(ReferenceBackend::new()), 1)),
        }
    }
}

impl DeviceArguments {
    /// The chosen backend.
    pub(crate) fn open(&self) -> Result<Box<dyn Backend>, Failure> {
        self.backend.open(self.threads)
    }

    /// The chosen backend, and how many threads compute.
    pub(crate) fn open_counted(&self) -> Result<(Box<dyn Backend>, usize), Failure> {
        self.backend.open_counted(self.threads)
    }
}
