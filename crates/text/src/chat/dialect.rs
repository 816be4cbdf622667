//! Jinja as Hugging Face's `apply_chat_template` runs it, on minijinja.
//!
//! Whitespace options, `raise_exception`, `strftime_now`, Python's `tojson`, `{% generation %}` tags and the methods of
//! Python's str, list and dict that templates call and the engine lacks.
//!
//! Knows no message.

use std::fmt;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::clock::Clock;
use super::python_json;
use super::{MAX_FUEL, MAX_RECURSION};

/// The environment of one rendering. `mark` is the character that `tojson` must not escape.
pub(super) fn environment(clock: Clock, mark: Option<char>) -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the default delimiters are valid"));
    environment.set_fuel(Some(MAX_FUEL));
    environment.set_recursion_limit(MAX_RECURSION);
    environment.set_unknown_method_callback(python_method);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", move |format: &str| {
        clock
            .format(format)
            .map_err(|reason| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {reason}")))
    });
    environment.add_filter("tojson", move |value: &Value, options: minijinja::value::Kwargs| {
        python_json::to_json(value, options, mark)
    });
    environment
}

/// `{% generation %}` marks an assistant's words for training and prints nothing: an `if` that is always taken.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut plain = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        plain.push_str(before);
        let Some(end) = tag.find("%}").map(|end| end + 2) else {
            break;
        };
        let inside = &tag[2..end - 2];
        let word = inside.trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '-' | '+'));
        match word {
            "generation" => plain.push_str(&format!("{{%{}%}}", inside.replace(word, "if true"))),
            "endgeneration" => plain.push_str(&format!("{{%{}%}}", inside.replace(word, "endif"))),
            _ => plain.push_str(&tag[..end]),
        }
        rest = &tag[end..];
    }
    plain.push_str(rest);
    plain
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

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let raised = Raised(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, raised.0.clone()).with_source(raised))
}

fn python_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let known = match (value.kind(), value.as_str()) {
        (_, Some(text)) => string_method(text, method, args)?,
        (ValueKind::Seq, None) if method == "index" => Some(list_index(value, args)?),
        (ValueKind::Map, None) if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match known {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// The methods of `str` that minijinja-contrib lacks; `None` for all others.
fn string_method(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let result = match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "rsplit" => {
            let (separator, splits): (Option<&str>, Option<i64>) = from_args(args)?;
            rsplit(text, separator, splits)
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (left, right) =
                text.split_once(separator).map_or((text, None), |(left, right)| (left, Some(right)));
            three(left, right.map_or("", |_| separator), right.unwrap_or(""))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (left, right) =
                text.rsplit_once(separator).map_or((None, text), |(left, right)| (Some(left), right));
            three(left.unwrap_or(""), left.map_or("", |_| separator), right)
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let place = if method == "index" { text.find(wanted) } else { text.rfind(wanted) };
            let place =
                place.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?;
            Value::from(text[..place].chars().count())
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            Value::from(zero_filled(text, width.min(MAX_ZFILL)))
        }
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => Value::from(text.chars().flat_map(swapped_case).collect::<String>()),
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// No number has more digits.
const MAX_ZFILL: usize = 1024;

fn three(left: &str, separator: &str, right: &str) -> Value {
    Value::from(Tuple::from([Value::from(left), Value::from(separator), Value::from(right)]))
}

fn rsplit(text: &str, separator: Option<&str>, splits: Option<i64>) -> Value {
    let limit = splits
        .and_then(|splits| usize::try_from(splits).ok())
        .map_or(usize::MAX, |splits| splits.saturating_add(1));
    let mut parts: Vec<&str> = match separator {
        Some(separator) => text.rsplitn(limit, separator).collect(),
        None => rsplit_whitespace(text, limit),
    };
    parts.reverse();
    Value::from(parts.into_iter().map(Value::from).collect::<Vec<_>>())
}

fn rsplit_whitespace(text: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let cut = if parts.len() + 1 == limit { None } else { rest.rfind(char::is_whitespace) };
        let start = cut.map_or(0, |cut| cut + rest[cut..].chars().next().map_or(0, char::len_utf8));
        parts.push(&rest[start..]);
        rest = rest[..start].trim_end();
    }
    parts
}

fn zero_filled(text: &str, width: usize) -> String {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => text.split_at(text.len() - digits.len()),
        None => ("", text),
    };
    let zeros = width.saturating_sub(text.chars().count());
    format!("{sign}{}{digits}", "0".repeat(zeros))
}

fn swapped_case(letter: char) -> Vec<char> {
    if letter.is_uppercase() { letter.to_lowercase().collect() } else { letter.to_uppercase().collect() }
}

fn list_index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    let place = list.try_iter()?.position(|item| item == *wanted);
    place
        .map(Value::from)
        .ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("{wanted} is not in list")))
}
