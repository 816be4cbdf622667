//! Zeroed memory seen as numbers of whatever type: it starts on a cache line, or on a huge page.
//!
//! Weights, keys and values are read in pieces of a few kilobytes, again and again. On small pages the processor would look up an
//! address for every piece. The system is asked for huge pages and may refuse; then small ones serve. What a step computes
//! gains nothing from huge pages, and would take whole ones where it touches a part.

use bytemuck::{AnyBitPattern, NoUninit};
use gannet_ops::DeviceError;
use std::ops::Range;

/// The size and alignment of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// No page of a system is smaller.
const SMALL_PAGE: usize = 4096;

/// A line of the cache.
const LINE: usize = 64;

/// Bytes that start on a cache line, or on a huge page.
#[derive(Default)]
pub(crate) struct Buffer {
    /// Asked for without an alignment: the allocator would write zeros into aligned memory, and with that touch all of it.
    memory: Vec<u8>,
    // Invariant: from this byte on the memory has so many bytes.
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// Zeroed bytes. The system gives a page of a large buffer only when it is first touched.
    pub(crate) fn zeroed(bytes: usize, what: impl Fn() -> String) -> Result<Self, DeviceError> {
        Self::aligned(bytes, LINE, what)
    }

    /// The same on huge pages.
    pub(crate) fn on_huge_pages(bytes: usize, what: impl Fn() -> String) -> Result<Self, DeviceError> {
        let mut buffer = Self::aligned(bytes, HUGE_PAGE, what)?;
        advise_huge_pages(buffer.as_mut_slice());
        Ok(buffer)
    }

    fn aligned(bytes: usize, alignment: usize, what: impl Fn() -> String) -> Result<Self, DeviceError> {
        let memory = bytes.checked_add(alignment).ok_or(());
        let memory = memory.and_then(bytemuck::allocation::try_zeroed_vec::<u8>);
        let memory = memory.map_err(|()| DeviceError::OutOfMemory { what: what(), needed: bytes as u64 })?;
        let start = memory.as_ptr().align_offset(alignment);
        Ok(Self { memory, start, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a range that lie in memory, in the system's pages.
    pub(crate) fn resident_bytes(&self, bytes: Range<usize>) -> u64 {
        resident(&self.as_slice()[bytes]) as u64
    }

    /// All of it, as numbers.
    pub(crate) fn as_slice<T: AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(&self.memory[self.start..][..self.bytes])
    }

    /// All of it, as numbers.
    pub(crate) fn as_mut_slice<T: AnyBitPattern + NoUninit>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.memory[self.start..][..self.bytes])
    }
}

impl Buffer {
    /// Has the system give the memory of some bytes, which stay as they are.
    pub(crate) fn touch(&mut self, bytes: Range<usize>) {
        for page in self.as_mut_slice::<u8>()[bytes].chunks_mut(SMALL_PAGE) {
            page[0] = std::hint::black_box(page[0]);
        }
    }

    /// Gives the system back what lies in whole pages of its own within some bytes, which are of any value afterwards.
    pub(crate) fn forget(&mut self, bytes: Range<usize>) {
        give_back(&mut self.as_mut_slice()[bytes]);
    }
}

#[cfg(target_os = "linux")]
fn give_back(memory: &mut [u8]) {
    // SAFETY: asks for a number.
    let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return };
    let start = memory.as_ptr().align_offset(page);
    let Some(whole) =
        memory.len().checked_sub(start).map(|bytes| bytes / page * page).filter(|bytes| *bytes > 0)
    else {
        return;
    };
    let memory = &mut memory[start..start + whole];
    // SAFETY: the range is whole pages of memory of ours that nobody else has, and bytes that become zero are bytes. A
    // system that refuses leaves them as they are.
    let _ = unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_DONTNEED) };
}

#[cfg(not(target_os = "linux"))]
fn give_back(_: &mut [u8]) {}

/// Pages that the system is asked about at once.
#[cfg(target_os = "linux")]
const PAGES_ASKED: usize = 4096;

/// Bytes of some memory that have a page; all of them where the system doesn't say.
#[cfg(target_os = "linux")]
fn resident(memory: &[u8]) -> usize {
    // SAFETY: asks for a number.
    let Ok(page) = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }) else { return memory.len() };
    let before = memory.as_ptr().addr() % page;
    let (start, end) = (memory.as_ptr().wrapping_sub(before), before + memory.len());
    let mut marks = [0u8; PAGES_ASKED];
    let mut pages = 0;
    for first in (0..end).step_by(PAGES_ASKED * page) {
        let length = (end - first).min(PAGES_ASKED * page);
        // SAFETY: each page of the range holds a byte of memory of ours, and there is a mark for each; nothing else is
        // written, and nothing of the memory read.
        let told = unsafe {
            libc::mincore(start.wrapping_add(first).cast_mut().cast(), length, marks.as_mut_ptr().cast())
        };
        if told != 0 {
            return memory.len();
        }
        pages += marks[..length.div_ceil(page)].iter().filter(|mark| **mark & 1 == 1).count();
    }
    (pages * page).min(memory.len())
}

#[cfg(not(target_os = "linux"))]
fn resident(memory: &[u8]) -> usize {
    memory.len()
}

/// Asks for huge pages under memory that starts with one. A system that has none refuses, and serves small ones.
#[cfg(target_os = "linux")]
fn advise_huge_pages(memory: &mut [u8]) {
    // SAFETY: the range is memory of ours, and the advice changes none of its bytes.
    let _ = unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &mut [u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_on_a_line_or_on_a_huge_page() {
        let on_line = |bytes| Buffer::zeroed(bytes, String::new).expect("there is memory");
        let on_page = |bytes| Buffer::on_huge_pages(bytes, String::new).expect("there is memory");
        for bytes in [1, 1000, HUGE_PAGE, HUGE_PAGE + 100] {
            for (mut buffer, alignment) in [(on_line(bytes), 64), (on_page(bytes), HUGE_PAGE)] {
                assert!(buffer.as_slice::<u8>().as_ptr().addr().is_multiple_of(alignment), "{bytes} bytes");
                assert_eq!((buffer.bytes(), buffer.as_slice::<u8>().len()), (bytes, bytes));
                assert!(
                    buffer.as_mut_slice::<u8>().iter().all(|byte| *byte == 0),
                    "{bytes} bytes are zeroed"
                );
                buffer.as_mut_slice::<u8>().fill(1);
            }
        }
    }

    #[test]
    fn what_is_forgotten_leaves_the_rest_as_it_was() {
        let bytes = 1 << 20;
        for forgotten in [0..0, 100..5000, 5000..300_001, 0..bytes] {
            let mut buffer = Buffer::zeroed(bytes, String::new).expect("there is memory");
            buffer.as_mut_slice::<u8>().fill(7);
            buffer.forget(forgotten.clone());
            let kept = |(place, byte): (usize, &u8)| forgotten.contains(&place) || *byte == 7;
            assert!(buffer.as_slice::<u8>().iter().enumerate().all(kept), "{forgotten:?}");
            buffer.as_mut_slice::<u8>()[forgotten].fill(9);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_touched_and_not_forgotten_is_in_memory() {
        let bytes = 40 << 20;
        let mut buffer = Buffer::zeroed(bytes, String::new).expect("there is memory");
        let near = |found: u64, expected: u64| found.abs_diff(expected) <= 1 << 17;
        assert!(near(buffer.resident_bytes(0..bytes), 0));
        let touched = 10 << 20..33 << 20;
        buffer.as_mut_slice::<u8>()[touched.clone()].fill(1);
        assert!(near(buffer.resident_bytes(0..bytes), 23 << 20));
        assert_eq!(buffer.resident_bytes(touched), 23 << 20);
        buffer.forget(20 << 20..bytes);
        assert!(near(buffer.resident_bytes(0..bytes), 10 << 20));
        assert_eq!(buffer.resident_bytes(5..5), 0);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_touched_is_in_memory_as_it_was() {
        let bytes = 40 << 20;
        let touched = 10 << 20..33 << 20;
        let mut buffer = Buffer::zeroed(bytes, String::new).expect("there is memory");
        buffer.as_mut_slice::<u8>()[touched.start] = 5;
        buffer.touch(touched.clone());
        assert_eq!(buffer.resident_bytes(touched), 23 << 20);
        assert!(buffer.resident_bytes(0..bytes) <= (23 << 20) + (1 << 17));
        assert_eq!(buffer.as_slice::<u8>().iter().map(|byte| u32::from(*byte)).sum::<u32>(), 5);
    }

    #[test]
    fn more_than_an_address_can_name_is_refused() {
        for bytes in [usize::MAX, usize::MAX - HUGE_PAGE, usize::MAX / 2] {
            assert!(Buffer::zeroed(bytes, String::new).is_err(), "{bytes} bytes");
            assert!(Buffer::on_huge_pages(bytes, String::new).is_err(), "{bytes} bytes");
        }
    }
}
