//! Elementary functions with one definition on every machine: a fixed range reduction and polynomial, fused
//! multiply-add throughout, no table and no branch, so that a vector unit computes the same bits as a scalar.
//!
//! Coefficients are minimax fits on the reduced range; the stated errors are measured by the tests over the
//! whole range against float64.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts: the first has trailing zeros, so that `n * LN2_HIGH` is exact for every exponent n.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Added to a number of magnitude below 2^22, rounds it to an integer, ties to even, which its lowest bits then are.
/// A conversion by `as` looks for numbers that don't fit, and no vector unit does that.
pub const ROUNDER: f32 = 12_582_912.0;

/// The exponential; error below 2 ulp, 0 below -87.3, infinite above 88.7, NaN for NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (y, n) = exp_reduced(x, ROUNDER);
    let n = n.wrapping_sub(ROUNDER.to_bits()) as i32;
    // Two factors, because 2^n overflows a float's exponent before the product does.
    let half = n >> 1;
    let scaled = y * power_of_two(half) * power_of_two(n.wrapping_sub(half));
    let bounded = if x < LOWEST_EXPONENT { 0.0 } else { scaled };
    if x > 88.722_83 { f32::INFINITY } else { bounded }
}

/// As [`exp`], for numbers up to 0 and NaN alone, with less to do; softmax has no others.
#[inline(always)]
pub fn exp_nonpositive(x: f32) -> f32 {
    // The lowest bits are n + 127 then, which is the field of an exponent.
    let (y, power) = exp_reduced(x, ROUNDER + 127.0);
    let scaled = y * f32::from_bits(power << 23);
    if x < LOWEST_EXPONENT { 0.0 } else { scaled }
}

/// Below this an exponential is no normal number.
const LOWEST_EXPONENT: f32 = -87.3;

/// Where `x = n ln 2 + r`: the exponential of r, and the bits of `n + rounder`.
#[inline(always)]
fn exp_reduced(x: f32, rounder: f32) -> (f32, u32) {
    let shifted = x.mul_add(LOG2_E, rounder);
    let n = shifted - rounder;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_2e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    p = p.mul_add(r, 1.0);
    (p.mul_add(r, 1.0), shifted.to_bits())
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm of a normal positive number; error below 2 ulp.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let e = (shifted as i32 >> 23) as f32;
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS));
    ln_reduced(m - 1.0, e)
}

/// `ln(1 + f)` for f above -1, exact also where 1 + f rounds; error below 2 ulp.
#[inline(always)]
pub fn ln_1p(f: f32) -> f32 {
    let near_one = f > -0.29 && f < 0.41;
    let x = if near_one { 1.0 } else { 1.0 + f };
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let e = (shifted as i32 >> 23) as f32;
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS));
    ln_reduced(if near_one { f } else { m - 1.0 }, e)
}

/// The bits of the square root of one half.
const SQRT_HALF_BITS: u32 = 0x3f35_04f3;

/// `ln((1 + f) * 2^e)` for f in [sqrt(1/2) - 1, sqrt(2) - 1).
#[inline(always)]
fn ln_reduced(f: f32, e: f32) -> f32 {
    let mut p = 7.037_683_6e-2f32;
    p = p.mul_add(f, -1.151_461e-1);
    p = p.mul_add(f, 1.167_699_9e-1);
    p = p.mul_add(f, -1.242_014_1e-1);
    p = p.mul_add(f, 1.424_932_3e-1);
    p = p.mul_add(f, -1.666_805_8e-1);
    p = p.mul_add(f, 2.000_071_4e-1);
    p = p.mul_add(f, -2.499_999_4e-1);
    p = p.mul_add(f, 3.333_333e-1);
    let square = f * f;
    let tail = e.mul_add(LN2_LOW, (square * f).mul_add(p, -0.5 * square));
    e.mul_add(LN2_HIGH, f + tail)
}

/// `1 / (1 + exp(-x))`.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// The hyperbolic tangent, by the exponential of `-2 |x|`; absolute error below 2e-7.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    ((1.0 - e) / (1.0 + e)).copysign(x)
}

/// The tanh form of the Gaussian error linear unit.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    let inner = SQRT_2_OVER_PI * (0.044_715 * x * x).mul_add(x, x);
    0.5 * x * (1.0 + tanh(inner))
}

/// `ln(1 + exp(x))`, computed as `max(x, 0) + ln_1p(exp(-|x|))`.
#[inline(always)]
pub fn softplus(x: f32) -> f32 {
    x.max(0.0) + ln_1p(exp(-x.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, ours: fn(f32) -> f32, exact: fn(f64) -> f64, range: (f32, f32), bound: f64) {
        let steps = 200_000;
        for step in 0..=steps {
            let x = range.0 + (range.1 - range.0) * step as f32 / steps as f32;
            let (found, expected) = (f64::from(ours(x)), exact(f64::from(x)));
            let unit = f64::from(f32::EPSILON) * expected.abs().max(f64::from(f32::MIN_POSITIVE));
            let error = (found - expected).abs() / unit;
            assert!(error < bound, "{name}({x}) = {found}, expected {expected}: {error} ulp");
        }
    }

    #[test]
    fn exponential_is_exact_to_two_ulp() {
        check("exp", exp, f64::exp, (-87.0, 88.7), 2.0);
        check("exp", exp, f64::exp, (-1.0, 1.0), 2.0);
        check("exp_nonpositive", exp_nonpositive, f64::exp, (-87.0, 0.0), 2.0);
        check("exp_nonpositive", exp_nonpositive, f64::exp, (-1.0, 0.0), 2.0);
    }

    #[test]
    fn exponential_has_its_limits() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!([exp(1e30), exp(-1e30), exp(-88.0)], [f32::INFINITY, 0.0, 0.0]);
        assert_eq!([exp_nonpositive(f32::NEG_INFINITY), exp_nonpositive(-1e30)], [0.0, 0.0]);
        assert_eq!(exp_nonpositive(0.0), 1.0);
        // Also one whose lowest bits are set, which a shift alone would make an exponent.
        for bits in [f32::NAN.to_bits(), 0x7fc0_01ff, 0xffff_ffff, 0x7f80_0001] {
            assert!(exp(f32::from_bits(bits)).is_nan());
            assert!(exp_nonpositive(f32::from_bits(bits)).is_nan());
        }
    }

    #[test]
    fn logarithm_is_exact_to_two_ulp() {
        check("ln", ln, f64::ln, (1e-30, 1e-20), 2.0);
        check("ln", ln, f64::ln, (1e-3, 0.9), 2.0);
        check("ln", ln, f64::ln, (1.1, 1e6), 2.0);
        check("ln_1p", ln_1p, f64::ln_1p, (1e-9, 1e-6), 2.0);
        check("ln_1p", ln_1p, f64::ln_1p, (-0.5, -1e-9), 2.0);
    }

    #[test]
    fn derived_functions_are_close() {
        check("sigmoid", sigmoid, |x| 1.0 / (1.0 + (-x).exp()), (-20.0, 20.0), 4.0);
        for step in -2000..=2000 {
            let x = step as f32 / 100.0;
            assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() < 2e-7, "tanh({x})");
            let exact = f64::from(x).exp().ln_1p();
            assert!((f64::from(softplus(x)) - exact).abs() < 3e-7 * exact.max(1.0), "softplus({x})");
        }
    }
}
