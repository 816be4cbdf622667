//! Which path leads where.

use super::{gate, openapi, page, probes};
use crate::anthropic::messages;
use crate::app::App;
use crate::error::ApiError;
use crate::openai::{chat, completions, embeddings, models, responses, tokens};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use std::any::Any;
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

/// All routes, with what each request passes before.
pub(crate) fn router(app: Arc<App>) -> Router {
    let routes: Vec<(&str, MethodRouter<Arc<App>>)> = vec![
        ("/health", get(probes::health)),
        ("/ready", get(probes::ready)),
        ("/version", get(probes::version)),
        ("/metrics", get(probes::metrics)),
        ("/openapi.json", get(openapi::document)),
        ("/tokenize", post(tokens::tokenize)),
        ("/detokenize", post(tokens::detokenize)),
        ("/tokenizer_info", get(tokens::info)),
        ("/v1/models", get(models::list)),
        ("/v1/models/{*id}", get(models::one)),
        ("/v1/completions", post(completions::answer)),
        ("/v1/completions/render", post(completions::render)),
        ("/v1/chat/completions", post(chat::answer)),
        ("/v1/chat/completions/render", post(chat::render)),
        ("/v1/responses", post(responses::create)),
        ("/v1/responses/{id}", get(responses::one).delete(responses::delete)),
        ("/v1/responses/{id}/cancel", post(responses::cancel)),
        ("/v1/embeddings", post(embeddings::answer)),
        ("/v1/messages", post(messages::answer)),
        ("/v1/messages/count_tokens", post(messages::count)),
    ];
    let mut router = Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script));
    for (path, route) in routes {
        // Who watches a server may add what it likes.
        let route = if gate::is_open(path) { route } else { route.route_layer(from_fn(gate::plain_address)) };
        // Clients whose base address already ends in /v1 ask without it, others for these with it.
        let alias = path.strip_prefix("/v1").map_or_else(|| format!("/v1{path}"), str::to_owned);
        router = router.route(&alias, route.clone()).route(path, route);
    }
    let cors = cors(&app.config.cors_origins.0);
    router
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(from_fn_with_state(app.clone(), gate::pass))
        .layer(cors)
        .with_state(app)
}

fn cors(origins: &[HeaderValue]) -> CorsLayer {
    let allowed = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().cloned())
    };
    match origins {
        [] => CorsLayer::new(),
        _ => CorsLayer::new()
            .allow_origin(allowed)
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            // Clients' libraries send headers of their own. None of them is a cookie: who asks shows a key.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([gate::REQUEST_ID, header::RETRY_AFTER]),
    }
}

async fn no_route(request: Request<Body>) -> Response {
    let path = crate::wire::fields::shortened(request.uri().path());
    ApiError::NoRoute { path }.into_response()
}

async fn no_method(request: Request<Body>) -> Response {
    let path = crate::wire::fields::shortened(request.uri().path());
    ApiError::NoMethod { path, method: request.method().to_string() }.into_response()
}

/// A panic is a fault of ours; the client hears that, and the next request is served.
fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let why = text.unwrap_or_else(|| "a panic without words".to_owned());
    tracing::error!(why, "a route panicked");
    ApiError::Failed("the server failed while it handled the request; its log says more".to_owned())
        .into_response()
}
