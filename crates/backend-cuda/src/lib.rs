//! The CUDA backend: programs on an NVIDIA card, by kernels that are compiled for it when it is there.
//!
//! Nothing of CUDA is needed to build: the driver and NVRTC are opened when they are asked for, and a machine without
//! them gets an error that says what is missing. Kernels are CUDA C++ in `kernels/`, part of the binary; `jit` makes
//! machine code of those that a model needs and keeps it on disk. A plan launches its nodes one after the other on one
//! stream. Beside the card there is a simulated device, on which each kernel is its operation's reference loop, so that
//! everything but the kernels is tested where no card is.
//!
//! Knows no model, no file of one, and no request.

mod backend;
mod error;
pub mod libraries;
mod options;

mod plan;

mod codes;
mod state;
mod units;
mod weights;

pub mod jit;
mod number;

mod driver;

pub use backend::CudaBackend;
pub use driver::{Architecture, Properties};
pub use error::CudaError;
pub use options::{CudaOptions, KernelFolders};
