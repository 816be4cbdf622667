//! The processor, its instructions, and how many threads compute on it.

use super::system::numbers;
use crate::failure::Failure;
use crate::quantity::{entry, plural};
use gannet_backend_cpu::{CpuBackend, CpuOptions, IsaLevel};
use gannet_loader::machine::{Limits, System};
use serde::Serialize;
use std::collections::BTreeSet;

/// What computes.
#[derive(Debug, Serialize)]
pub(super) struct ProcessorFacts {
    name: Option<String>,
    architecture: &'static str,
    /// Those that matter to models.
    features: Vec<&'static str>,
    /// The level of instructions in use.
    instructions: String,
    /// The levels that could be used, slowest first.
    levels: Vec<String>,
    /// What rows are made before they are multiplied with quantised weights, by default.
    activations: String,
    threads: ThreadFacts,
}

/// How many threads, and what that follows from.
#[derive(Debug, Serialize)]
struct ThreadFacts {
    used: usize,
    /// Processors of the affinity mask; null where the system has none.
    allowed_processors: Option<usize>,
    /// Cores that these processors belong to.
    physical_cores: Option<usize>,
    /// Processors' worth of time that the control group has.
    quota: Option<f64>,
}

impl ProcessorFacts {
    pub(super) fn find(system: &System, limits: &Limits) -> Result<Self, Failure> {
        let backend = CpuBackend::new(CpuOptions::default())?;
        let allowed = system.entry("/proc/self/status", "Cpus_allowed_list").and_then(|list| numbers(&list));
        Ok(Self {
            name: system.entry("/proc/cpuinfo", "model name"),
            architecture: std::env::consts::ARCH,
            features: features(),
            instructions: backend.isa().to_string(),
            levels: IsaLevel::available().map(|level| level.to_string()).collect(),
            activations: backend.activations().to_string(),
            threads: ThreadFacts {
                used: backend.threads(),
                allowed_processors: allowed.as_ref().map(BTreeSet::len),
                physical_cores: allowed.as_ref().map(|allowed| physical_cores(system, allowed)),
                quota: limits.processors,
            },
        })
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let name = self.name.as_deref().unwrap_or("unknown");
        let features = match self.features.as_slice() {
            [] => "no vector instructions that are used".to_owned(),
            features => features.join(", "),
        };
        let (used, levels) = (&self.instructions, self.levels.join(", "));
        vec![
            entry("processor", &format!("{name} ({}): {features}", self.architecture)),
            entry("instructions", &format!("`{used}` is used; there are {levels}")),
            entry("activations", &format!("`{}` beside quantised weights (--activations)", self.activations)),
            entry("threads", &self.threads.text()),
        ]
    }
}

impl ThreadFacts {
    fn text(&self) -> String {
        let mut reasons = Vec::new();
        if let Some(cores) = self.physical_cores {
            reasons.push(plural(cores, "physical core"));
        }
        if let Some(allowed) = self.allowed_processors {
            reasons.push(format!("{} allowed by the affinity mask", plural(allowed, "processor")));
        }
        reasons.push(match self.quota {
            Some(quota) => format!("a control group's quota of {quota:.2} processors"),
            None => "no quota".to_owned(),
        });
        format!("{}, the least of what is allowed: {}", self.used, reasons.join(", "))
    }
}

/// Cores of some processors, by the list of siblings that the system keeps for each; a processor without one counts as
/// a core.
fn physical_cores(system: &System, processors: &BTreeSet<usize>) -> usize {
    let siblings = |number: &usize| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
        system.text(path).unwrap_or_else(|| number.to_string())
    };
    processors.iter().map(siblings).collect::<BTreeSet<_>>().len()
}

/// The names of those features of a list that the processor has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! present {
    ($detect:ident: $($name:tt),* $(,)?) => {
        [$(($name, std::arch::$detect!($name))),*].into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    };
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<&'static str> {
    present!(is_x86_feature_detected: "avx", "avx2", "fma", "f16c", "avxvnni", "avx512f", "avx512bw", "avx512dq",
        "avx512vl", "avx512vnni", "avx512bf16", "avx512fp16")
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<&'static str> {
    present!(is_aarch64_feature_detected: "neon", "fp16", "dotprod", "i8mm", "bf16", "sve", "sve2")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::system;
    use super::*;

    #[test]
    fn siblings_are_one_core() {
        let list = "/topology/thread_siblings_list";
        let cpu = |number: usize| format!("/sys/devices/system/cpu/cpu{number}{list}");
        let (_folder, system) = system(&[(&cpu(0), "0,2\n"), (&cpu(1), "1\n"), (&cpu(2), "0,2\n")]);
        let cores = |numbers: &[usize]| physical_cores(&system, &numbers.iter().copied().collect());
        assert_eq!([cores(&[0, 1, 2]), cores(&[0, 2]), cores(&[7, 8])], [2, 1, 2]);
    }

    #[test]
    fn the_number_of_threads_is_explained() {
        let threads =
            ThreadFacts { used: 1, allowed_processors: Some(4), physical_cores: Some(2), quota: Some(1.5) };
        assert_eq!(
            threads.text(),
            "1, the least of what is allowed: 2 physical cores, 4 processors allowed by the affinity mask, \
             a control group's quota of 1.50 processors"
        );
        let unknown = ThreadFacts { used: 8, allowed_processors: None, physical_cores: None, quota: None };
        assert_eq!(unknown.text(), "8, the least of what is allowed: no quota");
    }
}
