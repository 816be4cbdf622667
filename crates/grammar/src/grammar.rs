//! What an answer must look like, as the client wrote it, bounded.

use serde_json::{Value, json};

use crate::error::GrammarError;
use crate::limits::GrammarLimits;
use crate::schema;

/// What an answer must look like.
///
/// Invariant: within the limits on size and depth, and a schema has no keyword that can't be held.
#[derive(Clone, Debug, PartialEq)]
pub struct Grammar {
    pub(crate) source: Source,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Json(Value),
    Regex(String),
    Lark(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A Lark grammar that the model's format asks for, around an answer that it calls `@answer`.
    Around {
        lark: String,
        answer: Box<Source>,
    },
}

impl Grammar {
    /// A JSON document that the schema validates; drafts 4 to 2020-12.
    ///
    /// # Errors
    /// The schema is too large or nested too deeply, or has a keyword that can't be held: with its path.
    pub fn json_schema(schema: Value, limits: &GrammarLimits) -> Result<Self, GrammarError> {
        Ok(Self { source: Source::Json(schema::checked(schema, limits)?) })
    }

    /// The same from text.
    ///
    /// # Errors
    /// As above, or the text is no JSON.
    pub fn json_schema_from_text(text: &str, limits: &GrammarLimits) -> Result<Self, GrammarError> {
        check_bytes(text, "the schema's bytes", limits.grammar_bytes)?;
        let schema = serde_json::from_str(text)
            .map_err(|error| GrammarError::NotJson { reason: error.to_string() })?;
        Self::json_schema(schema, limits)
    }

    /// Any JSON object.
    pub fn json_object() -> Self {
        let schema = schema::checked(json!({"type": "object"}), &GrammarLimits::DEFAULT);
        Self { source: Source::Json(schema.expect("this schema has no fault")) }
    }

    /// A text that the expression matches from its beginning to its end, in the syntax of the regex crate.
    ///
    /// # Errors
    /// The expression is too long or nested too deeply.
    pub fn regex(expression: &str, limits: &GrammarLimits) -> Result<Self, GrammarError> {
        check_expression(expression, limits)?;
        Ok(Self { source: Source::Regex(expression.to_owned()) })
    }

    /// One of these texts.
    ///
    /// # Errors
    /// There is none, or they are too long.
    pub fn choice<S: AsRef<str>>(choices: &[S], limits: &GrammarLimits) -> Result<Self, GrammarError> {
        if choices.is_empty() {
            return Err(GrammarError::Lark { reason: "there is no text to choose".to_owned() });
        }
        let choices: Vec<String> = choices.iter().map(|choice| choice.as_ref().to_owned()).collect();
        let lark = lark_choice(&choices);
        check_bytes(&lark, "the grammar's bytes", limits.grammar_bytes)?;
        check_brackets(&lark, limits.brackets)?;
        Ok(Self { source: Source::Choice(choices) })
    }

    /// A text of a context-free grammar in Lark's EBNF, as llguidance reads it: rules in lower case, terminals in upper
    /// case, `start` first; `%json {...}` is a JSON schema, `<|name|>` a special token.
    ///
    /// # Errors
    /// The grammar is too long or nested too deeply.
    pub fn lark(grammar: &str, limits: &GrammarLimits) -> Result<Self, GrammarError> {
        check_bytes(grammar, "the grammar's bytes", limits.grammar_bytes)?;
        check_brackets(grammar, limits.brackets)?;
        Ok(Self { source: Source::Lark(grammar.to_owned()) })
    }
}

/// A text as a Lark string. Quoted as JSON, which Lark's reader takes; an empty one can't be written and is a group of
/// nothing.
pub(crate) fn lark_string(text: &str) -> String {
    if text.is_empty() { "\"\"".to_owned() } else { Value::from(text).to_string() }
}

/// A choice of texts as a grammar.
pub(crate) fn lark_choice(choices: &[String]) -> String {
    let quoted: Vec<String> = choices.iter().map(|choice| lark_string(choice)).collect();
    format!("start: {}\n", quoted.join(" | "))
}

/// Refuses an expression that is too long or too deep.
pub(crate) fn check_expression(expression: &str, limits: &GrammarLimits) -> Result<(), GrammarError> {
    check_bytes(expression, "the regular expression's bytes", limits.regex_bytes)?;
    check_brackets(expression, limits.brackets)
}

fn check_bytes(text: &str, what: &'static str, limit: usize) -> Result<(), GrammarError> {
    let found = text.len();
    if found > limit { Err(GrammarError::TooLarge { what, found, limit }) } else { Ok(()) }
}

/// Brackets that are open at once. Those in quotes and classes count too, which refuses only what no person writes.
fn check_brackets(text: &str, limit: usize) -> Result<(), GrammarError> {
    let (mut depth, mut deepest, mut escaped) = (0usize, 0, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > limit {
        let what = "brackets that are open at once";
        return Err(GrammarError::TooLarge { what, found: deepest, limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: GrammarLimits = GrammarLimits::DEFAULT;

    #[test]
    fn what_is_too_long_or_too_deep_is_refused_before_it_is_read() {
        let deep = |open: &str, close: &str| open.repeat(10_000) + &close.repeat(10_000);
        for expression in [deep("(", ")"), "a".repeat(LIMITS.regex_bytes + 1)] {
            assert!(matches!(Grammar::regex(&expression, &LIMITS), Err(GrammarError::TooLarge { .. })));
        }
        let lark = Grammar::lark(&format!("start: {}", deep("(", ")")), &LIMITS);
        assert!(matches!(lark, Err(GrammarError::TooLarge { found: 10_000, .. })));
        let text = deep("[", "]");
        assert!(matches!(Grammar::json_schema_from_text(&text, &LIMITS), Err(GrammarError::NotJson { .. })));
        let mut nested = json!(true);
        for _ in 0..70 {
            nested = json!({"items": nested});
        }
        assert!(matches!(
            Grammar::json_schema(nested, &LIMITS),
            Err(GrammarError::TooLarge { limit: 64, .. })
        ));
        assert!(Grammar::regex(r"\(\(\(\[", &LIMITS).is_ok());
    }
}
