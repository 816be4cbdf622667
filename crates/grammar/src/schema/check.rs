//! What is refused before a schema is compiled, and what is left out of it.

use serde_json::{Map, Value, json};

use super::formats;
use super::walk::{escaped, subschemas};
use crate::error::GrammarError;
use crate::grammar::check_expression;
use crate::limits::GrammarLimits;

/// Keywords that constrain a document in a way that the compiler can't hold.
const NOT_HELD: [&str; 20] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "divisibleBy",
    "else",
    "extends",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

/// Formats of JSON Schema that the compiler has expressions for.
const FORMATS_HELD: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];
/// Formats of JSON Schema that it has none for. All others are no more than remarks.
const FORMATS_NOT_HELD: [&str; 9] = [
    "idn-email",
    "idn-hostname",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "uri-reference",
    "uri-template",
];

/// The largest integer that a float64 holds with all before it.
const INTEGER_MAX: i64 = (1 << 53) - 1;

/// White space between the parts of a document: none, one space, or a new line with its indentation. More of it would
/// let a model write white space until its limit.
const WHITE_SPACE: &str = r"[ ]|\n[ ]{0,16}";

/// The schema as the compiler takes it.
pub(crate) fn checked(mut schema: Value, limits: &GrammarLimits) -> Result<Value, GrammarError> {
    check_size(&schema, limits)?;
    if let Some(holds) = schema.as_bool() {
        schema = if holds { json!({}) } else { json!({"enum": []}) };
    }
    if !schema.is_object() {
        return Err(refusal("", "", "a schema is an object, true or false"));
    }
    for path in left_out(&schema, limits)? {
        remove(&mut schema, &path);
    }
    tighten(&mut schema);
    if let Value::Object(entries) = &mut schema {
        let options = json!({"whitespace_flexible": true, "whitespace_pattern": WHITE_SPACE});
        entries.insert("x-guidance".to_owned(), options);
    }
    Ok(schema)
}

fn check_size(schema: &Value, limits: &GrammarLimits) -> Result<(), GrammarError> {
    let mut level = vec![schema];
    let (mut depth, mut nodes) = (0, 0);
    while !level.is_empty() {
        (depth, nodes) = (depth + 1, nodes + level.len());
        if depth > limits.schema_depth {
            let what = "the nesting of the schema";
            return Err(GrammarError::TooLarge { what, found: depth, limit: limits.schema_depth });
        }
        if nodes > limits.schema_nodes {
            let what = "the values of the schema";
            return Err(GrammarError::TooLarge { what, found: nodes, limit: limits.schema_nodes });
        }
        level = level.into_iter().flat_map(children).collect();
    }
    Ok(())
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(entries) => entries.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The paths of keywords that constrain nothing; an error for one that constrains and can't be held.
fn left_out(schema: &Value, limits: &GrammarLimits) -> Result<Vec<String>, GrammarError> {
    let mut paths = vec!["/x-guidance".to_owned()];
    let mut open = vec![(String::new(), schema)];
    while let Some((path, schema)) = open.pop() {
        let entries = schema.as_object().into_iter().flatten();
        for (keyword, value) in entries {
            let place = format!("{path}/{}", escaped(keyword));
            match keyword.as_str() {
                "format" => check_format(&place, value, &mut paths)?,
                "pattern" => check_pattern(&place, keyword, value, limits)?,
                "patternProperties" => {
                    for expression in value.as_object().into_iter().flat_map(Map::keys) {
                        let place = format!("{place}/{}", escaped(expression));
                        check_pattern(&place, keyword, &Value::from(expression.as_str()), limits)?;
                    }
                }
                "$ref" => check_reference(&place, value)?,
                _ if holds_always(keyword, value) => paths.push(place),
                _ if NOT_HELD.contains(&keyword.as_str()) => {
                    return Err(refusal(&place, keyword, "this keyword can't be held while a text is made"));
                }
                _ => {}
            }
        }
        open.extend(subschemas(schema).into_iter().map(|(_, below, inner)| (path.clone() + &below, inner)));
    }
    Ok(paths)
}

/// Makes a schema narrower where more would be of no use to whoever reads the document.
fn tighten(schema: &mut Value) {
    let mut paths = Vec::new();
    let mut open = vec![(String::new(), &*schema)];
    while let Some((path, schema)) = open.pop() {
        open.extend(subschemas(schema).into_iter().map(|(_, below, inner)| (path.clone() + &below, inner)));
        paths.push(path);
    }
    for path in paths {
        if let Some(Value::Object(entries)) = schema.pointer_mut(&path) {
            bound_integers(entries);
            spell_out_format(entries);
        }
    }
}

/// Gives integers without a bound the ones within which every reader of JSON reads them exactly (RFC 8259, 6).
fn bound_integers(entries: &mut Map<String, Value>) {
    let is_integer = match entries.get("type") {
        Some(Value::Array(types)) => types.iter().any(|name| name == "integer"),
        Some(name) => name == "integer",
        None => false,
    };
    if !is_integer {
        return;
    }
    let number = |keyword: &str| entries.get(keyword).and_then(Value::as_f64);
    let low =
        number("minimum").into_iter().chain(number("exclusiveMinimum")).fold(f64::NEG_INFINITY, f64::max);
    let high = number("maximum").into_iter().chain(number("exclusiveMaximum")).fold(f64::INFINITY, f64::min);
    if low == f64::NEG_INFINITY && high > -INTEGER_MAX as f64 {
        entries.insert("minimum".to_owned(), json!(-INTEGER_MAX));
    }
    if high == f64::INFINITY && low < INTEGER_MAX as f64 {
        entries.insert("maximum".to_owned(), json!(INTEGER_MAX));
    }
}

/// A format as the pattern that it is, beside the schema's own.
fn spell_out_format(entries: &mut Map<String, Value>) {
    let pattern = entries.get("format").and_then(Value::as_str).and_then(formats::pattern);
    let Some(pattern) = pattern else { return };
    entries.shift_remove("format");
    let all = entries.entry("allOf").or_insert_with(|| json!([]));
    if let Value::Array(all) = all {
        all.push(json!({"pattern": pattern}));
    }
}

/// Whether a keyword that can't be held holds whatever the document says.
fn holds_always(keyword: &str, value: &Value) -> bool {
    match keyword {
        "uniqueItems" => *value == json!(false),
        "unevaluatedItems" | "unevaluatedProperties" | "propertyNames" => {
            *value == json!(true) || *value == json!({})
        }
        "minContains" => *value == json!(0),
        "not" => *value == json!(false),
        "dependencies" | "dependentRequired" | "dependentSchemas" => *value == json!({}),
        // Tools write it where another reads nothing into it.
        "contentSchema" => true,
        _ => false,
    }
}

fn check_format(place: &str, value: &Value, left_out: &mut Vec<String>) -> Result<(), GrammarError> {
    let Some(format) = value.as_str() else {
        return Err(refusal(place, "format", "a format is named by a string"));
    };
    if FORMATS_NOT_HELD.contains(&format) {
        return Err(refusal(
            place,
            "format",
            &format!("the format `{format}` can't be held while a text is made"),
        ));
    }
    if !FORMATS_HELD.contains(&format) {
        left_out.push(place.to_owned());
    }
    Ok(())
}

fn check_pattern(
    place: &str,
    keyword: &str,
    value: &Value,
    limits: &GrammarLimits,
) -> Result<(), GrammarError> {
    let Some(expression) = value.as_str() else {
        return Err(refusal(place, keyword, "a pattern is a string"));
    };
    check_expression(expression, limits).map_err(|error| refusal(place, keyword, &error.to_string()))
}

fn check_reference(place: &str, value: &Value) -> Result<(), GrammarError> {
    match value.as_str() {
        Some(reference) if reference == "#" || reference.starts_with("#/") => Ok(()),
        Some(reference) => {
            let reason =
                format!("`{reference}` is no path in this document (`#/...`), and nothing is fetched");
            Err(refusal(place, "$ref", &reason))
        }
        None => Err(refusal(place, "$ref", "a reference is a string")),
    }
}

fn refusal(path: &str, keyword: &str, reason: &str) -> GrammarError {
    GrammarError::Schema { path: path.to_owned(), keyword: keyword.to_owned(), reason: reason.to_owned() }
}

fn remove(schema: &mut Value, path: &str) {
    let Some((parent, name)) = path.rsplit_once('/') else { return };
    let name = name.replace("~1", "/").replace("~0", "~");
    if let Some(Value::Object(entries)) = schema.pointer_mut(parent) {
        entries.shift_remove(&name);
    }
}
