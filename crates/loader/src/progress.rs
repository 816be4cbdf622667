//! How far the weights are, told as a backend asks for them.

use gannet_ops::{Program, WeightError, WeightSource, WeightTensor};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Weights that the backend has taken.
    pub weights: usize,
    /// Weights of the program.
    pub total: usize,
}

/// A source of weights that says how many were taken.
pub(crate) struct WatchedWeights<'a> {
    source: &'a dyn WeightSource,
    watch: &'a (dyn Fn(Progress) + Sync),
    taken: AtomicUsize,
    total: usize,
}

impl<'a> WatchedWeights<'a> {
    pub(crate) fn new(
        source: &'a dyn WeightSource,
        program: &Program,
        watch: &'a (dyn Fn(Progress) + Sync),
    ) -> Self {
        Self { source, watch, taken: AtomicUsize::new(0), total: program.weights.len() }
    }
}

impl WeightSource for WatchedWeights<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let weight = self.source.weight(name)?;
        let weights = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        (self.watch)(Progress { weights, total: self.total });
        Ok(weight)
    }
}
