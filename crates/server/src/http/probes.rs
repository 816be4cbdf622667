//! Routes for those who watch the server: is it alive, may it be sent requests, what is it.

use crate::app::App;
use crate::names;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// 200 as long as engines that have something to do make steps.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    let limit = app.config.limits.stall_time;
    let stuck: Vec<String> = app
        .models
        .loaded()
        .iter()
        .filter(|served| served.stands_for() > limit)
        .map(|served| served.name.clone())
        .collect();
    if stuck.is_empty() {
        return answer(StatusCode::OK, &json!({"status": "ok"}));
    }
    let seconds = limit.as_secs();
    answer(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({"status": "stuck", "models": stuck, "no_step_for_seconds": seconds}),
    )
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
