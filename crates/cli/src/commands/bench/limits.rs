//! What the machine can do at most, measured with as many threads as compute.

use super::peak::{NUMBERS, OPERATIONS, multiply_add};
use crate::quantity::{bytes, count};
use gannet_ops::cost::Machine;
use serde::Serialize;
use std::fs;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// How long each limit is measured.
const TIME: Duration = Duration::from_millis(400);
/// How many times the last cache the buffer is.
const CACHES: usize = 8;
/// The last cache where the system doesn't say.
const CACHE_BYTES_DEFAULT: usize = 32 << 20;
/// Rounds of the arithmetic between two looks at the clock.
const ROUNDS: usize = 256;

/// The machine's limits.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Limits {
    threads: usize,
    /// Bytes a second that the threads read together.
    pub(super) bytes_per_second: f64,
    /// Of the buffer that was read.
    buffer_bytes: usize,
    /// Float32 operations a second of all threads; a multiply-add is two.
    pub(super) flops_per_second: f64,
}

impl Limits {
    /// Takes about a second.
    pub(super) fn measure(threads: usize) -> Self {
        let share = buffer_bytes() / threads / size_of::<u64>();
        Self {
            threads,
            bytes_per_second: together(threads, |barrier| read(share, barrier)),
            buffer_bytes: share * threads * size_of::<u64>(),
            flops_per_second: together(threads, multiply),
        }
    }

    pub(super) fn machine(&self) -> Machine {
        Machine { bytes_per_second: self.bytes_per_second, flops_per_second: self.flops_per_second }
    }

    pub(super) fn line(&self) -> String {
        let Self { threads, bytes_per_second, buffer_bytes, flops_per_second } = self;
        format!(
            "{threads} threads read {}B/s (over {}) and do {}FLOP/s in float32; the peaks of int8 and bf16 are not \
             measured, and the bounds below are those of float32",
            count(*bytes_per_second as u64),
            bytes(*buffer_bytes as u64),
            count(*flops_per_second as u64),
        )
    }
}

/// The rates of all threads together, each measured while the others work.
fn together(threads: usize, measure: impl Fn(&Barrier) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| measure(&barrier))).collect();
        let own = measure(&barrier);
        own + others.into_iter().map(|other| other.join().expect("a sum can't panic")).sum::<f64>()
    })
}

/// Bytes a second: the fastest of several passes over a buffer that this thread has written.
fn read(words: usize, barrier: &Barrier) -> f64 {
    let buffer: Vec<u64> = (0..words as u64).collect();
    let pass = || buffer.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    barrier.wait();
    let best = fastest(|| {
        black_box(pass());
    });
    (words * size_of::<u64>()) as f64 / best.as_secs_f64()
}

/// Operations a second.
fn multiply(barrier: &Barrier) -> f64 {
    let mut numbers = [1.0; NUMBERS];
    barrier.wait();
    let best = fastest(|| {
        // A half keeps every number below 1.
        (0..ROUNDS).for_each(|_| multiply_add(black_box(&mut numbers), black_box(0.5)));
    });
    (ROUNDS * OPERATIONS) as f64 / best.as_secs_f64()
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

/// A buffer that no cache holds, as far as memory allows.
fn buffer_bytes() -> usize {
    let wanted = CACHES * last_cache_bytes().unwrap_or(CACHE_BYTES_DEFAULT);
    let affordable = usize::try_from(gannet_loader::machine::available_bytes() / 2).unwrap_or(usize::MAX);
    wanted.min(affordable)
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
}
