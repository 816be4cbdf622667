//! A JSON object that is taken apart field by field, so that each fault names its path and no key stays unread.
//!
//! `null` counts as absent, as clients send it. [`Fields::finish`] refuses what nobody took: a parameter is understood
//! or it is refused, never ignored.

use crate::error::ApiError;
use crate::limits::Limits;
use serde_json::{Map, Number, Value};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// An object that is being taken apart.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The object's own path; empty for the body.
    path: String,
    rest: Map<String, Value>,
    limits: Arc<Limits>,
}

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) path: String,
    pub(crate) value: Value,
    /// What holds for this request.
    pub(crate) limits: Arc<Limits>,
}

impl Fields {
    /// The body of a request, which must be an object.
    pub(crate) fn of_body(value: Value, limits: &Arc<Limits>) -> Result<Self, ApiError> {
        let limits = limits.clone();
        if let Value::Object(rest) = value {
            return Ok(Self { path: String::new(), rest, limits });
        }
        Err(Field { path: "body".to_owned(), value, limits }.wrong("an object"))
    }

    /// What holds for this request.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The field of this name, if it is there and not null.
    pub(crate) fn take(&mut self, name: &str) -> Option<Field> {
        let value = self.rest.shift_remove(name).filter(|value| !value.is_null())?;
        Some(Field { path: self.path_of(name), value, limits: self.limits.clone() })
    }

    /// What a field says, left where it is.
    pub(crate) fn peek(&self, name: &str) -> Value {
        self.rest.get(name).cloned().unwrap_or_default()
    }

    /// The field of this name, which must be there.
    pub(crate) fn require(&mut self, name: &str, expected: &'static str) -> Result<Field, ApiError> {
        self.take(name).ok_or_else(|| ApiError::Missing { path: self.path_of(name), expected })
    }

    /// The path of a field of this object.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A field that is a string, if it is there.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        self.take(name).map(Field::string).transpose()
    }

    /// A field that is true or false, if it is there.
    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.take(name).map(Field::boolean).transpose()
    }

    /// A field that is a whole number of a range, if it is there.
    pub(crate) fn integer(
        &mut self,
        name: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        self.take(name).map(|field| field.integer(range)).transpose()
    }

    /// A field that is a number of a range, if it is there.
    pub(crate) fn number(&mut self, name: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, ApiError> {
        self.take(name).map(|field| field.number(range)).transpose()
    }

    /// A parameter that the protocol has and that changes nothing here: it is read, whatever it says.
    pub(crate) fn accept(&mut self, name: &str) {
        self.rest.shift_remove(name);
    }

    /// A parameter that has one value here; any other one is refused with the reason.
    pub(crate) fn only(&mut self, name: &str, allowed: &[Value], why: &str) -> Result<(), ApiError> {
        match self.take(name) {
            Some(field) if !allowed.contains(&field.value) => Err(field.unsupported(why)),
            Some(_) | None => Ok(()),
        }
    }

    /// A parameter that can't be served.
    pub(crate) fn refuse(&mut self, name: &str, why: &str) -> Result<(), ApiError> {
        self.only(name, &[], why)
    }

    /// What is left, which isn't looked at.
    pub(crate) fn into_rest(self) -> Map<String, Value> {
        self.rest
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        match self.rest.iter().find(|(_, value)| !value.is_null()) {
            Some((name, _)) => Err(ApiError::Unknown { path: self.path_of(&shortened(name)) }),
            None => Ok(()),
        }
    }
}

impl Field {
    pub(crate) fn string(self) -> Result<String, ApiError> {
        if let Value::String(text) = self.value { Ok(text) } else { Err(self.wrong("a string")) }
    }

    pub(crate) fn boolean(self) -> Result<bool, ApiError> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub(crate) fn integer(self, range: RangeInclusive<i64>) -> Result<i64, ApiError> {
        let Value::Number(number) = &self.value else { return Err(self.wrong("a whole number")) };
        match whole(number) {
            Some(found) if range.contains(&found) => Ok(found),
            Some(found) => Err(self.outside(found, &range)),
            None if number.is_u64() => Err(self.outside(number, &range)),
            None => Err(self.wrong("a whole number")),
        }
    }

    /// A number of a range, to single precision; what is above zero stays so.
    pub(crate) fn number(self, range: RangeInclusive<f64>) -> Result<f32, ApiError> {
        let Some(found) = self.value.as_f64() else { return Err(self.wrong("a number")) };
        if !range.contains(&found) {
            return Err(self.outside(found, &range));
        }
        let single = found as f32;
        Ok(if single == 0.0 && found > 0.0 { f32::MIN_POSITIVE } else { single })
    }

    /// A list of at most so many entries.
    pub(crate) fn list(self, limit: usize) -> Result<Vec<Field>, ApiError> {
        let Value::Array(values) = self.value else { return Err(self.wrong("a list")) };
        if values.len() > limit {
            return Err(ApiError::TooMany { path: self.path, found: values.len(), limit });
        }
        let field = |(index, value)| {
            let (path, limits) = (format!("{}[{index}]", self.path), self.limits.clone());
            Field { path, value, limits }
        };
        Ok(values.into_iter().enumerate().map(field).collect())
    }

    /// A list of at most as many entries as one of the limits says.
    pub(crate) fn list_within(self, limit: fn(&Limits) -> usize) -> Result<Vec<Field>, ApiError> {
        let most = limit(&self.limits);
        self.list(most)
    }

    pub(crate) fn object(self) -> Result<Fields, ApiError> {
        let Value::Object(rest) = self.value else { return Err(self.wrong("an object")) };
        Ok(Fields { path: self.path, rest, limits: self.limits })
    }

    /// A token id below the size of the vocabulary.
    pub(crate) fn token_id(self, vocabulary: usize) -> Result<u32, ApiError> {
        let path = self.path.clone();
        let id = self.integer(0..=i64::from(u32::MAX))?;
        match u32::try_from(id) {
            Ok(found) if (found as usize) < vocabulary => Ok(found),
            Ok(_) | Err(_) => {
                Err(ApiError::Invalid { path, why: format!("{id} is no token id below {vocabulary}") })
            }
        }
    }

    pub(crate) fn wrong(&self, expected: &str) -> ApiError {
        let (path, found) = (self.path.clone(), describe(&self.value));
        ApiError::WrongType { path, found, expected: expected.to_owned() }
    }

    pub(crate) fn unsupported(&self, why: &str) -> ApiError {
        ApiError::Unsupported { path: self.path.clone(), why: why.to_owned() }
    }

    /// Something that this model hasn't.
    pub(crate) fn model_lacks(&self, why: &str) -> ApiError {
        ApiError::ModelLacks { path: self.path.clone(), why: why.to_owned() }
    }

    pub(crate) fn invalid(&self, why: impl Into<String>) -> ApiError {
        ApiError::Invalid { path: self.path.clone(), why: why.into() }
    }

    /// A value of the right kind that isn't among those that are taken.
    pub(crate) fn beyond(&self, expected: &str) -> ApiError {
        let (path, found) = (self.path.clone(), describe(&self.value));
        ApiError::OutOfRange { path, found, expected: expected.to_owned() }
    }

    fn outside<T: Display, R: Display>(&self, found: T, range: &RangeInclusive<R>) -> ApiError {
        ApiError::OutOfRange {
            path: self.path.clone(),
            found: found.to_string(),
            expected: format!("a number from {} to {}", range.start(), range.end()),
        }
    }
}

/// A whole number, also where it is written as `1.0`.
fn whole(number: &Number) -> Option<i64> {
    if let Some(whole) = number.as_i64() {
        return Some(whole);
    }
    // 2^63, beyond which there is no such whole number.
    const END: f64 = 9_223_372_036_854_775_808.0;
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && (-END..END).contains(float))?;
    (!number.is_u64()).then_some(float as i64)
}

/// What a value is, without all that it says.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string \"{}\"", shortened(text)),
        Value::Array(values) => format!("a list of {}", values.len()),
        Value::Object(entries) => format!("an object of {}", entries.len()),
    }
}

/// At most 40 characters of a text from outside.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        Fields::of_body(value, &Arc::default()).unwrap()
    }

    fn message<T>(result: Result<T, ApiError>) -> String {
        result.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn whole_numbers_are_whole_and_within_their_range() {
        let check = |value: Value, expected: Result<i64, &str>| {
            let result = fields(json!({"n": value})).integer("n", 1..=128);
            match expected {
                Ok(number) => assert_eq!(result.unwrap(), Some(number)),
                Err(part) => assert!(message(result).contains(part), "{part}"),
            }
        };
        check(json!(1), Ok(1));
        check(json!(2.0), Ok(2));
        check(json!(1.5), Err("the number 1.5, expected a whole number"));
        check(json!(1_000_000_000), Err("1000000000, expected a number from 1 to 128"));
        check(json!(u64::MAX), Err("18446744073709551615, expected a number from 1 to 128"));
        check(json!(1e300), Err("expected a whole number"));
        check(json!(-1), Err("-1, expected a number from 1 to 128"));
        check(json!("1"), Err("the string \"1\", expected a whole number"));
    }

    #[test]
    fn numbers_beyond_the_smaller_type_are_outside() {
        assert!(message(fields(json!({"t": 1e200})).number("t", 0.0..=2.0)).contains("from 0 to 2"));
        assert_eq!(fields(json!({"t": 2})).number("t", 0.0..=2.0).unwrap(), Some(2.0));
        let smallest = fields(json!({"t": 5e-324})).number("t", 0.0..=2.0).unwrap();
        assert!(smallest.is_some_and(|found| found > 0.0));
    }

    #[test]
    fn faults_name_the_path() {
        let mut body = fields(json!({"messages": [{"role": "user"}, {"role": 5}]}));
        let messages = body.take("messages").unwrap().list(8).unwrap();
        let role = messages.into_iter().nth(1).unwrap().object().unwrap().string("role");
        assert_eq!(message(role), "`messages[1].role` is the number 5, expected a string");
    }

    #[test]
    fn what_nobody_takes_is_refused_unless_it_is_null() {
        let mut body = fields(json!({"a": 1, "b": null, "c": 2}));
        body.take("a");
        assert_eq!(message(body.finish()), "unknown parameter `c`");
        assert!(fields(json!({"b": null})).finish().is_ok());
    }

    #[test]
    fn long_lists_are_refused_by_their_length() {
        let mut body = fields(json!({"tools": vec![0; 9]}));
        let result = body.take("tools").unwrap().list(8);
        assert_eq!(message(result), "`tools` has 9 entries, at most 8 are allowed");
    }
}
