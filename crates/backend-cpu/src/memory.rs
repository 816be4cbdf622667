//! Zeroed memory seen as numbers of whatever type: it starts on a cache line, and on a huge page where it has as many bytes.
//!
//! Keys, values and weights are read in pieces of a few kilobytes. On small pages the processor would look up an address for
//! every piece, again and again. The system is asked for huge pages and may refuse; then small ones serve.

use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};
use gannet_ops::DeviceError;
use std::ops::Range;

/// The size and alignment of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// One cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes that start on a cache line, or on a huge page.
#[derive(Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
    // Invariant: from this byte on the lines have so many bytes.
    start: usize,
    bytes: usize,
}

impl Buffer {
    /// Zeroed bytes. The system gives a page of a large buffer only when it is first touched.
    pub(crate) fn zeroed(bytes: usize, what: impl Fn() -> String) -> Result<Self, DeviceError> {
        let out_of_memory = || DeviceError::OutOfMemory { what: what(), needed: bytes as u64 };
        let is_huge = bytes >= HUGE_PAGE;
        let needed = if is_huge { bytes.checked_add(HUGE_PAGE) } else { Some(bytes) };
        let needed = needed.ok_or_else(out_of_memory)?;
        let lines = bytemuck::allocation::try_zeroed_vec::<Line>(needed.div_ceil(size_of::<Line>()));
        let lines = lines.map_err(|()| out_of_memory())?;
        let start = if is_huge { lines.as_ptr().cast::<u8>().align_offset(HUGE_PAGE) } else { 0 };
        let mut buffer = Self { lines, start, bytes };
        if is_huge {
            advise_huge_pages(buffer.as_mut_slice());
        }
        Ok(buffer)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it, as numbers.
    pub(crate) fn as_slice<T: AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(&bytemuck::cast_slice::<Line, u8>(&self.lines)[self.start..][..self.bytes])
    }

    /// All of it, as numbers.
    pub(crate) fn as_mut_slice<T: AnyBitPattern + NoUninit>(&mut self) -> &mut [T] {
        let bytes = bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines);
        bytemuck::cast_slice_mut(&mut bytes[self.start..][..self.bytes])
    }
}

impl Buffer {
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
    fn large_buffers_start_on_a_huge_page_and_small_ones_on_a_line() {
        for (bytes, alignment) in [(1, 64), (1000, 64), (HUGE_PAGE, HUGE_PAGE), (HUGE_PAGE + 100, HUGE_PAGE)]
        {
            let mut buffer = Buffer::zeroed(bytes, String::new).expect("there is memory");
            assert!(buffer.as_slice::<u8>().as_ptr().addr().is_multiple_of(alignment), "{bytes} bytes");
            assert_eq!((buffer.bytes(), buffer.as_slice::<u8>().len()), (bytes, bytes));
            assert!(buffer.as_mut_slice::<u8>().iter().all(|byte| *byte == 0), "{bytes} bytes are zeroed");
            buffer.as_mut_slice::<u8>().fill(1);
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
    fn more_than_an_address_can_name_is_refused() {
        for bytes in [usize::MAX, usize::MAX - HUGE_PAGE, usize::MAX / 2] {
            assert!(Buffer::zeroed(bytes, String::new).is_err(), "{bytes} bytes");
        }
    }
}
