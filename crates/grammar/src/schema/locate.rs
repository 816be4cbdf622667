//! Where in a schema the compiler's complaint lies.
//!
//! The compiler says what is wrong and seldom where. So subschemas are compiled alone, with the schema's definitions,
//! down to the innermost one that fails; in that, the keyword without which it passes.

use llguidance::Matcher;
use serde_json::{Map, Value};

use super::walk::{escaped, subschemas};
use crate::error::GrammarError;

/// Subschemas that are compiled to find the one at fault.
const TRIES_MAX: usize = 200;
/// Where definitions stand, which a subschema alone still refers to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// What may stay beside the keyword at fault.
const KEPT: [&str; 5] = ["$defs", "definitions", "type", "x-guidance", "$schema"];

/// The complaint with its place.
pub(crate) fn locate(
    schema: &Value,
    reason: String,
    compile: &dyn Fn(Value) -> Result<Matcher, String>,
) -> GrammarError {
    let mut search = Search { root: schema, compile, tries: 0 };
    let (mut path, mut at, mut reason) = (String::new(), schema, reason);
    while let Some((below, inner, why)) = search.failing_child(at) {
        path += &below;
        (at, reason) = (inner, why);
    }
    let keyword = search.failing_keyword(at).unwrap_or_default();
    if !keyword.is_empty() {
        path = format!("{path}/{}", escaped(&keyword));
    }
    GrammarError::Schema { path, keyword, reason }
}

struct Search<'a> {
    root: &'a Value,
    compile: &'a dyn Fn(Value) -> Result<Matcher, String>,
    tries: usize,
}

impl<'a> Search<'a> {
    /// The first schema inside of this one that fails alone.
    fn failing_child(&mut self, schema: &'a Value) -> Option<(String, &'a Value, String)> {
        let mut inner = subschemas(schema).into_iter().filter(|(_, _, inner)| stands_alone(inner));
        inner.find_map(|(_, below, inner)| {
            let why = self.fails(inner.as_object()?)?;
            Some((below, inner, why))
        })
    }

    /// The keyword without which the schema passes.
    fn failing_keyword(&mut self, schema: &Value) -> Option<String> {
        let entries = schema.as_object()?;
        let mut suspects = entries.keys().filter(|keyword| !KEPT.contains(&keyword.as_str()));
        let is_guilty = |keyword: &&String| {
            let mut rest = entries.clone();
            rest.shift_remove(keyword.as_str());
            self.tries < TRIES_MAX && self.fails(&rest).is_none()
        };
        suspects.find(is_guilty).cloned()
    }

    /// Why a schema alone is refused, with the definitions of the whole.
    fn fails(&mut self, schema: &Map<String, Value>) -> Option<String> {
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return None;
        }
        let mut alone = schema.clone();
        for name in DEFINITIONS.into_iter().chain(["x-guidance"]) {
            if let (Some(definitions), false) = (self.root.get(name), alone.contains_key(name)) {
                alone.insert(name.to_owned(), definitions.clone());
            }
        }
        (self.compile)(Value::Object(alone)).err()
    }
}

/// Whether a schema refers to nothing but definitions: what else it refers to is gone when it stands alone.
fn stands_alone(schema: &Value) -> bool {
    let is_definition = |reference: &str| {
        DEFINITIONS.iter().any(|name| reference.strip_prefix("#/").is_some_and(|path| path.starts_with(name)))
    };
    let is_kept = schema.get("$ref").and_then(Value::as_str).is_none_or(is_definition);
    is_kept && subschemas(schema).into_iter().all(|(_, _, inner)| stands_alone(inner))
}
