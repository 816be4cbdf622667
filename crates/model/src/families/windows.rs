//! Which layers see a window only, as the families with `use_sliding_window` say it; each has a rule of its own.

use crate::ModelError;
use crate::keys::{Key, Keys, gguf_key, json_key};
use crate::limits::{CONTEXT_MAX, LAYERS_MAX};
use crate::shape::Shape;

const USE_WINDOW: Key = json_key("use_sliding_window");
const WINDOW: Key = json_key("sliding_window");
const GGUF_WINDOW: Key = gguf_key("attention.sliding_window");
const BOUND: Key = json_key("max_window_layers");
const LAYER_TYPES: Key = json_key("layer_types");

const DEFAULT_WINDOW: usize = 4096;
const DEFAULT_BOUND: usize = 28;

/// The window of each layer: where windows are in use, layers from `max_window_layers` on have one, unless
/// `layer_types` lists them.
pub(super) fn upper_layers(keys: &Keys<'_>, shape: &Shape) -> Result<Vec<Option<u32>>, ModelError> {
    listed_or(keys, shape, |layer, bound| layer >= bound)
}

/// The same where every other layer has one, from the first on, below `max_window_layers`.
pub(super) fn alternate_layers(keys: &Keys<'_>, shape: &Shape) -> Result<Vec<Option<u32>>, ModelError> {
    listed_or(keys, shape, |layer, bound| layer.is_multiple_of(2) && layer < bound)
}

/// The window of all layers, where windows are in use.
pub(super) fn every_layer(keys: &Keys<'_>, shape: &Shape) -> Result<Option<u32>, ModelError> {
    refuse_gguf_window(keys, shape)?;
    match keys.flag(USE_WINDOW)? {
        Some(true) if !keys.is_null(WINDOW) => {
            Ok(Some(keys.count(WINDOW, CONTEXT_MAX)?.unwrap_or(DEFAULT_WINDOW) as u32))
        }
        Some(true | false) | None => Ok(None),
    }
}

/// By `layer_types`, else by a rule over the layer and `max_window_layers`.
fn listed_or(
    keys: &Keys<'_>,
    shape: &Shape,
    slides: impl Fn(usize, usize) -> bool,
) -> Result<Vec<Option<u32>>, ModelError> {
    let window = every_layer(keys, shape)?;
    if let Some(listed) = listed(keys, shape.layers)? {
        return listed.into_iter().map(|sliding| window_of(keys, sliding, window)).collect();
    }
    let bound = match keys.number(BOUND)? {
        Some(0.0) => 0,
        Some(_) => keys.count_or(BOUND, DEFAULT_BOUND, LAYERS_MAX)?,
        None => DEFAULT_BOUND,
    };
    Ok((0..shape.layers).map(|layer| window.filter(|_| slides(layer, bound))).collect())
}

/// Whether each layer slides, where `layer_types` says so.
pub(super) fn listed(keys: &Keys<'_>, layers: usize) -> Result<Option<Vec<bool>>, ModelError> {
    let Some(types) = keys.texts(LAYER_TYPES)? else { return Ok(None) };
    if types.len() != layers {
        let found = format!("a list of {}", types.len());
        return Err(keys.wrong(LAYER_TYPES, found, format!("one kind for each of {layers} layers")));
    }
    let slides = types.into_iter().map(|kind| match kind {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        other => {
            let expected = "`sliding_attention` or `full_attention`";
            Err(keys.wrong(LAYER_TYPES, format!("a list with `{other}`"), expected))
        }
    });
    slides.collect::<Result<_, _>>().map(Some)
}

fn window_of(keys: &Keys<'_>, sliding: bool, window: Option<u32>) -> Result<Option<u32>, ModelError> {
    match (sliding, window) {
        (true, None) => Err(keys.missing(WINDOW, "a window, as `layer_types` has layers that slide")),
        (true, window) => Ok(window),
        (false, _) => Ok(None),
    }
}

/// GGUF can't say which of these layers slide, so a window that would matter is refused.
fn refuse_gguf_window(keys: &Keys<'_>, shape: &Shape) -> Result<(), ModelError> {
    match keys.count(GGUF_WINDOW, CONTEXT_MAX)? {
        Some(window) if window < shape.context_length => {
            let expected = "to be absent, as GGUF doesn't say which layers of this family slide";
            Err(keys.wrong(GGUF_WINDOW, window, expected))
        }
        Some(_) | None => Ok(()),
    }
}
