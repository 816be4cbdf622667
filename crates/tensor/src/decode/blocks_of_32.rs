//! The formats with 32 codes a block.
//!
//! ```text
//! q4_0   d:f16                     q: 16 bytes
//! q4_1   d:f16  m:f16              q: 16 bytes
//! q5_0   d:f16         high: u32   q: 16 bytes
//! q5_1   d:f16  m:f16  high: u32   q: 16 bytes
//! q8_0   d:f16                     q: 32 bytes, signed
//! q8_1   d:f16  sum:f16            q: 32 bytes, signed
//! iq4_nl d:f16                     q: 16 bytes
//! mxfp4  e:u8                      q: 16 bytes
//! ```
//!
//! The low half of byte `i` of `q` is code `i`, the high half is code `i + 16`; bit `i` of `high` is the fifth bit of
//! code `i`. A code of iq4_nl is a place in a table, one of mxfp4 a float of 4 bits, whose scale is 2^(e - 127).
//! Source: the GGUF quantisation formats, as the Python package `gguf` decodes them; q8_1, which it doesn't, as the
//! ggml library writes it.

use super::small_floats::{half_of_e8m0, twice_e2m1};
use super::{part, scale_at};

block_format!(Q4_0, q4_0);
block_format!(Q4_1, q4_1);
block_format!(Q5_0, q5_0);
block_format!(Q5_1, q5_1);
block_format!(Q8_0, q8_0);
block_format!(Q8_1, q8_1);
block_format!(Iq4Nl, iq4_nl);
block_format!(Mxfp4, mxfp4);

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

#[inline(always)]
fn q8_1(block: &[u8; 36], out: &mut [f32; 32]) {
    let scale = scale_at(block, 0);
    let codes: &[u8; 32] = part(block, 4);
    for i in 0..32 {
        out[i] = scale * f32::from(codes[i] as i8);
    }
}

#[inline(always)]
fn iq4_nl(block: &[u8; 18], out: &mut [f32; 32]) {
    uneven_codes(scale_at(block, 0), part(block, 2), out);
}

/// The values of iq4_nl's codes.
pub(super) const UNEVEN: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `scale` times the values of 32 codes of iq4_nl.
#[inline(always)]
pub(super) fn uneven_codes(scale: f32, packed: &[u8; 16], out: &mut [f32; 32]) {
    let codes = twice(packed);
    for (i, value) in out.iter_mut().enumerate() {
        *value = scale * f32::from(UNEVEN[usize::from(four_bits(&codes, i))]);
    }
}

#[inline(always)]
fn mxfp4(block: &[u8; 17], out: &mut [f32; 32]) {
    let scale = half_of_e8m0(block[0]);
    let codes = twice(part(block, 1));
    for (i, value) in out.iter_mut().enumerate() {
        *value = scale * twice_e2m1(four_bits(&codes, i));
    }
}

/// Code `i` of 32 half bytes, of which `twice` holds the packed bytes two times over.
///
/// This form makes the compiler vectorise one loop over 32 codes. Two codes a turn of a loop over 16 bytes, which says
/// the same, is unrolled and then put together byte by byte: half as fast with AVX2, a quarter with AVX-512.
#[inline(always)]
pub(super) fn four_bits(twice: &[u8; 32], i: usize) -> u8 {
    if i < 16 { twice[i] & 15 } else { twice[i] >> 4 }
}

#[inline(always)]
pub(super) fn twice(packed: &[u8; 16]) -> [u8; 32] {
    let mut twice = [0; 32];
    for i in 0..32 {
        twice[i] = packed[i % 16];
    }
    twice
}

/// The 32 codes of a block, from their fifth bits and their lower four.
#[inline(always)]
pub(super) fn five_bits(high: &[u8; 4], low: &[u8; 16]) -> [u32; 32] {
    let high = u32::from_le_bytes(*high);
    let mut codes = [0; 32];
    for i in 0..16 {
        codes[i] = u32::from(low[i] & 15) | (((high >> i) & 1) << 4);
        codes[i + 16] = u32::from(low[i] >> 4) | (((high >> (i + 16)) & 1) << 4);
    }
    codes
}
