//! The kinds of values that bodies and answers consist of, as schemas.

use serde_json::{Map, Value, json};

/// A property of an object.
pub(super) type Property = (&'static str, Value);

/// The same, or `null`.
pub(super) fn optional(schema: Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

pub(super) fn json_schema() -> Value {
    json!({"type": ["object", "boolean", "string"]})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}

/// A whole number of this range.
pub(super) fn integer(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// A number of this range.
pub(super) fn number(least: f64, most: f64) -> Value {
    json!({"type": "number", "minimum": least, "maximum": most})
}

/// One of these texts.
pub(super) fn one_of(words: &[&str]) -> Value {
    json!({"type": "string", "enum": words})
}

/// A list of so many.
pub(super) fn list(items: Value, least: usize, most: usize) -> Value {
    json!({"type": "array", "items": items, "minItems": least, "maxItems": most})
}

/// A list of any length; the bytes of a body bound it.
pub(super) fn any(items: Value) -> Value {
    json!({"type": "array", "items": items})
}

/// An object of a request: these properties, of which some must be there; no others.
pub(super) fn taken(required: &[&str], properties: &[Property]) -> Value {
    let property = |(name, schema): &Property| {
        let is_required = required.contains(name);
        let schema = schema.clone();
        ((*name).to_owned(), if is_required { schema } else { optional(schema) })
    };
    let properties: Map<String, Value> = properties.iter().map(property).collect();
    let rest = json!({"type": "null"});
    json!({"type": "object", "required": required, "properties": properties, "additionalProperties": rest})
}

/// An object of an answer, all of whose properties are there except these.
pub(super) fn given(properties: &[Property], at_times: &[Property]) -> Value {
    let required: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let all = properties.iter().chain(at_times);
    let all: Map<String, Value> = all.map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": required, "properties": all, "additionalProperties": false})
}
