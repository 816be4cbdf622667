//! How many threads this process may use: its processor affinity, physical cores and cgroup quota.

use std::collections::BTreeSet;
use std::path::Path;

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
    fn there_is_always_a_thread_and_never_more_than_processors() {
        assert!(default_threads() >= 1);
        assert!(default_threads() <= allowed_cpus());
    }
}
