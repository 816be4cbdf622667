//! A tool as a request names it.

use serde_json::{Map, Value};

/// A tool: its name and its parameters' schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// By which it is called.
    pub name: String,
    /// The JSON schema of its arguments; an empty object takes any.
    pub parameters: Value,
    /// Whether arguments must follow the schema even where the model may choose to call or not.
    pub strict: bool,
}

impl Tool {
    /// A tool as the protocol has it: `{"type": "function", "function": {"name", "parameters", "strict"}}`, or the inner
    /// object alone. `None` unless there is a name.
    pub fn from_json(tool: &Value) -> Option<Self> {
        let function = tool.get("function").unwrap_or(tool);
        let name = function.get("name")?.as_str()?.to_owned();
        let parameters = function.get("parameters").filter(|value| value.is_object());
        let strict = function.get("strict").and_then(Value::as_bool).unwrap_or(false);
        Some(Self {
            name,
            parameters: parameters.cloned().unwrap_or_else(|| Value::Object(Map::new())),
            strict,
        })
    }

    /// Whether a parameter is a string and nothing else.
    pub(super) fn is_string(&self, parameter: &str) -> bool {
        let schema = self.parameters.get("properties").and_then(|properties| properties.get(parameter));
        schema.and_then(|schema| schema.get("type")).and_then(Value::as_str) == Some("string")
    }

    /// The name of the parameter at a place.
    pub(super) fn parameter(&self, place: usize) -> Option<&str> {
        let properties = self.parameters.get("properties").and_then(Value::as_object);
        properties.and_then(|properties| properties.keys().nth(place)).map(String::as_str)
    }
}

pub(super) fn find<'a>(tools: &'a [Tool], name: &str) -> Option<&'a Tool> {
    tools.iter().find(|tool| tool.name == name)
}
