//! Memory of all weights: a few large pieces on huge pages, in which tensors lie one behind the other.
//!
//! A tensor of a few hundred kilobytes alone would lie on small pages.

use crate::memory::{Buffer, HUGE_PAGE};
use gannet_ops::DeviceError;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece, in whole huge pages; a larger tensor has a piece of its own.
const PIECE: usize = 32 * HUGE_PAGE;
/// Where a tensor may start: a line of the cache.
const ALIGNMENT: usize = 64;

/// Pieces while tensors are laid into them.
#[derive(Default)]
pub(crate) struct Arena {
    pieces: Vec<Buffer>,
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
    piece: Arc<Buffer>,
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
        let free = self.pieces.last().map_or(0, |piece| piece.bytes().saturating_sub(start));
        if bytes > free {
            self.pieces.push(Buffer::on_huge_pages(bytes.max(PIECE), what)?);
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
        let pieces: Vec<Arc<Buffer>> = self.pieces.into_iter().map(Arc::new).collect();
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
