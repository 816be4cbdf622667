//! What can go wrong between a wish for a card and a step on it.

use gannet_ops::DeviceError;

/// The name that people choose the backend by.
pub(crate) const NAME: &str = "cuda";

/// Why a card can't be used, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// A library of the driver or of the toolkit is not there, or can't be opened.
    #[error("`{library}` can't be opened: {reason}; looked in {looked_in}")]
    NoLibrary {
        /// The library.
        library: &'static str,
        /// What the loader said of the last place.
        reason: String,
        /// The places.
        looked_in: String,
    },
    /// The library is older than what is needed of it.
    #[error("`{library}` has no `{symbol}`; it is too old: {needed} is needed")]
    NoSymbol {
        /// Where the library lies.
        library: String,
        /// What it lacks.
        symbol: &'static str,
        /// The oldest that has it.
        needed: &'static str,
    },
    /// The driver is there and sees no card.
    #[error("the driver sees no CUDA device{0}")]
    NoDevice(String),
    /// The card of this number is not there.
    #[error("there is no CUDA device {asked}; the driver sees {found}, counted from 0")]
    UnknownDevice {
        /// What was asked for.
        asked: u32,
        /// Devices.
        found: u32,
    },
    /// The card is older than the kernels.
    #[error("`{name}` has compute capability {major}.{minor}; {needed} or newer is needed")]
    OldDevice {
        /// The card.
        name: String,
        /// Its architecture.
        major: u32,
        /// Its architecture.
        minor: u32,
        /// What the kernels are written for.
        needed: &'static str,
    },
    /// A call of the driver failed.
    #[error("`{call}` failed: {reason}")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// The driver's name and words for it.
        reason: String,
    },
    /// The card has less memory than what is asked for.
    #[error("out of memory on the device: {needed} bytes were asked for, {free} are free")]
    OutOfMemory {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Machine code of a kernel can't be had.
    #[error("kernel `{kernel}` for {architecture}: {reason}")]
    Kernel {
        /// The variant.
        kernel: String,
        /// What it is for.
        architecture: String,
        /// The compiler's log, or what is missing.
        reason: String,
    },
    /// A launch or a copy on the simulated device that no device may be asked for.
    #[error("`{what}` on the simulated device: {reason}")]
    Simulated {
        /// The kernel or the copy.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::OutOfMemory { needed, .. } => {
                DeviceError::OutOfMemory { what: error.to_string(), needed }
            }
            CudaError::NoLibrary { .. }
            | CudaError::NoSymbol { .. }
            | CudaError::NoDevice(_)
            | CudaError::UnknownDevice { .. }
            | CudaError::OldDevice { .. }
            | CudaError::Call { .. }
            | CudaError::Kernel { .. }
            | CudaError::Simulated { .. } => DeviceError::Failed { backend: NAME, reason: error.to_string() },
        }
    }
}

/// The error for something that isn't there.
pub(crate) fn unknown(what: &'static str, number: impl Into<u64>, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unknown { what, number: number.into(), reason: reason.into() }
}

/// The error for something that this backend can't do.
pub(crate) fn unsupported(op: &str, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unsupported { backend: NAME, op: op.to_owned(), reason: reason.into() }
}
