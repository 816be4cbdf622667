//! The server's limits as flags, one each.

use crate::arguments::values;
use clap::Args;
use gannet_server::Limits;
use std::time::Duration;

/// Bounds of what clients may do.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArguments {
    /// Connections that are open at once [default: 4096]
    #[arg(long, value_name = "N", value_parser = values::times)]
    max_connections: Option<usize>,
    /// Seconds for a request's head to arrive, and for an idle connection [default: 10]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    header_timeout: Option<Duration>,
    /// Bytes of a request's head [default: 65536]
    #[arg(long, value_name = "BYTES", value_parser = values::header_bytes)]
    max_header_bytes: Option<usize>,
    /// Seconds for a request's body to arrive [default: 30]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    body_timeout: Option<Duration>,
    /// Bytes of a request's body [default: 33554432]
    #[arg(long, value_name = "BYTES", value_parser = values::body_bytes)]
    max_body_bytes: Option<usize>,
    /// Answers that may wait for a sequence; more are refused with 429 [default: 256]
    #[arg(long, value_name = "N", value_parser = values::times)]
    max_waiting: Option<usize>,
    /// Seconds for a request, from its arrival to its end [default: 600]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    request_timeout: Option<Duration>,
    /// Requests of one key at once, or of all without keys [default: 1024]
    #[arg(long, value_name = "N", value_parser = values::times)]
    max_concurrent_per_key: Option<usize>,
    /// Requests of one key a minute [default: no limit]
    #[arg(long, value_name = "N", value_parser = values::requests_per_minute)]
    requests_per_minute: Option<u32>,
    /// Seconds of silence in a stream after which a comment is sent [default: 15]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    keep_alive: Option<Duration>,
    /// Seconds for running requests to end when the server stops [default: 30]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    drain_timeout: Option<Duration>,
    /// Seconds without a step after which a busy engine counts as stuck [default: 120]
    #[arg(long, value_name = "S", value_parser = values::seconds)]
    stall_timeout: Option<Duration>,
}

impl LimitArguments {
    /// The limits, those that aren't given as the server has them.
    pub(super) fn resolve(&self) -> Limits {
        let own = Limits::default();
        Limits {
            connections: self.max_connections.unwrap_or(own.connections),
            header_time: self.header_timeout.unwrap_or(own.header_time),
            header_bytes: self.max_header_bytes.unwrap_or(own.header_bytes),
            body_time: self.body_timeout.unwrap_or(own.body_time),
            body_bytes: self.max_body_bytes.unwrap_or(own.body_bytes),
            waiting: self.waiting(),
            request_time: self.request_timeout.unwrap_or(own.request_time),
            concurrent_per_key: self.max_concurrent_per_key.unwrap_or(own.concurrent_per_key),
            requests_per_minute: self.requests_per_minute,
            keep_alive: self.keep_alive.unwrap_or(own.keep_alive),
            drain_time: self.drain_timeout.unwrap_or(own.drain_time),
            stall_time: self.stall_timeout.unwrap_or(own.stall_time),
        }
    }

    /// Answers that may wait.
    pub(super) fn waiting(&self) -> usize {
        self.max_waiting.unwrap_or(Limits::default().waiting)
    }
}
