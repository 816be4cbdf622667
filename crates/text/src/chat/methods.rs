//! Methods of Python's str, list and dict that chat templates call and the engine lacks.
//!
//! Knows no template and no message.

use minijinja::value::{Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::weight;

/// Calls `method`, here or among those of minijinja-contrib.
pub(super) fn python_method(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    pay(state, value, method, args)?;
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

/// Pays for what the method may walk through, and refuses what would make too much of it.
fn pay(state: &State<'_, '_>, value: &Value, method: &str, args: &[Value]) -> Result<(), Error> {
    match (value.as_str(), method) {
        (Some(text), "split" | "rsplit") => weight::check_pieces(text, args.first().and_then(Value::as_str)),
        (Some(text), "splitlines") => weight::check_pieces(text, Some("\n")),
        (Some(text), "format") => weight::check_fields(state, text, args),
        (Some(text), "join") => args.iter().try_for_each(|list| weight::check_join(state, list, text)),
        (Some(text), "replace") => check_replaced(text, args),
        (None, "get" | "keys" | "values" | "items" | "copy") => Ok(()),
        (Some(_), _) => args.iter().try_for_each(|value| weight::pay(state, value).map(|_| ())),
        (None, _) => args.iter().chain([value]).try_for_each(|value| weight::pay(state, value).map(|_| ())),
    }
}

/// Refuses a replacement that makes the text too long.
pub(super) fn check_replaced(text: &str, args: &[Value]) -> Result<(), Error> {
    let part = |place: usize| args.get(place).and_then(Value::as_str).unwrap_or("");
    let (old, new) = (part(0), part(1));
    weight::check_bytes(text.len().saturating_add(text.matches(old).count().saturating_mul(new.len())))
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
        "find" | "rfind" => Value::from(find(text, method, args)?.map_or(-1, |place| place as i64)),
        "index" | "rindex" => {
            let place = find(text, method, args)?;
            Value::from(place.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "substring not found"))?)
        }
        "center" | "ljust" | "rjust" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            Value::from(padded(text, method, width.min(MAX_WIDTH), fill.unwrap_or(' ')))
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            Value::from(zero_filled(text, width.min(MAX_WIDTH)))
        }
        "expandtabs" => {
            let (width,): (Option<usize>,) = from_args(args)?;
            let width = width.unwrap_or(8).min(MAX_WIDTH);
            weight::check_bytes(text.len().saturating_add(text.matches('\t').count().saturating_mul(width)))?;
            Value::from(without_tabs(text, width))
        }
        "format" => {
            check_widths(text)?;
            return Ok(None);
        }
        "isdecimal" => Value::from(!text.is_empty() && text.chars().all(|letter| letter.is_ascii_digit())),
        "istitle" => Value::from(is_title(text)),
        "isidentifier" => {
            let starts = text.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
            Value::from(starts && text.chars().all(|letter| letter.is_alphanumeric() || letter == '_'))
        }
        "casefold" => Value::from(text.to_lowercase().replace('ß', "ss")),
        "swapcase" => Value::from(text.chars().flat_map(swapped_case).collect::<String>()),
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Widest padding, in characters.
const MAX_WIDTH: usize = 1024;

/// Refuses `format` widths that would make it pad without limit, and those that come from elsewhere.
fn check_widths(text: &str) -> Result<(), Error> {
    let specs = text.split('{').skip(1).map(|field| field.split_once('}').map_or(field, |(field, _)| field));
    let wide = specs.filter_map(|field| field.split_once(':')).any(|(_, spec)| {
        let numbers = spec.split(|letter: char| !letter.is_ascii_digit());
        numbers.filter_map(|number| number.parse::<f64>().ok()).any(|number| number > MAX_WIDTH as f64)
    });
    let nested =
        text.split('{').skip(1).any(|field| field.ends_with(':') || field.ends_with(['<', '>', '^', '.']));
    match (wide, nested) {
        (false, false) => Ok(()),
        (true, _) => {
            Err(Error::new(ErrorKind::InvalidOperation, format!("format: a width is above {MAX_WIDTH}")))
        }
        (false, true) => Err(Error::new(ErrorKind::InvalidOperation, "format: a width must be a number")),
    }
}

/// Where `wanted` begins in the text, or in the part of it that the arguments name, in characters from its start.
fn find(text: &str, method: &str, args: &[Value]) -> Result<Option<usize>, Error> {
    let (wanted, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let length = text.chars().count();
    let place = |index: i64| match usize::try_from(index) {
        Ok(index) => index.min(length),
        Err(_) => length.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(length)),
    };
    let (start, end) = (start.map_or(0, place), end.map_or(length, place));
    if start > end {
        return Ok(None);
    }
    let byte = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(byte, _)| byte);
    let part = &text[byte(start)..byte(end)];
    let found = if method.starts_with('r') { part.rfind(wanted) } else { part.find(wanted) };
    Ok(found.map(|found| start + part[..found].chars().count()))
}

fn padded(text: &str, method: &str, width: usize, fill: char) -> String {
    let missing = width.saturating_sub(text.chars().count());
    // Python puts the odd one of an odd width to the left.
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    let run = |count: usize| fill.to_string().repeat(count);
    format!("{}{text}{}", run(left), run(missing - left))
}

fn without_tabs(text: &str, width: usize) -> String {
    let (mut out, mut column) = (String::with_capacity(text.len()), 0);
    for letter in text.chars() {
        match letter {
            '\t' => {
                let spaces = if width == 0 { 0 } else { width - column % width };
                out.push_str(&" ".repeat(spaces));
                column += spaces;
            }
            '\n' | '\r' => {
                out.push(letter);
                column = 0;
            }
            _ => {
                out.push(letter);
                column += 1;
            }
        }
    }
    out
}

/// Whether every word begins with a capital and goes on with small letters.
fn is_title(text: &str) -> bool {
    let (mut inside, mut any) = (false, false);
    for letter in text.chars() {
        let cased = letter.is_uppercase() || letter.is_lowercase();
        if cased && letter.is_uppercase() == inside {
            return false;
        }
        any |= cased;
        inside = cased;
    }
    any
}

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
