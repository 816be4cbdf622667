//! What this process takes of the machine, as `proc(5)` tells.

use super::System;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

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
        Some(Self {
            own_bytes: bytes("RssAnon")?,
            resident_bytes: bytes("VmRSS")?,
            major_faults: major_faults(&stat)?,
        })
    }
}

/// The major page faults that a line of `/proc/self/stat` counts.
fn major_faults(stat: &str) -> Option<u64> {
    // The name may hold spaces and parentheses of its own.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(MAJOR_FAULTS_FIELD)?.parse().ok()
}

/// Counts major page faults again and again, without taking memory.
pub struct FaultCounter(File);

/// Bytes of `/proc/self/stat` at most: fifty numbers and a name.
const STAT_BYTES_MAX: usize = 2048;

impl FaultCounter {
    /// A counter; none where the system keeps no count.
    pub fn open() -> Option<Self> {
        let mut counter = Self(File::open("/proc/self/stat").ok()?);
        counter.count().map(|_| counter)
    }

    /// Faults of this process so far.
    pub fn count(&mut self) -> Option<u64> {
        let mut line = [0; STAT_BYTES_MAX];
        self.0.seek(SeekFrom::Start(0)).ok()?;
        let length = self.0.read(&mut line).ok()?;
        major_faults(std::str::from_utf8(&line[..length]).ok()?)
    }

    /// The counter as a function.
    pub(crate) fn counting(mut self) -> Box<dyn FnMut() -> Option<u64> + Send> {
        Box::new(move || self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::system;
    use super::*;

    #[test]
    fn the_counter_goes_on_as_the_process_does() {
        let known = Process::measure().map(|process| process.major_faults);
        assert_eq!(FaultCounter::open().is_some(), known.is_some());
        if let (Some(mut counter), Some(known)) = (FaultCounter::open(), known) {
            let first = counter.count().expect("it counted when it was opened");
            assert!(first >= known && counter.count().is_some_and(|second| second >= first));
        }
    }

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
