//! What the control groups of this process allow it.
//!
//! A limit holds for a group and everything below it, so the tightest on the way up counts. Paths are those of Linux's
//! documentation: `cgroup-v2.rst`, `cgroup-v1/memory.rst`, `scheduler/sched-bwc.rst`.

use super::System;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";
/// What version 1 writes where there is no limit is above this.
const NO_LIMIT: u64 = 1 << 60;

/// The tightest limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes that the group with this limit uses.
    pub memory_used: Option<u64>,
    /// Processors' worth of time.
    pub processors: Option<f64>,
}

impl Limits {
    /// Those of this process.
    pub fn find(system: &System) -> Self {
        let groups = system.text("/proc/self/cgroup").unwrap_or_default();
        let mut limits = Self::default();
        // `number:controllers:path`, without controllers for version 2.
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            if controllers.is_empty() {
                for folder in upwards(Path::new(MOUNT), path) {
                    limits.tighten_memory(system, &folder, ["memory.max", "memory.current"]);
                    limits.tighten_processors(quota(system, &folder));
                }
            }
            for controller in controllers.split(',') {
                let mount = Path::new(MOUNT).join(controller);
                for folder in upwards(&mount, path) {
                    let files = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
                    limits.tighten_memory(system, &folder, files);
                    limits.tighten_processors(legacy_quota(system, &folder));
                }
            }
        }
        limits
    }

    fn tighten_memory(&mut self, system: &System, folder: &Path, [limit, used]: [&str; 2]) {
        let number = |file: &str| system.text(folder.join(file))?.parse::<u64>().ok();
        let limit = number(limit).filter(|limit| *limit < NO_LIMIT);
        if let Some(limit) = limit.filter(|limit| self.memory.is_none_or(|known| *limit < known)) {
            (self.memory, self.memory_used) = (Some(limit), number(used));
        }
    }

    fn tighten_processors(&mut self, quota: Option<f64>) {
        if let Some(quota) = quota.filter(|quota| self.processors.is_none_or(|known| *quota < known)) {
            self.processors = Some(quota);
        }
    }
}

/// A group's folder and those above it, down to the mount itself.
fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.ancestors().map(|part| mount.join(part)).collect()
}

/// `max 100000`, or microseconds and their period.
fn quota(system: &System, folder: &Path) -> Option<f64> {
    let text = system.text(folder.join("cpu.max"))?;
    let (quota, period) = text.split_once(' ')?;
    ratio(quota, period)
}

fn legacy_quota(system: &System, folder: &Path) -> Option<f64> {
    let text = |file: &str| system.text(folder.join(file));
    ratio(&text("cpu.cfs_quota_us")?, &text("cpu.cfs_period_us")?)
}

/// None where the quota is `max` or -1.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::system;
    use super::*;

    fn check(files: &[(&str, &str)], memory: Option<u64>, processors: Option<f64>) {
        let (_folder, system) = system(files);
        let limits = Limits::find(&system);
        assert_eq!((limits.memory, limits.processors), (memory, processors), "{files:?}");
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let inner = "/sys/fs/cgroup/a/b";
        let outer = "/sys/fs/cgroup/a";
        check(
            &[
                ("/proc/self/cgroup", "0::/a/b\n"),
                (&format!("{inner}/memory.max"), "max\n"),
                (&format!("{inner}/cpu.max"), "300000 100000\n"),
                (&format!("{outer}/memory.max"), "1000\n"),
                (&format!("{outer}/cpu.max"), "150000 100000\n"),
                ("/sys/fs/cgroup/memory.max", "5000\n"),
            ],
            Some(1000),
            Some(1.5),
        );
        check(&[("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/cpu.max", "max 100000\n")], None, None);
    }

    #[test]
    fn the_first_version_has_a_tree_a_controller() {
        check(
            &[
                ("/proc/self/cgroup", "4:memory:/x\n1:cpu,cpuacct:/\n0::/\nodd\n"),
                ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n"),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
            Some(2000),
            Some(0.5),
        );
        check(
            &[
                ("/proc/self/cgroup", "1:cpu:/\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n"),
            ],
            None,
            None,
        );
    }
}
