//! JSON whose keys occur once.
//!
//! RFC 8259 leaves open what an object with a key twice means; readers take the first, the last or refuse. A model whose
//! configuration, vocabulary or tensor list depends on who reads it is refused, and so is a request: the error names the key and
//! its place.
//! Otherwise values are those that `serde_json` reads, in their order.
//!
//! Knows no file and no key.

#![forbid(unsafe_code)]

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value that `bytes` write down.
///
/// # Errors
/// Where they are no JSON, or a key occurs twice in one object; with line and column.
pub fn from_slice(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = KeysOnce.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// The complaint about a key that occurs twice, for readers of an object that is no `Value`.
pub fn twice<E: Error>(key: &str) -> E {
    E::custom(format_args!("key {key:?} occurs twice"))
}

/// Reads a value and refuses a second occurrence of a key.
struct KeysOnce;

impl<'de> DeserializeSeed<'de> for KeysOnce {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for KeysOnce {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(KeysOnce)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            match map.entry(key) {
                serde_json::map::Entry::Occupied(entry) => return Err(twice(entry.key())),
                serde_json::map::Entry::Vacant(entry) => {
                    entry.insert(entries.next_value_seed(KeysOnce)?);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_serde_json_reads() {
        for text in [
            r#" {"b": [1, -2, 3.5, 1e300, 18446744073709551615, null, true], "a": {"b": "\u00e9\n", "": {}}} "#,
            "[]",
            "-0.0",
            "\"text\"",
            "0.1",
        ] {
            let read = from_slice(text.as_bytes()).unwrap();
            let expected: Value = serde_json::from_str(text).unwrap();
            // The printed form has the order, too.
            assert_eq!(read.to_string(), expected.to_string(), "{text}");
        }
    }

    #[test]
    fn a_key_that_occurs_twice_is_named_with_its_place() {
        let check = |text: &str, message: &str| {
            assert_eq!(from_slice(text.as_bytes()).unwrap_err().to_string(), message, "{text}");
        };
        check(r#"{"a": 1, "b": 2, "a": 1}"#, "key \"a\" occurs twice at line 1 column 20");
        check("{\"x\": [{\"a\": {},\n\"\\u0061\": 0}]}", "key \"a\" occurs twice at line 2 column 8");
        check(r#"{"a": {"a": 1}, "b": {"a": 1}} x"#, "trailing characters at line 1 column 32");
    }

    #[test]
    fn what_is_no_json_is_refused_as_serde_json_refuses_it() {
        for text in ["", "{", "{\"a\"}", "[1,]", "NaN", "1e999", "\"\u{1}\"", &"[".repeat(200)] {
            let expected = serde_json::from_str::<Value>(text).unwrap_err().to_string();
            assert_eq!(from_slice(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
