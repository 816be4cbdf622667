//! Memory of all weights: a few large pieces on huge pages, in which tensors lie one behind the other.
//!
//! A tensor of a few hundred kilobytes alone would lie on small pages, whose addresses the processor looks up
//! again and again while it reads a model once a token. The system is asked for huge pages and may refuse; then
//! small ones serve.

use gannet_ops::DeviceError;
use std::ops::Range;
use std::sync::Arc;

/// The size and alignment of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a piece; a larger tensor has a piece of its own.
const PIECE: usize = 64 << 20;
/// Where a tensor may start: a line of the cache.
const ALIGNMENT: usize = 64;

/// Zeroed memory that starts on a huge page.
struct Piece {
    memory: Vec<u8>,
    // Invariant: the memory has as many bytes from `start` on.
    start: usize,
    bytes: usize,
}

impl Piece {
    /// The system gives a page when it is first touched, so what stays unused costs nothing.
    fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_PAGE)?;
        let mut memory: Vec<u8> = bytemuck::allocation::try_zeroed_vec(bytes.checked_add(HUGE_PAGE)?).ok()?;
        let start = memory.as_ptr().align_offset(HUGE_PAGE);
        advise_huge_pages(&mut memory[start..start + bytes]);
        Some(Self { memory, start, bytes })
    }

    fn as_slice(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}

/// Asks for huge pages under memory that starts and ends with one. A system that has none refuses, and serves
/// small ones.
#[cfg(target_os = "linux")]
fn advise_huge_pages(memory: &mut [u8]) {
    // SAFETY: the range is memory of ours, and the advice changes none of its bytes.
    let _ = unsafe { libc::madvise(memory.as_mut_ptr().cast(), memory.len(), libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_: &mut [u8]) {}

/// Pieces while tensors are laid into them.
#[derive(Default)]
pub(crate) struct Arena {
    pieces: Vec<Piece>,
    /// Of the last piece.
    used: usize,
}

/// Where a tensor lies, while the arena still grows.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    piece: usize,
    range: Range<usize>,
}

/// Where a tensor lies.
#[derive(Clone)]
pub(crate) struct Place {
    piece: Arc<Piece>,
    range: Range<usize>,
}

impl Arena {
    /// Room for a tensor, zeroed.
    pub(crate) fn reserve(
        &mut self,
        bytes: usize,
        what: impl Fn() -> String,
    ) -> Result<Reserved, DeviceError> {
        let start = self.used.next_multiple_of(ALIGNMENT);
        let free = self.pieces.last().map_or(0, |piece| piece.bytes.saturating_sub(start));
        if bytes > free {
            let out_of_memory = || DeviceError::OutOfMemory { what: what(), needed: bytes as u64 };
            self.pieces.push(Piece::new(bytes.max(PIECE)).ok_or_else(out_of_memory)?);
            self.used = bytes;
            return Ok(Reserved { piece: self.pieces.len() - 1, range: 0..bytes });
        }
        self.used = start + bytes;
        Ok(Reserved { piece: self.pieces.len() - 1, range: start..self.used })
    }

    /// A tensor's memory.
    pub(crate) fn bytes_mut(&mut self, reserved: &Reserved) -> &mut [u8] {
        &mut self.pieces[reserved.piece].as_mut_slice()[reserved.range.clone()]
    }

    /// Turns what was reserved into places.
    pub(crate) fn freeze(self) -> impl Fn(Reserved) -> Place {
        let pieces: Vec<Arc<Piece>> = self.pieces.into_iter().map(Arc::new).collect();
        move |reserved| Place { piece: Arc::clone(&pieces[reserved.piece]), range: reserved.range }
    }
}

impl Place {
    /// The tensor.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.piece.as_slice()[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_have_places_of_their_own() {
        let mut arena = Arena::default();
        let sizes = [1, 100, PIECE, 64, 0, PIECE + 1, 7];
        let reserved = sizes.map(|bytes| arena.reserve(bytes, String::new).expect("there is memory"));
        for (number, reserved) in reserved.iter().enumerate() {
            assert!(arena.bytes_mut(reserved).iter().all(|byte| *byte == 0), "{number} is zeroed");
            arena.bytes_mut(reserved).fill(number as u8 + 1);
        }
        let place = arena.freeze();
        for (number, (reserved, bytes)) in reserved.into_iter().zip(sizes).enumerate() {
            let place = place(reserved);
            assert_eq!(place.bytes().len(), bytes);
            assert!(place.bytes().iter().all(|byte| *byte == number as u8 + 1), "{number} is whole");
            assert!(place.bytes().as_ptr().addr().is_multiple_of(ALIGNMENT), "{number} starts on a line");
        }
    }

    #[test]
    fn too_much_is_refused_with_the_number() {
        let refused = Arena::default().reserve(usize::MAX - 5, || "weight `w`".to_owned());
        let message = refused.expect_err("no machine has it").to_string();
        assert!(message.contains("weight `w`"), "{message}");
    }
}
