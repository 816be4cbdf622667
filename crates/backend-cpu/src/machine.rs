//! What this machine can do at most, measured: how fast its threads read memory and multiply numbers.
//!
//! Memory is that of weights: the same arena, so the same kind of page, each part written by the thread that reads it.
//! Each limit is the sum of what the threads reach at the same time, each by its fastest stretch of a quarter second,
//! so that a stray process does not count.

use crate::arena::Arena;
use crate::options::{CpuError, CpuOptions};
use crate::simd::{Isa, IsaLevel, Kernel, Lanes, peaks};
use gannet_ops::DeviceError;
use gannet_ops::numerics::LANES;
use std::fmt;
use std::fs;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// How long each limit is measured.
const TIME: Duration = Duration::from_millis(250);
/// How many times the last cache the buffer is.
const CACHES: usize = 8;
/// The last cache where the system doesn't say.
const CACHE_BYTES_DEFAULT: usize = 32 << 20;
/// Rounds of a loop between two looks at the clock: some tens of microseconds.
const ROUNDS: usize = 8192;
/// Registers that a pass over memory sums in.
const SUMS: usize = 8;

/// The machine's limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Threads that did it together.
    pub threads: usize,
    /// The instructions that kernels use.
    pub level: IsaLevel,
    /// Bytes a second that the threads read.
    pub bytes_per_second: f64,
    /// Of the buffer that was read.
    pub buffer_bytes: usize,
    /// The kind of page that the buffer got.
    pub pages: PageKind,
    /// Products of bytes, summed in 32 bits.
    pub int8: Rate,
    /// Products of bf16 numbers, summed in float32; `None` where kernels widen them first.
    pub bf16: Option<Rate>,
    /// Float32 multiply-adds.
    pub float32: Rate,
}

/// One kind of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Operations a second; a multiply-add is two.
    pub operations_per_second: f64,
    /// The instruction that does them.
    pub instruction: &'static str,
}

/// How the system maps memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// At least half of it in pages of 2 MiB or more.
    Huge,
    /// The processor's smallest.
    Small,
    /// The system doesn't say.
    Unknown,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Huge => "huge pages",
            PageKind::Small => "4 KiB pages",
            PageKind::Unknown => "pages of unknown size",
        })
    }
}

impl Peaks {
    /// Measures what `options` would use, for about a second. `memory_bytes` is the most that the buffer may take.
    pub fn measure(options: CpuOptions, memory_bytes: usize) -> Result<Self, MeasureError> {
        let (threads, isa) = (options.checked_threads()?, options.checked_isa()?);
        let level = isa.level();
        let share = (buffer_bytes().min(memory_bytes) / threads).next_multiple_of(SUMS * LANES * 4);
        let read = together(threads, |barrier| read(isa, share, barrier));
        let read = read.into_iter().collect::<Result<Vec<_>, _>>()?;
        let rate = |peak: peaks::Peak| Rate {
            operations_per_second: together(threads, |barrier| multiply(peak, barrier)).iter().sum(),
            instruction: peak.instruction,
        };
        Ok(Self {
            threads,
            level,
            bytes_per_second: read.iter().map(|(rate, _)| rate).sum(),
            buffer_bytes: share * threads,
            pages: read[0].1,
            int8: rate(peaks::int8(level)),
            bf16: peaks::bf16(level).map(rate),
            float32: rate(peaks::float32(level)),
        })
    }
}

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The machine isn't as asked for.
    #[error(transparent)]
    Options(#[from] CpuError),
    /// There is no memory for the buffer.
    #[error(transparent)]
    Memory(#[from] DeviceError),
}

/// What each thread measures while the others work.
fn together<R: Send>(threads: usize, measure: impl Fn(&Barrier) -> R + Sync) -> Vec<R> {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| measure(&barrier))).collect();
        let mut all = vec![measure(&barrier)];
        all.extend(others.into_iter().map(|other| other.join().expect("a loop can't panic")));
        all
    })
}

/// Bytes a second over a buffer of this thread, and its pages.
fn read(isa: Isa, bytes: usize, barrier: &Barrier) -> Result<(f64, PageKind), DeviceError> {
    let mut arena = Arena::default();
    let reserved = arena.reserve(bytes, || "the buffer that memory's speed is measured on".to_owned());
    if let Ok(reserved) = &reserved {
        bytemuck::cast_slice_mut::<u8, f32>(arena.bytes_mut(reserved)).fill(1.0);
    }
    // Every thread comes to the barrier, whatever became of its buffer.
    barrier.wait();
    let reserved = reserved?;
    let numbers: &[f32] = bytemuck::cast_slice(arena.bytes_mut(&reserved));
    let best = fastest(|| {
        black_box(isa.run(Sum(numbers)));
    });
    Ok((bytes as f64 / best.as_secs_f64(), page_kind(numbers.as_ptr() as usize, bytes)))
}

/// Reads everything once.
struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        let mut sums = [L::splat(0.0); SUMS];
        let (runs, _) = self.0.as_chunks::<LANES>();
        for part in runs.chunks_exact(SUMS) {
            for place in 0..SUMS {
                sums[place] = sums[place].add(L::load(&part[place]));
            }
        }
        let mut total = sums[0];
        for sum in &sums[1..] {
            total = total.add(*sum);
        }
        total.fold()
    }
}

/// Operations a second.
fn multiply(peak: peaks::Peak, barrier: &Barrier) -> f64 {
    barrier.wait();
    let best = fastest(|| peak.run(ROUNDS));
    (ROUNDS * peak.operations) as f64 / best.as_secs_f64()
}

/// The shortest time of what is done again and again, at least twice.
fn fastest(mut work: impl FnMut()) -> Duration {
    let started = Instant::now();
    let mut best = Duration::MAX;
    let mut times = 0;
    while times < 2 || started.elapsed() < TIME {
        let begun = Instant::now();
        work();
        best = best.min(begun.elapsed());
        times += 1;
    }
    best.max(Duration::from_nanos(1))
}

/// Bytes that no cache holds.
fn buffer_bytes() -> usize {
    CACHES * last_cache_bytes().unwrap_or(CACHE_BYTES_DEFAULT)
}

/// The largest cache of the first processor.
fn last_cache_bytes() -> Option<usize> {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?.flatten();
    caches.filter_map(|cache| cache_bytes(&fs::read_to_string(cache.path().join("size")).ok()?)).max()
}

/// A size such as `32768K`.
fn cache_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, factor) = match (text.strip_suffix('K'), text.strip_suffix('M')) {
        (Some(digits), _) => (digits, 1 << 10),
        (None, Some(digits)) => (digits, 1 << 20),
        (None, None) => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(factor)
}

/// The pages of memory that was touched.
fn page_kind(address: usize, bytes: usize) -> PageKind {
    let maps = fs::read_to_string("/proc/self/smaps").ok();
    let huge = maps.and_then(|maps| huge_bytes(&maps, address..address + bytes));
    match huge {
        Some(huge) if huge >= bytes / 2 => PageKind::Huge,
        Some(_) => PageKind::Small,
        None => PageKind::Unknown,
    }
}

/// Bytes in huge pages of the mappings that overlap a range, by the text of `/proc/self/smaps`: a line
/// `begin-end ...` in hexadecimal, and lines `Name: n kB` of that mapping.
fn huge_bytes(maps: &str, range: std::ops::Range<usize>) -> Option<usize> {
    let mut overlaps = false;
    let mut huge = None;
    for line in maps.lines() {
        if let Some((begin, end)) = mapping(line) {
            overlaps = begin < range.end && range.start < end;
        } else if let (true, Some(kilobytes)) = (overlaps, line.strip_prefix("AnonHugePages:")) {
            let kilobytes: usize = kilobytes.trim().strip_suffix(" kB")?.parse().ok()?;
            huge = Some(huge.unwrap_or(0) + kilobytes * 1024);
        }
    }
    huge
}

fn mapping(line: &str) -> Option<(usize, usize)> {
    let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(begin, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches_are_read_in_bytes() {
        let check = |text: &str, expected: Option<usize>| assert_eq!(cache_bytes(text), expected, "{text:?}");
        check("32768K\n", Some(32 << 20));
        check("8M", Some(8 << 20));
        check("512", Some(512));
        check("", None);
        check("99999999999999999999K", None);
    }

    #[test]
    fn a_pass_reads_every_number_once() {
        let numbers: Vec<f32> = (0..3 * SUMS * LANES).map(|place| (place % 5) as f32).collect();
        let expected: f32 = numbers.iter().sum();
        for level in IsaLevel::available() {
            let isa = Isa::new(level).expect("the level is available");
            assert_eq!(isa.run(Sum(&numbers)), expected, "{level}");
        }
    }

    #[test]
    fn huge_pages_are_those_of_the_mappings_that_overlap() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 \nRss: 8 kB\nAnonHugePages:  2048 kB\n\
                    3000-5000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:     4 kB\n";
        let check = |range, expected| assert_eq!(huge_bytes(maps, range), expected);
        check(0x1800..0x1900, Some(2048 << 10));
        check(0x1800..0x3001, Some(2052 << 10));
        check(0x4000..0x9000, Some(4 << 10));
        check(0x5000..0x6000, None);
    }
}
