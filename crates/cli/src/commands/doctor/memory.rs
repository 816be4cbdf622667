//! How much memory there is, and what limits it.

use crate::quantity::{bytes, entry};
use gannet_loader::machine::{Limits, System};
use serde::Serialize;

/// Bytes of memory; null where the system doesn't say.
#[derive(Debug, Serialize)]
pub(super) struct MemoryFacts {
    total: Option<u64>,
    available: Option<u64>,
    swap: Option<u64>,
    /// The tightest limit of a control group.
    group_limit: Option<u64>,
    /// What that group uses.
    group_used: Option<u64>,
    /// What a model's plan starts from.
    for_a_model: u64,
}

impl MemoryFacts {
    pub(super) fn find(system: &System, limits: &Limits) -> Self {
        Self {
            total: system.memory("MemTotal"),
            available: system.memory("MemAvailable"),
            swap: system.memory("SwapTotal"),
            group_limit: limits.memory,
            group_used: limits.memory_used,
            for_a_model: gannet_loader::machine::available_bytes(),
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let known = |count: Option<u64>| count.map_or("unknown".to_owned(), bytes);
        let group = match (self.group_limit, self.group_used) {
            (Some(limit), used) => format!("control group: at most {}, {} used", bytes(limit), known(used)),
            (None, _) => "no limit by a control group".to_owned(),
        };
        let (total, available, swap) = (known(self.total), known(self.available), known(self.swap));
        let model = match self.for_a_model {
            u64::MAX => "unknown".to_owned(),
            count => bytes(count),
        };
        vec![
            entry("memory", &format!("{total}, {available} of it available, swap {swap}; {group}")),
            entry("", &format!("a model can be given {model}")),
        ]
    }
}
