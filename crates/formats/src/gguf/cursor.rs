//! Reads numbers and strings from the front of a file, each checked against the bytes that are left.

use std::fmt::Arguments;
use std::path::Path;

use super::byte_order::ByteOrder;
use crate::{FormatError, limits};

/// A limit and its name for the error.
#[derive(Clone, Copy)]
pub(crate) struct Limit(pub(crate) usize, pub(crate) &'static str);

/// A place in the header of a GGUF file.
pub(crate) struct Cursor<'a> {
    pub(crate) file: &'a Path,
    /// The order of the bytes of all numbers from here on.
    pub(crate) byte_order: ByteOrder,
    bytes: &'a [u8],
    // Invariant: at most `bytes.len()`.
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: &'a Path, bytes: &'a [u8]) -> Self {
        Self { file, byte_order: ByteOrder::Little, bytes, position: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    /// The next `count` bytes, which are part of `what`.
    pub(crate) fn take(&mut self, count: u64, what: Arguments<'_>) -> Result<&'a [u8], FormatError> {
        let left = &self.bytes[self.position..];
        let taken = usize::try_from(count).ok().and_then(|count| left.get(..count));
        let taken = taken.ok_or_else(|| FormatError::Truncated {
            file: self.file.to_path_buf(),
            what: what.to_string(),
            offset: self.position,
            needed: count,
            left: left.len(),
        })?;
        self.position += taken.len();
        let limit = Limit(limits::GGUF_HEADER_BYTES, "GGUF_HEADER_BYTES");
        self.limited(self.position as u64, limit, format_args!("the length of the header"))?;
        Ok(taken)
    }

    /// The next `N` bytes, which are one number, in little-endian order.
    pub(crate) fn array<const N: usize>(&mut self, what: Arguments<'_>) -> Result<[u8; N], FormatError> {
        let bytes = self.take(N as u64, what)?.first_chunk().expect("`N` bytes were taken");
        Ok(self.byte_order.to_little(*bytes))
    }

    pub(crate) fn u32(&mut self, what: Arguments<'_>) -> Result<u32, FormatError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: Arguments<'_>) -> Result<u64, FormatError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The number of `things`, at most `limit`, of which each takes at least `least_bytes`. What is allocated for so
    /// many is then no more than a small multiple of the file.
    pub(crate) fn count(
        &mut self,
        limit: Limit,
        least_bytes: u64,
        things: Arguments<'_>,
    ) -> Result<usize, FormatError> {
        let what = format_args!("the number of {things}");
        let found = self.u64(what)?;
        let count = self.limited(found, limit, what)?;
        let left = self.bytes.len() - self.position;
        let needed = count as u64 * least_bytes;
        if needed > left as u64 {
            return Err(FormatError::Truncated {
                file: self.file.to_path_buf(),
                what: format!("{count} {things}"),
                offset: self.position,
                needed,
                left,
            });
        }
        Ok(count)
    }

    /// A string of at most `limit` bytes.
    pub(crate) fn string(&mut self, limit: Limit, what: Arguments<'_>) -> Result<&'a str, FormatError> {
        let found = self.u64(what)?;
        self.limited(found, limit, format_args!("the length of {what}"))?;
        std::str::from_utf8(self.take(found, what)?)
            .map_err(|_| FormatError::NotUtf8 { file: self.file.to_path_buf(), what: what.to_string() })
    }

    /// `found` as a number of at most `limit`.
    pub(crate) fn limited(
        &self,
        found: u64,
        Limit(limit, name): Limit,
        what: Arguments<'_>,
    ) -> Result<usize, FormatError> {
        match usize::try_from(found) {
            Ok(number) if number <= limit => Ok(number),
            Ok(_) | Err(_) => Err(FormatError::OverLimit {
                file: self.file.to_path_buf(),
                what: what.to_string(),
                found,
                limit,
                name,
            }),
        }
    }
}
