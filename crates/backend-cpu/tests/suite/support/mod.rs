//! What the tests share: a program with every op, weights in every format, and sequences that step over a
//! backend.

pub(crate) mod everything;
pub(crate) mod stepper;
pub(crate) mod weights;

use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuOptions, IsaLevel};

/// Backends that must agree bit for bit: every level on one thread, and the best one on two and three.
pub(crate) fn variants(activations: ActivationFormat) -> Vec<(String, CpuBackend)> {
    let levels = IsaLevel::available().map(|level| (1, Some(level)));
    let options = levels.chain([(2, None), (3, None)]);
    let start = |(threads, isa)| {
        let options = CpuOptions { threads: Some(threads), isa, activations };
        let backend = CpuBackend::new(options).expect("it can be started");
        (format!("{} with {threads} threads and {activations} rows", backend.isa()), backend)
    };
    options.map(start).collect()
}

/// The backend as it is by default, but for what rows are made.
pub(crate) fn with(activations: ActivationFormat) -> CpuBackend {
    CpuBackend::new(CpuOptions { activations, ..CpuOptions::default() }).expect("it can be started")
}

/// Asserts that numbers agree within a part of the largest.
pub(crate) fn assert_close(what: &str, found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_same = found == expected || (found.is_nan() && expected.is_nan());
        let error = (found - expected).abs();
        assert!(is_same || error <= tolerance * largest, "{what} at {place}: {found}, expected {expected}");
    }
}
