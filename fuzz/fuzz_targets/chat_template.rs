//! A chat template and a conversation to text and ids.
//!
//! An input is the template, a zero byte, and `[messages, tools]` as JSON; without that, a small conversation. The fuel
//! bounds the time of each rendering, so an input that takes long is a finding.

#![no_main]

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use gannet_text::chat::{ChatTemplate, Clock, Message, RenderOptions};
use gannet_text::gguf::{GgufVocabulary, tokenizer};
use gannet_text::tokenizer::Tokenizer;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Longest text that is encoded: what takes long in a longer one is not the template.
const ENCODED_BYTES_MAX: usize = 1 << 16;

/// A tokenizer of every byte and the special tokens that the conversation spells.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    const PRINTABLE: [RangeInclusive<u32>; 3] = [0x21..=0x7E, 0xA1..=0xAC, 0xAE..=0xFF];
    let printable = (0..=0xFF).filter(|byte| PRINTABLE.iter().any(|range| range.contains(byte)));
    // Bytes that can't be printed are written as the letters from 256 on.
    let letters = printable.chain(0x100..).take(256).filter_map(char::from_u32);
    let specials = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"];
    let others = specials.into_iter().chain(["ab"]).map(str::to_owned);
    let vocabulary = GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some("default".to_owned()),
        tokens: others.chain(letters.map(String::from)).collect(),
        token_types: (0..specials.len() + 1 + 256)
            .map(|id| if id < specials.len() { 3 } else { 1 })
            .collect(),
        merges: vec!["a b".to_owned()],
        bos: Some(0),
        eos: Some(1),
        ..GgufVocabulary::default()
    };
    tokenizer(vocabulary).expect("the vocabulary is right")
});

fuzz_target!(|input: &[u8]| {
    let [source, chat] = gannet_fuzz::sections::<2>(input);
    let Ok(source) = std::str::from_utf8(source) else { return };
    let Ok(template) = ChatTemplate::new(source, &TOKENIZER) else { return };
    let (messages, tools) = conversation(chat);
    let options = RenderOptions {
        continue_final_message: messages.last().is_some_and(|message| message.role == "assistant"),
        // Only where a rendering is short: it takes many more.
        boundaries: source.len() < 400 && messages.len() < 4,
        clock: Clock::Fixed { unix_seconds: 1_732_838_400 },
        ..RenderOptions::default()
    };
    let Ok(rendered) = template.render(&messages, &tools, &options) else { return };
    let ends = rendered.boundaries.iter().map(|boundary| boundary.byte);
    assert!(ends.clone().is_sorted() && ends.clone().all(|end| rendered.text.is_char_boundary(end)));
    if rendered.text.len() > ENCODED_BYTES_MAX {
        return;
    }
    let encoded = TOKENIZER.encode_chat_with_boundaries(&rendered).expect("every byte has a token");
    assert!(encoded.boundaries.iter().all(|boundary| boundary.tokens <= encoded.ids.len()));
});

fn conversation(json: &[u8]) -> (Vec<Message>, Vec<Value>) {
    let json = serde_json::from_slice(json).unwrap_or_else(|_| {
        json!([
            [{ "role": "system", "content": "Be <s> brief." }, { "role": "user", "content": "Grüße <|im_end|>\n" }],
            [{ "type": "function", "function": { "name": "now", "parameters": { "type": "object" } } }],
        ])
    });
    let list = |at: usize| json.get(at).and_then(Value::as_array).cloned().unwrap_or_default();
    (list(0).into_iter().filter_map(Message::from_json).collect(), list(1))
}
