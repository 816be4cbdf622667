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

/// Threads of a block, at most.
const BLOCK_THREADS_MAX: u32 = 1024;

/// A device for tests.
pub(crate) struct Simulated {
    properties: Properties,
    memory: Mutex<Memory>,
    graphs: Mutex<Graphs>,
    started: Instant,
}

impl Simulated {
    /// A device with so many bytes of memory, whose blocks have so many of shared memory at most.
    pub(crate) fn new(memory_bytes: u64, shared_bytes: u32) -> Self {
        let name = "a simulated device".to_owned();
        let properties = Properties {
            name,
            architecture: None,
            memory_bytes,
            processors: PROCESSORS,
            shared_bytes,
            driver_version: 0,
        };
        let memory = Mutex::new(Memory::new(memory_bytes));
        Self { properties, memory, graphs: Mutex::default(), started: Instant::now() }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Simulated {
    /// Whether a card of these limits takes the launch.
    fn admit(&self, launch: &Launch<'_>) -> Result<(), CudaError> {
        let what = launch.kernel.entry;
        let refused = |reason: String| Err(CudaError::Simulated { what, reason });
        let (threads, bytes, most) = (launch.block, launch.shared_bytes, self.properties.shared_bytes);
        if threads == 0 || threads > BLOCK_THREADS_MAX {
            return refused(format!("blocks of {threads} threads; 1 to {BLOCK_THREADS_MAX} are allowed"));
        }
        if bytes > most {
            return refused(format!("blocks of {bytes} bytes of shared memory; at most {most} are allowed"));
        }
        let (blocks, cluster) = (launch.grid[0], kernels::cluster(what));
        if cluster > self.properties.cluster_blocks() || !blocks.is_multiple_of(cluster) {
            let most = self.properties.cluster_blocks();
            return refused(format!(
                "{blocks} blocks in clusters of {cluster}, of which the device has {most}"
            ));
        }
        Ok(())
    }

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
        self.admit(launch)?;
        kernels::run(&mut self.memory(), launch)
    }

    fn capture(&self, launches: &[Launch<'_>]) -> Result<GraphHandle, CudaError> {
        launches.iter().try_for_each(|launch| self.admit(launch))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Argument;

    #[test]
    fn launches_beyond_the_devices_limits_are_refused() {
        let device = Simulated::new(1 << 20, 99 << 10);
        let address = Argument::Address(device.allocate(64).expect("there is room"));
        let arguments = [address, address, address, Argument::U32(4)];
        let entry = |file, entry| device.load(&Variant::new(file, &[]), entry, &[]).expect("it is known");
        let (add, route) = (entry("add", "add"), entry("route_normed", "route_normed"));
        let refusal = |kernel, block, shared_bytes| {
            let launch = Launch { kernel, grid: [12, 1, 1], block, shared_bytes, arguments: &arguments };
            let launched = device.launch(&launch).err().map(|error| error.to_string());
            let captured = device.capture(&[launch]).err().map(|error| error.to_string());
            assert_eq!(launched, captured);
            launched.unwrap_or_default()
        };
        assert!(refusal(&add, 1056, 0).contains("1056 threads"));
        assert!(refusal(&add, 256, (99 << 10) + 1).contains("101377 bytes of shared memory; at most 101376"));
        assert!(refusal(&route, 288, 0).contains("clusters of 8"));
    }
}
