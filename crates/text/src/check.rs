//! What looks wrong about a model's text side: the known faults of conversions, found without running the model.
//!
//! A file with such a fault loads and answers, only worse than it could, so these are findings and not errors. What makes
//! a file contradict itself (ids outside the vocabulary, duplicates, merges of unknown pieces) is refused when it is
//! loaded.
//!
//! Knows no file and no weight.

use crate::chat::{Message, RenderOptions};
use crate::decode::SpecialTokens;
use crate::gguf::GgufVocabulary;
use crate::text::Text;
use crate::tokenizer::{Specials, TokenId, Tokenizer};

/// Tokens that `findings` tries, evenly over the vocabulary.
pub const SAMPLED_TOKENS: usize = 2000;
/// Share of tried tokens, in percent, that may encode to others: public vocabularies have up to two.
const TOLERATED_PERCENT: usize = 5;

/// Something that looks wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Finding {
    /// Chats will be refused.
    #[error("there is no chat template: chats are refused, plain prompts work")]
    NoTemplate,
    /// The template refuses or fails on the plainest conversations.
    #[error("the chat template fails on a conversation of one message: {reason}")]
    TemplateFails {
        /// Why, in the words of its error.
        reason: String,
    },
    /// The template leaves out what was said.
    #[error("the chat template does not print what the user says")]
    TemplateIsDeaf,
    /// The vocabulary has a beginning of text that models are trained with, and nothing puts it there.
    #[error("prompts don't begin with `{token}`: neither the tokenizer nor the chat template adds it")]
    NoBeginning {
        /// The beginning of text.
        token: String,
    },
    /// No token ends an answer.
    #[error("no token ends an answer: the tokenizer names none, and none is known by its text")]
    NoEnd,
    /// The rule of files from before the key had a meaning.
    #[error(
        "tokenizer.ggml.pre is `default`: the file was converted without knowing how its model splits text"
    )]
    DefaultSplit,
    /// A token that vocabularies with another rule have.
    #[error(
        "tokenizer.ggml.pre is `{found}`, but the vocabulary has `{token}`, as those with {expected} have"
    )]
    UnexpectedSplit {
        /// The rule in the file.
        found: String,
        /// The token that gives the vocabulary away.
        token: &'static str,
        /// The rules that it goes with.
        expected: &'static str,
    },
    /// Tokens that their own text doesn't give.
    #[error(
        "{failed} of {tried} tokens don't come back from their own text, such as {id} `{text}`: text is split in \
         another way than the vocabulary was made for"
    )]
    Unreachable {
        /// How many.
        failed: usize,
        /// Of how many.
        tried: usize,
        /// One of them.
        id: TokenId,
        /// Its text.
        text: String,
    },
    /// Text that doesn't survive.
    #[error("the text of token {id}, `{text}`, comes back as `{back}`")]
    Garbled {
        /// The token.
        id: TokenId,
        /// Its text.
        text: String,
        /// What its ids decode to.
        back: String,
    },
}

/// Beginnings of text without which models answer badly. Others, such as Qwen's, are never used.
const BEGINNINGS: [&str; 6] =
    ["<s>", "<bos>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<BOS_TOKEN>", "<|startoftext|>"];

/// Tokens that only vocabularies with certain rules have.
const SIGNS: [(&str, &str); 6] = [
    ("<|begin_of_text|>", "llama-bpe, llama3, llama-v3, falcon3, smaug-bpe, dbrx, llama4, gpt-4o"),
    ("<｜begin▁of▁sentence｜>", "deepseek-llm, deepseek-coder, deepseek-v3, deepseek-r1-qwen, llama-bpe"),
    ("[AVAILABLE_TOOLS]", "tekken, llama-bpe, pixtral"),
    ("<|START_OF_TURN_TOKEN|>", "command-r"),
    ("[gMASK]", "glm4, chatglm-bpe"),
    ("<|constrain|>", "gpt-4o"),
];

/// What looks wrong about the way that the metadata says to split text; the file's vocabulary, before it is built.
pub fn gguf_findings(vocabulary: &GgufVocabulary) -> Vec<Finding> {
    let Some(pre) = vocabulary.pre.as_deref().filter(|_| vocabulary.model == "gpt2") else {
        return Vec::new();
    };
    if pre == "default" {
        return vec![Finding::DefaultSplit];
    }
    let unexpected = SIGNS.iter().find(|(token, expected)| {
        !expected.split(", ").any(|name| name == pre) && vocabulary.tokens.iter().any(|text| text == token)
    });
    let finding = |(token, expected): &(&'static str, &'static str)| Finding::UnexpectedSplit {
        found: pre.to_owned(),
        token,
        expected,
    };
    unexpected.map(finding).into_iter().collect()
}

impl Text {
    /// What looks wrong about tokenizer and template; `listed` are the ends of text that the model's own files name.
    pub fn findings(&self, listed: &[TokenId]) -> Vec<Finding> {
        let mut findings = Vec::new();
        let printed = match (&self.template, &self.template_fault) {
            (_, Some(fault)) => Err(Finding::TemplateFails { reason: fault.to_string() }),
            (None, None) => Err(Finding::NoTemplate),
            (Some(template), None) => template
                .render(&[Message::new("user", "gannet")], &[], &RenderOptions::default())
                .map(|rendered| rendered.text)
                .map_err(|error| Finding::TemplateFails { reason: error.to_string() }),
        };
        match &printed {
            Err(finding) => findings.push(finding.clone()),
            Ok(text) if !text.contains("gannet") => findings.push(Finding::TemplateIsDeaf),
            Ok(_) => {}
        }
        findings.extend(self.missing_beginning(printed.as_deref().unwrap_or("")));
        if self.tokenizer.end_of_text_ids(listed).is_empty() {
            findings.push(Finding::NoEnd);
        }
        findings.extend(self.tokenizer.findings());
        findings
    }

    fn missing_beginning(&self, printed: &str) -> Option<Finding> {
        let token = self.tokenizer.named_tokens().get("bos_token")?;
        let added = !self.tokenizer.prompt_prefix().is_empty() || printed.starts_with(token);
        (!added && BEGINNINGS.contains(&token)).then(|| Finding::NoBeginning { token: token.to_owned() })
    }
}

impl Tokenizer {
    /// Whether tokens come back from their own text: tries `SAMPLED_TOKENS` of them.
    pub fn findings(&self) -> Vec<Finding> {
        let size = self.vocabulary_size() as TokenId;
        let step = (size as usize / SAMPLED_TOKENS).max(1);
        let (mut tried, mut failed, mut garbled) = (0, Vec::new(), None);
        for id in (0..size).step_by(step) {
            let Some(text) = self.speakable(id) else {
                continue;
            };
            tried += 1;
            let ids = self.encode(&text, Specials::AsText).unwrap_or_default();
            if ids == [id] {
                continue;
            }
            let back = self.decode(&ids, SpecialTokens::Show);
            if back.is_empty() || !same_letters(&back, &text) {
                garbled.get_or_insert(Finding::Garbled { id, text: text.clone(), back });
            }
            failed.push((id, text));
        }
        let example = failed.first().filter(|_| failed.len() * 100 > tried * TOLERATED_PERCENT).cloned();
        let unreachable =
            example.map(|(id, text)| Finding::Unreachable { failed: failed.len(), tried, id, text });
        garbled.into_iter().chain(unreachable).collect()
    }

    /// The text that should give `id` alone; none for control tokens, parts of characters, and pieces that only continue
    /// a word.
    fn speakable(&self, id: TokenId) -> Option<String> {
        let text = std::str::from_utf8(self.token_bytes(id)?).ok()?;
        let begins_word = match self.vocabulary().leading_spaces() {
            0 => Some(text),
            _ => text.strip_prefix(' '),
        };
        let text = begins_word.filter(|text| !text.trim().is_empty() && !self.is_special(id))?;
        Some(text.to_owned())
    }
}

/// Whether two texts are the same but for case, composition and spaces, which normalising may change.
fn same_letters(one: &str, other: &str) -> bool {
    let plain = |text: &str| -> String {
        text.chars().filter(|letter| letter.is_ascii_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    plain(one) == plain(other)
}
