//! A rope scaling that a person asks for: `yarn:4`, `linear:2`, `dynamic:2`.

use super::{RopeConfig, RopeScaling, Yarn};
use std::fmt::{self, Display};
use std::str::FromStr;

/// The most that a context can be stretched by; every published recipe is far below.
const FACTOR_MAX: f64 = 1024.0;

/// A kind of scaling with its factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeOverride {
    /// How frequencies are stretched.
    pub kind: OverrideKind,
    /// By how much; above 1.
    pub factor: f64,
}

/// The scalings that need nothing but a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideKind {
    /// Slow pairs are divided, fast ones kept.
    Yarn,
    /// All are divided.
    Linear,
    /// The base grows with the context.
    Dynamic,
}

impl RopeConfig {
    /// Puts the scaling in place of the present one, or says why it can't be. Where the present one doesn't know the
    /// length that the model was made for, it is the `context_length`.
    pub(crate) fn scale(&mut self, asked: &RopeOverride, context_length: usize) -> Result<(), String> {
        let own =
            |name: &str| Err(format!("the model's rope has a scaling of its own, `{name}`, which it needs"));
        let original = match &self.scaling {
            RopeScaling::None | RopeScaling::Linear { .. } => context_length,
            RopeScaling::Dynamic { trained, .. } => *trained,
            RopeScaling::Yarn(yarn) => yarn.original as usize,
            RopeScaling::Llama3(_) => return own("llama3"),
            RopeScaling::LongRope(_) => return own("longrope"),
            RopeScaling::Divisors(_) => return own("divisors of the file"),
        };
        let factor = asked.factor;
        (self.attention_scale, self.scaling) = match asked.kind {
            OverrideKind::Yarn => (super::read::magnitude(factor, 1.0) as f32, yarn(factor, original)),
            OverrideKind::Linear => (1.0, RopeScaling::Linear { factor }),
            OverrideKind::Dynamic if self.dims < 4 => {
                return Err(format!(
                    "`dynamic` needs 4 rotated elements of a head, the model has {}",
                    self.dims
                ));
            }
            OverrideKind::Dynamic => (1.0, RopeScaling::Dynamic { factor, trained: original }),
        };
        Ok(())
    }
}

fn yarn(factor: f64, original: usize) -> RopeScaling {
    let original = original as f64;
    RopeScaling::Yarn(Yarn { factor, original, beta_fast: 32.0, beta_slow: 1.0, truncate: true })
}

impl Display for RopeOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            OverrideKind::Yarn => "yarn",
            OverrideKind::Linear => "linear",
            OverrideKind::Dynamic => "dynamic",
        };
        write!(f, "{kind}:{}", self.factor)
    }
}

impl FromStr for RopeOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "`{text}` is no rope scaling, expected `yarn:F`, `linear:F` or `dynamic:F` with F from 1 to {FACTOR_MAX}"
            )
        };
        let (kind, factor) = text.split_once(':').ok_or_else(expected)?;
        let kind = match kind {
            "yarn" => OverrideKind::Yarn,
            "linear" => OverrideKind::Linear,
            "dynamic" => OverrideKind::Dynamic,
            _ => return Err(expected()),
        };
        let factor: f64 = factor.parse().map_err(|_| expected())?;
        if factor > 1.0 && factor <= FACTOR_MAX { Ok(Self { kind, factor }) } else { Err(expected()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalings_are_read_as_they_are_written() {
        for text in ["yarn:4", "linear:2.5", "dynamic:8"] {
            let read: RopeOverride = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        for text in ["yarn", "yarn:", "yarn:0.5", "yarn:1", "yarn:inf", "yarn:NaN", "ntk:2", "yarn:2000"] {
            assert!(text.parse::<RopeOverride>().unwrap_err().contains("expected `yarn:F`"), "{text}");
        }
    }

    #[test]
    fn a_scaling_stretches_what_the_model_was_made_for() {
        let plain = RopeConfig { theta: 1e4, dims: 16, attention_scale: 1.0, scaling: RopeScaling::None };
        let mut scaled = plain.clone();
        assert_eq!(scaled.scale(&"yarn:4".parse().unwrap(), 2048), Ok(()));
        assert_eq!(scaled.scaling, yarn(4.0, 2048));
        assert_eq!(scaled.attention_scale, (0.1 * 4f64.ln() + 1.0) as f32);
        // Asked for once more, it starts from the same length.
        assert_eq!(scaled.scale(&"linear:2".parse().unwrap(), 8192), Ok(()));
        assert_eq!(scaled.attention_scale, 1.0);
        let mut long = RopeConfig { scaling: RopeScaling::Divisors(vec![1.0; 8]), ..plain };
        assert!(long.scale(&"yarn:4".parse().unwrap(), 2048).unwrap_err().contains("of its own"));
    }
}
