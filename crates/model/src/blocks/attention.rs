//! Softmax attention: project, norm a head, rotate, keep keys and values, attend, project back.

use super::{Bias, Writer};
use crate::config::{AttentionConfig, RopeIndex};
use crate::layout::state_of;
use gannet_ops::{Attention, Mask, Rope, ValueId};

impl Writer<'_> {
    /// x `[Tokens, width]`, normed -> `[Tokens, width]`.
    pub(super) fn attention(&mut self, layer: usize, config: &AttentionConfig, x: ValueId) -> ValueId {
        let scope = format!("layers.{layer}.attention");
        let width = self.config.width;
        let bias = Bias::from(config.bias.query_key_value);
        let query = self.linear(x, &format!("{scope}.q"), [config.query_width(), width], bias);
        let key = self.linear(x, &format!("{scope}.k"), [config.key_width(), width], bias);
        let value = self.linear(x, &format!("{scope}.v"), [config.value_width(), width], bias);
        let query = self.placed(query, config, config.heads, &format!("{scope}.q_norm"));
        let key = self.placed(key, config, config.kv_heads, &format!("{scope}.k_norm"));

        let state = state_of(layer);
        self.builder.write_kv(key, value, state);
        let mask = config.window.map_or(Mask::Causal, Mask::Window);
        let op =
            Attention { state, heads: config.heads, scale: config.scale, mask, sinks: None, soft_cap: None };
        let attended = self.builder.attention(&[query], op);

        let shape = [width, config.heads * config.value_dim];
        self.linear(attended, &format!("{scope}.output"), shape, Bias::from(config.bias.output))
    }

    /// Queries or keys as they enter the scores: normed a head by `{norm}.weight` `[head_dim]`, then rotated.
    fn placed(&mut self, mut x: ValueId, config: &AttentionConfig, heads: usize, norm: &str) -> ValueId {
        if config.query_key_norm {
            let weight = self.vector(&format!("{norm}.weight"), config.head_dim);
            x = self.builder.head_norm(x, weight, heads, self.config.norm_epsilon);
        }
        if let Some(RopeIndex(rope)) = config.rope {
            let table = self.ropes[rope].clone();
            x = self.builder.rope(x, Rope { heads, head_dim: config.head_dim, table });
        }
        x
    }
}
