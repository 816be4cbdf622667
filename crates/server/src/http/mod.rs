//! Connections, and what happens to every request before and after its route.
//!
//! Knows no protocol's body.

pub(crate) mod serve;

pub(crate) mod door;
mod head;

pub(crate) mod gate;
pub(crate) mod keys;
pub(crate) mod router;

pub(crate) mod sse;
mod tls;

mod openapi;
mod page;
mod probes;
