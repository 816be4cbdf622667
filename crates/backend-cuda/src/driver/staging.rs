//! Pinned memory of the machine through which bytes go to a card and come back.
//!
//! Bytes on their way to the card are copied into one of a few slots by several threads, and the card fetches them while
//! the next slot is filled. A slot is filled again when the card has fetched what was in it. What is small has many slots of its
//! own, so that a step's lists wait for no step before it.

use super::api::{Cuda, Handle};
use crate::error::CudaError;
use std::ffi::c_void;
use std::sync::Arc;

/// Bytes of a slot, and slots on the way to the card.
const SLOT_BYTES: usize = 16 << 20;
const SLOTS: usize = 3;
/// The same of what is small.
const SMALL_BYTES: usize = 256 << 10;
const SMALL_SLOTS: usize = 32;
/// Bytes from which several threads copy.
const PART_BYTES: usize = 2 << 20;

/// The slots.
pub(super) struct Staging {
    cuda: Arc<Cuda>,
    outward: Ring,
    small: Ring,
    inward: Slot,
}

/// Slots that are used in turns.
struct Ring {
    slots: Vec<Slot>,
    next: usize,
}

/// One piece of pinned memory, and the moment when the card is done with it.
struct Slot {
    memory: *mut u8,
    bytes: usize,
    event: Handle,
}

// SAFETY: the memory belongs to the slot alone, and the driver's handles may be used from any thread.
unsafe impl Send for Slot {}

impl Staging {
    /// The card's context is current.
    pub(super) fn new(cuda: &Arc<Cuda>) -> Result<Self, CudaError> {
        let (outward, small) =
            (Ring::new(cuda, SLOTS, SLOT_BYTES)?, Ring::new(cuda, SMALL_SLOTS, SMALL_BYTES)?);
        Ok(Self { cuda: Arc::clone(cuda), outward, small, inward: Slot::new(cuda, SLOT_BYTES)? })
    }

    /// Copies bytes to the card, in the order of the stream. They may change when this returns.
    pub(super) fn upload(&mut self, stream: Handle, to: u64, bytes: &[u8]) -> Result<(), CudaError> {
        let cuda = Arc::clone(&self.cuda);
        for (place, part) in bytes.chunks(SLOT_BYTES).enumerate() {
            let slot = if part.len() <= SMALL_BYTES { self.small.next() } else { self.outward.next() };
            // SAFETY: the event is the slot's own and was recorded or never used, of which both may be waited for.
            cuda.check("cuEventSynchronize", unsafe { (cuda.wait_event)(slot.event) })?;
            copy(slot.filled(part.len()), part);
            let to = to + (place * SLOT_BYTES) as u64;
            // SAFETY: the slot's memory lives as long as `self`, is pinned, and isn't written before the event has come.
            let result = unsafe { (cuda.copy_in)(to, slot.memory.cast(), part.len(), stream) };
            cuda.check("cuMemcpyHtoDAsync", result)?;
            // SAFETY: the event and the stream live.
            cuda.check("cuEventRecord", unsafe { (cuda.record_event)(slot.event, stream) })?;
        }
        Ok(())
    }

    /// Waits for the stream, and copies bytes from the card.
    pub(super) fn download(&mut self, stream: Handle, to: &mut [u8], from: u64) -> Result<(), CudaError> {
        let cuda = Arc::clone(&self.cuda);
        for (place, part) in to.chunks_mut(SLOT_BYTES).enumerate() {
            let from = from + (place * SLOT_BYTES) as u64;
            // SAFETY: the slot's memory lives as long as `self`, and the stream is waited for before it is read.
            let result =
                unsafe { (cuda.copy_out)(self.inward.memory.cast::<c_void>(), from, part.len(), stream) };
            cuda.check("cuMemcpyDtoHAsync", result)?;
            // SAFETY: the stream lives.
            cuda.check("cuStreamSynchronize", unsafe { (cuda.synchronize)(stream) })?;
            copy(part, self.inward.filled(part.len()));
        }
        Ok(())
    }

    /// Gives the memory back; the card's context is current and its stream idle.
    pub(super) fn free(&mut self) {
        for slot in self.outward.slots.iter().chain(&self.small.slots).chain([&self.inward]) {
            // SAFETY: both were made by the driver, and nothing uses them any more.
            unsafe {
                (self.cuda.free_pinned)(slot.memory.cast());
                (self.cuda.destroy_event)(slot.event);
            }
        }
        self.outward.slots.clear();
        self.small.slots.clear();
    }
}

impl Ring {
    fn new(cuda: &Cuda, count: usize, bytes: usize) -> Result<Self, CudaError> {
        Ok(Self { slots: (0..count).map(|_| Slot::new(cuda, bytes)).collect::<Result<_, _>>()?, next: 0 })
    }

    fn next(&mut self) -> &mut Slot {
        self.next = (self.next + 1) % self.slots.len();
        &mut self.slots[self.next]
    }
}

impl Slot {
    fn new(cuda: &Cuda, bytes: usize) -> Result<Self, CudaError> {
        let (memory, mut event) = (pinned(cuda, bytes)?, 0);
        // SAFETY: the driver sets it to what it makes.
        cuda.check("cuEventCreate", unsafe { (cuda.create_event)(&mut event, 0) })?;
        Ok(Self { memory, bytes, event })
    }

    /// The first bytes.
    fn filled(&mut self, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.bytes, "a part is at most a slot");
        // SAFETY: the slot has so many bytes, written once at least, and nobody else has it while it is borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.memory, bytes) }
    }
}

/// Pinned memory, zeroed, so that all of it can be read at any time; the card's context is current.
pub(super) fn pinned(cuda: &Cuda, bytes: usize) -> Result<*mut u8, CudaError> {
    let mut memory = std::ptr::null_mut::<c_void>();
    // SAFETY: the driver sets it to so many bytes that it makes.
    unsafe {
        cuda.check("cuMemHostAlloc", (cuda.allocate_pinned)(&mut memory, bytes, 0))?;
        memory.cast::<u8>().write_bytes(0, bytes);
    }
    Ok(memory.cast())
}

/// Copies by several threads where that pays.
fn copy(to: &mut [u8], from: &[u8]) {
    if from.len() <= PART_BYTES {
        to.copy_from_slice(from);
        return;
    }
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(PART_BYTES).zip(from.chunks(PART_BYTES)) {
            scope.spawn(|| to.copy_from_slice(from));
        }
    });
}
