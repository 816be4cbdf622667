//! The body of a request as JSON, within its limits.
//!
//! A body that is too large is read on for a while and thrown away, so that a client that is still sending hears why.

use super::fields::Fields;
use super::place::path_at;
use crate::error::ApiError;
use crate::limits::Limits;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, Request, header};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::timeout;

/// Reads the body and takes it as an object.
pub(crate) async fn fields(request: Request<Body>, limits: &Arc<Limits>) -> Result<Fields, ApiError> {
    let (head, body) = request.into_parts();
    check_content_type(&head.headers)?;
    let bytes = read(&head.headers, body, limits).await?;
    check_depth(&bytes, limits.json_depth)?;
    let value = gannet_json::from_slice(&bytes).map_err(|error| not_json(&bytes, &error))?;
    Fields::of_body(value, limits)
}

/// The complaint of the parser, with the field that it is about.
fn not_json(bytes: &[u8], error: &serde_json::Error) -> ApiError {
    let line =
        bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().saturating_sub(1)).map(<[u8]>::len);
    // What is no JSON is complained of before it is read, a key that occurs twice when it was.
    let column = if error.is_data() { error.column() } else { error.column().saturating_sub(1) };
    let at = line.sum::<usize>() + column;
    ApiError::NotJson { path: path_at(bytes, at), why: error.to_string() }
}

/// A page on another site can't send this type without being asked for permission first.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let found =
        headers.get(header::CONTENT_TYPE).map_or("nothing", |value| value.to_str().unwrap_or("no text"));
    let kind = found.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    if is_json { Ok(()) } else { Err(ApiError::ContentType { found: found.to_owned() }) }
}

async fn read(headers: &HeaderMap, mut body: Body, limits: &Limits) -> Result<Vec<u8>, ApiError> {
    let limit = limits.body_bytes;
    let too_large = || ApiError::BodyTooLarge { limit };
    if body.size_hint().lower() > limit as u64 {
        // A client that waits to be told to go on has sent nothing yet.
        if !headers.contains_key(header::EXPECT) {
            discard(body, limits).await;
        }
        return Err(too_large());
    }
    match timeout(limits.body_time, collect(&mut body, limit)).await {
        Err(_) => Err(ApiError::BodyTooSlow { limit: limits.body_time }),
        Ok(Ok(Some(bytes))) => Ok(bytes),
        Ok(Ok(None)) => {
            discard(body, limits).await;
            Err(too_large())
        }
        Ok(Err(error)) => Err(ApiError::BodyBroken(error.to_string())),
    }
}

/// The bytes, or none where there are more than `limit`.
async fn collect(body: &mut Body, limit: usize) -> Result<Option<Vec<u8>>, axum::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes))
}

async fn discard(mut body: Body, limits: &Limits) {
    let read = async {
        let mut left = limits.discarded_bytes;
        while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            left = left.saturating_sub(frame.into_data().map_or(0, |data| data.len()));
            if left == 0 {
                return;
            }
        }
    };
    // Who sends for longer than that doesn't want to hear.
    let _ = timeout(limits.discard_time, read).await;
}

/// Lists and objects are nested at most so deep; strings don't count.
fn check_depth(bytes: &[u8], limit: usize) -> Result<(), ApiError> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in bytes.iter().enumerate() {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => in_string = false,
            (true, _) => {}
            (false, b'"') => in_string = true,
            (false, b'[' | b'{') => depth += 1,
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (false, _) => {}
        }
        if depth > limit {
            return Err(ApiError::TooDeep { path: path_at(bytes, at), limit });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_that_of_lists_and_objects_outside_of_strings() {
        let check = |text: &str, is_fine: bool| {
            assert_eq!(check_depth(text.as_bytes(), 2).is_ok(), is_fine, "{text}")
        };
        check("[[]]", true);
        check("[[[]]]", false);
        check(r#"{"a":[],"b":[]}"#, true);
        check(r#"{"a":"[[[["}"#, true);
        check(r#"{"a":"\"[[[["}"#, true);
        check(r#"{"a":"\\","b":{"c":[]}}"#, false);
    }
}
