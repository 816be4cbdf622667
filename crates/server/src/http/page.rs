//! `GET /`: a page to talk to a model and to watch the engine, whole in the binary.
//!
//! It loads nothing from elsewhere and runs nothing but its own script: the policy says so. What a model says becomes text
//! nodes of the document, never markup.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Everything is forbidden but this server's own script, style and routes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Paths of the page, which need no key.
pub(super) const PATHS: [&str; 3] = ["/", "/page.css", "/page.js"];

pub(super) async fn html() -> Response {
    of_kind("text/html; charset=utf-8", HTML)
}

pub(super) async fn style() -> Response {
    of_kind("text/css; charset=utf-8", STYLE)
}

pub(super) async fn script() -> Response {
    of_kind("text/javascript; charset=utf-8", SCRIPT)
}

fn of_kind(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}
