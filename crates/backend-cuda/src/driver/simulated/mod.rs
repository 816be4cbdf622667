//! A device in the machine's memory: addresses that are reused as soon as they are freed, and kernels that are the
//! reference loops of their operations.
//!
//! A launch that names memory which is not there, or reaches beyond a buffer, is an error where a card would compute
//! with what lies there; fresh memory holds numbers that are none. So what a plan does with buffers, pages and steps is
//! tested without a card, and what its kernels compute is not.

mod attention;
mod experts;
mod graphs;
mod kernels;
mod memory;
mod recurrent;
mod sample;

use super::{
    Address, Driver, GraphHandle, Kernel, Launch, Mark, Pinned, Properties, TENSOR_MAP_BYTES, TensorMap,
};
use crate::error::CudaError;
use crate::jit::Variant;
use graphs::Graphs;
use memory::Memory;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// As many as a large card has, so that kernels are chosen as there.
const PROCESSORS: u32 = 132;

/// A device for tests.
pub(crate) struct Simulated {
    properties: Properties,
    memory: Mutex<Memory>,
    graphs: Mutex<Graphs>,
    started: Instant,
}

impl Simulated {
    /// A device with so many bytes of memory.
    pub(crate) fn new(memory_bytes: u64) -> Self {
        let name = "a simulated device".to_owned();
        let properties =
            Properties { name, architecture: None, memory_bytes, processors: PROCESSORS, driver_version: 0 };
        let memory = Mutex::new(Memory::new(memory_bytes));
        Self { properties, memory, graphs: Mutex::default(), started: Instant::now() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Simulated {
    fn graphs(&self) -> MutexGuard<'_, Graphs> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Simulated {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_bytes(&self) -> Result<u64, CudaError> {
        Ok(self.memory().free_bytes())
    }

    fn allocate(&self, bytes: usize) -> Result<Address, CudaError> {
        self.memory().allocate(bytes)
    }

    fn free(&self, address: Address) {
        self.memory().free(address);
    }

    fn load(&self, variant: &Variant, entry: &'static str, _code: &[u8]) -> Result<Kernel, CudaError> {
        kernels::check(variant, entry)?;
        Ok(Kernel { entry, variant: *variant, handle: 0 })
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError> {
        kernels::run(&mut self.memory(), launch)
    }

    fn capture(&self, launches: &[Launch<'_>]) -> Result<GraphHandle, CudaError> {
        Ok(self.graphs().capture(&self.memory(), launches))
    }

    fn replay(&self, graph: GraphHandle) -> Result<(), CudaError> {
        self.graphs().replay(&mut self.memory(), graph)
    }

    fn forget(&self, graph: GraphHandle) {
        self.graphs().forget(graph);
    }

    fn fill(&self, address: Address, bytes: usize, value: u8) -> Result<(), CudaError> {
        self.memory().write("fill", address, &vec![value; bytes])
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError> {
        self.memory().write("upload", to, bytes)
    }

    fn download(&self, to: &mut [u8], from: Address) -> Result<(), CudaError> {
        to.copy_from_slice(self.memory().read("download", from, to.len())?);
        Ok(())
    }

    fn pin(&self, _bytes: usize) -> Result<Option<Pinned>, CudaError> {
        Ok(None)
    }

    fn unpin(&self, _pinned: Pinned) {}

    fn land(&self, _to: &mut Pinned, _at: usize, _from: Address, _bytes: usize) -> Result<(), CudaError> {
        Ok(())
    }

    fn await_mark(&self, _mark: Mark) -> Result<(), CudaError> {
        Ok(())
    }

    fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<(), CudaError> {
        let mut memory = self.memory();
        let copied = memory.read("copy", from, bytes)?.to_vec();
        memory.write("copy", to, &copied)
    }

    fn tensor_map(&self, map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], CudaError> {
        let mut encoded = [0; TENSOR_MAP_BYTES];
        encoded[..size_of::<u64>()].copy_from_slice(&map.address.0.to_le_bytes());
        Ok(encoded)
    }

    fn synchronize(&self) -> Result<(), CudaError> {
        Ok(())
    }

    fn mark(&self) -> Result<Mark, CudaError> {
        Ok(Mark(self.started.elapsed().as_nanos() as u64))
    }

    fn times(&self, marks: Vec<Mark>) -> Result<Vec<Duration>, CudaError> {
        let first = marks.first().map_or(0, |mark| mark.0);
        Ok(marks.iter().map(|mark| Duration::from_nanos(mark.0 - first)).collect())
    }
}
