//! `/v1/embeddings`: vectors of texts or token ids.

use super::chat_form::json;
use super::request;
use crate::app::App;
use crate::error::ApiError;
use crate::generate::embedding::{Embeddings, embed};
use crate::generate::params::{Cut, cut, priority, salt, time_limit};
use crate::wire::fields::Fields;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use gannet_engine::Embedding;
use gannet_text::base64;
use serde_json::{Value, json};
use std::sync::Arc;

/// How vectors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// A list of numbers.
    Float,
    /// Single precision, lowest byte first, as base64.
    Base64,
}

/// Makes vectors.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (mut fields, served) = request::open(&app, request).await?;
    let input = request::prompts(fields.require("input", "a text, token ids, or a list of them")?, &served)?;
    let ends = request::text_ends(&mut fields)?;
    let encoding = encoding(&mut fields)?;
    let dimensions = fields.integer("dimensions", 1..=i64::from(u32::MAX))?.map(|count| count as usize);
    let time = time_limit(&mut fields)?;
    let (priority, cache_salt) = (priority(&mut fields)?, salt(&mut fields)?);
    let cut = cut(&mut fields)?;
    fields.string("user")?;
    fields.finish()?;
    let mut ids = input.ids(&app, &served, ends).await?;
    let most = match cut {
        Some(Cut::Last(tokens)) => tokens,
        Some(Cut::ToFit) => served.room(),
        None => usize::MAX,
    };
    let cut_tokens: usize =
        ids.iter_mut().map(|ids| ids.drain(..ids.len().saturating_sub(most)).count()).sum();
    let path = |place| if input.is_list { format!("input[{place}]") } else { "input".to_owned() };
    let texts = ids.into_iter().enumerate().map(|(place, ids)| (path(place), ids)).collect();
    let name = served.name.clone();
    let vectors = embed(served, Embeddings { texts, dimensions, priority, cache_salt, time }).await?;
    let mut answer = whole(&name, &vectors, encoding);
    if cut_tokens > 0 {
        answer["usage"]["prompt_tokens_details"]["truncated_tokens"] = json!(cut_tokens);
    }
    Ok(json(&answer))
}

fn encoding(fields: &mut Fields) -> Result<Encoding, ApiError> {
    let Some(field) = fields.take("encoding_format") else { return Ok(Encoding::Float) };
    match field.value.as_str() {
        Some("float") => Ok(Encoding::Float),
        Some("base64") => Ok(Encoding::Base64),
        Some(_) | None => Err(field.wrong("float or base64")),
    }
}

fn whole(name: &str, vectors: &[Embedding], encoding: Encoding) -> Value {
    let object = |(index, embedding): (usize, &Embedding)| {
        let vector = match encoding {
            Encoding::Float => json!(embedding.vector),
            Encoding::Base64 => {
                let bytes: Vec<u8> = embedding.vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(base64::encode(&bytes))
            }
        };
        json!({"object": "embedding", "index": index, "embedding": vector})
    };
    let data: Vec<Value> = vectors.iter().enumerate().map(object).collect();
    let tokens: u64 = vectors.iter().map(|embedding| u64::from(embedding.usage.prompt_tokens)).sum();
    let known: u64 = vectors.iter().map(|embedding| u64::from(embedding.usage.reused_tokens)).sum();
    let usage = json!({
        "prompt_tokens": tokens, "total_tokens": tokens, "prompt_tokens_details": {"cached_tokens": known},
    });
    json!({"object": "list", "data": data, "model": name, "usage": usage})
}
