//! What a person may choose of the CUDA backend.

use std::path::PathBuf;

/// The choices; what is `None` is found out from the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaOptions {
    /// The device's number, as the driver counts them.
    pub device: u32,
    /// Where machine code of kernels lies.
    pub kernels: KernelFolders,
    /// Makes every matrix float32 on its way to the device, whatever the checkpoint holds it in, so that products are
    /// exact but for the order of sums: slow, and takes any format.
    pub single_precision: bool,
    /// Launches each kernel when the one before has ended, in place of letting it start and wait by itself; gives the
    /// same bits, more slowly.
    pub serial_launches: bool,
    /// Launches each kernel of a step by itself, in place of graphs that were captured; gives the same bits, more slowly.
    pub no_graphs: bool,
    /// Makes what steps share no number before each of them, so that none can rest on what another left; for tests.
    pub poisons_scratch: bool,
}

/// Folders with machine code of kernels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFolders {
    /// What was compiled elsewhere and brought along; only read.
    pub carried: Option<PathBuf>,
    /// What is compiled here is kept here, where it can be.
    pub cache: Option<PathBuf>,
}
