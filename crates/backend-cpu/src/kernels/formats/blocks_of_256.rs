//! Unpackers of the formats with 256 codes a block, laid out as `tensor::decode` says.

use super::{Unpack, half_at, part};
use crate::simd::Lanes;
use gannet_ops::numerics::LANES;
use gannet_tensor::decode;

#[derive(Clone, Copy)]
pub(super) struct Q4K;

impl Unpack for Q4K {
    type Block = decode::Q4K;
    const ELEMENTS: usize = 256;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        let (scales, minima) = decode::scales_and_minima(run);
        for pair in 0..4 {
            let (first, second): (&[u8; 16], &[u8; 16]) =
                (part(run, 16 + 32 * pair), part(run, 32 + 32 * pair));
            let value = |sub_block: usize| {
                let (scale, minimum) = (L::splat(scales[sub_block]), L::splat(-minima[sub_block]));
                move |code: L| code.mul(scale).add(minimum)
            };
            take(4 * pair, L::low_nibbles(first, value(2 * pair)));
            take(4 * pair + 1, L::low_nibbles(second, value(2 * pair)));
            take(4 * pair + 2, L::high_nibbles(first, value(2 * pair + 1)));
            take(4 * pair + 3, L::high_nibbles(second, value(2 * pair + 1)));
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Q6K;

impl Unpack for Q6K {
    type Block = decode::Q6K;
    const ELEMENTS: usize = 256;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        for half in 0..2 {
            six_bits::<L, 0>(run, half, &mut take);
            six_bits::<L, 1>(run, half, &mut take);
            six_bits::<L, 2>(run, half, &mut take);
            six_bits::<L, 3>(run, half, &mut take);
        }
    }
}

/// The 32 elements of a quarter of half a q6_k block. The quarter is a constant, so that shifts and masks are.
#[inline(always)]
fn six_bits<L: Lanes, const QUARTER: usize>(run: &[u8], half: usize, take: &mut impl FnMut(usize, L)) {
    let scale = half_at::<L>(run, 208);
    for side in 0..2 {
        let low: &[u8; LANES] = part(run, 64 * half + 32 * (QUARTER % 2) + 16 * side);
        let high: &[u8; LANES] = part(run, 128 + 32 * half + 16 * side);
        let mut codes = [0; LANES];
        for i in 0..LANES {
            let low = if QUARTER < 2 { low[i] & 15 } else { low[i] >> 4 };
            codes[i] = (low | (((high[i] >> (2 * QUARTER)) & 3) << 4)).wrapping_sub(32);
        }
        let sixteen = 8 * half + 2 * QUARTER + side;
        let scale = scale * f32::from(run[192 + sixteen] as i8);
        take(sixteen, L::from_i8(&codes).mul(L::splat(scale)));
    }
}
