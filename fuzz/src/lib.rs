//! What the fuzz targets share: files for a reader that maps them, and what must hold for anything that was opened.
//!
//! Knows no input format; each target takes its bytes apart itself.

use std::fs;

use gannet_formats::Checkpoint;
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{KvFormat, Rollback};
use gannet_text::decode::SpecialTokens;
use gannet_text::tokenizer::{Specials, Tokenizer};
use tempfile::TempDir;

/// Bytes between the sections of an input of several texts.
const SEPARATOR: u8 = 0;

/// Tokens of the context that programs are made for.
const CONTEXT_TOKENS: usize = 4096;

/// A folder with these files, which goes when it is dropped.
pub fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().expect("the temporary folder can be written");
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).expect("the folder was just made");
    }
    folder
}

/// The sections of an input, as many as are asked for; those that it lacks are empty, the last one has the rest.
pub fn sections<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut parts = input.splitn(N, |&byte| byte == SEPARATOR);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Every tensor has the bytes and elements of its shape and is found by its name.
pub fn check_tensors(checkpoint: &Checkpoint) {
    for tensor in checkpoint.tensors() {
        let elements: usize = tensor.shape.iter().product();
        assert_eq!(tensor.elements(), elements, "`{}`", tensor.name);
        if let Ok(bytes) = tensor.bytes() {
            assert_eq!(bytes.len(), tensor.byte_length(), "`{}`", tensor.name);
            let decoded = tensor.decode().expect("its bytes were had");
            assert_eq!(decoded.len(), elements, "`{}`", tensor.name);
        }
        let found = checkpoint.tensor(tensor.name).expect("it was listed").expect("it was listed");
        assert_eq!(found.shape, tensor.shape, "`{}`", tensor.name);
    }
    for tensor in checkpoint.unsupported() {
        assert!(checkpoint.tensor(tensor.name).is_err(), "`{}` is listed as unsupported", tensor.name);
    }
}

/// A model that is recognised has a program that is verified, whether or not its weights are there.
pub fn check_model(checkpoint: &Checkpoint) {
    let Ok(model) = recognise(checkpoint) else { return };
    let context = model.context_limit().min(CONTEXT_TOKENS);
    let options = ProgramOptions { context, kv_format: KvFormat::F16, rollback: Rollback::Replay };
    let program = model.program(&options);
    program.unwrap_or_else(|error| panic!("the config is accepted, but its program is not: {error}"));
    let _ = (model.parameters(), model.rope_choices(context));
    if let Ok(weights) = model.weights(checkpoint) {
        let _ = weights.unused();
    }
}

/// Texts become ids of the vocabulary, and ids become text.
pub fn check_tokenizer(tokenizer: &Tokenizer, text: &str) {
    const ASKED: u32 = 16;
    let own: String = (0..ASKED).filter_map(|id| tokenizer.token_text(id)).collect();
    let size = tokenizer.vocabulary_size();
    for text in [text, &own, "  Grüße, 日本\u{301} 🦀\r\n\t1234567 it's <s>"] {
        for specials in [Specials::Parse, Specials::AsText] {
            let Ok(ids) = tokenizer.encode(text, specials) else { continue };
            assert!(ids.iter().all(|&id| (id as usize) < size), "ids {ids:?}, {size} tokens");
            let shown = tokenizer.decode(&ids, SpecialTokens::Show);
            assert!(shown.len() >= tokenizer.decode(&ids, SpecialTokens::Skip).len() || text.is_empty());
        }
        let _ = tokenizer.encode_prompt(text);
    }
    for id in (0..=ASKED).chain([size as u32, u32::MAX]) {
        let known = tokenizer.token_bytes(id).is_some();
        assert!(!known || (id as usize) < size, "id {id}, {size} tokens");
        let _ = tokenizer.is_special(id);
    }
    let all: Vec<u32> = (0..ASKED).collect();
    let _ = (tokenizer.decode(&all, SpecialTokens::Show), tokenizer.end_of_text_ids(&all));
}
