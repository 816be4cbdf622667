//! What a model is.

use super::listing::{self, FormatFacts};
use super::rope;
use crate::quantity::{self, entry, plural};
use gannet_formats::{Checkpoint, Source};
use gannet_loader::LoadError;
use gannet_model::{FeedForward, LayerConfig, Mixer, Model};
use gannet_text::chat;
use gannet_text::text::Text;
use gannet_text::tokenizer::TokenizerConfig;
use serde::Serialize;

/// Lines of the chat template that are shown to people.
const TEMPLATE_LINES: usize = 3;
/// Columns of such a line.
const TEMPLATE_COLUMNS: usize = 90;

/// What a model is.
#[derive(Debug, Serialize)]
pub(crate) struct Facts {
    path: String,
    family: &'static str,
    parameters: u64,
    weight_bytes: u64,
    formats: Vec<FormatFacts>,
    context_length: usize,
    width: usize,
    layers: usize,
    windows: Vec<WindowFacts>,
    /// The layers in words, each kind once.
    layer: String,
    ropes: Vec<String>,
    vocabulary: usize,
    tied_head: bool,
    /// Null where there is none that works; `tokenizer_problem` says why.
    tokenizer: Option<TokenizerFacts>,
    tokenizer_problem: Option<String>,
    end_tokens: Vec<EndToken>,
    chat_template: Option<String>,
    /// Why the template that the model has can't be used.
    chat_template_problem: Option<String>,
}

/// How many layers see how far.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct WindowFacts {
    layers: usize,
    /// Tokens; null is everything.
    window: Option<u32>,
}

#[derive(Debug, Serialize)]
struct TokenizerFacts {
    kind: String,
    tokens: usize,
    special_tokens: usize,
    prompt_prefix: Vec<u32>,
}

/// A token that ends an answer.
#[derive(Debug, Serialize)]
struct EndToken {
    id: u32,
    text: Option<String>,
}

impl Facts {
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        model: &Model,
        text: &Result<Text, LoadError>,
        context: usize,
    ) -> Self {
        let config = &model.config;
        let known = text.as_ref().ok();
        Self {
            path: checkpoint.path().display().to_string(),
            family: model.family,
            parameters: model.parameters(),
            weight_bytes: checkpoint.tensor_bytes() as u64,
            formats: listing::by_format(checkpoint),
            context_length: config.context_length,
            width: config.width,
            layers: config.layers.len(),
            windows: windows(&config.layers),
            layer: layers_text(&config.layers),
            ropes: config.ropes.iter().map(|rope| rope::describe(rope, context)).collect(),
            vocabulary: config.vocabulary,
            tied_head: config.tied_head,
            tokenizer: known.map(|text| tokenizer_facts(checkpoint, text)),
            tokenizer_problem: text.as_ref().err().map(ToString::to_string),
            end_tokens: end_tokens(model, known),
            chat_template: known
                .and_then(|text| text.template.as_ref())
                .and_then(|_| template_source(checkpoint)),
            chat_template_problem: known
                .and_then(|text| text.template_fault.as_ref())
                .map(ToString::to_string),
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let parameters = quantity::count(self.parameters);
        let tied = if self.tied_head { ", the head is the embedding" } else { "" };
        let mut lines = vec![
            entry("model", &self.path),
            entry("family", self.family),
            entry("parameters", &format!("{parameters} ({})", self.parameters)),
            entry("weights", &self.weights_text()),
            entry("context", &format!("{} tokens", self.context_length)),
            entry("layers", &format!("{} of width {}, {}", self.layers, self.width, self.layer)),
        ];
        lines.extend(self.windows_text().map(|text| entry("windows", &text)));
        lines.extend(self.ropes.iter().map(|rope| entry("rope", rope)));
        lines.push(entry("vocabulary", &format!("{}{tied}", self.vocabulary)));
        lines.push(entry("tokenizer", &self.tokenizer_text()));
        lines.push(entry("end tokens", &self.end_tokens_text()));
        lines.extend(match (&self.chat_template_problem, &self.chat_template) {
            (Some(problem), _) => vec![entry("chat template", &format!("unusable: {problem}"))],
            (None, Some(template)) => template_lines(template),
            (None, None) => vec![entry("chat template", "none")],
        });
        lines
    }

    fn weights_text(&self) -> String {
        let part = |sum: &FormatFacts| {
            format!("{} {} in {}", sum.format, quantity::bytes(sum.bytes), plural(sum.tensors, "tensor"))
        };
        let parts: Vec<String> = self.formats.iter().map(part).collect();
        format!("{}: {}", quantity::bytes(self.weight_bytes), parts.join(", "))
    }

    /// Nothing where all layers see everything.
    fn windows_text(&self) -> Option<String> {
        let part = |WindowFacts { layers, window }: &WindowFacts| match window {
            Some(tokens) => format!("{} of {tokens} tokens", plural(*layers, "layer")),
            None => format!("{} of everything", plural(*layers, "layer")),
        };
        let is_needed = self.windows.iter().any(|part| part.window.is_some());
        is_needed.then(|| self.windows.iter().map(part).collect::<Vec<_>>().join(", "))
    }

    fn tokenizer_text(&self) -> String {
        match (&self.tokenizer, &self.tokenizer_problem) {
            (Some(tokenizer), _) => {
                let TokenizerFacts { kind, tokens, special_tokens, prompt_prefix } = tokenizer;
                let prefix = match prompt_prefix.as_slice() {
                    [] => "nothing before a text".to_owned(),
                    ids => format!("{ids:?} before a text"),
                };
                format!("{kind}, {tokens} tokens, {special_tokens} of them special, {prefix}")
            }
            (None, problem) => format!("none: {}", problem.as_deref().unwrap_or("the files hold none")),
        }
    }

    fn end_tokens_text(&self) -> String {
        let token = |token: &EndToken| match &token.text {
            Some(text) => format!("{} `{}`", token.id, text.escape_debug()),
            None => token.id.to_string(),
        };
        let tokens: Vec<String> = self.end_tokens.iter().map(token).collect();
        if tokens.is_empty() { "none".to_owned() } else { tokens.join(", ") }
    }
}

/// The template's text, of a checkpoint whose template works.
fn template_source(checkpoint: &Checkpoint) -> Option<String> {
    match &checkpoint.source {
        Source::Gguf(metadata) => {
            metadata.opt_str("tokenizer.chat_template").ok().flatten().map(str::to_owned)
        }
        Source::HuggingFace(files) => files.chat_template.clone().or_else(|| {
            let config = TokenizerConfig::from_json(files.tokenizer_config.as_deref()?.as_bytes()).ok()?;
            chat::from_config(&config.chat_template?).ok().map(|sources| sources.plain)
        }),
    }
}

fn tokenizer_facts(checkpoint: &Checkpoint, text: &Text) -> TokenizerFacts {
    let kind = match &checkpoint.source {
        Source::HuggingFace(_) => "tokenizer.json".to_owned(),
        Source::Gguf(metadata) => {
            let named = |key| metadata.opt_str(key).ok().flatten();
            let parts = [named("tokenizer.ggml.model"), named("tokenizer.ggml.pre")];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
    };
    let tokenizer = &text.tokenizer;
    TokenizerFacts {
        kind,
        tokens: tokenizer.vocabulary_size(),
        special_tokens: tokenizer.special_ids().len(),
        prompt_prefix: tokenizer.prompt_prefix().to_vec(),
    }
}

fn end_tokens(model: &Model, text: Option<&Text>) -> Vec<EndToken> {
    let ids = crate::commands::end_token_ids(model, text);
    let spelled = |id: u32| text.and_then(|text| text.tokenizer.token_text(id));
    ids.into_iter().map(|id| EndToken { id: id.0, text: spelled(id.0) }).collect()
}

/// In the order in which the first layer of each comes.
fn windows(layers: &[LayerConfig]) -> Vec<WindowFacts> {
    let mut windows: Vec<WindowFacts> = Vec::new();
    for layer in layers {
        let Mixer::Attention(attention) = &layer.mixer else { continue };
        match windows.iter_mut().find(|known| known.window == attention.window) {
            Some(known) => known.layers += 1,
            None => windows.push(WindowFacts { layers: 1, window: attention.window }),
        }
    }
    windows
}

/// Every kind of layer, in the order in which the first of each comes.
fn layers_text(layers: &[LayerConfig]) -> String {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for text in layers.iter().map(layer_text) {
        match kinds.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => kinds.push((text, 1)),
        }
    }
    match &kinds[..] {
        [(text, _)] => format!("each with {text}"),
        kinds => {
            kinds.iter().map(|(text, count)| format!("{count} with {text}")).collect::<Vec<_>>().join("; ")
        }
    }
}

fn layer_text(layer: &LayerConfig) -> String {
    let mixer = match &layer.mixer {
        Mixer::Attention(attention) => format!(
            "{} heads of {}, {} of keys and values",
            attention.heads, attention.head_dim, attention.kv_heads
        ),
        Mixer::GatedDeltaNet(delta) => format!(
            "a delta rule of {} heads of {} x {}, {} of keys",
            delta.value_heads, delta.key_dim, delta.value_dim, delta.key_heads
        ),
    };
    let feed_forward = match &layer.feed_forward {
        FeedForward::Gated(gated) => format!("a feed-forward of {}", gated.width),
        FeedForward::Experts(experts) => {
            let shared = if experts.shared.is_some() { " and a shared one" } else { "" };
            format!("{} of {} experts of {}{shared}", experts.top_k, experts.experts, experts.expert.width)
        }
    };
    format!("{mixer}, and {feed_forward}")
}

fn template_lines(template: &str) -> Vec<String> {
    let mut lines = vec![entry("chat template", &format!("{} bytes", template.len()))];
    let shorten = |line: &str| match line.char_indices().nth(TEMPLATE_COLUMNS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    };
    lines.extend(template.lines().take(TEMPLATE_LINES).map(|line| entry("", &shorten(line))));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_shown_by_its_first_lines() {
        let template = format!("{}\nb\nc\nd\n", "é".repeat(200));
        let lines = template_lines(&template);
        assert_eq!(lines.len(), 1 + TEMPLATE_LINES);
        assert!(lines[1].ends_with("é..."));
    }
}
