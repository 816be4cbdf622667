//! Memory that starts on a cache line, seen as numbers of whatever type.

use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};
use gannet_ops::DeviceError;

/// One cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes that start on a cache line.
#[derive(Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
    // Invariant: at most the bytes of the lines.
    bytes: usize,
}

impl Buffer {
    /// Zeroed bytes. The system gives a page of a large buffer only when it is first touched.
    pub(crate) fn zeroed(bytes: usize, what: impl Fn() -> String) -> Result<Self, DeviceError> {
        match bytemuck::allocation::try_zeroed_vec(bytes.div_ceil(size_of::<Line>())) {
            Ok(lines) => Ok(Self { lines, bytes }),
            Err(()) => Err(DeviceError::OutOfMemory { what: what(), needed: bytes as u64 }),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All of it, as numbers.
    pub(crate) fn as_slice<T: AnyBitPattern>(&self) -> &[T] {
        bytemuck::cast_slice(&bytemuck::cast_slice::<Line, u8>(&self.lines)[..self.bytes])
    }

    /// All of it, as numbers.
    pub(crate) fn as_mut_slice<T: AnyBitPattern + NoUninit>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<Line, u8>(&mut self.lines)[..self.bytes])
    }
}
