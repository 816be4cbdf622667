//! Softmax attention: project, norm, rotate, keep keys and values, attend, gate, project back.

use super::{Bias, Writer};
use crate::config::{AttentionConfig, PositionScale, QueryKeyNorm, RopeIndex};
use gannet_ops::{Attention, Mask, Rope, StateId, ValueId};

/// What a layer's rows bring to its attention.
struct Projected {
    query: ValueId,
    /// Of each head's result.
    gate: Option<ValueId>,
    key: ValueId,
    value: ValueId,
}

impl Writer<'_> {
    /// x `[Tokens, columns]`, normed -> `[Tokens, width]`. Most read the width of the model; a drafter may read more.
    pub(crate) fn attention(
        &mut self,
        scope: &str,
        state: StateId,
        config: &AttentionConfig,
        x: ValueId,
        columns: usize,
    ) -> ValueId {
        let Projected { query, gate, key, value } = self.projected(scope, config, x, columns);
        self.builder.write_kv(key, value, state);
        let sinks = config.sinks.then(|| self.vector(&format!("{scope}.sinks.weight"), config.heads));
        let op = Attention { sinks, ..attention_op(state, config) };
        let attended = self.builder.attention(&[query], op);
        let gated = gate.map_or(attended, |gate| self.builder.sigmoid_gate(attended, gate));
        self.attention_output(scope, config, gated)
    }

    /// The same for rows that see each other and whose keys and values are not kept.
    pub(crate) fn block_attention(
        &mut self,
        scope: &str,
        state: StateId,
        config: &AttentionConfig,
        x: ValueId,
    ) -> ValueId {
        let Projected { query, gate, key, value } = self.projected(scope, config, x, self.config.width);
        let attended = self.builder.attention(&[query, key, value], attention_op(state, config));
        let gated = gate.map_or(attended, |gate| self.builder.sigmoid_gate(attended, gate));
        self.attention_output(scope, config, gated)
    }

    /// Keys as they enter the scores, and values.
    pub(crate) fn key_and_value(
        &mut self,
        scope: &str,
        config: &AttentionConfig,
        x: ValueId,
    ) -> (ValueId, ValueId) {
        let (bias, columns) = (Bias::from(config.bias.query_key_value), self.config.width);
        let key = self.linear(x, &format!("{scope}.k"), [config.key_width(), columns], bias);
        let value = self.linear(x, &format!("{scope}.v"), [config.value_width(), columns], bias);
        (self.placed(key, config, config.kv_heads, &format!("{scope}.k_norm")), value)
    }

    fn projected(&mut self, scope: &str, config: &AttentionConfig, x: ValueId, columns: usize) -> Projected {
        let bias = Bias::from(config.bias.query_key_value);
        let mut query = self.linear(x, &format!("{scope}.q"), [config.query_rows(), columns], bias);
        let key = self.linear(x, &format!("{scope}.k"), [config.key_width(), columns], bias);
        let value = self.linear(x, &format!("{scope}.v"), [config.value_width(), columns], bias);
        let mut gate = None;
        if config.output_gate {
            let (heads, dim) = (config.heads, config.head_dim);
            gate = Some(self.builder.slice(query, heads, dim, dim));
            query = self.builder.slice(query, heads, 0, dim);
        }
        let mut query = self.placed(query, config, config.heads, &format!("{scope}.q_norm"));
        if let Some(PositionScale { slope, period }) = config.position_scale {
            query = self.builder.position_scale(query, slope, period);
        }
        let key = self.placed(key, config, config.kv_heads, &format!("{scope}.k_norm"));
        Projected { query, gate, key, value }
    }

    /// What was attended to -> `[Tokens, width]`.
    fn attention_output(&mut self, scope: &str, config: &AttentionConfig, attended: ValueId) -> ValueId {
        let shape = [self.config.width, config.heads * config.value_dim];
        self.linear(attended, &format!("{scope}.output"), shape, Bias::from(config.bias.output))
    }

    /// Queries or keys as they enter the scores: normed by `{norm}.weight`, then rotated.
    fn placed(&mut self, mut x: ValueId, config: &AttentionConfig, heads: usize, norm: &str) -> ValueId {
        let (norm, epsilon) = (format!("{norm}.weight"), self.config.norm_epsilon);
        match config.query_key_norm {
            QueryKeyNorm::Absent => {}
            QueryKeyNorm::Head => {
                let weight = self.vector(&norm, config.head_dim);
                x = self.builder.head_norm(x, weight, heads, epsilon);
            }
            QueryKeyNorm::Whole => {
                let weight = self.vector(&norm, heads * config.head_dim);
                x = self.builder.rms_norm(x, weight, epsilon);
            }
        }
        if let Some(RopeIndex(rope)) = config.rope {
            let table = self.ropes[rope].clone();
            x = self.builder.rope(x, Rope { heads, head_dim: config.head_dim, table });
        }
        x
    }
}

/// The op of a layer, without sinks.
fn attention_op(state: StateId, config: &AttentionConfig) -> Attention {
    let mask = match (config.bidirectional, config.window) {
        (false, None) => Mask::Causal,
        (false, Some(window)) => Mask::Window(window),
        (true, None) => Mask::Block,
        (true, Some(window)) => Mask::BlockWindow(window),
    };
    let (heads, scale, soft_cap) = (config.heads, config.scale, config.soft_cap);
    Attention { state, heads, scale, mask, sinks: None, soft_cap }
}
