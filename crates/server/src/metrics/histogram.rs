//! A histogram with fixed bounds, counted by many threads at once.

use super::text::Series;
use std::sync::atomic::{AtomicU64, Ordering};

/// Observations by the first bound that they don't exceed.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static [f64],
    /// One a bound, and one for what is above all.
    counts: Vec<AtomicU64>,
    /// Millionths, since sums of floats need a lock and these don't.
    sum_millionths: AtomicU64,
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_millionths: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.sum_millionths.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }

    /// The lines of this histogram with these labels.
    pub(crate) fn write(&self, series: &mut Series<'_>) {
        let mut total = 0;
        let bounds = self.bounds.iter().map(|bound| format!("{bound:?}")).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            total += count.load(Ordering::Relaxed);
            series.sample("_bucket", &[("le", &bound)], total as f64);
        }
        series.sample("_sum", &[], self.sum_millionths.load(Ordering::Relaxed) as f64 / 1e6);
        series.sample("_count", &[], total as f64);
    }
}
