//! The files of a Hugging Face directory beside the weights: configuration, tokenizer, chat template.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::{FormatError, limits};

/// What a model directory says in text. Small files are read when it is opened, tokenizer.json when it is asked for.
#[derive(Clone, Debug)]
pub struct HuggingFaceFiles {
    /// The directory.
    pub directory: PathBuf,
    /// config.json.
    pub config: Map<String, Value>,
    /// The text of generation_config.json.
    pub generation_config: Option<String>,
    /// Where tokenizer.json is.
    pub tokenizer_json: Option<TextFile>,
    /// The text of tokenizer_config.json.
    pub tokenizer_config: Option<String>,
    /// The text of special_tokens_map.json.
    pub special_tokens_map: Option<String>,
    /// The text of chat_template.jinja.
    pub chat_template: Option<String>,
}

impl HuggingFaceFiles {
    /// Reads the files of `directory`, of which only config.json must be there.
    pub(crate) fn read(directory: &Path) -> Result<Self, FormatError> {
        let text = |name: &str, limit, limit_name| TextFile::new(directory.join(name), limit, limit_name);
        let tokenizer = |name: &str| text(name, limits::TOKENIZER_CONFIG_BYTES, "TOKENIZER_CONFIG_BYTES");
        let config = text("config.json", limits::CONFIG_BYTES, "CONFIG_BYTES");
        if !config.exists() {
            let (directory, found) = (directory.to_path_buf(), listing(directory));
            return Err(FormatError::NotAModelDirectory { directory, found });
        }
        let tokenizer_json = text("tokenizer.json", limits::TOKENIZER_BYTES, "TOKENIZER_BYTES");
        Ok(Self {
            directory: directory.to_path_buf(),
            config: config.read_object()?,
            generation_config: text(
                "generation_config.json",
                limits::GENERATION_CONFIG_BYTES,
                "GENERATION_CONFIG_BYTES",
            )
            .read_if_there()?,
            tokenizer_json: tokenizer_json.exists().then_some(tokenizer_json),
            tokenizer_config: tokenizer("tokenizer_config.json").read_if_there()?,
            special_tokens_map: tokenizer("special_tokens_map.json").read_if_there()?,
            chat_template: tokenizer("chat_template.jinja").read_if_there()?,
        })
    }
}

/// A text file that is read when asked for, up to a limit.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Where it is.
    pub path: PathBuf,
    limit: usize,
    limit_name: &'static str,
}

impl TextFile {
    pub(crate) fn new(path: PathBuf, limit: usize, limit_name: &'static str) -> Self {
        Self { path, limit, limit_name }
    }

    pub(crate) fn exists(&self) -> bool {
        self.path.is_file()
    }

    /// The whole text. An error where it can't be read, is over the limit or is not UTF-8.
    pub fn read(&self) -> Result<String, FormatError> {
        let failed = |source| FormatError::unreadable(&self.path, source);
        let mut bytes = Vec::new();
        let file = File::open(&self.path).map_err(failed)?;
        // One byte more shows that the file is over the limit, whatever its length was when it was opened.
        let found = file.take(self.limit as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        if found > self.limit {
            return Err(FormatError::OverLimit {
                file: self.path.clone(),
                what: "the length of the file".to_owned(),
                found: fs::metadata(&self.path).map_or(found as u64, |metadata| metadata.len()),
                limit: self.limit,
                name: self.limit_name,
            });
        }
        String::from_utf8(bytes)
            .map_err(|_| FormatError::NotUtf8 { file: self.path.clone(), what: "the file".to_owned() })
    }

    fn read_if_there(&self) -> Result<Option<String>, FormatError> {
        if self.exists() { self.read().map(Some) } else { Ok(None) }
    }

    /// The text as a JSON object.
    pub(crate) fn read_object(&self) -> Result<Map<String, Value>, FormatError> {
        let json = gannet_json::from_slice(self.read()?.as_bytes())
            .map_err(|source| FormatError::Json { file: self.path.clone(), source })?;
        let found = match json {
            Value::Object(object) => return Ok(object),
            Value::Null => "null",
            Value::Bool(_) => "a bool",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
        };
        Err(FormatError::WrongJson { file: self.path.clone(), found, expected: "a JSON object" })
    }
}

/// The first names in a directory in ascending order, for the error that says what is missing.
pub(crate) fn listing(directory: &Path) -> String {
    const SHOWN: usize = 8;
    let names = |entries: fs::ReadDir| -> io::Result<Vec<String>> {
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    let mut names = match fs::read_dir(directory).and_then(names) {
        Ok(names) if names.is_empty() => return "an empty directory".to_owned(),
        Ok(names) => names,
        Err(error) => return format!("nothing readable ({error})"),
    };
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let shown = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
