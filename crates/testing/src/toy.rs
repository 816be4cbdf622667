//! Small model files with a tokenizer and a chat template, to give to what takes files.

use gannet_formats::gguf::{Array, GgufWriter, Strings, Value};
use gannet_formats::{Checkpoint, Source};
use std::fs::File;
use std::path::{Path, PathBuf};

/// What to change in a toy model before it is written.
pub type Change<'a> = (&'a str, Value);

/// The id of the toy vocabulary's token that ends a text.
pub const END_OF_TEXT: u32 = 257;
/// The id of the token that begins a turn.
pub const TURN_STARTS: u32 = 258;
/// The id of the token that ends a turn.
pub const TURN_ENDS: u32 = 259;

const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const PUT: &str = "the committed model is whole, and the folder of tests can be written to";

/// Writes the committed toy model with a byte-level tokenizer and a chat template, so that text works on it.
pub fn write_toy(path: &Path, changes: &[Change]) -> String {
    let checkpoint = Checkpoint::open(&golden()).expect(PUT);
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
        writer.push_entry(key, value.clone()).expect(PUT);
    }
    for (key, value) in text.into_iter().filter(|(key, _)| is_unchanged(key)) {
        writer.push_entry(key, value).expect(PUT);
    }
    for (key, value) in changes {
        writer.push_entry(key, value.clone()).expect(PUT);
    }
    let tensors: Vec<_> = checkpoint.tensors().map(|tensor| (tensor, tensor.bytes().expect(PUT))).collect();
    for (tensor, bytes) in &tensors {
        writer.push_tensor(tensor.name, tensor.format, tensor.shape, bytes).expect(PUT);
    }
    writer.write(File::create(path).expect(PUT)).expect(PUT);
    path.to_str().expect(PUT).to_owned()
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/llama-f32.gguf")
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
    let bytes = shown.chain(hidden.map(|place| char::from_u32(256 + place).expect(PUT)));
    let control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let rest = (260..272).map(|id| format!("<|spare_{id}|>"));
    bytes.map(String::from).chain(["he".to_owned()]).chain(control).chain(rest).collect()
}

fn token_types() -> Vec<i32> {
    let (normal, control) = (1, 3);
    (0..272).map(|id| if id < END_OF_TEXT { normal } else { control }).collect()
}
