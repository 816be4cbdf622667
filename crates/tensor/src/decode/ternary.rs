//! The formats of two to four values: signs, and numbers of -1, 0, 1.
//!
//! ```text
//! q1_0   d:f16  q: 16 bytes   bit `j` of byte `i` is code `8 i + j`; set is d, clear is -d
//! q2_0   d:f16  q: 16 bytes   two bits each, four codes a byte, the first lowest; value = d (q - 1)
//! tq2_0  q: 64 bytes  d:f16   two bits each; 32 bytes hold 128 codes, the lowest bits of each the first 32
//! tq1_0  q: 48 bytes  high: 4 bytes  d:f16
//! ```
//!
//! A byte of tq1_0 is a fraction of 256 whose base-3 digits are codes: five of them, four in `high`. Its first 32 bytes
//! hold the first digits of each, then the second ones and so on; then the next 16 bytes; then the last 4. Source: the
//! GGUF quantisation formats, as the Python package `gguf` decodes them; q1_0 and q2_0, which it doesn't, as the ggml
//! library decodes them.

use super::{part, scale_at};

block_format!(Q1_0, q1_0);
block_format!(Q2_0, q2_0);
block_format!(Tq1_0, tq1_0);
block_format!(Tq2_0, tq2_0);

#[inline(always)]
fn q1_0(block: &[u8; 18], out: &mut [f32; 128]) {
    let scale = scale_at(block, 0);
    let signs: &[u8; 16] = part(block, 2);
    for (i, value) in out.iter_mut().enumerate() {
        let set = (signs[i / 8] >> (i % 8)) & 1 != 0;
        *value = if set { scale } else { -scale };
    }
}

#[inline(always)]
fn q2_0(block: &[u8; 18], out: &mut [f32; 64]) {
    let scale = scale_at(block, 0);
    let codes: &[u8; 16] = part(block, 2);
    for (i, value) in out.iter_mut().enumerate() {
        let code = (codes[i / 4] >> (2 * (i % 4))) & 3;
        *value = scale * (i32::from(code) - 1) as f32;
    }
}

#[inline(always)]
fn tq2_0(block: &[u8; 66], out: &mut [f32; 256]) {
    let scale = scale_at(block, 64);
    for (row, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let codes: &[u8; 32] = part(block, 32 * (row / 4));
        for i in 0..32 {
            let code = (codes[i] >> (2 * (row % 4))) & 3;
            out[i] = scale * (i32::from(code) - 1) as f32;
        }
    }
}

#[inline(always)]
fn tq1_0(block: &[u8; 54], out: &mut [f32; 256]) {
    let scale = scale_at(block, 52);
    let (first, rest) = out.split_at_mut(5 * 32);
    let (second, high) = rest.split_at_mut(5 * 16);
    base_3::<32>(scale, part(block, 0), first);
    base_3::<16>(scale, part(block, 32), second);
    base_3::<4>(scale, part(block, 48), high);
}

/// `scale` times the base-3 digits less 1 of `N` bytes: all first digits, all second ones, as many as `out` has room
/// for.
#[inline(always)]
fn base_3<const N: usize>(scale: f32, bytes: &[u8; N], out: &mut [f32]) {
    let mut power = 1u8;
    for out in out.as_chunks_mut::<N>().0 {
        for i in 0..N {
            let fraction = u16::from(bytes[i].wrapping_mul(power));
            out[i] = scale * (i32::from((3 * fraction) >> 8) - 1) as f32;
        }
        power = power.wrapping_mul(3);
    }
}
