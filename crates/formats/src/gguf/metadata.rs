//! The metadata of a GGUF file: keys with typed values, asked for by type.
//!
//! An integer is given in the type asked for where its value fits, whatever integer type the file has: converters
//! disagree on signs and widths. Nothing else converts, except a 64-bit float to a 32-bit one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::value::{Array, Strings, Value};
use crate::FormatError;

/// The metadata of a GGUF file.
#[derive(Clone, Debug)]
pub struct Metadata {
    file: PathBuf,
    entries: Vec<(String, Value)>,
    // Invariant: the index of every key of `entries`.
    places: HashMap<String, usize>,
}

impl Metadata {
    /// Metadata of these entries; a key that occurs twice is an error. `file` is what errors name.
    pub fn new(file: &Path, entries: impl IntoIterator<Item = (String, Value)>) -> Result<Self, FormatError> {
        let mut metadata = Self { file: file.to_path_buf(), entries: Vec::new(), places: HashMap::new() };
        for (key, value) in entries {
            metadata.insert(key, value)?;
        }
        Ok(metadata)
    }

    pub(crate) fn insert(&mut self, key: String, value: Value) -> Result<(), FormatError> {
        if self.places.insert(key.clone(), self.entries.len()).is_some() {
            return Err(FormatError::DuplicateKey { file: self.file.clone(), key });
        }
        self.entries.push((key, value));
        Ok(())
    }

    /// The file that this was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// All entries, in the order of the file.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of `key`, of whatever type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.places.get(key).map(|&place| &self.entries[place].1)
    }

    fn optional<'m, T: FromValue<'m>>(&'m self, key: &str) -> Result<Option<T>, FormatError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        T::from_value(value).map(Some).ok_or_else(|| FormatError::WrongType {
            file: self.file.clone(),
            key: key.to_owned(),
            found: value.to_string(),
            expected: T::EXPECTED,
        })
    }

    fn required<'m, T: FromValue<'m>>(&'m self, key: &str) -> Result<T, FormatError> {
        self.optional(key)?.ok_or_else(|| FormatError::MissingKey {
            file: self.file.clone(),
            key: key.to_owned(),
            expected: T::EXPECTED,
        })
    }
}

/// Defines for a type the accessor that needs the key and the one that doesn't.
macro_rules! accessors {
    ($($name:ident, $optional:ident: $type:ty;)*) => {
        impl Metadata {
            $(
                #[doc = concat!("The value of `key` as `", stringify!($type), "`; a missing key is an error.")]
                pub fn $name(&self, key: &str) -> Result<$type, FormatError> {
                    self.required(key)
                }

                #[doc = concat!("The value of `key` as `", stringify!($type), "`, `None` where the key is missing.")]
                pub fn $optional(&self, key: &str) -> Result<Option<$type>, FormatError> {
                    self.optional(key)
                }
            )*
        }
    };
}

accessors! {
    u32, opt_u32: u32;
    i32, opt_i32: i32;
    u64, opt_u64: u64;
    f32, opt_f32: f32;
    bool, opt_bool: bool;
    str, opt_str: &str;
    strings, opt_strings: &Strings;
    f32s, opt_f32s: &[f32];
    bools, opt_bools: &[bool];
    u32s, opt_u32s: Cow<'_, [u32]>;
    i32s, opt_i32s: Cow<'_, [i32]>;
}

/// A type that metadata can be asked for.
trait FromValue<'m>: Sized {
    /// The type in words, for errors.
    const EXPECTED: &'static str;
    fn from_value(value: &'m Value) -> Option<Self>;
}

/// Implements [`FromValue`] for integers.
macro_rules! from_integer {
    ($($type:ty: $expected:literal;)*) => {
        $(
            impl FromValue<'_> for $type {
                const EXPECTED: &'static str = $expected;

                fn from_value(value: &Value) -> Option<Self> {
                    value.as_integer()?.try_into().ok()
                }
            }
        )*
    };
}

from_integer! {
    u32: "an integer from 0 to 2^32 - 1";
    i32: "an integer from -2^31 to 2^31 - 1";
    u64: "an integer from 0 to 2^64 - 1";
}

/// Implements [`FromValue`] for values that are taken as they are.
macro_rules! from_pattern {
    ($($type:ty: $expected:literal, $($pattern:pat => $value:expr),+;)*) => {
        $(
            impl<'m> FromValue<'m> for $type {
                const EXPECTED: &'static str = $expected;

                fn from_value(value: &'m Value) -> Option<Self> {
                    $(if let $pattern = value { return Some($value); })+
                    None
                }
            }
        )*
    };
}

from_pattern! {
    f32: "a float", Value::F32(number) => *number, Value::F64(number) => *number as f32;
    bool: "a bool", Value::Bool(truth) => *truth;
    &'m str: "a string", Value::String(text) => text;
    &'m Strings: "an array of strings", Value::Array(Array::String(strings)) => strings;
    &'m [f32]: "an array of f32", Value::Array(Array::F32(numbers)) => numbers;
    &'m [bool]: "an array of bools", Value::Array(Array::Bool(bools)) => bools;
}

impl<'m> FromValue<'m> for Cow<'m, [u32]> {
    const EXPECTED: &'static str = "an array of integers from 0 to 2^32 - 1";

    fn from_value(value: &'m Value) -> Option<Self> {
        let Value::Array(array) = value else { return None };
        if let Array::U32(numbers) = array {
            return Some(Cow::Borrowed(numbers));
        }
        array.as_integers().map(Cow::Owned)
    }
}

impl<'m> FromValue<'m> for Cow<'m, [i32]> {
    const EXPECTED: &'static str = "an array of integers from -2^31 to 2^31 - 1";

    fn from_value(value: &'m Value) -> Option<Self> {
        let Value::Array(array) = value else { return None };
        if let Array::I32(numbers) = array {
            return Some(Cow::Borrowed(numbers));
        }
        array.as_integers().map(Cow::Owned)
    }
}
