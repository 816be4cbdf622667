//! tokenizer.json and tokenizer_config.json to a tokenizer, and a text through it.
//!
//! An input is tokenizer.json, a zero byte, tokenizer_config.json, a zero byte, and the text.

#![no_main]

use gannet_text::tokenizer::{Tokenizer, TokenizerConfig};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let [json, config, text] = gannet_fuzz::sections::<3>(input);
    let config = TokenizerConfig::from_json(config).unwrap_or_default();
    if let Ok(tokenizer) = Tokenizer::from_json(json, &config) {
        gannet_fuzz::check_tokenizer(&tokenizer, &String::from_utf8_lossy(text));
    }
});
