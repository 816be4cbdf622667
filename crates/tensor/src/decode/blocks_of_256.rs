//! The formats with 256 codes a block, in sub-blocks with scales of their own.
//!
//! ```text
//! q4_k   d:f16  dmin:f16  scales: 12 bytes                   q: 128 bytes
//! q5_k   d:f16  dmin:f16  scales: 12 bytes  high: 32 bytes   q: 128 bytes
//! q6_k   q: 128 bytes     high: 64 bytes    scales: 16 signed bytes    d:f16
//! ```
//!
//! In q4_k and q5_k, 32 bytes of `q` hold two sub-blocks of 32 codes: the low halves, then the high halves. Bit `s` of
//! byte `i` of `high` is the fifth bit of code `i` of sub-block `s`.
//!
//! In q6_k each half of 128 codes has 64 bytes of `q` and 32 of `high`. Its four rows of 32 codes are the low halves of
//! the first 32 bytes, of the second 32, then the high halves of both; row `r` has its upper two bits at bit `2 r` of
//! `high`. A scale counts for 16 codes. Source: the GGUF quantisation formats, as the Python package `gguf` decodes
//! them.

use super::{BlockFormat, part, scale_at};
use crate::Format;

/// Defines the type of a format and hands its blocks to a decoder over arrays.
macro_rules! block_of_256 {
    ($name:ident, $decode:ident) => {
        #[doc = concat!("[`Format::", stringify!($name), "`] as a type.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl BlockFormat for $name {
            const FORMAT: Format = Format::$name;

            #[inline(always)]
            fn decode(block: &[u8], out: &mut [f32]) {
                let block = block.try_into().expect("a block has the bytes of its format");
                let out = out.try_into().expect("a block has 256 elements");
                $decode(block, out);
            }
        }
    };
}

block_of_256!(Q4K, q4_k);
block_of_256!(Q5K, q5_k);
block_of_256!(Q6K, q6_k);

#[inline(always)]
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    let (scales, minima) = scales_and_minima(block);
    for pair in 0..4 {
        let codes: &[u8; 32] = part(block, 16 + 32 * pair);
        let (low, high) = two_sub_blocks(out, pair);
        for i in 0..32 {
            low[i] = scales[2 * pair] * f32::from(codes[i] & 15) - minima[2 * pair];
            high[i] = scales[2 * pair + 1] * f32::from(codes[i] >> 4) - minima[2 * pair + 1];
        }
    }
}

#[inline(always)]
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (scales, minima) = scales_and_minima(block);
    let fifth: &[u8; 32] = part(block, 16);
    for pair in 0..4 {
        let codes: &[u8; 32] = part(block, 48 + 32 * pair);
        let (low, high) = two_sub_blocks(out, pair);
        for i in 0..32 {
            let fifths = fifth[i] >> (2 * pair);
            let low_code = (codes[i] & 15) | ((fifths & 1) << 4);
            let high_code = (codes[i] >> 4) | ((fifths & 2) << 3);
            low[i] = scales[2 * pair] * f32::from(low_code) - minima[2 * pair];
            high[i] = scales[2 * pair + 1] * f32::from(high_code) - minima[2 * pair + 1];
        }
    }
}

#[inline(always)]
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let scale = scale_at(block, 208);
    for (half, out) in out.as_chunks_mut::<128>().0.iter_mut().enumerate() {
        let codes = six_bits(part(block, 64 * half), part(block, 128 + 32 * half));
        let scales: &[u8; 8] = part(block, 192 + 8 * half);
        for (row, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let first = scale * f32::from(scales[2 * row] as i8);
            let second = scale * f32::from(scales[2 * row + 1] as i8);
            for i in 0..32 {
                let scale = if i < 16 { first } else { second };
                out[i] = scale * (i32::from(codes[32 * row + i]) - 32) as f32;
            }
        }
    }
}

/// The 128 codes of half a q6_k block, from their lower four bits and their upper two.
#[inline(always)]
fn six_bits(low: &[u8; 64], high: &[u8; 32]) -> [u8; 128] {
    let mut codes = [0; 128];
    for i in 0..32 {
        codes[i] = (low[i] & 15) | ((high[i] & 0x03) << 4);
        codes[i + 32] = (low[i + 32] & 15) | ((high[i] & 0x0c) << 2);
        codes[i + 64] = (low[i] >> 4) | (high[i] & 0x30);
        codes[i + 96] = (low[i + 32] >> 4) | ((high[i] & 0xc0) >> 2);
    }
    codes
}

/// The scales and minima of the 8 sub-blocks of a q4_k or q5_k block, multiplied by the block's own.
///
/// They are numbers of 6 bits in 12 bytes: the first four scales fill the lower 6 bits of bytes 0 to 3, the first four
/// minima those of bytes 4 to 7. The last four have their lower 4 bits in the halves of bytes 8 to 11 (scales low,
/// minima high), and their upper 2 in what is left of bytes 0 to 3 and 4 to 7.
#[inline(always)]
pub fn scales_and_minima(block: &[u8]) -> ([f32; 8], [f32; 8]) {
    let word = |start| u32::from_le_bytes(*part(block, start));
    let (first, second, third): (u32, u32, u32) = (word(4), word(8), word(12));
    let scales = [first & 0x3f3f_3f3f, (third & 0x0f0f_0f0f) | ((first >> 2) & 0x3030_3030)];
    let minima = [second & 0x3f3f_3f3f, ((third >> 4) & 0x0f0f_0f0f) | ((second >> 2) & 0x3030_3030)];
    (times(scale_at(block, 0), scales), times(scale_at(block, 2), minima))
}

/// `scale` times each of 8 packed bytes.
#[inline(always)]
fn times(scale: f32, packed: [u32; 2]) -> [f32; 8] {
    let packed = u64::from(packed[0]) | (u64::from(packed[1]) << 32);
    packed.to_le_bytes().map(|byte| scale * f32::from(byte))
}

/// Sub-blocks `2 pair` and `2 pair + 1` of a block's output.
#[inline(always)]
fn two_sub_blocks(out: &mut [f32; 256], pair: usize) -> (&mut [f32; 32], &mut [f32; 32]) {
    let both = &mut out.as_chunks_mut::<64>().0[pair];
    let (low, high) = both.split_at_mut(32);
    (
        low.first_chunk_mut().expect("half of 64 elements"),
        high.first_chunk_mut().expect("half of 64 elements"),
    )
}
