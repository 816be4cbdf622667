//! The subschemas of a schema, with their paths.

use serde_json::Value;

/// Keywords whose value is a schema, or a list of schemas, or either.
const SCHEMAS: [&str; 17] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "extends",
];
/// Keywords whose value holds a schema under each name.
const NAMED_SCHEMAS: [&str; 6] =
    ["$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties"];

/// The schemas directly inside of one: the keyword, the path below the schema and the schema.
pub(super) fn subschemas(schema: &Value) -> Vec<(&str, String, &Value)> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let is_named = NAMED_SCHEMAS.contains(&keyword.as_str());
        if !is_named && !SCHEMAS.contains(&keyword.as_str()) {
            continue;
        }
        let path = format!("/{}", escaped(keyword));
        match value {
            Value::Object(entries) if is_named => found.extend(
                entries
                    .iter()
                    .map(|(name, value)| (keyword.as_str(), format!("{path}/{}", escaped(name)), value)),
            ),
            Value::Array(items) if !is_named => found.extend(
                items
                    .iter()
                    .enumerate()
                    .map(|(place, value)| (keyword.as_str(), format!("{path}/{place}"), value)),
            ),
            Value::Object(_) | Value::Bool(_) if !is_named => found.push((keyword.as_str(), path, value)),
            // Of a wrong type; whoever reads the keyword says so.
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {}
        }
    }
    found.retain(|(_, _, value)| value.is_object() || value.is_boolean());
    found
}

/// A name as a part of a JSON pointer (RFC 6901).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
