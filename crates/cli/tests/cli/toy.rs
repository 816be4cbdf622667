//! Makes small model files to give to the binary.

use crate::support::repository;
use gannet_formats::gguf::{Array, GgufWriter, Strings, Value};
use gannet_formats::{Checkpoint, Source};
use std::fs::File;
use std::path::Path;

/// What to change in a toy model before it is written.
pub(crate) type Change<'a> = (&'a str, Value);

/// The ids of the toy vocabulary's control tokens.
pub(crate) const END_OF_TEXT: u32 = 257;
pub(crate) const TURN_STARTS: u32 = 258;
pub(crate) const TURN_ENDS: u32 = 259;

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes the committed toy model with a byte-level tokenizer and a chat template, so that text works on it.
pub(crate) fn write_toy(path: &Path, changes: &[Change]) -> String {
    let checkpoint = Checkpoint::open(&repository("goldens/llama-f32.gguf")).unwrap();
    let Source::Gguf(metadata) = &checkpoint.source else { panic!("the toy model is no GGUF file") };
    let text = [
        ("tokenizer.ggml.model", Value::from("gpt2")),
        ("tokenizer.ggml.pre", Value::from("gpt-2")),
        ("tokenizer.ggml.tokens", strings(&vocabulary())),
        ("tokenizer.ggml.token_type", Value::from(token_types())),
        ("tokenizer.ggml.merges", strings(&["h e".to_owned()])),
        ("tokenizer.ggml.eos_token_id", Value::from(END_OF_TEXT)),
        ("tokenizer.chat_template", Value::from(TEMPLATE)),
    ];
    let is_kept =
        |key: &str| !key.starts_with("tokenizer.") && !changes.iter().any(|(changed, _)| *changed == key);
    let is_unchanged = |key: &str| !changes.iter().any(|(changed, _)| *changed == key);
    let mut writer = GgufWriter::new(path);
    for (key, value) in metadata.entries().filter(|(key, _)| is_kept(key)) {
        writer.push_entry(key, value.clone()).unwrap();
    }
    for (key, value) in text.into_iter().filter(|(key, _)| is_unchanged(key)) {
        writer.push_entry(key, value).unwrap();
    }
    for (key, value) in changes {
        writer.push_entry(key, value.clone()).unwrap();
    }
    let tensors: Vec<_> = checkpoint.tensors().map(|tensor| (tensor, tensor.bytes().unwrap())).collect();
    for (tensor, bytes) in &tensors {
        writer.push_tensor(tensor.name, tensor.format, tensor.shape, bytes).unwrap();
    }
    writer.write(File::create(path).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn strings(texts: &[String]) -> Value {
    let mut strings = Strings::default();
    texts.iter().for_each(|text| strings.push(text));
    Value::Array(Array::String(strings))
}

/// All bytes in the order of GPT-2's alphabet, one merged piece, and control tokens up to the model's 272.
fn vocabulary() -> Vec<String> {
    let printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let shown = (0..=255u8).filter(printable).map(char::from);
    let hidden = (0..256).filter(|place| *place < 256 - (0..=255u8).filter(printable).count() as u32);
    let bytes = shown.chain(hidden.map(|place| char::from_u32(256 + place).unwrap()));
    let control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let rest = (260..272).map(|id| format!("<|spare_{id}|>"));
    bytes.map(String::from).chain(["he".to_owned()]).chain(control).chain(rest).collect()
}

fn token_types() -> Vec<i32> {
    let (normal, control) = (1, 3);
    (0..272).map(|id| if id < END_OF_TEXT { normal } else { control }).collect()
}
