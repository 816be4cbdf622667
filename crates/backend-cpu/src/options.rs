//! What a person may choose of the CPU backend, and why a choice is refused.

use crate::simd::{Isa, IsaLevel};
use crate::threads::{allowed_cpus, default_threads};
use std::fmt;

/// Threads for each processor that may be asked for; more could only wait for one another.
const THREADS_PER_CPU_MAX: usize = 4;

/// The choices; what is `None` is found out from the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuOptions {
    /// Threads, the caller's included: by default one a physical core that the process may use.
    pub threads: Option<usize>,
    /// The instruction set: by default the fastest that the processor has.
    pub isa: Option<IsaLevel>,
    /// What rows are made before they are multiplied with a matrix of codes or of bf16 numbers.
    pub activations: ActivationFormat,
}

/// How a matrix of codes (weights of 4 to 8 bits) or of bf16 numbers is multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ActivationFormat {
    /// Rows become codes of 8 bits with a scale for 32 columns, and products are integers; for bf16 weights they become
    /// bf16 numbers: fast.
    #[default]
    Int8,
    /// Rows stay float32 and the matrix is decoded: exact but for the order of sums, and slow.
    Float32,
}

impl ActivationFormat {
    /// The name that people choose it by.
    pub const fn name(self) -> &'static str {
        match self {
            ActivationFormat::Int8 => "int8",
            ActivationFormat::Float32 => "f32",
        }
    }
}

impl fmt::Display for ActivationFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why the backend can't be started as asked.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// No thread can compute nothing.
    #[error("0 threads were asked for; ask for 1 or more, or leave it to the machine, which has {default}")]
    NoThreads {
        /// What it would be by default.
        default: usize,
    },
    /// More threads than could ever gain.
    #[error(
        "{asked} threads were asked for; this process may use {cpus} processors, so at most {most} threads"
    )]
    TooManyThreads {
        /// What was asked for.
        asked: usize,
        /// Processors of the affinity mask.
        cpus: usize,
        /// What is accepted.
        most: usize,
    },
    /// The processor lacks an instruction set.
    #[error("this processor has no `{asked}` instructions; it has {available}")]
    MissingIsa {
        /// What was asked for.
        asked: IsaLevel,
        /// What could be asked for, best last.
        available: String,
    },
    /// The system refuses to start threads.
    #[error("can't start {threads} threads: {source}")]
    Spawn {
        /// How many.
        threads: usize,
        /// Why not.
        source: std::io::Error,
    },
}

impl CpuOptions {
    /// The number of threads to start.
    pub(crate) fn checked_threads(&self) -> Result<usize, CpuError> {
        let cpus = allowed_cpus();
        let most = cpus * THREADS_PER_CPU_MAX;
        match self.threads {
            None => Ok(default_threads()),
            Some(0) => Err(CpuError::NoThreads { default: default_threads() }),
            Some(asked) if asked > most => Err(CpuError::TooManyThreads { asked, cpus, most }),
            Some(asked) => Ok(asked),
        }
    }

    /// The instructions to use.
    pub(crate) fn checked_isa(&self) -> Result<Isa, CpuError> {
        let Some(asked) = self.isa else { return Ok(Isa::best()) };
        Isa::new(asked).ok_or_else(|| {
            let names: Vec<String> = IsaLevel::available().map(|level| format!("`{level}`")).collect();
            CpuError::MissingIsa { asked, available: names.join(", ") }
        })
    }
}
