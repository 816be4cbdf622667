//! A conversation to the text that the model was trained on, by the model's own Jinja template.
//!
//! Templates come with model files from strangers: they run with fuel, a depth limit and no access to anything but
//! their input. They are written for Python, so `dialect` gives them Python's methods and `python_json` its JSON.
//!
//! What the messages say may look like special tokens. Strings that do are marked before rendering (see `special`); the
//! marks are taken out of the result and become `Rendered`'s seams. Marked are the contents, tool calls, tools and
//! variables, keys included; a role is marked only where it spells a whole special token, since templates build tokens
//! like `<|user|>` from it. Limits of the method: a template that cuts text out of the middle of a message joins what is
//! on both sides unmarked; one that compares or measures a marked string sees the marks.
//!
//! Knows no token ids.

mod boundaries;
mod clock;
mod compiled;
mod continuation;
mod dialect;
mod input;
mod message;
mod methods;
mod python_json;
mod rewrite;
mod source;
mod weight;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::{ErrorKind, Value};
use serde_json::Map;

use compiled::Compiled;

use crate::error::TextError;
use crate::special::{self, MARK_BYTES};
use crate::tokenizer::{NamedTokens, Tokenizer};

pub use boundaries::{Boundary, MAX_BOUNDARY_RENDERINGS, Part};
pub use clock::Clock;
pub use message::{Content, Message};
pub use source::{TemplateSources, from_config, from_file};

/// Most work of one rendering. A unit is an instruction or 64 bytes of data, so this bounds memory too, to 128 MB.
pub const MAX_FUEL: u64 = 2_000_000;
/// Most work to find out which contents a template prints.
const PROBE_FUEL: u64 = MAX_FUEL / 16;
/// Longest rendered text, in bytes; a context of a million tokens has about 4 million.
pub const MAX_RENDERED_BYTES: usize = 1 << 23;
/// Most bytes that a template prints, into its own variables too: macros print what then is printed again.
pub const MAX_PRINTED_BYTES: usize = 4 * MAX_RENDERED_BYTES;
/// Deepest nesting of blocks, calls and macros while rendering.
pub const MAX_RECURSION: usize = 200;
/// Longest template, in bytes; the longest public ones have about 30,000.
pub const MAX_TEMPLATE_BYTES: usize = 1 << 20;
/// Deepest nesting of messages, tools and variables.
pub const MAX_INPUT_DEPTH: usize = 64;

/// A model's chat template, ready to render.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    tokenizer: Tokenizer,
    contents: ContentKinds,
}

/// Which kinds of message content the template prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentKinds {
    /// Strings alone: parts are joined by line breaks first.
    Strings,
    /// Lists of parts alone: a string becomes a list of one.
    Parts,
    /// Both.
    Both,
}

/// What one rendering works on.
#[derive(Clone, Copy)]
struct Conversation<'a> {
    messages: &'a [Message],
    tools: &'a [serde_json::Value],
    options: &'a RenderOptions,
    generate: bool,
    fuel: u64,
}

/// What a rendering is given beside messages and tools.
#[derive(Debug, Clone)]
pub struct RenderOptions {
    /// Whether the text ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the text ends inside the last message, for the model to go on with it; then nothing is added behind.
    pub continue_final_message: bool,
    /// Whether to find out where parts of the chat end; it takes up to `MAX_BOUNDARY_RENDERINGS` renderings more.
    pub boundaries: bool,
    /// Variables for the template, such as `enable_thinking`.
    pub variables: Map<String, serde_json::Value>,
    /// What `strftime_now` reads.
    pub clock: Clock,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self {
            add_generation_prompt: true,
            continue_final_message: false,
            boundaries: false,
            variables: Map::new(),
            clock: Clock::System,
        }
    }
}

/// A rendered chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The whole text.
    pub text: String,
    /// Where parts of the chat end, ascending, if they were asked for; what can't be told for certain is left out.
    pub boundaries: Vec<Boundary>,
    /// Byte offsets in `text` that no special token may be matched across, ascending.
    pub(crate) seams: Vec<usize>,
}

impl Rendered {
    /// The place in `text` of a place in the text with a mark at each seam.
    pub(crate) fn without_marks(&self, marked: usize) -> usize {
        // The n-th mark begins behind n others.
        let begins_before = |number: usize| self.seams[number] + number * MARK_BYTES < marked;
        let (mut low, mut high) = (0, self.seams.len());
        while low < high {
            let middle = (low + high) / 2;
            if begins_before(middle) { low = middle + 1 } else { high = middle }
        }
        marked - low * MARK_BYTES
    }
}

impl ChatTemplate {
    /// Reads a template; `tokenizer` says which tokens are special and what `bos_token` and the like stand for.
    ///
    /// # Errors
    /// `TemplateSyntax`, `TooLarge`.
    pub fn new(source: &str, tokenizer: &Tokenizer) -> Result<Self, TextError> {
        if source.len() > MAX_TEMPLATE_BYTES {
            let (found, limit) = (source.len(), MAX_TEMPLATE_BYTES);
            return Err(TextError::TooLarge { what: "the chat template's length in bytes", found, limit });
        }
        let source = rewrite::rewritten(source)?;
        Compiled::new(&source, dialect::syntax()).map_err(syntax_error)?;
        let mut template = Self { source, tokenizer: tokenizer.clone(), contents: ContentKinds::Both };
        template.contents = template.probe_contents();
        Ok(template)
    }

    /// The text of a conversation. No `tools` means that the template sees `tools` as none.
    ///
    /// # Errors
    /// `TemplateRaised` where the template refuses the conversation, `TemplateFailed`, `TemplateFuel`, `NoFreeMark`,
    /// `NothingToContinue` and `ContinuationLost`, and `TooLarge` for input nested deeper than `MAX_INPUT_DEPTH`.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[serde_json::Value],
        options: &RenderOptions,
    ) -> Result<Rendered, TextError> {
        let mut messages: Vec<Message> = messages.iter().map(|message| self.adapted(message)).collect();
        let said = options.continue_final_message.then(|| continuation::open(&mut messages)).transpose()?;
        let generate = options.add_generation_prompt && said.is_none();
        let conversation = Conversation { messages: &messages, tools, options, generate, fuel: MAX_FUEL };
        let mut rendered = self.render_adapted(&conversation)?;
        let mut ended = messages.as_slice();
        if let Some(said) = said {
            continuation::cut(&mut rendered, &said)?;
            ended = &messages[..messages.len() - 1];
        }
        if options.boundaries {
            let conversation = Conversation { messages: ended, ..conversation };
            rendered.boundaries = boundaries::find(self, &conversation, &rendered.text);
        }
        Ok(rendered)
    }

    /// The template's source, by which the formats of calls and of reasoning are told.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template's source holds this name: a variable that it doesn't mention can change nothing.
    pub fn mentions(&self, name: &str) -> bool {
        self.source.contains(name)
    }

    /// One rendering of messages whose contents the template prints.
    fn render_adapted(&self, conversation: &Conversation<'_>) -> Result<Rendered, TextError> {
        let Conversation { messages, tools, options, generate, fuel } = *conversation;
        let input = input::Input { messages, tools, variables: &options.variables };
        input.check_depth()?;
        let mark = match input.needs_marks(self.tokenizer.special_texts()) {
            true => Some(special::free_mark(input.texts().chain([self.source.as_str()]))?),
            false => None,
        };
        let guard = input::Guard { specials: self.tokenizer.special_texts(), mark };
        let context = input.context(&guard, self.named(), generate);
        let text = self.run(options.clock, mark, fuel, context)?;
        let (text, seams) = match mark {
            Some(mark) => special::remove_marks(&text, mark),
            None => (text, Vec::new()),
        };
        Ok(Rendered { text, boundaries: Vec::new(), seams })
    }

    fn run(&self, clock: Clock, mark: Option<char>, fuel: u64, context: Value) -> Result<String, TextError> {
        let compiled = Compiled::new(&self.source, dialect::syntax()).map_err(syntax_error)?;
        let printed = Arc::new(AtomicUsize::new(0));
        let environment = dialect::environment(clock, mark, fuel, printed.clone());
        let rendered = compiled.render(&environment, context);
        let too_much = |what, found, limit| TextError::TooLarge { what, found, limit };
        let printed = printed.load(Ordering::Relaxed);
        if printed > MAX_PRINTED_BYTES {
            let what = "what the chat template prints, also into its own variables, in bytes";
            return Err(too_much(what, printed, MAX_PRINTED_BYTES));
        }
        let text = rendered.map_err(render_error)?;
        if text.len() > MAX_RENDERED_BYTES {
            let what = "the length of what the chat template prints in bytes";
            return Err(too_much(what, text.len(), MAX_RENDERED_BYTES));
        }
        Ok(text)
    }

    fn named(&self) -> &NamedTokens {
        self.tokenizer.named_tokens()
    }

    /// Renders both kinds of content to see which one's text comes out.
    fn probe_contents(&self) -> ContentKinds {
        const PROBE: &str = "gannet probe";
        let prints = |content: Content| {
            let probe = [Message { content, ..Message::new("user", "") }];
            let options = &RenderOptions::default();
            let conversation =
                Conversation { messages: &probe, tools: &[], options, generate: true, fuel: PROBE_FUEL };
            let rendered = self.render_adapted(&conversation);
            rendered.is_ok_and(|chat| {
                chat.text.contains(PROBE) && !chat.text.contains("'type'") && !chat.text.contains("\"type\"")
            })
        };
        let (strings, parts) = (prints(Content::Text(PROBE.to_owned())), prints(Content::text_part(PROBE)));
        match (strings, parts) {
            (true, true) => ContentKinds::Both,
            (false, true) => ContentKinds::Parts,
            (_, false) => ContentKinds::Strings,
        }
    }

    /// The message with its content in a kind that the template prints.
    fn adapted(&self, message: &Message) -> Message {
        let content = match self.contents {
            ContentKinds::Both => message.content.clone(),
            ContentKinds::Strings => message.content.clone().into_text(),
            ContentKinds::Parts => message.content.clone().into_parts(),
        };
        Message { content, ..message.clone() }
    }
}

fn syntax_error(error: minijinja::Error) -> TextError {
    TextError::TemplateSyntax { line: error.line().unwrap_or(0), reason: reason(&error) }
}

fn render_error(error: minijinja::Error) -> TextError {
    if let Some(message) = dialect::raised_message(&error) {
        return TextError::TemplateRaised(message);
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return TextError::TemplateFuel { limit: MAX_FUEL };
    }
    TextError::TemplateFailed { line: error.line().unwrap_or(0), reason: reason(&error) }
}

fn reason(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}
