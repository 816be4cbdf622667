//! The rope parameters of GGUF metadata, by `rope.scaling.type`.

use super::{ATTENTION_FACTOR, BETA_FAST, BETA_SLOW, FACTOR, FACTORS, KIND, Reader, magnitude};
use crate::ModelError;
use crate::keys::{Key, gguf_key};
use crate::rope::{LongRope, RopeConfig, RopeScaling, Yarn};

const OLD_FACTOR: Key = gguf_key("rope.scale_linear");
const YARN_ATTENTION_FACTOR: Key = gguf_key("rope.scaling.yarn_attn_factor");
const YARN_EXTRAPOLATION: Key = gguf_key("rope.scaling.yarn_ext_factor");
const YARN_LOG_MULTIPLIER: Key = gguf_key("rope.scaling.yarn_log_multiplier");

/// Divisors of all pairs in a GGUF file.
const DIVISORS: &str = "rope_freqs.weight";
const SHORT_DIVISORS: &str = "rope_factors_short.weight";
const LONG_DIVISORS: &str = "rope_factors_long.weight";

impl Reader<'_> {
    pub(super) fn gguf_rope(&self, theta: Key) -> Result<RopeConfig, ModelError> {
        let kind = match self.keys().text(KIND)? {
            Some(kind) => kind,
            // Tables of divisors for short and long contexts say it by themselves.
            None if self.keys().tensor(SHORT_DIVISORS)?.is_some() => "longrope",
            None => "linear",
        };
        let factor = self.gguf_factor()?;
        let stated = self.keys().positive(ATTENTION_FACTOR)?.unwrap_or(1.0);
        let (attention_scale, scaling) = match kind {
            "none" => (stated, RopeScaling::None),
            "linear" if factor == 1.0 => (stated, RopeScaling::None),
            "linear" => (stated, RopeScaling::Linear { factor }),
            "yarn" => self.gguf_yarn(stated, factor)?,
            "longrope" => (stated, self.gguf_long_rope()?),
            other => {
                let expected = "`none`, `linear`, `yarn` or `longrope`";
                return Err(self.keys().wrong(KIND, format!("`{other}`"), expected));
            }
        };
        let scaling = match (self.tensor(DIVISORS)?, scaling) {
            (None, scaling) => scaling,
            (Some(divisors), RopeScaling::None) => RopeScaling::Divisors(divisors),
            (Some(_), _) => {
                let expected = format!("`none`, as the tensor `{DIVISORS}` scales already");
                return Err(self.keys().wrong(KIND, format!("`{kind}`"), expected));
            }
        };
        self.rope(theta, attention_scale, scaling)
    }

    /// 0 and absence mean that nothing is scaled.
    fn gguf_factor(&self) -> Result<f64, ModelError> {
        let stated = match self.keys().number(FACTOR)? {
            Some(factor) => Some(factor),
            None => self.keys().number(OLD_FACTOR)?,
        };
        match stated {
            None | Some(0.0) => Ok(1.0),
            Some(factor) if FACTORS.contains(&factor) => Ok(factor),
            Some(factor) => {
                Err(self.keys().wrong(FACTOR, factor, format!("a number up to {:e}", FACTORS.end())))
            }
        }
    }

    fn gguf_yarn(&self, stated: f64, factor: f64) -> Result<(f64, RopeScaling), ModelError> {
        let multiplier = self.log_multiplier()?;
        // Below 0 stands for "as the kind of scaling has it", which is 1.
        if let Some(found) = self.keys().number(YARN_EXTRAPOLATION)?
            && found >= 0.0
            && found != 1.0
        {
            return Err(self.keys().wrong(YARN_EXTRAPOLATION, found, "1"));
        }
        let yarn = Yarn {
            factor,
            original: self.original()? as f64,
            beta_fast: self.beta(BETA_FAST, 32.0)?,
            beta_slow: self.beta(BETA_SLOW, 1.0)?,
            truncate: self.defaults.yarn_truncates,
        };
        let own = match self.keys().positive(YARN_ATTENTION_FACTOR)? {
            // Converters copy the model's own number, which replaces the formula; 1 is also what files have that say
            // nothing.
            Some(replaced) if replaced != 1.0 => replaced,
            Some(_) | None => magnitude(factor, 1.0) / multiplier.map_or(1.0, |all| magnitude(factor, all)),
        };
        Ok((stated * own, RopeScaling::Yarn(yarn)))
    }

    fn log_multiplier(&self) -> Result<Option<f64>, ModelError> {
        if !self.defaults.yarn_log_multiplier {
            self.keys().expect_off(YARN_LOG_MULTIPLIER)?;
            return Ok(None);
        }
        Ok(self.keys().number(YARN_LOG_MULTIPLIER)?.filter(|multiplier| *multiplier != 0.0))
    }

    fn gguf_long_rope(&self) -> Result<RopeScaling, ModelError> {
        let required = |name: &'static str| {
            let found = self.tensor(name)?;
            found.ok_or_else(|| {
                self.keys().wrong(KIND, "`longrope`", format!("it to come with the tensor `{name}`"))
            })
        };
        let (short, long) = (required(SHORT_DIVISORS)?, required(LONG_DIVISORS)?);
        Ok(RopeScaling::LongRope(LongRope { short, long, original: self.original()? }))
    }

    /// A tensor of one divisor a pair, if it is there.
    fn tensor(&self, name: &str) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(tensor) = self.keys().tensor(name)? else { return Ok(None) };
        let pairs = self.dims()? / 2;
        if tensor.shape != [pairs] {
            let what = format!("the shape of the tensor `{name}`");
            return Err(self.keys().wrong_size(&what, format!("{:?}", tensor.shape), format!("[{pairs}]")));
        }
        let divisors = tensor.decode()?;
        if let Some(wrong) = divisors.iter().find(|divisor| !divisor.is_finite() || **divisor <= 0.0) {
            let what = format!("an element of the tensor `{name}`");
            return Err(self.keys().wrong_size(&what, wrong, "a finite number above 0"));
        }
        Ok(Some(divisors))
    }
}
