//! The method of a quantised checkpoint, as `quantization_config` of config.json says it.

use std::path::Path;

use gannet_tensor::Format;
use serde_json::{Map, Value};

use crate::FormatError;

/// How weights are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Not at all.
    Plain,
    Gptq(Gptq),
    /// Codes of 4 bits.
    Awq(Awq),
    /// Floats of 8 bits; scales for blocks of so many rows and columns, if it says so.
    Float8(Option<[usize; 2]>),
    CompressedTensors,
    /// As gpt-oss has it.
    Mxfp4,
    ModelOpt,
}

/// The layouts of AWQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awq {
    /// Rows side by side.
    Gemm,
    /// Columns side by side, in groups of so many; `None`: a row is one group.
    Gemv(Option<usize>),
}

/// The kinds of GPTQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gptq {
    /// Of a code: 2, 3, 4 or 8.
    pub(super) bits: u32,
    /// Whether stored zeros are one less than meant: version 1 has it so, version 2 not.
    pub(super) zeros_lack_one: bool,
}

const SUPPORTED: &str = "gptq, awq, fp8, fbgemm_fp8, compressed-tensors, mxfp4, modelopt";

impl Method {
    /// Reads the method from a config.json. A method that is not supported is an error that names it.
    pub(super) fn read(file: &Path, config: &Map<String, Value>) -> Result<Self, FormatError> {
        let found = ["quantization_config", "compression_config"].into_iter().find_map(|key| {
            // Models of several parts may say it of the text model.
            let texts = config.get("text_config").and_then(Value::as_object);
            let value = config.get(key).or_else(|| texts?.get(key))?;
            (!value.is_null()).then_some((key, value))
        });
        let Some((key, value)) = found else { return Ok(Method::Plain) };
        let Value::Object(keys) = value else {
            return Err(Keys { file, key, keys: &Map::new() }.wrong(None, value, "an object"));
        };
        Keys { file, key, keys }.method()
    }

    /// The stem of the tensor's name where it holds codes of a packed weight.
    pub(super) fn stem<'a>(&self, name: &'a str, format: Format) -> Option<&'a str> {
        let is_float8 = matches!(format, Format::F8E4M3 | Format::F8E5M2);
        let ending = match self {
            Method::Plain => return None,
            Method::Gptq(_) | Method::Awq(_) => ".qweight",
            Method::Mxfp4 => "_blocks",
            Method::CompressedTensors if matches!(format, Format::I32 | Format::U8) => ".weight_packed",
            Method::CompressedTensors if is_float8 || format == Format::I8 => ".weight",
            Method::ModelOpt if is_float8 || format == Format::U8 => ".weight",
            Method::Float8(_) if is_float8 => ".weight",
            Method::CompressedTensors | Method::ModelOpt | Method::Float8(_) => return None,
        };
        name.strip_suffix(ending)
    }

    /// Rows and columns that share a scale, where the config says it.
    pub(super) fn block(&self) -> Option<[usize; 2]> {
        match self {
            Method::Float8(block) => *block,
            Method::Plain | Method::Gptq(_) | Method::Awq(_) => None,
            Method::CompressedTensors | Method::Mxfp4 | Method::ModelOpt => None,
        }
    }

    /// Why a part may be left over.
    pub(super) fn why_stray(&self) -> String {
        match self {
            Method::Plain => "config.json has no `quantization_config`".to_owned(),
            Method::Gptq(_) => "the method `gptq` takes it for none".to_owned(),
            Method::Awq(_) => "the method `awq` takes it for none".to_owned(),
            Method::Float8(_) => "the method `fp8` takes it for none".to_owned(),
            Method::CompressedTensors => "the method `compressed-tensors` takes it for none".to_owned(),
            Method::Mxfp4 => "the method `mxfp4` takes it for none".to_owned(),
            Method::ModelOpt => "the method `modelopt` takes it for none".to_owned(),
        }
    }
}

/// The keys of a quantization_config.
struct Keys<'a> {
    file: &'a Path,
    key: &'a str,
    keys: &'a Map<String, Value>,
}

impl Keys<'_> {
    fn method(&self) -> Result<Method, FormatError> {
        let name = self.keys.get("quant_method").unwrap_or(&Value::Null);
        match name.as_str() {
            Some("gptq") => self.gptq(),
            Some("awq") => self.awq(),
            Some("fp8" | "fbgemm_fp8") => Ok(Method::Float8(self.block()?)),
            Some("compressed-tensors") => self.compressed_tensors(),
            Some("mxfp4") => Ok(Method::Mxfp4),
            Some("modelopt") => Ok(Method::ModelOpt),
            Some(_) | None => Err(self.wrong(Some("quant_method"), name, &format!("one of {SUPPORTED}"))),
        }
    }

    fn gptq(&self) -> Result<Method, FormatError> {
        let bits = self.one_of("bits", &[2, 3, 4, 8], 4)? as u32;
        let format = ["checkpoint_format", "format"].into_iter().find(|key| self.keys.contains_key(*key));
        let zeros_lack_one = match format {
            None => true,
            Some(key) => self.text(key, &["gptq", "gptq_v2"])? == "gptq",
        };
        Ok(Method::Gptq(Gptq { bits, zeros_lack_one }))
    }

    fn awq(&self) -> Result<Method, FormatError> {
        self.one_of("bits", &[4], 4)?;
        let mut layout = Awq::Gemm;
        for key in ["version", "format"].into_iter().filter(|key| self.keys.contains_key(*key)) {
            layout = match self.text(key, &["gemm", "GEMM", "gemv", "GEMV"])? {
                "gemv" | "GEMV" => Awq::Gemv(self.group()?),
                _ => Awq::Gemm,
            };
        }
        match self.keys.get("zero_point") {
            None | Some(Value::Bool(true)) => Ok(Method::Awq(layout)),
            Some(other) => Err(self.wrong(Some("zero_point"), other, "true")),
        }
    }

    /// The columns of a group; -1 says that a row is one.
    fn group(&self) -> Result<Option<usize>, FormatError> {
        const KEY: &str = "group_size";
        let value = self.keys.get(KEY).unwrap_or(&Value::Null);
        if value.as_i64() == Some(-1) {
            return Ok(None);
        }
        let found =
            value.as_u64().and_then(|length| usize::try_from(length).ok()).filter(|&length| length > 0);
        found.map(Some).ok_or_else(|| self.wrong(Some(KEY), value, "a whole number above 0, or -1"))
    }

    /// Sparse weights are packed in other ways; all else is seen from the tensors.
    fn compressed_tensors(&self) -> Result<Method, FormatError> {
        let sparse = self.keys.get("sparsity_config").and_then(|sparsity| sparsity.get("format"));
        match sparse {
            None | Some(Value::Null) => Ok(Method::CompressedTensors),
            Some(Value::String(format)) if format == "dense" => Ok(Method::CompressedTensors),
            Some(other) => Err(self.wrong(Some("sparsity_config.format"), other, "`dense`")),
        }
    }

    fn block(&self) -> Result<Option<[usize; 2]>, FormatError> {
        const KEY: &str = "weight_block_size";
        let value = match self.keys.get(KEY) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let length = |value: &Value| usize::try_from(value.as_u64()?).ok().filter(|&length| length > 0);
        let block = value.as_array().and_then(|list| list.iter().map(length).collect::<Option<Vec<_>>>());
        match block.map(<[usize; 2]>::try_from) {
            Some(Ok(block)) => Ok(Some(block)),
            Some(Err(_)) | None => Err(self.wrong(Some(KEY), value, "two whole numbers above 0")),
        }
    }

    /// The number at `key`, which is among `known`.
    fn one_of(&self, key: &str, known: &[u64], default: u64) -> Result<u64, FormatError> {
        let Some(value) = self.keys.get(key) else { return Ok(default) };
        let found = value.as_u64().filter(|number| known.contains(number));
        let expected = || known.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ");
        found.ok_or_else(|| self.wrong(Some(key), value, &expected()))
    }

    /// The text at `key`, which is among `known`.
    fn text(&self, key: &str, known: &[&'static str]) -> Result<&'static str, FormatError> {
        let value = self.keys.get(key).unwrap_or(&Value::Null);
        let found = value.as_str().and_then(|text| known.iter().find(|known| **known == text));
        let expected = || known.iter().map(|known| format!("`{known}`")).collect::<Vec<_>>().join(" or ");
        found.copied().ok_or_else(|| self.wrong(Some(key), value, &expected()))
    }

    fn wrong(&self, within: Option<&str>, found: &Value, expected: &str) -> FormatError {
        const SHOWN: usize = 60;
        let text = found.to_string();
        let shown: String = text.chars().take(SHOWN).collect();
        let dots = if shown.len() < text.len() { "..." } else { "" };
        FormatError::Quantization {
            file: self.file.to_path_buf(),
            key: within.map_or(self.key.to_owned(), |within| format!("{}.{within}", self.key)),
            found: format!("`{shown}{dots}`"),
            expected: expected.to_owned(),
        }
    }
}
