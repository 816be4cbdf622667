//! How keys and values become int8: the same scale and code on every backend, bit for bit.
//!
//! ```text
//! scale = largest |x| / 127, up to the next half-precision number       code = round(x / scale), ties to even
//! ```
//!
//! Keys share a scale over the tokens of a page for each channel, since a few channels of a head are large at every
//! token; values share one over the channels of a token.

use crate::math::ROUNDER;
use half::f16;

/// The largest code.
const CODES: f32 = 127.0;

/// The scale for numbers up to this magnitude; no number where that is none.
#[inline(always)]
pub fn scale(largest: f32) -> f16 {
    let exact = largest / CODES;
    let nearest = f16::from_f32(exact);
    // Rounded up, so that no code is beyond the largest.
    if nearest.to_f32() < exact { f16::from_bits(nearest.to_bits() + 1) } else { nearest }
}

/// The code of a number of at most the magnitude that the scale is for; 0 where all numbers of the scale are.
#[inline(always)]
pub fn code(x: f32, scale: f32) -> i8 {
    // The lowest bits of what is rounded by addition, as in `math::exp`: no conversion that looks for what doesn't fit.
    let code = (x / scale + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits()) as i8;
    if scale > 0.0 { code } else { 0 }
}

/// The largest magnitude; no number where any is none.
#[inline(always)]
pub fn largest(x: impl Iterator<Item = f32>) -> f32 {
    let mut largest = 0.0f32;
    let mut all = 0.0f32;
    for x in x {
        largest = largest.max(x.abs());
        all += x * 0.0;
    }
    // Infinite numbers and those that are none make `all` none.
    if all.is_nan() && largest.is_finite() { f32::NAN } else { largest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_stay_within_half_a_step_and_never_saturate() {
        for exponent in -20..16 {
            for fraction in 0..200 {
                let largest = (1.0 + fraction as f32 / 200.0) * 2.0f32.powi(exponent);
                let scale = scale(largest).to_f32();
                assert!(largest / scale <= CODES, "{largest}");
                for part in [-1.0, -0.4, 0.003, 0.7, 1.0] {
                    let x = part * largest;
                    let found = f32::from(code(x, scale)) * scale;
                    assert!((found - x).abs() <= 0.5001 * scale, "{x} became {found}");
                }
            }
        }
        assert_eq!((scale(0.0).to_f32(), code(0.0, 0.0)), (0.0, 0));
    }

    #[test]
    fn what_is_no_number_stays_none() {
        for x in [f32::NAN, f32::INFINITY] {
            let scale = scale(largest([1.0, x, 2.0].into_iter())).to_f32();
            assert!((f32::from(code(1.0, scale)) * scale).is_nan(), "{x}");
        }
    }
}
