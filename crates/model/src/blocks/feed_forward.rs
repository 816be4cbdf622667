//! The gated feed-forward: `down(activation(gate(x)) * up(x))`.

use super::{Bias, Writer};
use crate::config::{Activation, GatedConfig};
use gannet_ops::ValueId;

impl Writer<'_> {
    /// x `[R, width]`, normed -> `[R, width]`.
    pub(super) fn gated_feed_forward(&mut self, scope: &str, config: &GatedConfig, x: ValueId) -> ValueId {
        let (width, bias) = (self.config.width, Bias::from(config.bias));
        let gate = self.linear(x, &format!("{scope}.gate"), [config.width, width], bias);
        let up = self.linear(x, &format!("{scope}.up"), [config.width, width], bias);
        let gated = match config.activation {
            Activation::Silu => self.builder.silu_gate(gate, up),
            Activation::GeluTanh => self.builder.gelu_gate(gate, up),
        };
        self.linear(gated, &format!("{scope}.down"), [width, config.width], bias)
    }
}
