//! How the codes of a sub-block lie in memory: in planes of 4, 1 and 2 bits, or whole.
//!
//! ```text
//! low    4 registers: byte 4 lane + i of register g has code 4 g + i of the lane in its low half, and code
//!        16 + 4 g + i in its high half
//! fifth  1 register: bit g of byte 4 lane + i belongs to code 4 g + i
//! upper  2 registers: bits 2 g, 2 g + 1 of byte 4 lane + i of register h belong to code 16 h + 4 g + i
//! whole  8 registers: byte 4 lane + i of register g is code 4 g + i
//! ```
//!
//! Codes of a lane come and go as eight words of four codes, the first in the lowest byte.

use crate::simd::{Dots, REGISTER};

/// Words of codes of one lane.
pub(crate) type Words = [u32; 8];

const LOW: u32 = 0x0f0f_0f0f;
const ONE: u32 = 0x0101_0101;
const TWO: u32 = 0x0303_0303;

/// An arrangement of codes.
pub(crate) trait Planes {
    /// Of a sub-block of all lanes.
    const BYTES: usize;

    /// Puts a lane's codes in.
    fn pack(words: &Words, lane: usize, to: &mut [u8]);
    /// Takes a lane's codes out.
    fn lane(from: &[u8], lane: usize) -> Words;
    /// The codes of all lanes, four columns a register.
    fn unpack<D: Dots>(from: &[u8]) -> [D::Bytes; 8];
}

/// Codes of four bits.
pub(crate) struct Four;
/// Codes of five bits.
pub(crate) struct Five;
/// Codes of six bits.
pub(crate) struct Six;
/// Codes of eight bits.
pub(crate) struct Eight;

impl Planes for Four {
    const BYTES: usize = 4 * REGISTER;

    #[inline(always)]
    fn pack(words: &Words, lane: usize, to: &mut [u8]) {
        for i in 0..4 {
            put(to, i, lane, (words[i] & LOW) | ((words[i + 4] & LOW) << 4));
        }
    }

    #[inline(always)]
    fn lane(from: &[u8], lane: usize) -> Words {
        std::array::from_fn(|i| (word(from, i % 4, lane) >> (i / 4 * 4)) & LOW)
    }

    #[inline(always)]
    fn unpack<D: Dots>(from: &[u8]) -> [D::Bytes; 8] {
        let [a, b, c, d] = [register(from, 0), register(from, 1), register(from, 2), register(from, 3)];
        let (a, b, c, d) = (D::load(a), D::load(b), D::load(c), D::load(d));
        [
            D::low_nibbles(a),
            D::low_nibbles(b),
            D::low_nibbles(c),
            D::low_nibbles(d),
            D::high_nibbles(a),
            D::high_nibbles(b),
            D::high_nibbles(c),
            D::high_nibbles(d),
        ]
    }
}

impl Planes for Five {
    const BYTES: usize = Four::BYTES + REGISTER;

    #[inline(always)]
    fn pack(words: &Words, lane: usize, to: &mut [u8]) {
        Four::pack(words, lane, to);
        let fifth = |fifths, i: usize| fifths | (((words[i] >> 4) & ONE) << i);
        put(to, 4, lane, (0..8).fold(0, fifth));
    }

    #[inline(always)]
    fn lane(from: &[u8], lane: usize) -> Words {
        let (low, fifths) = (Four::lane(from, lane), word(from, 4, lane));
        std::array::from_fn(|i| low[i] | (((fifths >> i) & ONE) << 4))
    }

    #[inline(always)]
    fn unpack<D: Dots>(from: &[u8]) -> [D::Bytes; 8] {
        let [a, b, c, d, e, f, g, h] = Four::unpack::<D>(from);
        let fifths = D::load(register(from, 4));
        [
            D::with_bit::<0>(a, fifths),
            D::with_bit::<1>(b, fifths),
            D::with_bit::<2>(c, fifths),
            D::with_bit::<3>(d, fifths),
            D::with_bit::<4>(e, fifths),
            D::with_bit::<5>(f, fifths),
            D::with_bit::<6>(g, fifths),
            D::with_bit::<7>(h, fifths),
        ]
    }
}

impl Planes for Six {
    const BYTES: usize = Four::BYTES + 2 * REGISTER;

    #[inline(always)]
    fn pack(words: &Words, lane: usize, to: &mut [u8]) {
        Four::pack(words, lane, to);
        for half in 0..2 {
            let upper = |upper, i: usize| upper | (((words[4 * half + i] >> 4) & TWO) << (2 * i));
            put(to, 4 + half, lane, (0..4).fold(0, upper));
        }
    }

    #[inline(always)]
    fn lane(from: &[u8], lane: usize) -> Words {
        let low = Four::lane(from, lane);
        let upper = |i: usize| (word(from, 4 + i / 4, lane) >> (2 * (i % 4))) & TWO;
        std::array::from_fn(|i| low[i] | (upper(i) << 4))
    }

    #[inline(always)]
    fn unpack<D: Dots>(from: &[u8]) -> [D::Bytes; 8] {
        let [a, b, c, d, e, f, g, h] = Four::unpack::<D>(from);
        let (first, second) = (D::load(register(from, 4)), D::load(register(from, 5)));
        [
            D::with_two_bits::<0>(a, first),
            D::with_two_bits::<1>(b, first),
            D::with_two_bits::<2>(c, first),
            D::with_two_bits::<3>(d, first),
            D::with_two_bits::<0>(e, second),
            D::with_two_bits::<1>(f, second),
            D::with_two_bits::<2>(g, second),
            D::with_two_bits::<3>(h, second),
        ]
    }
}

impl Planes for Eight {
    const BYTES: usize = 8 * REGISTER;

    #[inline(always)]
    fn pack(words: &Words, lane: usize, to: &mut [u8]) {
        for (i, word) in words.iter().enumerate() {
            put(to, i, lane, *word);
        }
    }

    #[inline(always)]
    fn lane(from: &[u8], lane: usize) -> Words {
        std::array::from_fn(|i| word(from, i, lane))
    }

    #[inline(always)]
    fn unpack<D: Dots>(from: &[u8]) -> [D::Bytes; 8] {
        let mut registers = [D::load(register(from, 0)); 8];
        for (i, loaded) in registers.iter_mut().enumerate().skip(1) {
            *loaded = D::load(register(from, i));
        }
        registers
    }
}

#[inline(always)]
fn register(from: &[u8], number: usize) -> &[u8; REGISTER] {
    from[number * REGISTER..].first_chunk().expect("a sub-block has its planes")
}

#[inline(always)]
fn word(from: &[u8], number: usize, lane: usize) -> u32 {
    let place = number * REGISTER + 4 * lane;
    u32::from_le_bytes(*from[place..].first_chunk().expect("a sub-block has its planes"))
}

#[inline(always)]
fn put(to: &mut [u8], number: usize, lane: usize, word: u32) {
    to[number * REGISTER + 4 * lane..][..4].copy_from_slice(&word.to_le_bytes());
}
