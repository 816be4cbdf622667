//! What the machine has for a model, and what a process takes of it.

mod cgroup;
pub(crate) mod heap;
mod process;
mod system;

pub use cgroup::Limits;
pub use process::{FaultCounter, Process};
pub use system::System;

/// Bytes of memory that can still be used: what the system has available, or what the tightest control group leaves.
pub fn available_bytes() -> u64 {
    available(&System::here())
}

fn available(system: &System) -> u64 {
    let limits = Limits::find(system);
    let group = limits.memory.map(|limit| limit.saturating_sub(limits.memory_used.unwrap_or(0)));
    [system.memory("MemAvailable"), group].into_iter().flatten().min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::system::tests::system;
    use super::*;

    #[test]
    fn the_tightest_limit_on_the_way_up_is_what_can_be_used() {
        let meminfo = ("/proc/meminfo", "MemTotal: 24000 kB\nMemAvailable: 1000 kB\n");
        let check = |files: &[(&str, &str)], expected: u64| {
            let (_folder, system) = system(&[&[meminfo], files].concat());
            assert_eq!(available(&system), expected, "{files:?}");
        };
        check(&[], 1000 << 10);
        let group = ("/proc/self/cgroup", "0::/a/b\n");
        check(
            &[
                group,
                ("/sys/fs/cgroup/a/memory.max", "5000\n"),
                ("/sys/fs/cgroup/a/memory.current", "2000\n"),
            ],
            3000,
        );
        check(&[group, ("/sys/fs/cgroup/a/b/memory.max", "max\n")], 1000 << 10);
        check(&[group, ("/sys/fs/cgroup/memory.max", "7\n"), ("/sys/fs/cgroup/memory.current", "9\n")], 0);
    }
}
