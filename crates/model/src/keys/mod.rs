//! config.json and GGUF metadata seen as one: a [`Key`] has a name in each, and a value is asked for by type.
//!
//! In config.json an absent key has the default of the family's reference, and `null` is the same as absent
//! unless a family says otherwise. GGUF writes out what a model needs, so there an absent key is an error where
//! no rule derives it.
//!
//! Knows no family: tables of keys and defaults come from the caller.

mod datum;

use crate::ModelError;
use datum::Datum;
use gannet_formats::gguf::{self, Metadata};
use gannet_formats::{Checkpoint, Source, Tensor};
use serde_json::{Map, Value};
use std::fmt::Display;

/// A property's name in both kinds of file; one that a kind doesn't have is absent there.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    json: Option<&'static str>,
    gguf: Option<&'static str>,
}

/// A key of both kinds; the GGUF name without the architecture before it.
pub(crate) const fn key(json: &'static str, gguf: &'static str) -> Key {
    Key { json: Some(json), gguf: Some(gguf) }
}

/// A key of config.json alone.
pub(crate) const fn json_key(json: &'static str) -> Key {
    Key { json: Some(json), gguf: None }
}

/// A key of GGUF alone.
pub(crate) const fn gguf_key(gguf: &'static str) -> Key {
    Key { json: None, gguf: Some(gguf) }
}

/// The properties of one model, or of one object within its config.json.
pub(crate) struct Keys<'a> {
    checkpoint: &'a Checkpoint,
    file: String,
    /// What stands before a key in errors: `text_config.`, or the architecture of a GGUF file.
    prefix: String,
    values: Values<'a>,
}

#[derive(Clone, Copy)]
enum Values<'a> {
    Json(&'a Map<String, Value>),
    Gguf(&'a Metadata),
}

impl<'a> Keys<'a> {
    /// The properties of a checkpoint; `architecture` is what GGUF puts before its keys.
    pub(crate) fn new(checkpoint: &'a Checkpoint, architecture: &str) -> Self {
        let (values, prefix) = match &checkpoint.source {
            Source::HuggingFace(files) => (Values::Json(&files.config), String::new()),
            Source::Gguf(metadata) => (Values::Gguf(metadata), format!("{architecture}.")),
        };
        Self { checkpoint, file: config_file(checkpoint), prefix, values }
    }

    /// The properties of an object of another JSON file of the checkpoint.
    pub(crate) fn of_object(checkpoint: &'a Checkpoint, file: String, map: &'a Map<String, Value>) -> Self {
        Self { checkpoint, file, prefix: String::new(), values: Values::Json(map) }
    }

    /// The object `name` of config.json, if it is there and says anything.
    pub(crate) fn object(&self, name: &'static str) -> Result<Option<Keys<'a>>, ModelError> {
        let map = match self.get(json_key(name)) {
            None => return Ok(None),
            Some(Datum::Json(Value::Object(map))) if map.is_empty() => return Ok(None),
            Some(Datum::Json(Value::Object(map))) => map,
            Some(other) => return Err(self.wrong(json_key(name), other, "an object")),
        };
        let (checkpoint, file) = (self.checkpoint, self.file.clone());
        let prefix = format!("{}{name}.", self.prefix);
        Ok(Some(Keys { checkpoint, file, prefix, values: Values::Json(map) }))
    }

    /// Whether the properties are those of a config.json.
    pub(crate) fn is_json(&self) -> bool {
        matches!(self.values, Values::Json(_))
    }

    /// Whether config.json says `null`.
    pub(crate) fn is_null(&self, key: Key) -> bool {
        matches!((self.values, key.json), (Values::Json(map), Some(name)) if map.get(name) == Some(&Value::Null))
    }

    /// A tensor of the checkpoint by its name there; an error where it is there and can't be read.
    pub(crate) fn tensor(&self, name: &str) -> Result<Option<Tensor<'a>>, ModelError> {
        Ok(self.checkpoint.tensor(name)?)
    }

    /// Whether the projections have a bias: what config.json says at `flag`, or whether GGUF has the `tensor`.
    pub(crate) fn bias(&self, flag: &'static str, tensor: &str) -> Result<bool, ModelError> {
        if self.is_json() {
            return Ok(self.flag(json_key(flag))?.unwrap_or(false));
        }
        Ok(self.tensor(tensor)?.is_some())
    }

    /// The file, for errors.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// The checkpoint whose properties these are.
    pub(crate) fn checkpoint(&self) -> &'a Checkpoint {
        self.checkpoint
    }

    /// A whole number from 1 to `max`.
    pub(crate) fn count(&self, key: Key, max: usize) -> Result<Option<usize>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        in_range(datum.integer(), max).map(Some).map_err(|expected| self.wrong(key, datum, expected))
    }

    /// A whole number from 1 to `max`, or what config.json means by leaving it out.
    pub(crate) fn count_or(&self, key: Key, default: usize, max: usize) -> Result<usize, ModelError> {
        match self.count(key, max)? {
            None if self.is_json() => Ok(default),
            None => Err(self.missing(key, format!("a whole number from 1 to {max}"))),
            Some(count) => Ok(count),
        }
    }

    /// A whole number from 1 to `max` for each of `layers`, written once for all or as a list.
    pub(crate) fn counts(
        &self,
        key: Key,
        layers: usize,
        max: usize,
    ) -> Result<Option<Vec<usize>>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        let Some(list) = datum.integers() else {
            return Ok(self.count(key, max)?.map(|count| vec![count; layers]));
        };
        if list.len() != layers {
            let found = format!("a list of {}", list.len());
            return Err(self.wrong(key, found, format!("one number for each of {layers} layers")));
        }
        let counts = list.into_iter().map(|number| in_range(Some(number), max));
        counts.collect::<Result<_, _>>().map(Some).map_err(|expected| self.wrong(key, datum, expected))
    }

    /// A list of whole numbers from 0 to `max`.
    pub(crate) fn list(&self, key: Key, max: usize) -> Result<Option<Vec<usize>>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        let number = |number: i128| usize::try_from(number).ok().filter(|number| *number <= max);
        let list = datum.integers().and_then(|list| list.into_iter().map(number).collect::<Option<Vec<_>>>());
        list.map(Some).ok_or_else(|| self.wrong(key, datum, format!("a list of whole numbers up to {max}")))
    }

    /// A number above 0 that is finite and not 0 in float32 either.
    pub(crate) fn positive(&self, key: Key) -> Result<Option<f64>, ModelError> {
        match self.number(key)? {
            Some(number) if number < f64::from(f32::MIN_POSITIVE) => {
                Err(self.wrong(key, number, "a number above 0"))
            }
            found => Ok(found),
        }
    }

    /// A number that is finite in float32.
    pub(crate) fn number(&self, key: Key) -> Result<Option<f64>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        match datum.real() {
            Some(number) if number.abs() <= f64::from(f32::MAX) => Ok(Some(number)),
            Some(_) | None => Err(self.wrong(key, datum, "a finite number")),
        }
    }

    /// A list of finite numbers above 0.
    pub(crate) fn positives(&self, key: Key) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        let Datum::Json(Value::Array(list)) = datum else {
            return Err(self.wrong(key, datum, "a list of numbers"));
        };
        let numbers = list.iter().map(|entry| entry.as_f64().map(|number| number as f32));
        let numbers = numbers.collect::<Option<Vec<f32>>>();
        match numbers.filter(|numbers| numbers.iter().all(|number| number.is_finite() && *number > 0.0)) {
            None => Err(self.wrong(key, datum, "a list of finite numbers above 0")),
            found => Ok(found),
        }
    }

    /// True or false.
    pub(crate) fn flag(&self, key: Key) -> Result<Option<bool>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        datum.flag().map(Some).ok_or_else(|| self.wrong(key, datum, "true or false"))
    }

    /// A list of true and false in GGUF; none where the key has a single number, which some give another meaning.
    pub(crate) fn flags(&self, key: Key) -> Result<Option<&'a [bool]>, ModelError> {
        match self.get(key) {
            Some(Datum::Gguf(gguf::Value::Array(gguf::Array::Bool(flags)))) => Ok(Some(flags)),
            Some(datum) if datum.integer().is_none() => {
                Err(self.wrong(key, datum, "a list of true and false"))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// A text.
    pub(crate) fn text(&self, key: Key) -> Result<Option<&'a str>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        datum.text().map(Some).ok_or_else(|| self.wrong(key, datum, "a string"))
    }

    /// A list of texts.
    pub(crate) fn texts(&self, key: Key) -> Result<Option<Vec<&'a str>>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(None) };
        let texts = match datum {
            Datum::Json(Value::Array(list)) => list.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
            Datum::Json(_) | Datum::Gguf(_) => None,
        };
        texts.map(Some).ok_or_else(|| self.wrong(key, datum, "a list of strings"))
    }

    /// Token ids, one or a list; none where the key is absent.
    pub(crate) fn ids(&self, key: Key) -> Result<Vec<u32>, ModelError> {
        let Some(datum) = self.get(key) else { return Ok(Vec::new()) };
        let list = datum.integers().or_else(|| datum.integer().map(|id| vec![id]));
        let ids = list.and_then(|list| list.into_iter().map(|id| u32::try_from(id).ok()).collect());
        ids.ok_or_else(|| self.wrong(key, datum, "a token id or a list of them"))
    }

    /// Refuses a text that is none of `supported`; an absent one stands for the first.
    pub(crate) fn expect_text(&self, key: Key, supported: &[&str]) -> Result<(), ModelError> {
        match self.text(key)? {
            Some(found) if !supported.contains(&found) => {
                Err(self.wrong(key, format!("`{found}`"), format!("`{}`", supported.join("` or `"))))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a property that nothing here computes, unless it is absent, `null`, false or 0.
    pub(crate) fn expect_off(&self, key: Key) -> Result<(), ModelError> {
        match self.get(key) {
            Some(datum) if datum.flag() != Some(false) && datum.real() != Some(0.0) => {
                Err(self.wrong(key, datum, "to be absent, as it is not supported"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses a factor other than 1, which is what absence means.
    pub(crate) fn expect_one(&self, key: Key) -> Result<(), ModelError> {
        match self.number(key)? {
            Some(found) if found != 1.0 => Err(self.wrong(key, found, "1, as others are not supported")),
            Some(_) | None => Ok(()),
        }
    }

    /// The error that a key is missing.
    pub(crate) fn missing(&self, key: Key, expected: impl Display) -> ModelError {
        ModelError::MissingKey {
            file: self.file.clone(),
            key: self.name(key),
            expected: expected.to_string(),
        }
    }

    /// The error that a key's value can't be.
    pub(crate) fn wrong(&self, key: Key, found: impl Display, expected: impl Display) -> ModelError {
        let (file, key) = (self.file.clone(), self.name(key));
        ModelError::WrongValue { file, key, found: found.to_string(), expected: expected.to_string() }
    }

    /// The error that a property derived from several keys can't be.
    pub(crate) fn wrong_size(&self, what: &str, found: impl Display, expected: impl Display) -> ModelError {
        let (file, what) = (self.file.clone(), what.to_owned());
        ModelError::WrongSize { file, what, found: found.to_string(), expected: expected.to_string() }
    }

    /// The value of a key that is there and not `null`.
    fn get(&self, key: Key) -> Option<Datum<'a>> {
        match self.values {
            Values::Json(map) => map.get(key.json?).filter(|value| !value.is_null()).map(Datum::Json),
            Values::Gguf(metadata) => metadata.get(&format!("{}{}", self.prefix, key.gguf?)).map(Datum::Gguf),
        }
    }

    /// The name of a key as it stands in this kind of file.
    fn name(&self, key: Key) -> String {
        let name = match self.values {
            Values::Json(_) => key.json.or(key.gguf),
            Values::Gguf(_) => key.gguf.or(key.json),
        };
        format!("{}{}", self.prefix, name.unwrap_or_default())
    }
}

fn in_range(found: Option<i128>, max: usize) -> Result<usize, String> {
    let count = found.and_then(|number| usize::try_from(number).ok());
    count.filter(|count| (1..=max).contains(count)).ok_or_else(|| format!("a whole number from 1 to {max}"))
}

/// The file that a checkpoint's properties come from, for errors.
pub(crate) fn config_file(checkpoint: &Checkpoint) -> String {
    match &checkpoint.source {
        Source::HuggingFace(_) => checkpoint.path().join("config.json").display().to_string(),
        Source::Gguf(_) => checkpoint.path().display().to_string(),
    }
}
