//! Whether every value is a finite number: all tensors, decoded row by row.
//!
//! One value that isn't spoils every answer that it reaches, so each tensor with any is a fault that is named.

use super::Check;
use crate::progress::Bar;
use crate::quantity::{count, plural};
use gannet_formats::{Checkpoint, Tensor};
use gannet_tensor::TensorView;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

const NAME: &str = "values";
/// Tensors with faults that are named.
const NAMED: usize = 5;

/// What is wrong with a tensor, by its place in the files.
type Faults = Vec<(usize, String)>;

/// Decodes everything.
pub(super) fn check(checkpoint: &Checkpoint) -> Check {
    let tensors: Vec<Tensor<'_>> =
        checkpoint.tensors().filter(|tensor| !tensor.format.is_integer()).collect();
    let faults = faults(&tensors);
    let elements: u64 = tensors.iter().map(|tensor| tensor.elements() as u64).sum();
    if faults.is_empty() {
        let detail = format!("{} in {} are finite", count(elements), plural(tensors.len(), "tensor"));
        return Check::ok(NAME, detail);
    }
    let named: Vec<&str> = faults.iter().take(NAMED).map(|(_, fault)| fault.as_str()).collect();
    let more = match faults.len().saturating_sub(NAMED) {
        0 => String::new(),
        rest => format!("; and {} more", plural(rest, "tensor")),
    };
    Check::fault(NAME, named.join("; ") + &more)
}

/// Every tensor with faults, in the order of the files.
fn faults(tensors: &[Tensor<'_>]) -> Faults {
    let (next, done, found) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Faults::new()));
    let bar = Bar::new("checking values");
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(tensor) = tensors.get(place) else { return };
            if let Some(fault) = fault(tensor) {
                found.lock().unwrap_or_else(PoisonError::into_inner).push((place, fault));
            }
            bar.show(done.fetch_add(1, Ordering::Relaxed) + 1, tensors.len());
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(tensors.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut faults = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    faults.sort();
    faults
}

/// What is wrong with a tensor, with the first row where it is.
fn fault(tensor: &Tensor<'_>) -> Option<String> {
    let name = tensor.name;
    if tensor.elements() == 0 {
        return Some(format!("`{name}` has no values"));
    }
    let bytes = match tensor.bytes() {
        Ok(bytes) => bytes,
        Err(error) => return Some(error.to_string()),
    };
    let view = match TensorView::new(tensor.format, tensor.shape, &bytes) {
        Ok(view) => view,
        Err(error) => return Some(format!("`{name}`: {error}")),
    };
    let mut row = vec![0.0f32; view.columns()];
    let mut first = None;
    let mut rows = 0;
    for index in 0..view.rows() {
        view.decode_row(index, &mut row);
        // Without an early end, so that the compiler makes vector code of it.
        if !row.iter().fold(true, |all, value| all & value.is_finite()) {
            rows += 1;
            first = first
                .or_else(|| row.iter().position(|value| !value.is_finite()).map(|at| (index, at, row[at])));
        }
    }
    let (index, column, value) = first?;
    let all = format!("{rows} of {}", plural(view.rows(), "row"));
    Some(format!("`{name}` holds {value} in row {index}, column {column} (such values in {all})"))
}
