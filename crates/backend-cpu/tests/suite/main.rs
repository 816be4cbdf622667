//! The backend against the reference interpreter, against itself, and against input that makes no sense.

mod errors;
mod ops;
mod sampling;
mod support;
