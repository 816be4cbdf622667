//! `tojson` as chat templates know it: Python's `json.dumps(value, ensure_ascii=False)`, to the byte.
//!
//! Templates print tool schemas with it, and the model was trained on exactly that text: `", "` and `": "` between
//! things, floats as Python's `repr`, keys in their order.
//!
//! Knows no template and no message.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Deepest nesting written.
const MAX_DEPTH: usize = 100;
/// Longest text written, in bytes.
const MAX_BYTES: usize = 1 << 22;
/// Widest indentation of one level, in characters.
const MAX_INDENT: usize = 64;

/// The options of `json.dumps` that templates use.
struct Layout {
    ensure_ascii: bool,
    /// One level's indentation; `None`: all on one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
    /// A character that is never escaped.
    mark: Option<char>,
}

/// Writes `value`, laid out as the arguments say, by place or by name.
pub(super) fn to_json(
    value: &Value,
    places: &[Value],
    options: Kwargs,
    mark: Option<char>,
) -> Result<Value, Error> {
    let layout = Layout::new(places, &options, mark)?;
    options.assert_all_used()?;
    let mut out = String::new();
    layout.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

impl Layout {
    fn new(places: &[Value], options: &Kwargs, mark: Option<char>) -> Result<Self, Error> {
        let names = ["ensure_ascii", "indent", "separators", "sort_keys"];
        if places.len() > names.len() {
            return Err(invalid(format!("tojson takes at most {} arguments", names.len())));
        }
        let option = |name: &str| {
            let place = names.iter().position(|other| *other == name).and_then(|place| places.get(place));
            let value =
                place.cloned().map_or_else(|| options.get::<Option<Value>>(name), |value| Ok(Some(value)));
            Ok::<_, Error>(value?.filter(|value| !value.is_none() && !value.is_undefined()))
        };
        let indent = option("indent")?.as_ref().map(indentation).transpose()?;
        let (item_separator, key_separator) = match option("separators")? {
            Some(separators) => {
                let separators = separators.try_iter()?.map(|text| text.as_str().map(str::to_owned));
                match separators.collect::<Option<Vec<_>>>().map(<[String; 2]>::try_from) {
                    Some(Ok([item, key])) => (item, key),
                    Some(Err(_)) | None => return Err(invalid("separators must be two strings")),
                }
            }
            None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
            None => (", ".to_owned(), ": ".to_owned()),
        };
        Ok(Self {
            ensure_ascii: option("ensure_ascii")?.is_some_and(|flag| flag.is_true()),
            indent,
            item_separator,
            key_separator,
            sort_keys: option("sort_keys")?.is_some_and(|flag| flag.is_true()),
            mark,
        })
    }

    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid(format!("tojson: nested deeper than {MAX_DEPTH}")));
        }
        if out.len() > MAX_BYTES {
            return Err(invalid(format!("tojson: longer than {MAX_BYTES} bytes")));
        }
        let kind = value.kind();
        if let Some(text) = scalar(value)? {
            out.push_str(&text);
        } else if let Some(text) = value.as_str() {
            self.write_string(text, out);
        } else if kind == ValueKind::Map {
            self.write_map(value, depth, out)?;
        } else if kind == ValueKind::Seq || kind == ValueKind::Iterable {
            self.write_list(value, depth, out)?;
        } else {
            return Err(invalid(format!("object of type {kind} is not JSON serializable")));
        }
        Ok(())
    }

    fn write_list(&self, list: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut empty = true;
        out.push('[');
        for item in list.try_iter()? {
            self.write_separator(&mut empty, depth + 1, out);
            self.write(&item, depth + 1, out)?;
        }
        self.close(empty, depth, ']', out);
        Ok(())
    }

    fn write_map(&self, map: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        let mut keys =
            map.try_iter()?.map(|key| Ok((key_text(&key)?, key))).collect::<Result<Vec<_>, Error>>()?;
        if self.sort_keys {
            keys.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        let mut empty = true;
        out.push('{');
        for (text, key) in keys {
            self.write_separator(&mut empty, depth + 1, out);
            self.write_string(&text, out);
            out.push_str(&self.key_separator);
            self.write(&map.get_item(&key)?, depth + 1, out)?;
        }
        self.close(empty, depth, '}', out);
        Ok(())
    }

    fn write_separator(&self, first: &mut bool, depth: usize, out: &mut String) {
        if !std::mem::replace(first, false) {
            out.push_str(&self.item_separator);
        }
        self.write_line_break(depth, out);
    }

    fn close(&self, empty: bool, depth: usize, bracket: char, out: &mut String) {
        if !empty {
            self.write_line_break(depth, out);
        }
        out.push(bracket);
    }

    fn write_line_break(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{08}' => out.push_str("\\b"),
                '\u{0C}' => out.push_str("\\f"),
                _ if letter < ' ' || (self.ensure_ascii && letter > '~' && Some(letter) != self.mark) => {
                    let mut units = [0; 2];
                    for unit in letter.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                _ => out.push(letter),
            }
        }
        out.push('"');
    }
}

fn indentation(indent: &Value) -> Result<String, Error> {
    let text = match (indent.as_str(), indent.as_i64()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(width)) => " ".repeat(usize::try_from(width).unwrap_or(0).min(MAX_INDENT + 1)),
        (None, None) => return Err(invalid("indent must be a number or a string")),
    };
    if text.chars().count() > MAX_INDENT {
        return Err(invalid(format!("indent is wider than {MAX_INDENT}")));
    }
    Ok(text)
}

/// The text of none, a truth value or a number; `None` for all else.
fn scalar(value: &Value) -> Result<Option<String>, Error> {
    let kind = value.kind();
    Ok(if kind == ValueKind::None {
        Some("null".to_owned())
    } else if kind == ValueKind::Bool {
        Some(value.is_true().to_string())
    } else if value.is_integer() {
        Some(value.to_string())
    } else if kind == ValueKind::Number {
        Some(python_float(f64::try_from(value.clone())?))
    } else {
        None
    })
}

/// Keys are strings; Python writes its other scalars as text.
fn key_text(key: &Value) -> Result<String, Error> {
    let text = match key.as_str() {
        Some(text) => Some(text.to_owned()),
        None => scalar(key)?,
    };
    text.ok_or_else(|| invalid(format!("keys must be str, int, float, bool or None, not {}", key.kind())))
}

/// `repr(float)`: the shortest digits that read back, with an exponent from 1e16 up and below 1e-4.
pub(super) fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a whole exponent");
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    format!("{number:?}")
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason.into())
}

#[cfg(test)]
mod tests {
    use super::python_float;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let check = |number: f64, text: &str| assert_eq!(python_float(number), text);
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(5.0, "5.0");
        check(0.1, "0.1");
        check(1e15, "1000000000000000.0");
        check(1e16, "1e+16");
        check(1.5e-5, "1.5e-05");
        check(0.0001, "0.0001");
        check(1e20, "1e+20");
        check(1.7976931348623157e308, "1.7976931348623157e+308");
        check(123456789012345680.0, "1.2345678901234568e+17");
        check(f64::NAN, "NaN");
        check(f64::NEG_INFINITY, "-Infinity");
    }
}
