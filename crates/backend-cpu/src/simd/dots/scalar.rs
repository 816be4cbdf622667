//! Dot products for any processor: arrays.

use super::super::scalar::F32x16;
use super::{CodeKernel, Dots, Lanes, REGISTER};
use gannet_ops::numerics::LANES;

pub(in super::super) struct Plain;

/// Runs a kernel as code for any processor. A function of its own, because its arrays take a large frame.
#[inline(never)]
pub(super) fn run<K: CodeKernel>(kernel: K) -> K::Output {
    kernel.run::<Plain>()
}

#[inline(always)]
fn each(code: impl FnMut(usize) -> u8) -> [u8; REGISTER] {
    std::array::from_fn(code)
}

impl Dots for Plain {
    type Floats = F32x16;
    type Bytes = [u8; REGISTER];
    type Sums = [i32; LANES];
    const MOST_ROWS: usize = 1;

    #[inline(always)]
    fn load(from: &[u8; REGISTER]) -> Self::Bytes {
        *from
    }

    #[inline(always)]
    fn store(codes: Self::Bytes, to: &mut [u8; REGISTER]) {
        *to = codes;
    }

    #[inline(always)]
    fn low_nibbles(packed: Self::Bytes) -> Self::Bytes {
        each(|i| packed[i] & 15)
    }

    #[inline(always)]
    fn high_nibbles(packed: Self::Bytes) -> Self::Bytes {
        each(|i| packed[i] >> 4)
    }

    #[inline(always)]
    fn with_two_bits<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        each(|i| low[i] | ((packed[i] >> (2 * PLACE)) & 3) << 4)
    }

    #[inline(always)]
    fn with_bit<const PLACE: u32>(low: Self::Bytes, packed: Self::Bytes) -> Self::Bytes {
        each(|i| low[i] | ((packed[i] >> PLACE) & 1) << 4)
    }

    #[inline(always)]
    fn look_up(table: &[u8; 16], codes: Self::Bytes) -> Self::Bytes {
        each(|i| table[usize::from(codes[i] & 15)])
    }

    #[inline(always)]
    fn start<const SHIFT: u32>(number: i32) -> Self::Sums {
        [number << SHIFT; LANES]
    }

    #[inline(always)]
    fn dot(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        let x = x.to_le_bytes().map(|byte| i32::from(byte as i8));
        std::array::from_fn(|output| {
            let products = (0..4).map(|i| i32::from(codes[4 * output + i]) * x[i]);
            sums[output] + products.sum::<i32>()
        })
    }

    #[inline(always)]
    fn start_wide(minus_sum: i32) -> Self::Sums {
        [minus_sum << 7; LANES]
    }

    #[inline(always)]
    fn dot_wide(sums: Self::Sums, codes: Self::Bytes, x: i32) -> Self::Sums {
        Self::dot(sums, codes, x)
    }

    #[inline(always)]
    fn next_term(sums: Self::Sums, start: Self::Sums) -> Self::Sums {
        std::array::from_fn(|output| (sums[output] << 8) + start[output])
    }

    #[inline(always)]
    fn floats(sums: Self::Sums) -> Self::Floats {
        F32x16::load(&sums.map(|sum| sum as f32))
    }

    #[inline(always)]
    fn from_u8(bytes: &[u8; LANES]) -> Self::Floats {
        F32x16::load(&bytes.map(f32::from))
    }

    #[inline(always)]
    fn half_powers(bytes: &[u8; LANES]) -> Self::Floats {
        F32x16::load(&bytes.map(super::half_power))
    }
}
