//! Reads a [`RopeConfig`] from config.json, in its older and newer keys, or from GGUF metadata.
//!
//! In config.json the parameters are an object, `rope_parameters` or the older `rope_scaling`, which may lie
//! within an object a kind of layer. GGUF has a key a parameter, and pairs' divisors as tensors.

mod gguf;
mod json;

use super::{RopeConfig, RopeScaling};
use crate::ModelError;
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::CONTEXT_MAX;
use std::ops::RangeInclusive;

const PARAMETERS: &str = "rope_parameters";
const OLD_PARAMETERS: &str = "rope_scaling";
const THETA: Key = key("rope_theta", "rope.freq_base");
const KIND: Key = key("rope_type", "rope.scaling.type");
const FACTOR: Key = key("factor", "rope.scaling.factor");
const ATTENTION_FACTOR: Key = key("attention_factor", "rope.scaling.attn_factor");
const BETA_FAST: Key = key("beta_fast", "rope.scaling.yarn_beta_fast");
const BETA_SLOW: Key = key("beta_slow", "rope.scaling.yarn_beta_slow");
const ORIGINAL: Key = key("original_max_position_embeddings", "rope.scaling.original_context_length");
const PARTIAL: Key = json_key("partial_rotary_factor");
const DIMENSIONS: Key = gguf_key("rope.dimension_count");

/// Bases and factors, with room around those of every model and far within what float32 can hold.
const THETA_MAX: f64 = 1e12;
const FACTORS: RangeInclusive<f64> = 1e-6..=1e6;

/// What the model's other properties say about its rope.
#[derive(Clone, Copy)]
pub(crate) struct RopeDefaults {
    /// Elements of a head.
    pub(crate) head_dim: usize,
    /// Which part of a head is rotated.
    pub(crate) rotated: Rotated,
    /// Tokens that the model was made for.
    pub(crate) context_length: usize,
    /// The base where no key gives one.
    pub(crate) theta: f64,
    /// `yarn` ends its ramp at whole pairs where no key says.
    pub(crate) yarn_truncates: bool,
    /// Older files call `longrope` by names of others.
    pub(crate) old_longrope_names: bool,
    /// GGUF's multiplier of the logarithm has the meaning of `mscale_all_dim`, beside an `mscale` of 1.
    pub(crate) yarn_log_multiplier: bool,
}

/// Which part of a head a family rotates.
#[derive(Clone, Copy)]
pub(crate) enum Rotated {
    /// All of it; a file that says otherwise is refused.
    Whole,
    /// The part that the file states, or this one.
    Part(f64),
}

/// A rope that only some layers have.
pub(crate) struct LayerRope {
    /// The kind of layer, under which newer files nest its parameters.
    pub(crate) kind: &'static str,
    /// The key of its base in older files and in GGUF.
    pub(crate) theta: Key,
    /// Whether the scaling of older files and of GGUF is for it.
    pub(crate) scaled: bool,
}

/// The rope of a model whose layers all have the same.
pub(crate) fn one_rope(keys: &Keys<'_>, defaults: RopeDefaults) -> Result<RopeConfig, ModelError> {
    let whole = Reader { parameters: None, outer: keys, defaults };
    if !keys.is_json() {
        return whole.gguf_rope(THETA);
    }
    let parameters = match keys.object(OLD_PARAMETERS)? {
        Some(parameters) => Some(parameters),
        None => keys.object(PARAMETERS)?,
    };
    match &parameters {
        Some(_) => Reader { parameters: parameters.as_ref(), ..whole }.json_rope(THETA),
        None => whole.unscaled(THETA),
    }
}

/// The rope of one kind of layer.
pub(crate) fn nested_rope(
    keys: &Keys<'_>,
    layer: &LayerRope,
    defaults: RopeDefaults,
) -> Result<RopeConfig, ModelError> {
    let whole = Reader { parameters: None, outer: keys, defaults };
    if !keys.is_json() {
        return if layer.scaled { whole.gguf_rope(layer.theta) } else { whole.unscaled(layer.theta) };
    }
    let parameters = match keys.object(PARAMETERS)? {
        Some(nested) => nested.object(layer.kind)?,
        None if layer.scaled => keys.object(OLD_PARAMETERS)?,
        None => None,
    };
    match &parameters {
        Some(_) => Reader { parameters: parameters.as_ref(), ..whole }.json_rope(layer.theta),
        None => whole.unscaled(layer.theta),
    }
}

/// Reads one rope: `parameters` is its object in config.json, `outer` has the properties of the whole model.
struct Reader<'a> {
    parameters: Option<&'a Keys<'a>>,
    outer: &'a Keys<'a>,
    defaults: RopeDefaults,
}

impl<'a> Reader<'a> {
    /// Where the parameters stand: in an object of their own, or among the model's properties.
    fn keys(&self) -> &'a Keys<'a> {
        self.parameters.unwrap_or(self.outer)
    }

    /// A rope with a base of its own and nothing else.
    fn unscaled(&self, theta: Key) -> Result<RopeConfig, ModelError> {
        self.rope(theta, 1.0, RopeScaling::None)
    }

    fn rope(&self, theta: Key, attention_scale: f64, scaling: RopeScaling) -> Result<RopeConfig, ModelError> {
        let (dims, theta) = (self.dims()?, self.theta(theta)?);
        if !FACTORS.contains(&attention_scale) {
            let expected = format!("a number above 0, up to {:e}", FACTORS.end());
            return Err(self.outer.wrong_size("the attention factor of the rope", attention_scale, expected));
        }
        let config = RopeConfig { theta, dims, attention_scale: attention_scale as f32, scaling };
        for context in [1, self.defaults.context_length] {
            let frequencies = config.table(context).inverse_frequencies;
            if let Some(wrong) = frequencies.iter().find(|frequency| !frequency.is_finite()) {
                return Err(self.outer.wrong_size("a frequency of the rope", wrong, "a finite number"));
            }
        }
        Ok(config)
    }

    fn theta(&self, outer: Key) -> Result<f64, ModelError> {
        let own = match self.parameters {
            Some(parameters) => parameters.positive(THETA)?,
            None => None,
        };
        let theta = match own {
            Some(theta) => theta,
            None => self.outer.positive(outer)?.unwrap_or(self.defaults.theta),
        };
        if theta > 1.0 && theta <= THETA_MAX {
            return Ok(theta);
        }
        Err(self.outer.wrong(outer, theta, format!("a number above 1, up to {THETA_MAX:e}")))
    }

    /// Elements of a head that are rotated.
    fn dims(&self) -> Result<usize, ModelError> {
        let RopeDefaults { head_dim, rotated, .. } = self.defaults;
        let default = match rotated {
            Rotated::Whole => 1.0,
            Rotated::Part(part) => part,
        };
        let stated = match self.keys().number(PARTIAL)? {
            Some(part) => Some((self.keys(), part)),
            None => self.outer.number(PARTIAL)?.map(|part| (self.outer, part)),
        };
        if let Some((keys, part)) = stated {
            let refused = matches!(rotated, Rotated::Whole) && part != 1.0;
            if refused {
                return Err(keys.wrong(PARTIAL, part, "1, as whole heads are rotated"));
            }
            let dims = part_of(head_dim, part);
            return dims.ok_or_else(|| keys.wrong(PARTIAL, part, even_part(head_dim)));
        }
        let whole = matches!(rotated, Rotated::Whole);
        match self.keys().number(DIMENSIONS)? {
            Some(found) if whole && found != head_dim as f64 => {
                Err(self.keys().wrong(DIMENSIONS, found, format!("{head_dim}, the whole head")))
            }
            Some(found) => {
                let dims = even_dims(found as usize, head_dim);
                dims.ok_or_else(|| self.keys().wrong(DIMENSIONS, found, even_part(head_dim)))
            }
            None => part_of(head_dim, default).ok_or_else(|| {
                self.outer.wrong_size("the part of a head that is rotated", default, even_part(head_dim))
            }),
        }
    }

    /// The trained context: where the whole model states it, that counts; where nobody does, the present one.
    fn original(&self) -> Result<usize, ModelError> {
        match self.outer.count(ORIGINAL, CONTEXT_MAX)? {
            Some(original) => Ok(original),
            None => Ok(self.keys().count(ORIGINAL, CONTEXT_MAX)?.unwrap_or(self.defaults.context_length)),
        }
    }

    fn beta(&self, key: Key, default: f64) -> Result<f64, ModelError> {
        let stated = self.keys().number(key)?.filter(|beta| *beta != 0.0);
        match stated {
            Some(beta) if beta < 0.0 => Err(self.keys().wrong(key, beta, "a number above 0")),
            found => Ok(found.unwrap_or(default)),
        }
    }
}

/// So large a part of a head, if it is a whole number of pairs.
fn part_of(head_dim: usize, part: f64) -> Option<usize> {
    even_dims((head_dim as f64 * part) as usize, head_dim)
}

fn even_dims(dims: usize, head_dim: usize) -> Option<usize> {
    (dims >= 2 && dims <= head_dim && dims.is_multiple_of(2)).then_some(dims)
}

fn even_part(head_dim: usize) -> String {
    format!("a part that is an even number of the {head_dim} elements of a head")
}

/// By how much `yarn` raises the attention's temperature.
pub(super) fn magnitude(factor: f64, multiplier: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * multiplier * factor.ln() + 1.0 }
}
