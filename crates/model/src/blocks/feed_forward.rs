//! The gated feed-forward: `down(activation(gate(x)) * up(x))`.

use super::{Bias, Writer};
use crate::config::GatedConfig;
use gannet_ops::ValueId;

impl Writer<'_> {
    /// x `[R, width]`, normed -> `[R, width]`.
    pub(super) fn gated_feed_forward(&mut self, scope: &str, config: &GatedConfig, x: ValueId) -> ValueId {
        let (width, bias) = (self.config.width, Bias::from(config.bias));
        let gate = self.linear(x, &format!("{scope}.gate"), [config.width, width], bias);
        let up = self.linear(x, &format!("{scope}.up"), [config.width, width], bias);
        let gated = self.activated(config.activation, gate, up);
        self.linear(gated, &format!("{scope}.down"), [width, config.width], bias)
    }
}
