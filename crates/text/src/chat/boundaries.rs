//! Where the parts of a rendered chat end: its beginning with tools and system messages, and each message.
//!
//! A message ends where the rendering of all messages up to it ends, if the whole begins with that; a template that
//! prints a message differently once others follow has no end there. The beginning is what a conversation without
//! further messages renders to; or, where a template refuses that or puts the system's words into the first user
//! message, what two conversations with different user messages share. Both must be the beginning of the whole and hold
//! what the system messages say and the names of the tools, else it isn't known. So a boundary is exact or absent: the
//! text up to it is that of every conversation which begins with the same messages.
//!
//! Knows no template's format.

use super::{ChatTemplate, Content, Conversation, MAX_FUEL, Message};

/// Most renderings beside the chat's own; the earliest messages of longer chats get no boundary.
pub const MAX_BOUNDARY_RENDERINGS: usize = 32;
/// Most work of one of them: together they cost at most twice a chat's own.
const FUEL: u64 = MAX_FUEL / 16;

/// What a boundary ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Tools and leading system messages, with what the template prints before the first other message.
    Preamble,
    /// The message with this index.
    Message(usize),
}

/// Where a part of a rendered chat ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boundary {
    /// What ends there.
    pub part: Part,
    /// Byte offset in the text.
    pub byte: usize,
}

/// The boundaries of `text`, which the conversation was rendered to.
pub(super) fn find(template: &ChatTemplate, whole: &Conversation<'_>, text: &str) -> Vec<Boundary> {
    let messages = whole.messages;
    let leading = messages.iter().take_while(|message| is_system(message)).count();
    let ends = Ends { template, whole, text };
    let preamble = ends.preamble(&messages[..leading]);
    // The preamble takes three renderings at most; the last messages are those that the next chat goes on from.
    let first = messages.len().saturating_sub(MAX_BOUNDARY_RENDERINGS - 3).max(leading);
    let mut boundaries: Vec<Boundary> =
        preamble.map(|byte| Boundary { part: Part::Preamble, byte }).into_iter().collect();
    for index in first..messages.len() {
        let byte = ends.of(&messages[..=index]);
        let byte = byte.filter(|&byte| boundaries.last().is_none_or(|last| last.byte < byte));
        boundaries.extend(byte.map(|byte| Boundary { part: Part::Message(index), byte }));
    }
    boundaries
}

fn is_system(message: &Message) -> bool {
    matches!(message.role.as_str(), "system" | "developer")
}

struct Ends<'a> {
    template: &'a ChatTemplate,
    whole: &'a Conversation<'a>,
    text: &'a str,
}

impl Ends<'_> {
    /// Where the rendering of `messages` ends in the text, if the text begins with it.
    fn of(&self, messages: &[Message]) -> Option<usize> {
        let rendered = self.rendered(messages)?;
        self.text.starts_with(&rendered).then_some(rendered.len()).filter(|&byte| byte > 0)
    }

    fn preamble(&self, system: &[Message]) -> Option<usize> {
        let alone = self.of(system).filter(|&byte| self.holds_preamble(system, byte));
        alone.or_else(|| self.shared(system).filter(|&byte| self.holds_preamble(system, byte)))
    }

    /// How much of the text two conversations share that differ from their first user message on.
    fn shared(&self, system: &[Message]) -> Option<usize> {
        let with_user = |said: &str| {
            let user = self.template.adapted(&Message::new("user", said));
            self.rendered(&[system, &[user]].concat())
        };
        let (one, other) = (with_user("0")?, with_user("1")?);
        let shared = common_prefix(common_prefix(self.text, &one), &other);
        Some(shared.len()).filter(|&byte| byte > 0)
    }

    fn holds_preamble(&self, system: &[Message], byte: usize) -> bool {
        let beginning = &self.text[..byte];
        let said = system.iter().flat_map(|message| texts(&message.content));
        let name = |tool: &serde_json::Value| {
            let name = tool.pointer("/function/name").or(tool.get("name"));
            name.and_then(serde_json::Value::as_str).map(str::to_owned)
        };
        let tools = self.whole.tools.iter().filter_map(name);
        said.chain(tools).all(|text| beginning.contains(text.trim()))
    }

    fn rendered(&self, messages: &[Message]) -> Option<String> {
        let conversation = Conversation { messages, generate: false, fuel: FUEL, ..*self.whole };
        self.template.render_adapted(&conversation).ok().map(|rendered| rendered.text)
    }
}

fn texts(content: &Content) -> Vec<String> {
    match content {
        Content::Text(text) => vec![text.clone()],
        Content::Parts(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(serde_json::Value::as_str));
            texts.map(str::to_owned).collect()
        }
        Content::Null | Content::Absent => Vec::new(),
    }
}

fn common_prefix<'a>(text: &'a str, other: &str) -> &'a str {
    let differs = text.char_indices().zip(other.chars()).find(|((_, one), other)| one != other);
    let end = differs.map_or(text.len().min(other.len()), |((byte, _), _)| byte);
    &text[..end]
}
