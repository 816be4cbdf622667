//! The CPU backend: programs on this machine's processors, by a team of threads with vector instructions.
//!
//! A plan runs its nodes one after the other; each kernel is cut into parts that the members of the one team
//! compute. Matrices of codes are packed into panels at load and multiplied by integers with rows that are made
//! codes; others are decoded to float32 on the way. Reductions follow one order at every level of instructions, that
//! of `ops::numerics` or that of `kernels::product::codes`, so results are equal bit for bit for any number of threads, any number of rows beside a row, any cut into chunks, any order of pages, and any
//! instruction set.
//!
//! Knows no model, no file and no request.

mod backend;
pub mod machine;
mod options;

mod plan;

mod state;
mod weights;

mod kernels;

mod arena;
mod memory;
mod panels;
mod simd;
mod threads;

pub use backend::CpuBackend;
pub use options::{ActivationFormat, CpuError, CpuOptions};
pub use simd::IsaLevel;
