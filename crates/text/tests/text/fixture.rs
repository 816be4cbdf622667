//! Reads the fixtures that `goldens/text.py` writes.

use std::path::Path;

use gannet_text::gguf::GgufVocabulary;
use serde_json::Value;

/// The fixture `name`.json.
pub(crate) fn read(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Its `gguf` object as the loader would fill it.
pub(crate) fn vocabulary(fixture: &Value) -> GgufVocabulary {
    gguf_vocabulary(&fixture["gguf"])
}

/// A fixture's metadata as the loader would fill it.
pub(crate) fn gguf_vocabulary(gguf: &Value) -> GgufVocabulary {
    let list = |key: &str| gguf[key].as_array().cloned().unwrap_or_default();
    let texts = |key: &str| list(key).iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    let id = |key: &str| gguf[key].as_u64().map(|id| id as u32);
    GgufVocabulary {
        model: gguf["model"].as_str().unwrap().to_owned(),
        pre: gguf["pre"].as_str().map(str::to_owned),
        tokens: texts("tokens"),
        scores: list("scores").iter().map(|score| score.as_f64().unwrap() as f32).collect(),
        token_types: list("token_types").iter().map(|kind| kind.as_i64().unwrap() as i32).collect(),
        merges: texts("merges"),
        bos: id("bos"),
        eos: id("eos"),
        eot: id("eot"),
        unknown: id("unknown"),
        padding: id("padding"),
        cls: id("cls"),
        separator: id("separator"),
        mask: id("mask"),
        add_bos: gguf["add_bos"].as_bool(),
        add_eos: gguf["add_eos"].as_bool(),
        add_separator: gguf["add_separator"].as_bool(),
        add_space_prefix: gguf["add_space_prefix"].as_bool(),
        remove_extra_whitespaces: gguf["remove_extra_whitespaces"].as_bool(),
        precompiled_charsmap: list("precompiled_charsmap")
            .iter()
            .map(|byte| byte.as_u64().unwrap() as u8)
            .collect(),
        lowercase: gguf["lowercase"].as_bool(),
        strip_accents: gguf["strip_accents"].as_bool(),
    }
}

/// The bytes of the fixture `name`.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// Ids that are written as one string.
pub(crate) fn joined_ids(value: &Value) -> Vec<u32> {
    value.as_str().unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// A list of ids.
pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}
