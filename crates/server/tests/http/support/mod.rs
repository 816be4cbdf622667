//! A server of its own for each test, and a client that says exactly what it is told.

mod client;
mod server;

pub(crate) use client::{Answer, Connection};
pub(crate) use server::{Server, config};
