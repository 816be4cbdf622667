//! Routes for those who watch the server: is it alive, may it be sent requests, what is it.

use crate::app::App;
use crate::models::Served;
use crate::names;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// Failures of a device, without a step between them, after which it counts as lost: one may be a single request's, and
/// what a driver has given up stays so until the process ends.
const FAILURES: u64 = 3;

/// 200 as long as engines that have something to do make steps, and devices do what they are told.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let limit = app.config.limits.stall_time;
    let models = app.models.loaded();
    let names = |is_ill: &dyn Fn(&Served) -> bool| -> Vec<String> {
        models.iter().filter(|served| is_ill(served)).map(|served| served.name.clone()).collect()
    };
    let failing = names(&|served| served.handle.stats().failures_since_step >= FAILURES);
    if !failing.is_empty() {
        let body = json!({"status": "failing", "models": failing});
        return answer(StatusCode::SERVICE_UNAVAILABLE, &body);
    }
    let stuck = names(&|served| served.stands_for() > limit);
    if !stuck.is_empty() {
        let body = json!({"status": "stuck", "models": stuck, "no_step_for_seconds": limit.as_secs()});
        return answer(StatusCode::SERVICE_UNAVAILABLE, &body);
    }
    answer(StatusCode::OK, &json!({"status": "ok"}))
}

/// 200 as long as new requests are taken.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.is_open() {
        true => answer(StatusCode::OK, &json!({"status": "ready"})),
        false => answer(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "draining"})),
    }
}

pub(super) async fn version() -> Response {
    answer(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION"), "server": names::FINGERPRINT}))
}

/// What is counted, for Prometheus.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let models = app.models.loaded();
    // A scrape that panics is an empty one.
    let text =
        tokio::task::spawn_blocking(move || crate::metrics::of_models(&models)).await.unwrap_or_default();
    (StatusCode::OK, [("content-type", "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}
