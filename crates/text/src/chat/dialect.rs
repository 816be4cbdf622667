//! Jinja as Hugging Face's `apply_chat_template` runs it, on minijinja.
//!
//! Whitespace options, `raise_exception`, `strftime_now`, Python's `tojson` and floats, and the filters and tests that
//! behave otherwise in Python; `methods` has those of its str, list and dict, `rewrite` its `%` and `{% generation %}`.
//!
//! Knows no message.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, filters};

use super::clock::Clock;
use super::{MAX_PRINTED_BYTES, MAX_RECURSION, methods, python_json, weight};

/// How templates are written.
pub(super) fn syntax() -> SyntaxConfig {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    syntax.expect("the default delimiters are valid")
}

/// The environment of one rendering. `mark` is the character that `tojson` must not escape; `printed` counts the bytes
/// that the template prints, also into its own variables.
pub(super) fn environment(
    clock: Clock,
    mark: Option<char>,
    fuel: u64,
    printed: Arc<AtomicUsize>,
) -> Environment<'static> {
    let mut environment = Environment::new();
    weight::add_to(&mut environment);
    // It prints every variable.
    environment.remove_global("debug");
    environment.set_fuel(Some(fuel));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_formatter(move |out, state, value| {
        let bytes = match value.as_str() {
            Some(text) => text.len(),
            None => weight::pay(state, value)? as usize,
        };
        if printed.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_PRINTED_BYTES {
            return Err(Error::new(ErrorKind::WriteFailure, "the template prints too much"));
        }
        print(out, state, value)
    });
    environment.set_unknown_method_callback(methods::python_method);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| {
        clock
            .format(format)
            .map_err(|reason| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {reason}")))
    });
    environment.add_filter("tojson", move |value: &Value, places: Rest<Value>, options: Kwargs| {
        python_json::to_json(value, &places, options, mark)
    });
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("indent", indent);
    environment.add_filter("wordcount", word_count);
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Bytes)
    });
    environment.add_test("callable", |value: &Value| value.kind() == ValueKind::Plain);
    environment
}

/// Prints a value; numbers as Python prints them.
fn print(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        let text = python_json::python_float(f64::try_from(value.clone())?);
        return Ok(out.write_str(&text.replace("Infinity", "inf").replace("NaN", "nan"))?);
    }
    minijinja::escape_formatter(out, state, value)
}

/// What is no number is the default, as in Python; the engine refuses it.
fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(options.get("default")?).unwrap_or(Value::from(0));
    let base = base.or(options.get("base")?);
    options.assert_all_used()?;
    let number =
        filters::int(state, value, Some(default.clone()), base, Kwargs::from_iter::<[(&str, Value); 0]>([]));
    Ok(number.unwrap_or(default))
}

fn float(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(options.get("default")?).unwrap_or(Value::from(0.0));
    options.assert_all_used()?;
    let number =
        filters::float(state, value, Some(default.clone()), Kwargs::from_iter::<[(&str, Value); 0]>([]));
    Ok(number.unwrap_or(default))
}

/// Widest indentation, in characters.
const MAX_INDENT: usize = 256;

/// Puts spaces, or a text, before every line but the first and, unless `blank`, the empty ones.
fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = width.or(options.get("width")?).unwrap_or(Value::from(4));
    let first = first.or(options.get("first")?).unwrap_or(false);
    let blank = blank.or(options.get("blank")?).unwrap_or(false);
    options.assert_all_used()?;
    let prefix = match (width.as_str(), width.as_usize()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(width)) => " ".repeat(width.min(MAX_INDENT + 1)),
        (None, None) => {
            return Err(Error::new(ErrorKind::InvalidOperation, "indent: width must be a number or text"));
        }
    };
    if prefix.chars().count() > MAX_INDENT {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("indent is wider than {MAX_INDENT}")));
    }
    let lines = text.matches('\n').count().saturating_add(1);
    weight::check_bytes(text.len().saturating_add(lines.saturating_mul(prefix.len())))?;
    weight::check_pieces(text, Some("\n"))?;
    let lines = text.split('\n').enumerate().map(|(number, line)| match number {
        0 if !first => line.to_owned(),
        _ if line.is_empty() && !blank && number > 0 => String::new(),
        _ => format!("{prefix}{line}"),
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn word_count(text: &str) -> usize {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
        .count()
}

/// The message of `raise_exception`, if that is what ended the rendering.
pub(super) fn raised_message(error: &Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        source = error.source();
    }
    None
}

#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

fn raise_exception(state: &State<'_, '_>, message: &Value) -> Result<Value, Error> {
    weight::pay(state, message)?;
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, raised.0.clone()).with_source(raised))
}
