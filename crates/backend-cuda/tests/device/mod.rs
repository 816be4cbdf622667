//! The device that tests run on.

use gannet_backend_cuda::{CudaBackend, CudaOptions, KernelFolders};
use std::path::PathBuf;

/// The simulated device, or a card where `GANNET_TEST_DEVICE` is `card`, with machine code from `GANNET_TEST_KERNELS`.
pub(crate) fn device(precision: Precision) -> CudaBackend {
    let carried = std::env::var_os("GANNET_TEST_KERNELS").map(PathBuf::from);
    let kernels = KernelFolders { carried, cache: None };
    let single_precision = precision == Precision::Single;
    let options = CudaOptions { kernels, single_precision, ..CudaOptions::default() };
    if std::env::var("GANNET_TEST_DEVICE").as_deref() == Ok("card") {
        CudaBackend::open(&options).expect("there is a card")
    } else {
        CudaBackend::simulated(&options)
    }
}

/// What matrices are on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// As the checkpoint has them.
    Stored,
    /// In float32.
    Single,
}
