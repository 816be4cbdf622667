//! Unpackers of the formats with 32 codes a block, laid out as `tensor::decode` says.

use super::{Unpack, half_at, part};
use crate::simd::Lanes;
use gannet_tensor::decode;

#[derive(Clone, Copy)]
pub(super) struct Q4_0;

impl Unpack for Q4_0 {
    type Block = decode::Q4_0;
    const ELEMENTS: usize = 32;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        let scale = L::splat(half_at::<L>(run, 0));
        let value = |code: L| code.add(L::splat(-8.0)).mul(scale);
        let codes = part(run, 2);
        take(0, L::low_nibbles(codes, value));
        take(1, L::high_nibbles(codes, value));
    }
}

#[derive(Clone, Copy)]
pub(super) struct Q4_1;

impl Unpack for Q4_1 {
    type Block = decode::Q4_1;
    const ELEMENTS: usize = 32;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        let scale = L::splat(half_at::<L>(run, 0));
        let minimum = L::splat(half_at::<L>(run, 2));
        let value = |code: L| code.mul(scale).add(minimum);
        let codes = part(run, 4);
        take(0, L::low_nibbles(codes, value));
        take(1, L::high_nibbles(codes, value));
    }
}

#[derive(Clone, Copy)]
pub(super) struct Q8_0;

impl Unpack for Q8_0 {
    type Block = decode::Q8_0;
    const ELEMENTS: usize = 32;

    #[inline(always)]
    fn unpack<L: Lanes>(run: &[u8], mut take: impl FnMut(usize, L)) {
        let scale = L::splat(half_at::<L>(run, 0));
        take(0, L::from_i8(part(run, 2)).mul(scale));
        take(1, L::from_i8(part(run, 18)).mul(scale));
    }
}
