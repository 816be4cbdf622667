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
        let scale = half_at::<L>(run, 208);
        let scales: &[u8; 16] = part(run, 192);
        for half in 0..2 {
            for sixteen in 0..8 {
                let codes = six_bits(run, half, sixteen);
                let scale = scale * f32::from(scales[8 * half + sixteen] as i8);
                take(8 * half + sixteen, L::from_i8(&codes).mul(L::splat(scale)));
            }
        }
    }
}

/// Codes `16 sixteen ..` of half a q6_k block, less 32, as signed bytes.
#[inline(always)]
fn six_bits(run: &[u8], half: usize, sixteen: usize) -> [u8; LANES] {
    let (quarter, side) = (sixteen / 2, sixteen % 2);
    let low: &[u8; LANES] = part(run, 64 * half + 32 * (quarter % 2) + 16 * side);
    let high: &[u8; LANES] = part(run, 128 + 32 * half + 16 * side);
    std::array::from_fn(|i| {
        let low = if quarter < 2 { low[i] & 15 } else { low[i] >> 4 };
        (low | ((high[i] >> (2 * quarter)) & 3) << 4).wrapping_sub(32)
    })
}
