//! Captured graphs of the simulated device: launches that were written down, and run again by their addresses.
//!
//! A card would run a graph over memory that was given back, or belongs to somebody else by now; here that is an error.

use super::super::{Address, Argument, GraphHandle, Kernel, Launch};
use super::kernels;
use super::memory::Memory;
use crate::error::CudaError;
use std::collections::BTreeMap;

/// The graphs that nobody has forgotten.
#[derive(Default)]
pub(super) struct Graphs {
    captured: u64,
    by_number: BTreeMap<u64, Vec<Recorded>>,
}

/// A launch that was written down.
struct Recorded {
    kernel: Kernel,
    grid: [u32; 3],
    block: u32,
    shared_bytes: u32,
    arguments: Vec<Argument>,
    /// For each argument, the buffer that it lay in.
    owners: Vec<Option<u64>>,
}

impl Graphs {
    pub(super) fn capture(&mut self, memory: &Memory, launches: &[Launch<'_>]) -> GraphHandle {
        let record = |launch: &Launch<'_>| Recorded {
            kernel: launch.kernel.clone(),
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            arguments: launch.arguments.to_vec(),
            owners: launch.arguments.iter().map(|argument| owner(memory, argument)).collect(),
        };
        self.captured += 1;
        self.by_number.insert(self.captured, launches.iter().map(record).collect());
        GraphHandle(self.captured)
    }

    pub(super) fn replay(&self, memory: &mut Memory, graph: GraphHandle) -> Result<(), CudaError> {
        let odd = |reason: String| CudaError::Simulated { what: "graph", reason };
        let launches = self.by_number.get(&graph.0).ok_or_else(|| odd("it was forgotten".to_owned()))?;
        for Recorded { kernel, grid, block, shared_bytes, arguments, owners } in launches {
            let mut places = arguments.iter().zip(owners);
            if let Some((argument, _)) =
                places.find(|(argument, owner)| self::owner(memory, argument) != **owner)
            {
                let reason = format!("`{}` names {argument:?}, whose buffer was given back", kernel.entry);
                return Err(odd(reason));
            }
            let (grid, block, shared_bytes) = (*grid, *block, *shared_bytes);
            kernels::run(memory, &Launch { kernel, grid, block, shared_bytes, arguments })?;
        }
        Ok(())
    }

    pub(super) fn forget(&mut self, graph: GraphHandle) {
        let forgotten = self.by_number.remove(&graph.0);
        assert!(forgotten.is_some(), "a graph is forgotten that nobody has");
    }
}

fn owner(memory: &Memory, argument: &Argument) -> Option<u64> {
    match argument {
        Argument::Address(Address::NONE) | Argument::U32(_) | Argument::U64(_) | Argument::F32(_) => None,
        Argument::Address(address) => memory.owner(*address),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Simulated;
    use super::*;
    use crate::driver::{DeviceBuffer, Driver, Graph, WGMMA_SHARED_BYTES};
    use crate::jit::Variant;
    use std::sync::Arc;

    /// A graph that doubles four numbers.
    fn doubled(driver: &Arc<dyn Driver>, y: &DeviceBuffer, x: &DeviceBuffer) -> Graph {
        let kernel = driver.load(&Variant::new("add", &[]), "add", &[]).expect("it is known");
        let addresses = [y, x, x].map(|buffer| Argument::Address(buffer.address()));
        let arguments = [&addresses[..], &[Argument::U64(4)]].concat();
        let launch =
            Launch { kernel: &kernel, grid: [1, 1, 1], block: 256, shared_bytes: 0, arguments: &arguments };
        Graph::capture(driver, &[launch]).expect("it can be captured")
    }

    fn floats(numbers: [f32; 4]) -> Vec<u8> {
        numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn a_graph_runs_over_what_lies_there_now() {
        let driver: Arc<dyn Driver> = Arc::new(Simulated::new(1 << 20, WGMMA_SHARED_BYTES));
        let [x, y] = [16, 16].map(|bytes| DeviceBuffer::new(&driver, bytes).expect("there is room"));
        let graph = doubled(&driver, &y, &x);
        for numbers in [[1.0, 2.0, 3.0, 4.0], [5.0, -1.0, 0.5, 0.0]] {
            driver.upload(x.address(), &floats(numbers)).expect("it is there");
            graph.replay().expect("it runs");
            let mut found = vec![0; 16];
            driver.download(&mut found, y.address()).expect("it is there");
            assert_eq!(found, floats(numbers.map(|x| 2.0 * x)));
        }
    }

    #[test]
    fn a_buffer_that_was_given_back_fails_the_graph_also_when_another_lies_there() {
        let driver: Arc<dyn Driver> = Arc::new(Simulated::new(1 << 20, WGMMA_SHARED_BYTES));
        let [x, y] = [16, 16].map(|bytes| DeviceBuffer::new(&driver, bytes).expect("there is room"));
        let graph = doubled(&driver, &y, &x);
        let place = x.address();
        drop(x);
        let failed = || graph.replay().expect_err("its buffer is gone").to_string();
        assert!(failed().contains("whose buffer was given back"), "{}", failed());
        let other = DeviceBuffer::new(&driver, 16).expect("there is room");
        assert_eq!(other.address(), place);
        assert!(failed().contains("whose buffer was given back"), "{}", failed());
    }
}
