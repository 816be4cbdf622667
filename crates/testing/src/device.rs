//! The CUDA device that tests run on: the simulated one, or a card.

use gannet_backend_cuda::{CudaBackend, CudaOptions, KernelFolders};
use std::path::PathBuf;

/// The simulated device, or a card where `GANNET_TEST_DEVICE` is `card`, with machine code from `GANNET_TEST_KERNELS`; steps are
/// launched as `GANNET_TEST_LAUNCHES` says: `kernels` or `serial` in place of graphs.
pub fn device(precision: Precision) -> CudaBackend {
    let launches = std::env::var("GANNET_TEST_LAUNCHES").unwrap_or_default();
    let (no_graphs, serial_launches) = (launches == "kernels", launches == "serial");
    device_of(CudaOptions {
        single_precision: precision == Precision::Single,
        no_graphs,
        serial_launches,
        ..CudaOptions::default()
    })
}

/// The same with these options.
pub fn device_of(options: CudaOptions) -> CudaBackend {
    let carried = std::env::var_os("GANNET_TEST_KERNELS").map(PathBuf::from);
    let options = CudaOptions { kernels: KernelFolders { carried, cache: None }, ..options };
    if is_card() {
        CudaBackend::open(&options).expect("there is a card")
    } else {
        CudaBackend::simulated(&options)
    }
}

/// Whether tests run on a card.
pub fn is_card() -> bool {
    std::env::var("GANNET_TEST_DEVICE").as_deref() == Ok("card")
}

/// What matrices are on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As the checkpoint has them.
    Stored,
    /// In float32.
    Single,
}
