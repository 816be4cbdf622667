//! The memory of a simulated device: live buffers by address, the lowest gap first.

use super::super::Address;
use crate::error::CudaError;
use crate::number::Number;
use std::collections::BTreeMap;

/// Where addresses begin: beyond what 32 bits can name, so that a cut address is none.
const FIRST: u64 = 1 << 40;
/// What addresses are multiples of.
const ALIGNMENT: u64 = 256;
/// What fresh memory holds in every byte: numbers that are none, in each format.
const FRESH: u8 = 0xff;

/// Live buffers.
pub(crate) struct Memory {
    bytes: u64,
    buffers: BTreeMap<u64, Buffer>,
    /// Buffers that were ever taken.
    taken: u64,
}

/// A live buffer.
struct Buffer {
    /// No other has it, also when it is gone.
    number: u64,
    bytes: Vec<u8>,
}

impl Memory {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, buffers: BTreeMap::new(), taken: 0 }
    }

    pub(super) fn free_bytes(&self) -> u64 {
        let taken: u64 = self.buffers.values().map(|buffer| buffer.bytes.len() as u64).sum();
        self.bytes.saturating_sub(taken)
    }

    /// Takes the lowest gap that is large enough.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<Address, CudaError> {
        let free = self.free_bytes();
        if bytes as u64 > free {
            return Err(CudaError::OutOfMemory { needed: bytes as u64, free });
        }
        let mut start = FIRST;
        for (address, buffer) in &self.buffers {
            if start + bytes as u64 <= *address {
                break;
            }
            start = (address + buffer.bytes.len() as u64).next_multiple_of(ALIGNMENT);
        }
        self.taken += 1;
        self.buffers.insert(start, Buffer { number: self.taken, bytes: vec![FRESH; bytes] });
        Ok(Address(start))
    }

    pub(super) fn free(&mut self, address: Address) {
        let freed = self.buffers.remove(&address.0);
        assert!(freed.is_some(), "memory at {:#x} is given back that nobody has", address.0);
    }

    /// The number of the buffer that an address lies in.
    pub(super) fn owner(&self, address: Address) -> Option<u64> {
        let (start, buffer) = self.buffers.range(..=address.0).next_back()?;
        ((address.0 - start) as usize <= buffer.bytes.len()).then_some(buffer.number)
    }

    pub(super) fn read(&self, what: &'static str, from: Address, bytes: usize) -> Result<&[u8], CudaError> {
        let missing = || out_of_bounds(what, from, bytes);
        let (start, buffer) = self.buffers.range(..=from.0).next_back().ok_or_else(missing)?;
        let offset = (from.0 - start) as usize;
        buffer.bytes.get(offset..).and_then(|rest| rest.get(..bytes)).ok_or_else(missing)
    }

    pub(super) fn write(&mut self, what: &'static str, to: Address, bytes: &[u8]) -> Result<(), CudaError> {
        let missing = || out_of_bounds(what, to, bytes.len());
        let (start, buffer) = self.buffers.range_mut(..=to.0).next_back().ok_or_else(missing)?;
        let offset = (to.0 - start) as usize;
        let place = buffer.bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or_else(missing)?.copy_from_slice(bytes);
        Ok(())
    }

    pub(super) fn numbers(
        &self,
        what: &'static str,
        number: Number,
        (from, count): (Address, usize),
    ) -> Result<Vec<f32>, CudaError> {
        Ok(number.decode(self.read(what, from, count * number.bytes())?))
    }

    pub(super) fn words(
        &self,
        what: &'static str,
        from: Address,
        count: usize,
    ) -> Result<Vec<u32>, CudaError> {
        let bytes = self.read(what, from, count * size_of::<u32>())?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }
}

fn out_of_bounds(what: &'static str, address: Address, bytes: usize) -> CudaError {
    let reason = format!("no buffer has {bytes} bytes at {:#x}", address.0);
    CudaError::Simulated { what, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_address_is_the_next_one() {
        let mut memory = Memory::new(10_000);
        let [first, second, third] =
            [100, 300, 50].map(|bytes| memory.allocate(bytes).expect("there is room"));
        assert!(first < second && second < third);
        memory.free(second);
        assert!(memory.read("test", second, 1).is_err(), "what was freed can't be read");
        assert_eq!(memory.allocate(200).expect("there is room"), second);
        assert!(memory.read("test", second, 201).is_err(), "nor beyond the end");
        let fresh = memory.numbers("test", Number::F16, (second, 2)).expect("it is there");
        assert!(fresh.iter().all(|x| x.is_nan()));
        assert!(memory.allocate(10_000).is_err(), "there is an end");
    }
}
