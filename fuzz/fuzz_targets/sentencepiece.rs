//! tokenizer.model to a tokenizer: a SentencePiece model, or tiktoken lines under that name.

#![no_main]

use gannet_text::text::{Text, TextFiles, TokenizerFile};
use libfuzzer_sys::fuzz_target;

/// A class that says how tiktoken lines are split; SentencePiece models take no notice of it.
const CONFIG: &[u8] = br#"{"tokenizer_class": "HYTokenizer"}"#;

fuzz_target!(|input: &[u8]| {
    let tokenizer = TokenizerFile::Model(input);
    let files = TextFiles { tokenizer, tokenizer_config: Some(CONFIG), chat_template: None };
    if let Ok(text) = Text::from_files(&files) {
        gannet_fuzz::check_tokenizer(&text.tokenizer, "a text of words, and  numbers: 42");
    }
});
