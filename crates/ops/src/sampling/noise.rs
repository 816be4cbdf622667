//! Gumbel noise from a counter: a pure function of seed, choice, index and token.
//!
//! A Gumbel variate is `-ln(E)` with E exponential, and E is `-ln(v)` with v uniform on (0, 1). The upper tail,
//! which decides draws, is where E is small, so half of the time E is taken as `-ln(1 - w)` with w uniform on
//! (0, 1/2): that keeps its full relative precision down to 2^-33.

use crate::math::{ln, ln_1p};

/// Sets the row's own number apart from its tokens'.
const ROW_STREAM: u64 = 0x5851_f42d_4c95_7f2d;

/// No noise is larger: the least uniform number is 2^-34, so the least exponential is no smaller.
pub(crate) const NOISE_MAX: f32 = 24.0;

/// The noise of one row: what seed, choice and index contribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowNoise(u64);

impl RowNoise {
    pub(crate) fn new(seed: u64, choice: u32, index: u32) -> Self {
        let place = (u64::from(choice) << 32) | u64::from(index);
        Self(mix(mix(seed).wrapping_add(place)))
    }

    /// The noise g of a token where `g > at_least` may hold, else `None`.
    ///
    /// `g > d` needs `w < exp(-d) <= 2^-floor(d / ln 2)`, so most tokens are ruled out by the bits alone.
    #[inline]
    pub(crate) fn above(self, token: u32, at_least: f32) -> Option<f32> {
        let bits = mix(self.0.wrapping_add(u64::from(token)));
        let half = uniform_half((bits >> 32) as u32);
        let is_upper = bits & 1 == 1;
        if at_least > 0.0 {
            let doublings = (at_least * std::f32::consts::LOG2_E) as i32;
            if !is_upper && at_least > 0.37 || is_upper && half * two_to(doublings.min(64)) >= 1.0 {
                return None;
            }
        }
        let exponential = if is_upper { -ln_1p(-half) } else { -ln(half) };
        Some(-ln(exponential))
    }

    /// A number of the row's own in [0, 1), of no token.
    pub(crate) fn uniform(self) -> f32 {
        let bits = mix(self.0 ^ ROW_STREAM);
        (bits >> 40) as f32 / (1u64 << 24) as f32
    }

    #[cfg(test)]
    fn gumbel(self, token: u32) -> f32 {
        self.above(token, f32::NEG_INFINITY).expect("nothing is ruled out")
    }
}

/// Uniform on (0, 1/2) in steps of 2^-33.
fn uniform_half(bits: u32) -> f32 {
    (bits as f32 + 0.5) * (1.0 / 8_589_934_592.0)
}

fn two_to(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// The finaliser of splitmix64 after one golden-ratio step.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_gumbel_moments() {
        let noise = RowNoise::new(7, 0, 3);
        let count = 200_000u32;
        let values: Vec<f64> = (0..count).map(|token| f64::from(noise.gumbel(token))).collect();
        let mean = values.iter().sum::<f64>() / f64::from(count);
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / f64::from(count);
        assert!((mean - 0.577_216).abs() < 0.01, "mean {mean}");
        assert!((variance - std::f64::consts::PI.powi(2) / 6.0).abs() < 0.03, "variance {variance}");
    }

    #[test]
    fn noise_follows_the_gumbel_distribution() {
        let noise = RowNoise::new(11, 1, 2);
        let count = 200_000u32;
        let mut values: Vec<f64> = (0..count).map(|token| f64::from(noise.gumbel(token))).collect();
        values.sort_by(f64::total_cmp);
        let distance = values
            .iter()
            .enumerate()
            .map(|(i, g)| ((i as f64 + 0.5) / f64::from(count) - (-(-g).exp()).exp()).abs())
            .fold(0.0, f64::max);
        // Kolmogorov-Smirnov at the 0.1 % level.
        assert!(distance < 1.95 / f64::from(count).sqrt(), "distance {distance}");
    }

    #[test]
    fn what_is_ruled_out_is_below_the_bound() {
        let noise = RowNoise::new(5, 0, 0);
        for token in 0..100_000 {
            let g = noise.gumbel(token);
            for bound in [0.0, 0.3, 0.5, 1.0, 3.0, 7.5, 20.0, 400.0] {
                match noise.above(token, bound) {
                    Some(found) => assert_eq!(found, g),
                    None => assert!(g <= bound, "token {token} has {g} and was ruled out above {bound}"),
                }
            }
        }
    }

    #[test]
    fn the_largest_noise_is_below_its_bound() {
        assert!(-ln(-ln_1p(-uniform_half(0))) < NOISE_MAX);
    }

    #[test]
    fn places_have_their_own_noise() {
        let first = RowNoise::new(1, 0, 0).gumbel(0);
        for other in [RowNoise::new(2, 0, 0), RowNoise::new(1, 1, 0), RowNoise::new(1, 0, 1)] {
            assert_ne!(other.gumbel(0), first);
        }
    }
}
