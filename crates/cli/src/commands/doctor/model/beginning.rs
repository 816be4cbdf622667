//! Whether a text begins as the model was trained: with the beginning of text, once.
//!
//! Converters lose it: a file names the token and nothing puts it before a text, so that the model answers a little
//! worse and nobody sees why. Either the tokenizer puts it there, or the chat template does, or the file says that
//! nothing shall.

use super::Check;
use super::vocabulary::spelling;
use gannet_formats::{Checkpoint, Source};
use gannet_loader::Opened;
use gannet_ops::TokenId;
use gannet_text::chat::{Message, RenderOptions};
use gannet_text::text::Text;
use gannet_text::tokenizer::TokenizerConfig;

const NAME: &str = "beginning";
/// The type of pieces that stand for single bytes, which only vocabularies of scored pieces have.
const BYTE_PIECE: i32 = 6;

/// The check.
pub(super) fn check(opened: &Opened, text: &Text) -> Check {
    let prefix = text.tokenizer.prompt_prefix();
    let said = says_add_bos(&opened.checkpoint);
    let in_chat = chat_begins_with(text, opened.model.tokens.bos);
    if in_chat == Times::Twice {
        return Check::fault(NAME, "the beginning of text stands twice before a chat");
    }
    if let [first, ..] = prefix {
        return Check::ok(NAME, format!("{} stands before every text", spelling(text, TokenId(*first))));
    }
    match (opened.model.tokens.bos, said) {
        (None, Some(true)) => Check::fault(
            NAME,
            "the file asks for the beginning of text before a text, and names no such token",
        ),
        (Some(bos), Some(true)) => Check::fault(
            NAME,
            format!("the file asks for {} before a text, and it isn't put there", spelling(text, bos)),
        ),
        (Some(bos), _) if in_chat == Times::Once => {
            Check::ok(NAME, format!("the chat template puts {} before a chat", spelling(text, bos)))
        }
        (Some(bos), None) => Check::note(
            NAME,
            format!(
                "{} is named as beginning of text, and nothing puts it before a text",
                spelling(text, bos)
            ),
        ),
        (Some(bos), Some(false)) if has_byte_pieces(&opened.checkpoint) => Check::note(
            NAME,
            format!(
                "the file forbids {} before a text, which vocabularies of this kind mostly need",
                spelling(text, bos)
            ),
        ),
        (None, None) if has_byte_pieces(&opened.checkpoint) => {
            Check::note(NAME, "no beginning of text is named, which vocabularies of this kind mostly need")
        }
        (Some(_), Some(false)) | (None, Some(false) | None) => {
            Check::ok(NAME, "nothing stands before a text")
        }
    }
}

/// What the files say of putting it before a text; `None` where they are silent.
fn says_add_bos(checkpoint: &Checkpoint) -> Option<bool> {
    match &checkpoint.source {
        Source::Gguf(metadata) => metadata.opt_bool("tokenizer.ggml.add_bos_token").ok().flatten(),
        Source::HuggingFace(files) => {
            TokenizerConfig::from_json(files.tokenizer_config.as_deref()?.as_bytes()).ok()?.add_bos
        }
    }
}

fn has_byte_pieces(checkpoint: &Checkpoint) -> bool {
    match &checkpoint.source {
        Source::Gguf(metadata) => {
            let types = metadata.opt_i32s("tokenizer.ggml.token_type").ok().flatten();
            types.is_some_and(|types| types.contains(&BYTE_PIECE))
        }
        // tokenizer.json itself says what stands before a text.
        Source::HuggingFace(_) => false,
    }
}

/// How often the beginning of text stands before a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Never,
    Once,
    Twice,
}

fn chat_begins_with(text: &Text, bos: Option<TokenId>) -> Times {
    let ids = || {
        let template = text.template.as_ref()?;
        let rendered = template.render(&[Message::new("user", "a")], &[], &RenderOptions::default()).ok()?;
        text.tokenizer.encode_chat(&rendered).ok()
    };
    let (Some(bos), Some(ids)) = (bos, ids()) else { return Times::Never };
    match ids.iter().take_while(|id| **id == bos.0).count() {
        0 => Times::Never,
        1 => Times::Once,
        _ => Times::Twice,
    }
}
