//! A mixture of experts: a router, the chosen experts, and one that every token goes through.

use super::{Bias, Writer};
use crate::config::{Activation, ExpertsConfig, GatedConfig, SharedExpertConfig};
use gannet_ops::{ExpertLinear, Router, ValueId, WeightRole};

impl Writer<'_> {
    /// x `[Tokens, width]`, normed -> `[Tokens, width]`.
    pub(super) fn experts(&mut self, scope: &str, config: &ExpertsConfig, x: ValueId) -> ValueId {
        let width = self.config.width;
        let shape = [config.experts, width];
        let logits = self.linear(x, &format!("{scope}.router"), shape, Bias::from(config.router_bias));
        let (experts, top_k) = (config.experts, config.top_k as u32);
        let router = Router { experts, top_k, renormalise: config.renormalise };
        let (ids, weights) = self.builder.route_experts(logits, router);

        let inner = config.expert.width;
        let gate = self.expert_linear((x, ids), &format!("{scope}.experts.gate"), config, [inner, width]);
        let up = self.expert_linear((x, ids), &format!("{scope}.experts.up"), config, [inner, width]);
        let gated = self.activated(config.expert.activation, gate, up);
        let y = self.expert_linear((gated, ids), &format!("{scope}.experts.down"), config, [width, inner]);
        match &config.shared {
            None => self.builder.combine_experts(&[y, weights]),
            Some(shared) => {
                let own = self.shared_expert(scope, shared, x);
                self.builder.combine_experts(&[y, weights, own])
            }
        }
    }

    fn shared_expert(&mut self, scope: &str, config: &SharedExpertConfig, x: ValueId) -> ValueId {
        let own = self.gated_feed_forward(&format!("{scope}.shared"), &config.expert, x);
        let gate = self.linear(x, &format!("{scope}.shared_gate"), [1, self.config.width], Bias::Absent);
        self.builder.sigmoid_gate(own, gate)
    }

    /// Rows and their experts times `{name}.weight` `[experts, rows, columns]`, plus `{name}.bias` `[experts, rows]`.
    fn expert_linear(
        &mut self,
        (x, ids): (ValueId, ValueId),
        name: &str,
        config: &ExpertsConfig,
        [rows, columns]: [usize; 2],
    ) -> ValueId {
        let (experts, GatedConfig { bias, .. }) = (config.experts, config.expert);
        let shape = [experts, rows, columns];
        let weight = self.builder.weight(&format!("{name}.weight"), &shape, WeightRole::Experts);
        let vector = |builder: &mut gannet_ops::ProgramBuilder| {
            builder.weight(&format!("{name}.bias"), &shape[..2], WeightRole::Vector)
        };
        let bias = bias.then(|| vector(&mut self.builder));
        self.builder.expert_linear(x, ids, ExpertLinear { weight, bias, top_k: config.top_k as u32 })
    }

    /// A gate through its function, times up.
    pub(super) fn activated(&mut self, activation: Activation, gate: ValueId, up: ValueId) -> ValueId {
        match activation {
            Activation::Silu => self.builder.silu_gate(gate, up),
            Activation::GeluTanh => self.builder.gelu_gate(gate, up),
            Activation::Clamped { alpha, limit } => self.builder.clamped_gate(gate, up, alpha, limit),
        }
    }
}
