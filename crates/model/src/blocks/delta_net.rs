//! The gated delta rule: project, convolve, norm queries and keys, run the rule, norm and gate, project back.
//!
//! Source: arXiv 2412.06464. The gate of the norm is a silu.

use super::{Bias, Writer};
use crate::config::DeltaNetConfig;
use gannet_ops::{DeltaRule, StateId, ValueId, WeightRole};

/// Added to the sum of squares of a query or key head.
const L2_EPSILON: f32 = 1e-6;

impl Writer<'_> {
    /// x `[Tokens, width]`, normed -> `[Tokens, width]`.
    pub(super) fn gated_delta_net(
        &mut self,
        scope: &str,
        state: StateId,
        config: &DeltaNetConfig,
        x: ValueId,
    ) -> ValueId {
        let (width, values) = (self.config.width, config.value_width());
        let mut project =
            |name: &str, rows| self.linear(x, &format!("{scope}.{name}"), [rows, width], Bias::Absent);
        let projected = project("qkv", config.channels());
        let output_gate = project("z", values);
        let strength = project("b", config.value_heads);
        let decay = project("a", config.value_heads);

        let [query, key, value] = self.convolved(scope, state, config, projected);
        let logarithms = self.vector(&format!("{scope}.decay.weight"), config.value_heads);
        let bias = self.vector(&format!("{scope}.dt.bias"), config.value_heads);
        let decay = self.builder.decay_gate(decay, logarithms, bias);
        let rule = DeltaRule { state, key_heads: config.key_heads, head_map: config.head_map };
        let read = self.builder.gated_delta_rule([query, key, value, decay, strength], rule);

        let norm = self.vector(&format!("{scope}.gated_norm.weight"), config.value_dim);
        let (heads, epsilon) = (config.value_heads, self.config.norm_epsilon);
        let normed = self.builder.gated_norm(read, output_gate, norm, heads, epsilon);
        self.linear(normed, &format!("{scope}.output"), [width, values], Bias::Absent)
    }

    /// Queries, keys and values after the convolution; queries and keys of unit length a head, queries scaled.
    fn convolved(
        &mut self,
        scope: &str,
        state: StateId,
        config: &DeltaNetConfig,
        projected: ValueId,
    ) -> [ValueId; 3] {
        let shape = [config.channels(), config.kernel];
        let weight = self.builder.weight(&format!("{scope}.conv.weight"), &shape, WeightRole::Convolution);
        let mixed = self.builder.causal_conv(projected, weight, state);
        let (keys, values) = (config.key_width(), config.value_width());
        let query = self.builder.slice(mixed, 1, 0, keys);
        let key = self.builder.slice(mixed, 1, keys, keys);
        let value = self.builder.slice(mixed, 1, 2 * keys, values);
        let scale = (config.key_dim as f64).powf(-0.5) as f32;
        let query = self.builder.l2_norm(query, config.key_heads, L2_EPSILON, scale);
        let key = self.builder.l2_norm(key, config.key_heads, L2_EPSILON, 1.0);
        [query, key, value]
    }
}
