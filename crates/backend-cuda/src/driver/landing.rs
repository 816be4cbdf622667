//! Numbers that come from the device, in memory of the machine that is kept from step to step: pinned where the driver pins
//! any, so that they are copied once and no page is touched for the first time while a step waits.

use super::{Address, Driver, Pinned};
use crate::error::CudaError;
use std::sync::Arc;

/// Where numbers land.
pub(crate) struct Landing {
    driver: Arc<dyn Driver>,
    memory: Memory,
    /// As many as came last.
    count: usize,
}

enum Memory {
    Pinned(Pinned),
    Plain(Vec<f32>),
}

impl Landing {
    /// Without memory yet.
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self { driver: Arc::clone(driver), memory: Memory::Plain(Vec::new()), count: 0 }
    }

    /// Waits for all work, and copies so many numbers from the device.
    pub(crate) fn fetch(&mut self, from: Address, count: usize) -> Result<(), CudaError> {
        if self.room() < count {
            self.count = 0;
            // By half at least, so that it comes seldom.
            self.grow(count.max(self.room() / 2 * 3))?;
        }
        match &mut self.memory {
            Memory::Pinned(pinned) => self.driver.land(pinned, from, count * size_of::<f32>())?,
            Memory::Plain(numbers) => {
                self.driver.download(bytemuck::cast_slice_mut(&mut numbers[..count]), from)?;
            }
        }
        self.count = count;
        Ok(())
    }

    /// What came last.
    pub(crate) fn numbers(&self) -> &[f32] {
        match &self.memory {
            Memory::Plain(numbers) => &numbers[..self.count],
            Memory::Pinned(pinned) => {
                let start = std::ptr::with_exposed_provenance::<f32>(pinned.address);
                // SAFETY: so many numbers were pinned there, aligned to a page, zeroed before anything came, and they are
                // written only through a borrow of `self` that excludes this one.
                unsafe { std::slice::from_raw_parts(start, self.count) }
            }
        }
    }

    fn room(&self) -> usize {
        match &self.memory {
            Memory::Pinned(pinned) => pinned.bytes / size_of::<f32>(),
            Memory::Plain(numbers) => numbers.len(),
        }
    }

    fn grow(&mut self, count: usize) -> Result<(), CudaError> {
        self.release();
        self.memory = match self.driver.pin(count * size_of::<f32>())? {
            Some(pinned) => Memory::Pinned(pinned),
            None => Memory::Plain(vec![0.0; count]),
        };
        Ok(())
    }

    fn release(&mut self) {
        if let Memory::Pinned(pinned) = std::mem::replace(&mut self.memory, Memory::Plain(Vec::new())) {
            self.driver.unpin(pinned);
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.release();
    }
}
