//! Graphics processors as the system shows them, without a call to any driver.

use crate::quantity::entry;
use gannet_loader::machine::System;
use serde::Serialize;

/// Folders with devices of graphics processors, and how their names begin.
const DEVICES: [(&str, &str); 4] =
    [("/dev", "nvidia"), ("/dev/dri", "renderD"), ("/dev", "kfd"), ("/dev", "dxg")];
const NVIDIA: &str = "/proc/driver/nvidia";

/// What there is.
#[derive(Debug, Serialize)]
pub(super) struct GpuFacts {
    /// Device files.
    devices: Vec<String>,
    /// What the driver calls its processors.
    names: Vec<String>,
    driver: Option<String>,
}

impl GpuFacts {
    pub(super) fn find(system: &System) -> Self {
        let found = |(folder, begin): (&str, &str)| -> Vec<String> {
            let names = system.names(folder).into_iter().filter(|name| name.starts_with(begin));
            names.map(|name| format!("{folder}/{name}")).collect()
        };
        let cards = system.names(format!("{NVIDIA}/gpus"));
        let name = |card: &String| system.entry(format!("{NVIDIA}/gpus/{card}/information"), "Model");
        Self {
            devices: DEVICES.into_iter().flat_map(found).collect(),
            names: cards.iter().filter_map(name).collect(),
            driver: system.entry(format!("{NVIDIA}/version"), "NVRM version"),
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let looked_for = || DEVICES.map(|(folder, begin)| format!("{folder}/{begin}*")).join(", ");
        let mut lines = vec![entry(
            "gpu",
            &match self.devices.as_slice() {
                [] => format!("none: there is no {}", looked_for()),
                devices => devices.join(", "),
            },
        )];
        lines.extend(self.names.iter().map(|name| entry("", name)));
        lines.extend(self.driver.iter().map(|version| entry("gpu driver", version)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::system;
    use super::*;

    #[test]
    fn devices_and_their_driver_are_named() {
        let (_folder, system) = system(&[
            ("/dev/nvidia0", ""),
            ("/dev/nvidiactl", ""),
            ("/dev/null", ""),
            ("/dev/dri/card0", ""),
            ("/dev/dri/renderD128", ""),
            ("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  570.1\nGCC version: x\n"),
            ("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 3\n"),
        ]);
        let gpu = GpuFacts::find(&system);
        assert_eq!(gpu.devices, ["/dev/nvidia0", "/dev/nvidiactl", "/dev/dri/renderD128"]);
        assert_eq!(gpu.names, ["NVIDIA H200"]);
        assert_eq!(gpu.driver.as_deref(), Some("NVIDIA UNIX x86_64  570.1"));
    }

    #[test]
    fn where_there_is_none_it_says_what_was_looked_for() {
        let (_folder, system) = system(&[("/dev/null", "")]);
        let lines = GpuFacts::find(&system).lines();
        assert!(lines[0].contains("none: there is no /dev/nvidia*, /dev/dri/renderD*"), "{lines:?}");
    }
}
