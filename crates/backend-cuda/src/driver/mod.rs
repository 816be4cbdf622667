//! The seam between this crate and a device: memory, kernels, launches, copies, times.
//!
//! [`Driver`] has two implementations: [`card`], through the functions of NVIDIA's driver, and [`simulated`], in the
//! machine's memory. All calls that can break memory safety are in `api`, `card` and `nvrtc`; what they rely on is that
//! a [`Launch`] names buffers that live, which [`DeviceBuffer`] and the order of one stream give: a buffer is freed by
//! a call that waits for the work before it.
//!
//! One device has one stream, and every call takes effect in the order of the calls.
//!
//! Knows no operation and no program.

mod api;
mod card;
mod landing;
pub(crate) mod nvrtc;
pub(crate) mod simulated;
mod staging;

pub(crate) use card::Card;
pub(crate) use landing::Landing;
pub(crate) use nvrtc::Nvrtc;

use crate::error::CudaError;
use crate::jit::Variant;
use std::sync::Arc;
use std::time::Duration;

/// A device.
pub(crate) trait Driver: Send + Sync {
    /// What it is.
    fn properties(&self) -> &Properties;

    /// Bytes of its memory that are free.
    fn free_bytes(&self) -> Result<u64, CudaError>;

    /// Takes memory, aligned to 256 bytes; of any content.
    fn allocate(&self, bytes: usize) -> Result<Address, CudaError>;

    /// Gives memory back that [`Driver::allocate`] gave, when the work before has ended.
    fn free(&self, address: Address);

    /// Makes an entry of a variant ready; `code` is its machine code where the device runs any.
    fn load(&self, variant: &Variant, entry: &'static str, code: &[u8]) -> Result<Kernel, CudaError>;

    /// Runs a kernel.
    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError>;

    /// Makes a graph of kernels that run one after the other; nothing runs yet. Every buffer that they name lives as long as
    /// the graph is replayed.
    fn capture(&self, launches: &[Launch<'_>]) -> Result<GraphHandle, CudaError>;

    /// Runs a graph.
    fn replay(&self, graph: GraphHandle) -> Result<(), CudaError>;

    /// Gives back what a graph takes, when its runs have ended.
    fn forget(&self, graph: GraphHandle);

    /// Gives every byte of some memory this value.
    fn fill(&self, address: Address, bytes: usize, value: u8) -> Result<(), CudaError>;

    /// Zeroes memory.
    fn clear(&self, address: Address, bytes: usize) -> Result<(), CudaError> {
        self.fill(address, bytes, 0)
    }

    /// Copies bytes to the device; they may be changed when this returns.
    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError>;

    /// Waits for all work, and copies bytes from the device.
    fn download(&self, to: &mut [u8], from: Address) -> Result<(), CudaError>;

    /// Memory of the machine that the device writes without a stop between; `None` where it has no such.
    fn pin(&self, bytes: usize) -> Result<Option<Pinned>, CudaError>;

    /// Gives back what [`Driver::pin`] gave, when the work before has ended.
    fn unpin(&self, pinned: Pinned);

    /// Begins to copy bytes from the device into what [`Driver::pin`] gave, from byte `at` on, when the work before has ended. They
    /// are not looked at, nor the memory given back, before a mark that comes later has come.
    fn land(&self, to: &mut Pinned, at: usize, from: Address, bytes: usize) -> Result<(), CudaError>;

    /// Waits until the work before a mark has ended. The mark ends.
    fn await_mark(&self, mark: Mark) -> Result<(), CudaError>;

    /// Copies within the device.
    fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<(), CudaError>;

    /// How boxes of a matrix in memory are fetched: 128 bytes that kernels read.
    fn tensor_map(&self, map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], CudaError>;

    /// Waits for all work.
    fn synchronize(&self) -> Result<(), CudaError>;

    /// Marks a moment between two pieces of work.
    fn mark(&self) -> Result<Mark, CudaError>;

    /// Waits for all work; the time of each mark from the first on. The marks end.
    fn times(&self, marks: Vec<Mark>) -> Result<Vec<Duration>, CudaError>;
}

/// Bytes of a tensor map.
pub(crate) const TENSOR_MAP_BYTES: usize = 128;

/// A matrix of 16-bit numbers, row-major, of which boxes of 64 columns are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TensorMap {
    pub(crate) address: Address,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) box_rows: usize,
}

/// The first CUDA whose graphs know dependent launches.
const GRAPHS_VERSION: u32 = 12_030;

/// Shared memory of a block on cards whose warpgroups multiply from it.
pub(crate) const WGMMA_SHARED_BYTES: u32 = 227 << 10;

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Its name.
    pub name: String,
    /// What machine code it runs; `None` for a simulated one, which runs none.
    pub(crate) architecture: Option<Architecture>,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Multiprocessors.
    pub processors: u32,
    /// Bytes of shared memory that a block may have, where it asks for them.
    pub(crate) shared_bytes: u32,
    /// The newest CUDA that its driver knows, such as 13000 for 13.0.
    pub driver_version: u32,
}

impl Properties {
    /// The architecture, for people and for what depends on it.
    pub fn architecture(&self) -> String {
        self.architecture.map_or_else(|| "simulated".to_owned(), |architecture| architecture.to_string())
    }

    /// Whether blocks of memory can be fetched by one instruction, and tensor maps are there.
    pub(crate) fn has_bulk_copies(&self) -> bool {
        self.architecture.is_none_or(|architecture| architecture.major >= 9)
    }

    /// Whether graphs keep what kernels may do before the one before them has ended.
    pub(crate) fn has_graphs(&self) -> bool {
        self.architecture.is_none() || self.driver_version >= GRAPHS_VERSION
    }

    /// Whether warpgroups multiply from shared memory, which takes as much of it as every card that has them has.
    pub(crate) fn has_wgmma(&self) -> bool {
        let is_known =
            self.architecture.is_none_or(|architecture| (architecture.major, architecture.minor) == (9, 0));
        is_known && self.shared_bytes >= WGMMA_SHARED_BYTES
    }

    /// Blocks of a cluster, at most.
    pub(crate) fn cluster_blocks(&self) -> u32 {
        if self.has_bulk_copies() { 8 } else { 1 }
    }
}

/// What machine code is for: `sm_90a` and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Architecture {
    major: u32,
    minor: u32,
}

impl Architecture {
    /// The architectures that every kernel is compiled for before a release.
    pub const TESTED: [Architecture; 4] =
        [Self::new(8, 0), Self::new(9, 0), Self::new(10, 0), Self::new(12, 0)];

    /// That of a compute capability.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Whether the kernels' instructions exist there.
    pub(crate) const fn is_known(self) -> bool {
        self.major >= 8
    }
}

impl std::fmt::Display for Architecture {
    /// With the instructions that only this architecture has, where kernels use some.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let own = if matches!((self.major, self.minor), (9 | 10, 0)) { "a" } else { "" };
        write!(f, "sm_{}{}{own}", self.major, self.minor)
    }
}

/// A place in a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address(pub(crate) u64);

impl Address {
    /// What a kernel takes for "there is none".
    pub(crate) const NONE: Address = Address(0);

    pub(crate) fn offset(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }
}

/// Pinned memory of the machine: its address and its bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    address: usize,
    bytes: usize,
}

/// Memory of a device, given back when it is dropped.
pub(crate) struct DeviceBuffer {
    driver: Arc<dyn Driver>,
    address: Address,
    bytes: usize,
}

impl DeviceBuffer {
    pub(crate) fn new(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Self, CudaError> {
        let address = driver.allocate(bytes.max(1))?;
        Ok(Self { driver: Arc::clone(driver), address, bytes })
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for so many bytes; what was there is lost where that means other memory.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), CudaError> {
        if self.bytes < bytes {
            *self = Self::new(&Arc::clone(&self.driver), bytes)?;
        }
        Ok(())
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}

/// An entry of a loaded variant; lives as long as its driver.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) entry: &'static str,
    pub(crate) variant: Variant,
    /// For the driver that loaded it.
    handle: usize,
}

/// A captured graph, for the driver that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraphHandle(u64);

/// A captured graph, given back when it is dropped.
pub(crate) struct Graph {
    driver: Arc<dyn Driver>,
    handle: GraphHandle,
}

impl Graph {
    pub(crate) fn capture(driver: &Arc<dyn Driver>, launches: &[Launch<'_>]) -> Result<Self, CudaError> {
        let handle = driver.capture(launches)?;
        Ok(Self { driver: Arc::clone(driver), handle })
    }

    pub(crate) fn replay(&self) -> Result<(), CudaError> {
        self.driver.replay(self.handle)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.driver.forget(self.handle);
    }
}

/// A run of a kernel.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a Kernel,
    /// Blocks.
    pub(crate) grid: [u32; 3],
    /// Threads of a block.
    pub(crate) block: u32,
    /// Bytes of shared memory beside what the kernel declares.
    pub(crate) shared_bytes: u32,
    /// In the order of the kernel's signature.
    pub(crate) arguments: &'a [Argument],
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Argument {
    Address(Address),
    U32(u32),
    U64(u64),
    F32(f32),
}

impl From<Address> for Argument {
    fn from(address: Address) -> Self {
        Argument::Address(address)
    }
}

impl From<u32> for Argument {
    fn from(number: u32) -> Self {
        Argument::U32(number)
    }
}

impl From<u64> for Argument {
    fn from(number: u64) -> Self {
        Argument::U64(number)
    }
}

impl From<f32> for Argument {
    fn from(number: f32) -> Self {
        Argument::F32(number)
    }
}

/// A moment on a device, for the driver that made it.
#[derive(Debug)]
pub(crate) struct Mark(u64);
