//! The CPU backend: programs on this machine's processors, by a team of threads with vector instructions.
//!
//! A plan runs its nodes one after the other; each kernel is cut into parts that the members of the one team
//! compute. Weights stay in their checkpoint's format and are decoded on the way into registers. Reductions
//! follow the orders of `ops::numerics` at every level of instructions, so results are equal bit for bit for
//! any number of threads, any number of rows beside a row, any cut into chunks, any order of pages, and any
//! instruction set.
//!
//! Knows no model, no file and no request.

mod backend;
mod options;

mod plan;

mod state;
mod weights;

mod kernels;
mod memory;
mod simd;
mod threads;

pub use backend::CpuBackend;
pub use options::{CpuError, CpuOptions};
pub use simd::IsaLevel;
