//! One value of either kind of file, by type.

use gannet_formats::gguf;
use serde_json::Value;
use std::fmt::{self, Display};

/// Characters of a text that an error shows.
const SHOWN_CHARACTERS: usize = 80;

#[derive(Clone, Copy)]
pub(super) enum Datum<'a> {
    Json(&'a Value),
    Gguf(&'a gguf::Value),
}

impl Datum<'_> {
    pub(super) fn integer(self) -> Option<i128> {
        match self {
            Datum::Json(value) => value.as_u64().map(i128::from).or_else(|| value.as_i64().map(i128::from)),
            Datum::Gguf(value) => value.as_integer(),
        }
    }

    pub(super) fn real(self) -> Option<f64> {
        match self {
            Datum::Json(value) => value.as_f64(),
            Datum::Gguf(gguf::Value::F32(number)) => Some(f64::from(*number)),
            Datum::Gguf(gguf::Value::F64(number)) => Some(*number),
            Datum::Gguf(value) => value.as_integer().map(|number| number as f64),
        }
    }

    pub(super) fn flag(self) -> Option<bool> {
        match self {
            Datum::Json(value) => value.as_bool(),
            Datum::Gguf(gguf::Value::Bool(flag)) => Some(*flag),
            Datum::Gguf(_) => None,
        }
    }
}

impl<'a> Datum<'a> {
    pub(super) fn text(self) -> Option<&'a str> {
        match self {
            Datum::Json(value) => value.as_str(),
            Datum::Gguf(gguf::Value::String(text)) => Some(text),
            Datum::Gguf(_) => None,
        }
    }

    pub(super) fn integers(self) -> Option<Vec<i128>> {
        match self {
            Datum::Json(Value::Array(list)) => {
                list.iter().map(|entry| Datum::Json(entry).integer()).collect()
            }
            Datum::Gguf(gguf::Value::Array(gguf::Array::U32(list))) => {
                Some(list.iter().map(|&number| number.into()).collect())
            }
            Datum::Gguf(gguf::Value::Array(gguf::Array::I32(list))) => {
                Some(list.iter().map(|&number| number.into()).collect())
            }
            Datum::Json(_) | Datum::Gguf(_) => None,
        }
    }
}

impl Display for Datum<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Json(Value::Array(list)) => write!(f, "a list of {}", list.len()),
            Datum::Json(Value::Object(map)) => write!(f, "an object of {} keys", map.len()),
            Datum::Json(Value::String(text)) | Datum::Gguf(gguf::Value::String(text)) => {
                let shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
                write!(f, "`{shown}`")
            }
            Datum::Json(value) => write!(f, "{value}"),
            Datum::Gguf(value) => write!(f, "{value}"),
        }
    }
}
