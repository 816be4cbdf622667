//! The formats that have panels: what a block of a checkpoint consists of, and how that lies in a panel.
//!
//! A block is taken apart where `tensor` says what its bytes mean; here its codes come out unsigned, as they are
//! stored, and an [`Offset`] says which code means zero.

use super::planes::{Eight, Five, Four, Planes, Six};
use super::scales::{PowerOfTwo, Scale, ScaleAndMinimum, Scales, ScalesAndMinima, Sixteens, ThirtyTwos};
use crate::simd::Dots;
use gannet_tensor::Format;

/// A block of a checkpoint in parts.
pub(crate) struct Parts {
    /// Bits of f16 numbers of the run.
    pub(crate) heads: [[u8; 2]; 2],
    /// Bytes of scales of each sub-block.
    pub(crate) scales: [[u8; 2]; 8],
    /// By ascending column.
    pub(crate) codes: [u8; 256],
}

/// A format that has panels, as a type that kernels are compiled for.
pub(crate) trait PanelFormat: Copy + Send + Sync {
    const FORMAT: Format;
    type Scales: Scales;
    type Planes: Planes;
    type Offset: Offset;
    /// The codes that stored ones of four bits stand for, where they aren't codes themselves.
    const TABLE: Option<&'static [u8; 16]>;

    /// Takes a block apart; it has the columns of a run.
    fn parts(block: &[u8]) -> Parts;
}

/// The code that means zero, and how to take it away from sums.
pub(crate) trait Offset {
    const ZERO: i32;

    /// What a sum starts from, over columns of a row whose codes add up to `-minus_sum`.
    fn start<D: Dots>(minus_sum: i32) -> D::Sums;
    fn dot<D: Dots>(sums: D::Sums, codes: D::Bytes, x: i32) -> D::Sums;
}

/// Zero is zero; codes are below 64.
pub(crate) struct AtZero;
/// Zero is `2^SHIFT`; codes are below 64.
pub(crate) struct At<const SHIFT: u32>;
/// Zero is 128.
pub(crate) struct AtMiddle;

impl Offset for AtZero {
    const ZERO: i32 = 0;

    #[inline(always)]
    fn start<D: Dots>(_: i32) -> D::Sums {
        D::start::<0>(0)
    }

    #[inline(always)]
    fn dot<D: Dots>(sums: D::Sums, codes: D::Bytes, x: i32) -> D::Sums {
        D::dot(sums, codes, x)
    }
}

impl<const SHIFT: u32> Offset for At<SHIFT> {
    const ZERO: i32 = 1 << SHIFT;

    #[inline(always)]
    fn start<D: Dots>(minus_sum: i32) -> D::Sums {
        D::start::<SHIFT>(minus_sum)
    }

    #[inline(always)]
    fn dot<D: Dots>(sums: D::Sums, codes: D::Bytes, x: i32) -> D::Sums {
        D::dot(sums, codes, x)
    }
}

impl Offset for AtMiddle {
    const ZERO: i32 = 128;

    #[inline(always)]
    fn start<D: Dots>(minus_sum: i32) -> D::Sums {
        D::start_wide(minus_sum)
    }

    #[inline(always)]
    fn dot<D: Dots>(sums: D::Sums, codes: D::Bytes, x: i32) -> D::Sums {
        D::dot_wide(sums, codes, x)
    }
}

/// What is to be done for a format that is known only at run time.
pub(crate) trait PanelVisitor {
    type Output;

    fn visit<F: PanelFormat>(self) -> Self::Output;
}

/// Defines the formats with panels.
macro_rules! panel_formats {
    ($($name:ident: $scales:ty, $planes:ty, $offset:ty, $table:expr, $parts:expr;)*) => {
        $(
            #[derive(Clone, Copy)]
            struct $name;

            impl PanelFormat for $name {
                const FORMAT: Format = Format::$name;
                type Scales = $scales;
                type Planes = $planes;
                type Offset = $offset;
                const TABLE: Option<&'static [u8; 16]> = $table;

                #[inline(always)]
                fn parts(block: &[u8]) -> Parts {
                    $parts(block)
                }
            }
        )*

        /// Calls `visitor` with the type of this format, or gives it back where the format has no panels.
        pub(crate) fn visit<V: PanelVisitor>(format: Format, visitor: V) -> Result<V::Output, V> {
            $(if format == Format::$name {
                return Ok(visitor.visit::<$name>());
            })*
            Err(visitor)
        }

    };
}

panel_formats! {
    Q4_0: Scale, Four, At<3>, None, |block| blocks_of_32(block, nibbles(&block[2..]), 1);
    Q4_1: ScaleAndMinimum, Four, AtZero, None, |block| blocks_of_32(block, nibbles(&block[4..]), 2);
    Q5_0: Scale, Five, At<4>, None, |block| blocks_of_32(block, five_bits(&block[2..]), 1);
    Q5_1: ScaleAndMinimum, Five, AtZero, None, |block| blocks_of_32(block, five_bits(&block[4..]), 2);
    Q8_0: Scale, Eight, AtMiddle, None, |block| blocks_of_32(block, signed_bytes(&block[2..]), 1);
    Iq4Nl: Scale, Four, AtMiddle, Some(&UNEVEN), |block| blocks_of_32(block, nibbles(&block[2..]), 1);
    Mxfp4: PowerOfTwo, Four, At<4>, Some(&TWICE_E2M1), mxfp4;
    Q4K: ScalesAndMinima, Four, AtZero, None, q4_k;
    Q5K: ScalesAndMinima, Five, AtZero, None, q5_k;
    Q6K: Sixteens, Six, At<5>, None, q6_k;
    Iq4Xs: ThirtyTwos, Four, AtMiddle, Some(&UNEVEN), iq4_xs;
}

/// The values of iq4_nl and iq4_xs, 128 above themselves.
const UNEVEN: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// Twice the values of E2M1, 16 above themselves.
const TWICE_E2M1: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

#[inline(always)]
fn blocks_of_32(block: &[u8], codes: [u8; 32], heads: usize) -> Parts {
    let mut parts = Parts { heads: [[0; 2]; 2], scales: [[0; 2]; 8], codes: [0; 256] };
    for head in 0..heads {
        parts.heads[head] = [block[2 * head], block[2 * head + 1]];
    }
    parts.codes[..32].copy_from_slice(&codes);
    parts
}

/// 32 codes, the first 16 in the low halves.
#[inline(always)]
fn nibbles(packed: &[u8]) -> [u8; 32] {
    let packed: &[u8; 16] = packed.first_chunk().expect("a block has its codes");
    let mut codes = [0; 32];
    for i in 0..16 {
        (codes[i], codes[i + 16]) = (packed[i] & 15, packed[i] >> 4);
    }
    codes
}

/// 32 codes after their fifth bits.
#[inline(always)]
fn five_bits(packed: &[u8]) -> [u8; 32] {
    let fifths = u32::from_le_bytes(*packed.first_chunk().expect("a block has its fifth bits"));
    let mut codes = nibbles(&packed[4..]);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((fifths >> i & 1) as u8) << 4;
    }
    codes
}

/// 32 signed bytes, 128 above themselves.
#[inline(always)]
fn signed_bytes(packed: &[u8]) -> [u8; 32] {
    let bytes: &[u8; 32] = packed.first_chunk().expect("a block has its codes");
    bytes.map(|byte| byte ^ 0x80)
}

#[inline(always)]
fn mxfp4(block: &[u8]) -> Parts {
    let mut parts = blocks_of_32(block, nibbles(&block[1..]), 0);
    parts.scales[0][0] = block[0];
    parts
}

#[inline(always)]
fn q4_k(block: &[u8]) -> Parts {
    let mut parts = scales_and_minima(block);
    for pair in 0..4 {
        for i in 0..32 {
            let packed = block[16 + 32 * pair + i];
            parts.codes[64 * pair + i] = packed & 15;
            parts.codes[64 * pair + 32 + i] = packed >> 4;
        }
    }
    parts
}

#[inline(always)]
fn q5_k(block: &[u8]) -> Parts {
    let mut parts = scales_and_minima(block);
    for pair in 0..4 {
        for i in 0..32 {
            let (packed, fifths) = (block[48 + 32 * pair + i], block[16 + i] >> (2 * pair));
            parts.codes[64 * pair + i] = (packed & 15) | ((fifths & 1) << 4);
            parts.codes[64 * pair + 32 + i] = (packed >> 4) | ((fifths & 2) << 3);
        }
    }
    parts
}

/// Heads and the eight scales and minima of 6 bits in 12 bytes.
#[inline(always)]
fn scales_and_minima(block: &[u8]) -> Parts {
    let mut parts = blocks_of_32(block, [0; 32], 2);
    // The sign: a checkpoint takes minima away, a panel's are added.
    parts.heads[1][1] ^= 0x80;
    let packed: &[u8; 12] = block[4..].first_chunk().expect("a block has its scales");
    for i in 0..4 {
        parts.scales[i] = [packed[i] & 63, packed[4 + i] & 63];
        parts.scales[4 + i] = [
            (packed[8 + i] & 15) | ((packed[i] >> 6) << 4),
            (packed[8 + i] >> 4) | ((packed[4 + i] >> 6) << 4),
        ];
    }
    parts
}

#[inline(always)]
fn q6_k(block: &[u8]) -> Parts {
    let mut parts = blocks_of_32(block, [0; 32], 0);
    parts.heads[0] = [block[208], block[209]];
    for i in 0..16 {
        parts.scales[i / 2][i % 2] = block[192 + i];
    }
    for half in 0..2 {
        for i in 0..32 {
            let (first, second) = (block[64 * half + i], block[64 * half + 32 + i]);
            let upper = block[128 + 32 * half + i];
            let codes = &mut parts.codes[128 * half..];
            codes[i] = (first & 15) | ((upper & 0x03) << 4);
            codes[i + 32] = (second & 15) | ((upper & 0x0c) << 2);
            codes[i + 64] = (first >> 4) | (upper & 0x30);
            codes[i + 96] = (second >> 4) | ((upper & 0xc0) >> 2);
        }
    }
    parts
}

#[inline(always)]
fn iq4_xs(block: &[u8]) -> Parts {
    let mut parts = blocks_of_32(block, [0; 32], 1);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for i in 0..8 {
        let low = (block[4 + i / 2] >> (4 * (i % 2))) & 15;
        let scale = (low | (((high >> (2 * i)) & 3) as u8) << 4) as i8 - 32;
        parts.scales[i][0] = scale as u8;
        parts.codes[32 * i..][..32].copy_from_slice(&nibbles(&block[8 + 16 * i..]));
    }
    parts
}
