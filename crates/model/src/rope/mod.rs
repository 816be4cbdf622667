//! Rotary embeddings: from the scalings that models name to one inverse frequency a pair.
//!
//! All scalings are computed as transformers does, in float32 and in its order of operations: at position 30,000
//! the last bit of a frequency is worth a thousandth of a radian. `dynamic` and `longrope` depend there on the
//! running length; here they are fixed at load from the context in force, so that a key keeps its meaning.
//!
//! Knows no file: `read` fills a [`RopeConfig`] from one.

mod asked;
mod read;

pub use asked::{OverrideKind, RopeOverride};
pub(crate) use read::{LayerRope, RopeDefaults, Rotated, nested_rope, one_rope};

use gannet_ops::RopeTable;

/// A rotary embedding of the first elements of each head.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// The base of the wavelengths, above 1.
    pub theta: f64,
    /// Elements of a head that are rotated; even.
    pub dims: usize,
    /// Multiplies cosine and sine.
    pub attention_scale: f32,
    /// How frequencies are stretched for contexts beyond the trained one.
    pub scaling: RopeScaling,
}

/// How frequencies are stretched; `original` and `trained` are lengths in tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All divided by `factor`.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The base grows with the context beyond `trained`.
    Dynamic {
        /// How fast it grows.
        factor: f64,
        /// Up to here nothing changes.
        trained: usize,
    },
    /// Slow pairs are divided by `factor`, fast ones kept, with a ramp between (arXiv 2309.00071).
    Yarn(Yarn),
    /// Long waves are divided by `factor`, short ones kept, with a ramp between.
    Llama3(Llama3),
    /// Each pair has its divisor, one list for short and one for long contexts (arXiv 2402.13753).
    LongRope(LongRope),
    /// Each pair has its divisor.
    Divisors(Vec<f32>),
}

/// The parameters of `yarn`.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// The divisor of slow pairs.
    pub factor: f64,
    /// The trained context.
    pub original: f64,
    /// Pairs that turn more often than this in `original` tokens are kept.
    pub beta_fast: f64,
    /// Pairs that turn less often than this are divided.
    pub beta_slow: f64,
    /// The ends of the ramp are whole pairs.
    pub truncate: bool,
}

/// The parameters of `llama3`.
#[derive(Clone, Debug, PartialEq)]
pub struct Llama3 {
    /// The divisor of long waves.
    pub factor: f64,
    /// Waves longer than `original / low` are divided.
    pub low: f64,
    /// Waves shorter than `original / high` are kept.
    pub high: f64,
    /// The trained context.
    pub original: f64,
}

/// The parameters of `longrope`.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// Divisors for contexts up to `original`.
    pub short: Vec<f32>,
    /// Divisors for longer contexts.
    pub long: Vec<f32>,
    /// The trained context.
    pub original: usize,
}

impl RopeConfig {
    /// The angles for a context of so many tokens.
    pub fn table(&self, context: usize) -> RopeTable {
        let inverse_frequencies = self.inverse_frequencies(context);
        let axes = vec![0; inverse_frequencies.len()];
        RopeTable { inverse_frequencies, axes, attention_scale: self.attention_scale }
    }

    /// The longest context that the scaling is made for, where that is more than the `trained` one: a divisor
    /// stretches what it divides, and `dynamic` grows with any context.
    pub fn reach(&self, trained: usize) -> usize {
        match &self.scaling {
            RopeScaling::Dynamic { .. } => crate::limits::CONTEXT_MAX,
            RopeScaling::Linear { factor } => (trained as f64 * factor) as usize,
            RopeScaling::Yarn(yarn) => trained.max((yarn.original * yarn.factor) as usize),
            RopeScaling::None
            | RopeScaling::Llama3(_)
            | RopeScaling::LongRope(_)
            | RopeScaling::Divisors(_) => trained,
        }
    }

    /// What was chosen from the context, for scalings that depend on it.
    pub fn choice(&self, context: usize) -> Option<String> {
        match &self.scaling {
            RopeScaling::Dynamic { trained, .. } if context > *trained => {
                let base = self.dynamic_base(context).unwrap_or(self.theta as f32);
                Some(format!("dynamic, base {base} for the context of {context} (trained for {trained})"))
            }
            RopeScaling::Dynamic { trained, .. } => {
                Some(format!("dynamic, not scaled: the context of {context} is within the trained {trained}"))
            }
            RopeScaling::LongRope(long) if context > long.original => {
                Some(format!("longrope, long factors: the context of {context} is beyond {}", long.original))
            }
            RopeScaling::LongRope(long) => {
                Some(format!("longrope, short factors: the context of {context} is within {}", long.original))
            }
            RopeScaling::None
            | RopeScaling::Linear { .. }
            | RopeScaling::Yarn(_)
            | RopeScaling::Llama3(_)
            | RopeScaling::Divisors(_) => None,
        }
    }

    fn inverse_frequencies(&self, context: usize) -> Vec<f32> {
        let base = self.dynamic_base(context).unwrap_or(self.theta as f32);
        let wavelengths = wavelengths(base, self.dims);
        match &self.scaling {
            RopeScaling::None | RopeScaling::Dynamic { .. } => invert(&wavelengths),
            RopeScaling::Linear { factor } => divide(invert(&wavelengths), *factor as f32),
            RopeScaling::Yarn(yarn) => yarn.inverse_frequencies(&wavelengths, self.theta, self.dims),
            RopeScaling::Llama3(llama3) => llama3.inverse_frequencies(&wavelengths),
            RopeScaling::LongRope(long) => {
                let factors = if context > long.original { &long.long } else { &long.short };
                wavelengths.iter().zip(factors).map(|(wave, factor)| 1.0 / (factor * wave)).collect()
            }
            RopeScaling::Divisors(divisors) => invert(&wavelengths)
                .into_iter()
                .zip(divisors)
                .map(|(inverse, divisor)| inverse / divisor)
                .collect(),
        }
    }

    /// The base that `dynamic` scaling takes for a context.
    fn dynamic_base(&self, context: usize) -> Option<f32> {
        let RopeScaling::Dynamic { factor, trained } = self.scaling else { return None };
        let length = context.max(trained) as f32;
        let growth = factor as f32 * length / trained as f32 - (factor - 1.0) as f32;
        let exponent = self.dims as f64 / (self.dims as f64 - 2.0);
        // The exponent alone is in double precision there.
        Some(self.theta as f32 * f64::from(growth).powf(exponent) as f32)
    }
}

impl Yarn {
    fn inverse_frequencies(&self, wavelengths: &[f32], theta: f64, dims: usize) -> Vec<f32> {
        let (low, high) = self.ramp(theta, dims);
        let (low, width) = (low as f32, (high - low) as f32);
        let pair = |(pair, wave): (usize, &f32)| {
            let kept = 1.0 - ((pair as f32 - low) / width).clamp(0.0, 1.0);
            let divided = 1.0 / (self.factor as f32 * wave);
            divided * (1.0 - kept) + 1.0 / wave * kept
        };
        wavelengths.iter().enumerate().map(pair).collect()
    }

    /// The pairs between which frequencies go over from kept to divided.
    fn ramp(&self, theta: f64, dims: usize) -> (f64, f64) {
        let turning = |turns: f64| {
            let pairs = dims as f64 * (self.original / (turns * 2.0 * std::f64::consts::PI)).ln();
            pairs / (2.0 * theta.ln())
        };
        let (low, high) = (turning(self.beta_fast), turning(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(dims as f64 - 1.0));
        // A ramp of no length would divide by zero.
        if low == high { (low, high + 0.001) } else { (low, high) }
    }
}

impl Llama3 {
    fn inverse_frequencies(&self, wavelengths: &[f32]) -> Vec<f32> {
        let (factor, low, high) = (self.factor as f32, self.low as f32, self.high as f32);
        let original = self.original as f32;
        let longest_kept = (self.original / self.high) as f32;
        let shortest_divided = (self.original / self.low) as f32;
        let pair = |inverse: f32| {
            // A number over a tensor is the tensor's reciprocal times the number there.
            let wave = 1.0 / inverse * std::f64::consts::TAU as f32;
            if wave > shortest_divided {
                inverse / factor
            } else if wave < longest_kept {
                inverse
            } else {
                let kept = (1.0 / wave * original - low) / (high - low);
                (1.0 - kept) * inverse / factor + kept * inverse
            }
        };
        invert(wavelengths).into_iter().map(pair).collect()
    }
}

/// `base ^ (2 i / dims)` for each pair i.
fn wavelengths(base: f32, dims: usize) -> Vec<f32> {
    (0..dims / 2).map(|pair| power(base, (2 * pair) as f32 / dims as f32)).collect()
}

fn invert(wavelengths: &[f32]) -> Vec<f32> {
    wavelengths.iter().map(|wave| 1.0 / wave).collect()
}

fn divide(mut values: Vec<f32>, divisor: f32) -> Vec<f32> {
    for value in &mut values {
        *value /= divisor;
    }
    values
}

/// A float32 power, correctly rounded up to double rounding.
fn power(base: f32, exponent: f32) -> f32 {
    f64::from(base).powf(f64::from(exponent)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(theta: f64, dims: usize, scaling: RopeScaling) -> RopeConfig {
        RopeConfig { theta, dims, attention_scale: 1.0, scaling }
    }

    fn close(found: f32, expected: f64) {
        let error = (f64::from(found) - expected).abs() / expected;
        assert!(error < 3e-7, "{found} instead of {expected}: relative error {error:e}");
    }

    fn yarn(factor: f64, original: f64) -> Yarn {
        Yarn { factor, original, beta_fast: 32.0, beta_slow: 1.0, truncate: true }
    }

    #[test]
    fn yarn_frequencies_are_those_of_the_long_context_recipe() {
        let config = rope(1e6, 128, RopeScaling::Yarn(yarn(4.0, 32768.0)));
        assert_eq!(yarn(4.0, 32768.0).ramp(1e6, 128), (23.0, 40.0));
        let found = config.table(1).inverse_frequencies;
        let expected = [
            (0, 1.0),
            (23, 6.978305849e-3),
            (24, 5.375321491e-3),
            (32, 6.029411765e-4),
            (40, 4.445698525e-5),
            (63, 3.102344402e-7),
        ];
        for (pair, value) in expected {
            close(found[pair], value);
        }
    }

    #[test]
    fn yarn_ramps_of_other_bases_begin_and_end_at_whole_pairs() {
        assert_eq!(yarn(4.0, 262144.0).ramp(1e7, 64), (14.0, 22.0));
    }

    #[test]
    fn llama3_divides_long_waves_and_keeps_short_ones() {
        let cases = [
            (64, 32.0, 14, vec![1.651329, 3.292262, 9.666729]),
            (128, 8.0, 28, vec![1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327]),
        ];
        for (dims, factor, last_kept, between) in cases {
            let llama3 = Llama3 { factor, low: 1.0, high: 4.0, original: 8192.0 };
            let plain = rope(5e5, dims, RopeScaling::None).table(1).inverse_frequencies;
            let scaled = rope(5e5, dims, RopeScaling::Llama3(llama3)).table(1).inverse_frequencies;
            for pair in 0..dims / 2 {
                let divisor = f64::from(plain[pair]) / f64::from(scaled[pair]);
                let expected = match pair.checked_sub(last_kept + 1) {
                    None => 1.0,
                    Some(place) => between.get(place).copied().unwrap_or(factor),
                };
                assert!(
                    (divisor - expected).abs() < 2e-6 * expected,
                    "pair {pair}: {divisor}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn dynamic_scaling_begins_beyond_the_trained_context() {
        let scaling = RopeScaling::Dynamic { factor: 2.0, trained: 32 };
        let config = rope(10000.0, 16, scaling);
        let plain = rope(10000.0, 16, RopeScaling::None);
        assert_eq!(config.table(20), plain.table(20));
        assert_eq!(config.table(32), plain.table(32));
        // base' = 10000 * (2 * 44 / 32 - 1) ^ (16 / 14)
        let base: f64 = 10000.0 * 1.75f64.powf(16.0 / 14.0);
        close(config.table(44).inverse_frequencies[1], base.powf(-2.0 / 16.0));
        assert!(config.choice(44).unwrap().contains("context of 44"));
    }

    #[test]
    fn longrope_takes_the_long_factors_beyond_the_original_context() {
        let long = LongRope { short: vec![1.0, 2.0], long: vec![4.0, 8.0], original: 32 };
        let config = rope(10000.0, 4, RopeScaling::LongRope(long));
        assert_eq!(config.table(32).inverse_frequencies, [1.0, 0.005]);
        assert_eq!(config.table(33).inverse_frequencies, [0.25, 0.00125]);
        assert!(config.choice(33).unwrap().contains("long factors"));
        assert!(config.choice(32).unwrap().contains("short factors"));
    }
}
