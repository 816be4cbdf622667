//! How far the weights are, told as a backend asks for them. What it has taken is given back to the system, so that a load
//! takes the memory of the weights and of one more, not twice that of all.

use gannet_ops::{Program, WeightError, WeightSource, WeightTensor};
use std::sync::{Mutex, PoisonError};

/// How far loading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Weights that the backend has taken.
    pub weights: usize,
    /// Weights of the program.
    pub total: usize,
}

/// A source of weights that says how many were taken, and gives back the one before when the next is asked for.
pub(crate) struct WatchedWeights<'a> {
    source: &'a dyn WeightSource,
    watch: &'a (dyn Fn(Progress) + Sync),
    /// How many were taken, and the last of them.
    taken: Mutex<(usize, Option<String>)>,
    total: usize,
}

impl<'a> WatchedWeights<'a> {
    pub(crate) fn new(
        source: &'a dyn WeightSource,
        program: &Program,
        watch: &'a (dyn Fn(Progress) + Sync),
    ) -> Self {
        Self { source, watch, taken: Mutex::default(), total: program.weights.len() }
    }
}

impl WeightSource for WatchedWeights<'_> {
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError> {
        let weight = self.source.weight(name)?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = taken.1.replace(name.to_owned()) {
            self.source.give_back(&last);
        }
        taken.0 += 1;
        let weights = taken.0;
        drop(taken);
        (self.watch)(Progress { weights, total: self.total });
        Ok(weight)
    }
}
