//! The formats with 32 codes a block.
//!
//! ```text
//! q4_0   d:f16                     q: 16 bytes
//! q4_1   d:f16  m:f16              q: 16 bytes
//! q5_0   d:f16         high: u32   q: 16 bytes
//! q5_1   d:f16  m:f16  high: u32   q: 16 bytes
//! q8_0   d:f16                     q: 32 bytes, signed
//! ```
//!
//! The low half of byte `i` of `q` is code `i`, the high half is code `i + 16`; bit `i` of `high` is the fifth bit of
//! code `i`. Source: the GGUF quantisation formats, as the Python package `gguf` decodes them.

use super::{BlockFormat, part, scale_at};
use crate::Format;

/// Defines the type of a format and hands its blocks to a decoder over arrays.
macro_rules! block_of_32 {
    ($name:ident, $decode:ident) => {
        #[doc = concat!("[`Format::", stringify!($name), "`] as a type.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl BlockFormat for $name {
            const FORMAT: Format = Format::$name;

            #[inline(always)]
            fn decode(block: &[u8], out: &mut [f32]) {
                let block = block.try_into().expect("a block has the bytes of its format");
                let out = out.try_into().expect("a block has 32 elements");
                $decode(block, out);
            }
        }
    };
}

block_of_32!(Q4_0, q4_0);
block_of_32!(Q4_1, q4_1);
block_of_32!(Q5_0, q5_0);
block_of_32!(Q5_1, q5_1);
block_of_32!(Q8_0, q8_0);

#[inline(always)]
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let codes = twice(part(block, 2));
    for (i, value) in out.iter_mut().enumerate() {
        *value = scale * (i32::from(four_bits(&codes, i)) - 8) as f32;
    }
}

#[inline(always)]
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let minimum = scale_at(block, 2);
    let codes = twice(part(block, 4));
    for (i, value) in out.iter_mut().enumerate() {
        *value = scale * f32::from(four_bits(&codes, i)) + minimum;
    }
}

#[inline(always)]
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let codes = five_bits(part(block, 2), part(block, 6));
    for i in 0..32 {
        out[i] = scale * (codes[i] as i32 - 16) as f32;
    }
}

#[inline(always)]
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let minimum = scale_at(block, 2);
    let codes = five_bits(part(block, 4), part(block, 8));
    for i in 0..32 {
        out[i] = scale * codes[i] as f32 + minimum;
    }
}

#[inline(always)]
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let codes: &[u8; 32] = part(block, 2);
    for i in 0..32 {
        out[i] = scale * f32::from(codes[i] as i8);
    }
}

/// Code `i` of 32 half bytes, of which `twice` holds the packed bytes two times over.
///
/// This form makes the compiler vectorise one loop over 32 codes. Two codes a turn of a loop over 16 bytes, which says
/// the same, is unrolled and then put together byte by byte: half as fast with AVX2, a quarter with AVX-512.
#[inline(always)]
fn four_bits(twice: &[u8; 32], i: usize) -> u8 {
    if i < 16 { twice[i] & 15 } else { twice[i] >> 4 }
}

#[inline(always)]
fn twice(packed: &[u8; 16]) -> [u8; 32] {
    let mut twice = [0; 32];
    for i in 0..32 {
        twice[i] = packed[i % 16];
    }
    twice
}

/// The 32 codes of a block, from their fifth bits and their lower four.
#[inline(always)]
fn five_bits(high: &[u8; 4], low: &[u8; 16]) -> [u32; 32] {
    let high = u32::from_le_bytes(*high);
    let mut codes = [0; 32];
    for i in 0..16 {
        codes[i] = u32::from(low[i] & 15) | (((high >> i) & 1) << 4);
        codes[i + 16] = u32::from(low[i] >> 4) | (((high >> (i + 16)) & 1) << 4);
    }
    codes
}
