//! Rewrites of a program for backends that run several ops as one.
//!
//! Each rewrite is a pure function from program to program in a file of its own. Values keep their ids.

mod add_rms_norm;

use crate::Program;

/// A rewrite that a backend may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fusion {
    /// `add` and the `rms_norm` of its result become [`crate::FusedKind::AddRmsNorm`].
    AddRmsNorm,
}

/// The program with these rewrites applied, in order.
pub fn fuse(program: &Program, fusions: &[Fusion]) -> Program {
    fusions.iter().fold(program.clone(), |program, fusion| match fusion {
        Fusion::AddRmsNorm => add_rms_norm::rewrite(program),
    })
}
