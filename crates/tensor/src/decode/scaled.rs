//! NVFP4, and our own formats for weights that published safetensors hold in parts: codes here, scales and zeros there.
//!
//! ```text
//! q4_z          scale: 3 bytes above zero:u8   q: 16 bytes, as in q4_0
//! q8_z          scale: 3 bytes above zero:u8   q: 32 bytes, unsigned
//! f8_scaled     d:f32                          q: 32 bytes, each an E4M3 float
//! nvfp4                s: 4 bytes              q: 32 bytes, 8 for each of 4 sub-blocks of 16, low halves first
//! nvfp4_scaled  d:f32  s: 4 bytes              q: 32 bytes, two codes a byte, the first in the low half
//! ```
//!
//! The first word of q4_z and q8_z is a float32 whose lowest 8 bits are the zero. The 16 bits of mantissa that are left
//! to the scale hold every f16 and every bf16 as it is, and its product with a difference of codes is exact in float32:
//! so weights of GPTQ, AWQ and the like keep their values, whatever their zeros.
//!
//! The scales `s` are E4M3 floats. Those of nvfp4 have no sign, as GGUF has it (its tensor's own scale is a tensor
//! beside it); in nvfp4_scaled the product of `d` and a scale is rounded once, and its product with a code once more.

use super::blocks_of_32::{four_bits, twice};
use super::part;
use super::small_floats::{e2m1_to_f32, e4m3_to_f32, half_of_unsigned_e4m3, twice_e2m1};

block_format!(Nvfp4, nvfp4);
block_format!(Q4Z, q4_z);
block_format!(Q8Z, q8_z);
block_format!(F8Scaled, f8_scaled);
block_format!(Nvfp4Scaled, nvfp4_scaled);

#[inline(always)]
fn nvfp4(block: &[u8; 36], out: &mut [f32; 64]) {
    for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = half_of_unsigned_e4m3(block[sub_block]);
        let codes: &[u8; 8] = part(block, 4 + 8 * sub_block);
        for i in 0..8 {
            out[i] = scale * twice_e2m1(codes[i]);
            out[i + 8] = scale * twice_e2m1(codes[i] >> 4);
        }
    }
}

#[inline(always)]
fn q4_z(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, zero) = scale_and_zero(part(block, 0));
    let codes = twice(part(block, 4));
    for (i, value) in out.iter_mut().enumerate() {
        *value = scale * (i32::from(four_bits(&codes, i)) - zero) as f32;
    }
}

#[inline(always)]
fn q8_z(block: &[u8; 36], out: &mut [f32; 32]) {
    let (scale, zero) = scale_and_zero(part(block, 0));
    let codes: &[u8; 32] = part(block, 4);
    for i in 0..32 {
        out[i] = scale * (i32::from(codes[i]) - zero) as f32;
    }
}

#[inline(always)]
fn scale_and_zero(word: &[u8; 4]) -> (f32, i32) {
    let word = u32::from_le_bytes(*word);
    (f32::from_bits(word & !0xff), (word & 0xff) as i32)
}

#[inline(always)]
fn f8_scaled(block: &[u8; 36], out: &mut [f32; 32]) {
    let scale = f32::from_le_bytes(*part(block, 0));
    let codes: &[u8; 32] = part(block, 4);
    for i in 0..32 {
        out[i] = scale * e4m3_to_f32(codes[i]);
    }
}

#[inline(always)]
fn nvfp4_scaled(block: &[u8; 40], out: &mut [f32; 64]) {
    let whole = f32::from_le_bytes(*part(block, 0));
    let scales: &[u8; 4] = part(block, 4);
    let codes: &[u8; 32] = part(block, 8);
    for (sub_block, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = whole * e4m3_to_f32(scales[sub_block]);
        for (i, value) in out.iter_mut().enumerate() {
            *value = scale * e2m1_to_f32(codes[8 * sub_block + i / 2] >> (4 * (i % 2)));
        }
    }
}
