//! The formats with 256 codes a block, in sub-blocks with scales of their own.
//!
//! ```text
//! q2_k   scales: 16 bytes                   q: 64 bytes      d:f16  dmin:f16
//! q3_k   high: 32 bytes                     q: 64 bytes      scales: 12 bytes          d:f16
//! q4_k   d:f16  dmin:f16  scales: 12 bytes                   q: 128 bytes
//! q5_k   d:f16  dmin:f16  scales: 12 bytes  high: 32 bytes   q: 128 bytes
//! q6_k   q: 128 bytes     high: 64 bytes    scales: 16 signed bytes    d:f16
//! q8_k   d:f32                              q: 256 bytes     sums: 32 bytes
//! ```
//!
//! In q2_k and q3_k, 32 bytes of `q` hold half the codes: the lowest two bits of each byte are the first 32, the next
//! two bits the second 32. Bit `b` of byte `i` of q3_k's `high` is the third bit of code `32 b + i`. A scale counts for
//! 16 codes; a byte of q2_k's scales has the scale in its low half and the minimum in its high one.
//!
//! In q4_k and q5_k, 32 bytes of `q` hold two sub-blocks of 32 codes: the low halves, then the high halves. Bit `s` of
//! byte `i` of `high` is the fifth bit of code `i` of sub-block `s`.
//!
//! In q6_k each half of 128 codes has 64 bytes of `q` and 32 of `high`. Its four rows of 32 codes are the low halves of
//! the first 32 bytes, of the second 32, then the high halves of both; row `r` has its upper two bits at bit `2 r` of
//! `high`. A scale counts for 16 codes. Source: the GGUF quantisation formats, as the Python package `gguf` decodes
//! them; q8_k, which it doesn't, as the ggml library decodes it.

use super::{part, scale_at};

block_format!(Q2K, q2_k);
block_format!(Q3K, q3_k);
block_format!(Q4K, q4_k);
block_format!(Q5K, q5_k);
block_format!(Q6K, q6_k);
block_format!(Q8K, q8_k);

#[inline(always)]
fn q2_k(block: &[u8; 84], out: &mut [f32; 256]) {
    let (scale, minimum) = (scale_at(block, 80), scale_at(block, 82));
    let scales: &[u8; 16] = part(block, 0);
    for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let codes = two_bits(part(block, 16), sub_block);
        let minimum = minimum * f32::from(scales[sub_block] >> 4);
        let scale = scale * f32::from(scales[sub_block] & 15);
        for i in 0..16 {
            out[i] = scale * f32::from(codes[i]) - minimum;
        }
    }
}

#[inline(always)]
fn q3_k(block: &[u8; 110], out: &mut [f32; 256]) {
    let scale = scale_at(block, 108);
    let high: &[u8; 32] = part(block, 0);
    let scales = scales_of_q3_k(part(block, 96));
    for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let codes = two_bits(part(block, 32), sub_block);
        let third: &[u8; 16] = part(high, 16 * (sub_block % 2));
        let scale = scale * f32::from(scales[sub_block]);
        for i in 0..16 {
            let third = (third[i] >> (sub_block / 2)) & 1;
            out[i] = scale * (i32::from(codes[i] | third << 2) - 4) as f32;
        }
    }
}

/// The 16 codes of a sub-block, of two bits each.
#[inline(always)]
pub(super) fn two_bits(codes: &[u8; 64], sub_block: usize) -> [u8; 16] {
    let bytes: &[u8; 16] = part(codes, 32 * (sub_block / 8) + 16 * (sub_block % 2));
    bytes.map(|byte| (byte >> (2 * (sub_block / 2 % 4))) & 3)
}

/// The 16 scales of a q3_k block: their lower four bits are the halves of the first eight bytes, the low halves first;
/// their upper two are the pairs of bits of the last four bytes, the lowest pairs first.
#[inline(always)]
pub(super) fn scales_of_q3_k(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|i| {
        let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
        (low | high << 4) as i8 - 32
    })
}

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

#[inline(always)]
fn q8_k(block: &[u8; 292], out: &mut [f32; 256]) {
    let scale = f32::from_le_bytes(*part(block, 0));
    let codes: &[u8; 256] = part(block, 4);
    for i in 0..256 {
        out[i] = scale * f32::from(codes[i] as i8);
    }
}

/// The 128 codes of half a q6_k block, from their lower four bits and their upper two.
#[inline(always)]
pub(super) fn six_bits(low: &[u8; 64], high: &[u8; 32]) -> [u8; 128] {
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
    let (scales, minima) = packed_scales_and_minima(block);
    (times(scale_at(block, 0), scales), times(scale_at(block, 2), minima))
}

/// The same before they are multiplied.
#[inline(always)]
pub(super) fn packed_scales_and_minima(block: &[u8]) -> ([u8; 8], [u8; 8]) {
    let word = |start| u32::from_le_bytes(*part(block, start));
    let (first, second, third): (u32, u32, u32) = (word(4), word(8), word(12));
    let scales = [first & 0x3f3f_3f3f, (third & 0x0f0f_0f0f) | ((first >> 2) & 0x3030_3030)];
    let minima = [second & 0x3f3f_3f3f, ((third >> 4) & 0x0f0f_0f0f) | ((second >> 2) & 0x3030_3030)];
    let bytes = |packed: [u32; 2]| (u64::from(packed[0]) | (u64::from(packed[1]) << 32)).to_le_bytes();
    (bytes(scales), bytes(minima))
}

/// `scale` times each of 8 bytes.
#[inline(always)]
fn times(scale: f32, bytes: [u8; 8]) -> [f32; 8] {
    bytes.map(|byte| scale * f32::from(byte))
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
