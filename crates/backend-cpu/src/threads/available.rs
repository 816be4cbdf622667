//! How many threads this process may use: its processor affinity, physical cores and cgroup quota.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where control groups are seen.
const GROUPS: &str = "/sys/fs/cgroup";

/// Processors that this process may run on, two a core with hyper-threading.
pub(crate) fn allowed_cpus() -> usize {
    affinity().map_or_else(parallelism, |cpus| cpus.len())
}

/// Threads that gain: physical cores that this process may run on, as far as its quota lasts.
pub(crate) fn default_threads() -> usize {
    let cores = affinity()
        .map_or_else(parallelism, |cpus| physical_cores(Path::new("/sys/devices/system/cpu"), &cpus));
    cores.min(parallelism()).max(1)
}

/// The standard library's count, which heeds cgroup quotas.
fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors' worth of time that the control groups of this process leave it; `None` where there is no limit. Paths
/// are those of Linux's documentation: `cgroup-v2.rst`, `scheduler/sched-bwc.rst`.
pub(super) fn quota() -> Option<f64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    quota_of(&groups, Path::new(GROUPS))
}

/// The tightest of the groups and those above them. A line is `number:controllers:path`, without controllers for
/// version 2.
fn quota_of(groups: &str, mount: &Path) -> Option<f64> {
    let mut quotas = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if controllers.is_empty() {
            quotas.extend(upwards(mount, path).filter_map(|folder| {
                let text = std::fs::read_to_string(folder.join("cpu.max")).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                ratio(quota, period)
            }));
        } else if controllers.split(',').any(|controller| controller == "cpu") {
            for mount in [mount.join("cpu"), mount.join(controllers)] {
                quotas.extend(upwards(&mount, path).filter_map(|folder| {
                    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
                    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
                }));
            }
        }
    }
    quotas.into_iter().min_by(f64::total_cmp)
}

/// A group's folder and those above it, up to the mount itself.
fn upwards(mount: &Path, path: &str) -> impl Iterator<Item = PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.ancestors().map(|part| mount.join(part))
}

/// `None` where the quota is `max` or -1.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// The processors of the affinity mask; `None` where the system has no such thing.
#[cfg(target_os = "linux")]
fn affinity() -> Option<Vec<usize>> {
    // SAFETY: an all-zero mask is a valid, empty `cpu_set_t`; the call writes at most its size.
    let mask = unsafe {
        let mut mask: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut mask) != 0 {
            return None;
        }
        mask
    };
    // SAFETY: every number is below the size of the set.
    let has = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &mask) };
    let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(has).collect();
    (!cpus.is_empty()).then_some(cpus)
}

#[cfg(not(target_os = "linux"))]
fn affinity() -> Option<Vec<usize>> {
    None
}

/// Distinct cores of some processors, by the list of siblings that the system keeps for each; a processor
/// without one counts as a core.
fn physical_cores(system: &Path, cpus: &[usize]) -> usize {
    let siblings = |cpu: &usize| {
        let path = system.join(format!("cpu{cpu}/topology/thread_siblings_list"));
        std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string())
    };
    cpus.iter().map(|cpu| siblings(cpu).trim().to_owned()).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyper_threads_share_a_core() {
        let system = std::env::temp_dir().join(format!("gannet-topology-{}", std::process::id()));
        for (cpu, siblings) in [(0, "0,2\n"), (1, "1,3\n"), (2, "0,2\n"), (3, "1,3\n")] {
            let folder = system.join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
            std::fs::write(folder.join("thread_siblings_list"), siblings).expect("the folder is writable");
        }
        let found = [&[0, 1, 2, 3][..], &[0, 2], &[0, 1], &[7, 8]].map(|cpus| physical_cores(&system, cpus));
        std::fs::remove_dir_all(&system).expect("the folder was made above");
        assert_eq!(found, [2, 1, 2, 2]);
    }

    #[test]
    fn the_tightest_quota_on_the_way_up_counts() {
        let mount = std::env::temp_dir().join(format!("gannet-quota-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = mount.join(path);
            std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("it is writable");
            std::fs::write(path, text).expect("the folder is writable");
        };
        write("a/b/cpu.max", "300000 100000\n");
        write("a/cpu.max", "150000 100000\n");
        write("cpu.max", "max 100000\n");
        write("cpu/c/cpu.cfs_quota_us", "50000\n");
        write("cpu/c/cpu.cfs_period_us", "100000\n");
        write("cpu/cpu.cfs_quota_us", "-1\n");
        write("cpu/cpu.cfs_period_us", "100000\n");
        let found = ["0::/a/b\n", "0::/\n", "3:cpu,cpuacct:/c\n0::/a\n", "3:cpu:/\n", "odd\n", ""]
            .map(|groups| quota_of(groups, &mount));
        std::fs::remove_dir_all(&mount).expect("the folder was made above");
        assert_eq!(found, [Some(1.5), None, Some(0.5), None, None, None]);
    }

    #[test]
    fn there_is_always_a_thread_and_never_more_than_processors() {
        assert!(default_threads() >= 1);
        assert!(default_threads() <= allowed_cpus());
    }
}
