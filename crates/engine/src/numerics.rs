//! What the bits of answers depend on beside the prompt, as one number.
//!
//! The promise that an answer is a function of its prompt holds for one configuration: build, backend, formats of
//! weights, activations, keys and values, rope. Whatever keeps computed state carries the configuration's number, so that
//! state of another is never taken for its own.
//!
//! Knows no configuration: whoever loads a model says what belongs to it.

use std::fmt;

/// The number of one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumericsId(pub u64);

impl NumericsId {
    /// The number of these facts, in their order: FNV-1a of 64 bits (Fowler, Noll, Vo), each fact ended by a byte that no
    /// text has.
    pub fn of<'a>(facts: impl IntoIterator<Item = &'a str>) -> Self {
        let bytes = facts.into_iter().flat_map(|fact| fact.bytes().chain([0xff]));
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

impl fmt::Display for NumericsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_told_apart_wherever_they_are_cut() {
        let ids = [vec!["ab", "c"], vec!["a", "bc"], vec!["abc"], vec!["c", "ab"], vec![]];
        let ids = ids.map(NumericsId::of);
        for (place, id) in ids.iter().enumerate() {
            assert!(!ids[..place].contains(id), "{id}");
        }
        // The offset basis, and the hash of "a" that the algorithm's authors publish, one byte further.
        assert_eq!(NumericsId::of([]).0, 0xcbf2_9ce4_8422_2325);
        let published_of_a = 0xaf63_dc4c_8601_ec8c_u64;
        assert_eq!(NumericsId::of(["a"]).0, (published_of_a ^ 0xff).wrapping_mul(0x100_0000_01b3));
    }
}
