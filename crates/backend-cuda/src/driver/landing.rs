//! Numbers that come from the device, in memory of the machine that is kept from step to step: pinned where the driver pins
//! any, so that they are copied once, and while the device goes on with later work.

use super::{Address, Driver, Mark, Pinned};
use crate::error::CudaError;
use std::sync::Arc;

/// Where words of 32 bits land.
pub(crate) struct Landing {
    driver: Arc<dyn Driver>,
    memory: Memory,
    /// As many as came last, or are to come.
    count: usize,
    /// Comes after them, where they are on their way.
    coming: Option<Mark>,
}

enum Memory {
    Pinned(Pinned),
    Plain(Vec<u32>),
}

impl Landing {
    /// Without memory yet.
    pub(crate) fn new(driver: &Arc<dyn Driver>) -> Self {
        Self { driver: Arc::clone(driver), memory: Memory::Plain(Vec::new()), count: 0, coming: None }
    }

    /// Begins to copy runs of words from the device, one after the other; [`Landing::finish`] waits for them.
    pub(crate) fn begin(&mut self, runs: &[(Address, usize)]) -> Result<(), CudaError> {
        self.finish()?;
        let count = runs.iter().map(|(_, count)| count).sum();
        self.count = 0;
        if self.room() < count {
            // By half at least, so that it comes seldom.
            self.grow(count.max(self.room() / 2 * 3))?;
        }
        let mut start = 0;
        for (from, count) in runs {
            match &mut self.memory {
                Memory::Pinned(pinned) => {
                    self.driver.land(pinned, start * size_of::<u32>(), *from, count * size_of::<u32>())?;
                }
                Memory::Plain(words) => {
                    self.driver
                        .download(bytemuck::cast_slice_mut(&mut words[start..start + count]), *from)?;
                }
            }
            start += count;
        }
        if let Memory::Pinned(_) = self.memory {
            self.coming = Some(self.driver.mark()?);
        }
        self.count = count;
        Ok(())
    }

    /// Waits until what was begun has come.
    pub(crate) fn finish(&mut self) -> Result<(), CudaError> {
        self.coming.take().map_or(Ok(()), |mark| self.driver.await_mark(mark))
    }

    /// What came last.
    pub(crate) fn words(&self) -> &[u32] {
        assert!(self.coming.is_none(), "words are looked at when they have come");
        match &self.memory {
            Memory::Plain(words) => &words[..self.count],
            Memory::Pinned(pinned) => {
                let start = std::ptr::with_exposed_provenance::<u32>(pinned.address);
                // SAFETY: so many words were pinned there, aligned to a page, zeroed before anything came; all that was begun
                // has come, and more is begun only through a borrow of `self` that excludes this one.
                unsafe { std::slice::from_raw_parts(start, self.count) }
            }
        }
    }

    /// The same as float32 numbers.
    pub(crate) fn numbers(&self) -> &[f32] {
        bytemuck::cast_slice(self.words())
    }

    fn room(&self) -> usize {
        match &self.memory {
            Memory::Pinned(pinned) => pinned.bytes / size_of::<u32>(),
            Memory::Plain(words) => words.len(),
        }
    }

    fn grow(&mut self, count: usize) -> Result<(), CudaError> {
        self.release();
        self.memory = match self.driver.pin(count * size_of::<u32>())? {
            Some(pinned) => Memory::Pinned(pinned),
            None => Memory::Plain(vec![0; count]),
        };
        Ok(())
    }

    /// A driver that fails here has failed before, and will again where it can be said.
    fn release(&mut self) {
        let _ = self.finish();
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
