//! What this process takes of the machine, as `proc(5)` tells.

use super::System;

/// Memory in use, and page faults that had to read a file or swapped memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Bytes in memory that are the process's own: neither of a file nor shared.
    pub own_bytes: u64,
    /// Bytes in memory, those of mapped files included.
    pub resident_bytes: u64,
    /// Major page faults since the start.
    pub major_faults: u64,
}

/// Of `/proc/self/stat`, counted from the field after the command's name.
const MAJOR_FAULTS_FIELD: usize = 9;

impl Process {
    /// This process now; `None` where the system doesn't say.
    pub fn measure() -> Option<Self> {
        Self::find(&System::here())
    }

    fn find(system: &System) -> Option<Self> {
        let bytes = |key: &str| {
            let kibibytes: u64 = system.entry("/proc/self/status", key)?.strip_suffix(" kB")?.parse().ok()?;
            kibibytes.checked_mul(1024)
        };
        let stat = system.text("/proc/self/stat")?;
        // The name may hold spaces and parentheses of its own.
        let (_, fields) = stat.rsplit_once(") ")?;
        Some(Self {
            own_bytes: bytes("RssAnon")?,
            resident_bytes: bytes("VmRSS")?,
            major_faults: fields.split(' ').nth(MAJOR_FAULTS_FIELD)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::system;
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_name() {
        let (_folder, system) = system(&[
            ("/proc/self/status", "Name: x\nVmRSS:\t    2000 kB\nRssAnon:\t    1500 kB\n"),
            ("/proc/self/stat", "17 (a) b) S 1 2 3 4 5 6 7 8 99 10 11"),
        ]);
        let expected = Process { own_bytes: 1500 << 10, resident_bytes: 2000 << 10, major_faults: 99 };
        assert_eq!(Process::find(&system), Some(expected));
    }
}
