//! `/v1/models`: which models there are.

use super::chat_form::json;
use crate::app::App;
use crate::error::ApiError;
use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// All models.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let data: Vec<Value> = app.models.list().map(|(name, created)| model(&app, name, created)).collect();
    json(&json!({"object": "list", "data": data}))
}

/// One model, whose name may hold slashes.
pub(crate) async fn one(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    app.models.contains(&id)?;
    let found = app.models.list().find(|(name, _)| *name == id);
    let found = found.map(|(name, created)| model(&app, name, created));
    found.map(|model| json(&model)).ok_or(ApiError::NotFound { what: "model", id })
}

fn model(app: &App, name: &str, created: u64) -> Value {
    let loaded = app.models.loaded().into_iter().find(|served| served.name == name);
    let context = loaded.as_ref().map(|served| served.handle.context());
    json!({
        "id": name, "object": "model", "created": created, "owned_by": "gannet", "root": name, "parent": null,
        "max_model_len": context, "loaded": loaded.is_some(),
    })
}
