//! The rope parameters of config.json, by `rope_type`.

use super::{ATTENTION_FACTOR, BETA_FAST, BETA_SLOW, FACTOR, FACTORS, KIND, Reader, magnitude};
use crate::ModelError;
use crate::keys::{Key, json_key};
use crate::rope::{Llama3, LongRope, RopeConfig, RopeScaling, Yarn};

const MSCALE: Key = json_key("mscale");
const MSCALE_ALL: Key = json_key("mscale_all_dim");
const LOW: Key = json_key("low_freq_factor");
const HIGH: Key = json_key("high_freq_factor");
const SHORT_FACTORS: Key = json_key("short_factor");
const LONG_FACTORS: Key = json_key("long_factor");
const TRUNCATE: Key = json_key("truncate");
const OLD_KIND: Key = json_key("type");

impl Reader<'_> {
    pub(super) fn json_rope(&self, theta: Key) -> Result<RopeConfig, ModelError> {
        let kind = match self.keys().text(KIND)? {
            Some(kind) => kind,
            None => match self.keys().text(OLD_KIND)? {
                Some(kind) => kind,
                None if self.keys().number(FACTOR)?.is_some() => {
                    return Err(self.keys().missing(KIND, "the kind of scaling that `factor` belongs to"));
                }
                None => "default",
            },
        };
        let (attention_scale, scaling) = match kind {
            "default" | "mrope" => (1.0, RopeScaling::None),
            "su" | "yarn" if self.defaults.old_longrope_names => self.long_rope()?,
            "linear" => (1.0, RopeScaling::Linear { factor: self.factor()? }),
            "dynamic" => (1.0, self.dynamic()?),
            "yarn" => self.yarn()?,
            "llama3" => (1.0, self.llama3()?),
            "longrope" => self.long_rope()?,
            other => {
                let expected = "`default`, `linear`, `dynamic`, `yarn`, `llama3` or `longrope`";
                return Err(self.keys().wrong(KIND, format!("`{other}`"), expected));
            }
        };
        self.rope(theta, attention_scale, scaling)
    }

    fn dynamic(&self) -> Result<RopeScaling, ModelError> {
        let dims = self.dims()?;
        if dims < 4 {
            return Err(self.keys().wrong_size(
                "the width of a head with `dynamic` rope",
                dims,
                "at least 4",
            ));
        }
        Ok(RopeScaling::Dynamic { factor: self.factor()?, trained: self.defaults.context_length })
    }

    fn yarn(&self) -> Result<(f64, RopeScaling), ModelError> {
        let original = self.original()? as f64;
        let factor = match self.limited_factor()? {
            Some(factor) => factor,
            None => self.defaults.context_length as f64 / original,
        };
        let yarn = Yarn {
            factor,
            original,
            beta_fast: self.beta(BETA_FAST, 32.0)?,
            beta_slow: self.beta(BETA_SLOW, 1.0)?,
            truncate: self.keys().flag(TRUNCATE)?.unwrap_or(self.defaults.yarn_truncates),
        };
        let attention_scale = match self.keys().positive(ATTENTION_FACTOR)? {
            Some(stated) => stated,
            None => self.yarn_attention_scale(factor)?,
        };
        Ok((attention_scale, RopeScaling::Yarn(yarn)))
    }

    fn yarn_attention_scale(&self, factor: f64) -> Result<f64, ModelError> {
        let (one, all) = (self.keys().number(MSCALE)?, self.keys().number(MSCALE_ALL)?);
        Ok(match (one, all) {
            (Some(one), Some(all)) if one != 0.0 && all != 0.0 => {
                magnitude(factor, one) / magnitude(factor, all)
            }
            (Some(_) | None, Some(_) | None) => magnitude(factor, 1.0),
        })
    }

    fn llama3(&self) -> Result<RopeScaling, ModelError> {
        let factor = self.factor()?;
        let (low, high) = (self.required(LOW)?, self.required(HIGH)?);
        if low >= high {
            return Err(self.keys().wrong(HIGH, high, format!("a number above the low factor {low}")));
        }
        Ok(RopeScaling::Llama3(Llama3 { factor, low, high, original: self.original()? as f64 }))
    }

    fn long_rope(&self) -> Result<(f64, RopeScaling), ModelError> {
        let original = self.original()?;
        let factor = match self.limited_factor()? {
            Some(factor) => factor,
            None => self.defaults.context_length as f64 / original as f64,
        };
        let attention_scale = match self.keys().positive(ATTENTION_FACTOR)? {
            Some(stated) => stated,
            None if factor <= 1.0 || original < 2 => 1.0,
            None => (1.0 + factor.ln() / (original as f64).ln()).sqrt(),
        };
        let (short, long) = (self.divisors(SHORT_FACTORS)?, self.divisors(LONG_FACTORS)?);
        Ok((attention_scale, RopeScaling::LongRope(LongRope { short, long, original })))
    }

    fn divisors(&self, key: Key) -> Result<Vec<f32>, ModelError> {
        let pairs = self.dims()? / 2;
        let expected = format!("{pairs} numbers, one for each pair of a head");
        match self.keys().positives(key)? {
            Some(found) if found.len() == pairs => Ok(found),
            Some(found) => Err(self.keys().wrong(key, found.len(), expected)),
            None => Err(self.keys().missing(key, expected)),
        }
    }

    fn factor(&self) -> Result<f64, ModelError> {
        self.limited_factor()?.ok_or_else(|| self.keys().missing(FACTOR, "a number above 0"))
    }

    fn limited_factor(&self) -> Result<Option<f64>, ModelError> {
        match self.keys().positive(FACTOR)? {
            Some(factor) if !FACTORS.contains(&factor) => {
                Err(self.keys().wrong(FACTOR, factor, format!("a number up to {:e}", FACTORS.end())))
            }
            found => Ok(found),
        }
    }

    fn required(&self, key: Key) -> Result<f64, ModelError> {
        self.keys().positive(key)?.ok_or_else(|| self.keys().missing(key, "a number above 0"))
    }
}
