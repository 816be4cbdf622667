//! Which format a model writes its calls and its reasoning in, by what its chat template shows or by name.

use super::{deepseek, harmony, mistral, python, tagged};

/// How a model writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallFormat {
    /// `<tool_call>{"name": ..., "arguments": ...}</tool_call>`: Hermes, Qwen and many more.
    Hermes,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`
    QwenCoder,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`
    Glm,
    /// `{"name": ..., "parameters": ...}` as the whole answer, perhaps behind `<|python_tag|>`; several with `;`.
    Llama3Json,
    /// `[NAME(KEY=VALUE)]` as the whole answer.
    Pythonic,
    /// `[TOOL_CALLS][{...}]`, or `[TOOL_CALLS]NAME[ARGS]{...}` of the newer ones.
    Mistral,
    /// `<｜tool▁calls▁begin｜>` and so on, of V3, R1 and V3.1.
    DeepSeek,
    /// A fence of `tool_code` with Python calls.
    GemmaToolCode,
    /// Channels; reasoning too.
    Harmony,
    /// A JSON object, or a list of them, as the whole answer.
    GenericJson,
}

/// How a model writes its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReasoningFormat {
    /// `<think>...</think>`
    Think,
    /// `[THINK]...[/THINK]`
    ThinkBrackets,
    /// `<seed:think>...</seed:think>`
    SeedThink,
    /// `<|START_THINKING|>...<|END_THINKING|>`
    StartThinking,
}

/// What stands in the template of each format. The first that fits is it.
const SHOWN: [(&str, CallFormat); 11] = [
    ("<|channel|>", CallFormat::Harmony),
    ("<｜tool▁calls▁begin｜>", CallFormat::DeepSeek),
    ("[TOOL_CALLS]", CallFormat::Mistral),
    ("<function=", CallFormat::QwenCoder),
    ("<arg_key>", CallFormat::Glm),
    ("<tool_call>", CallFormat::Hermes),
    ("[func_name1(", CallFormat::Pythonic),
    ("<|tool_call_start|>[", CallFormat::Pythonic),
    ("<|python_tag|>", CallFormat::Llama3Json),
    ("ipython", CallFormat::Llama3Json),
    ("tool_code", CallFormat::GemmaToolCode),
];

impl CallFormat {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Hermes,
        Self::QwenCoder,
        Self::Glm,
        Self::Llama3Json,
        Self::Pythonic,
        Self::Mistral,
        Self::DeepSeek,
        Self::GemmaToolCode,
        Self::Harmony,
        Self::GenericJson,
    ];

    /// The format that a chat template's source shows; plain JSON where it shows none that is known.
    pub fn of_template(source: &str) -> Self {
        SHOWN.iter().find(|(mark, _)| source.contains(mark)).map_or(Self::GenericJson, |(_, format)| *format)
    }

    /// The format of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// By which people choose it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hermes => "hermes",
            Self::QwenCoder => "qwen-coder",
            Self::Glm => "glm",
            Self::Llama3Json => "llama3-json",
            Self::Pythonic => "pythonic",
            Self::Mistral => "mistral",
            Self::DeepSeek => "deepseek",
            Self::GemmaToolCode => "gemma-tool-code",
            Self::Harmony => "harmony",
            Self::GenericJson => "json",
        }
    }

    /// How many letters and digits the name of a call has, where templates of this format take no other.
    pub fn call_id_letters(self) -> Option<usize> {
        match self {
            Self::Mistral => Some(9),
            Self::Hermes
            | Self::QwenCoder
            | Self::Glm
            | Self::Llama3Json
            | Self::Pythonic
            | Self::DeepSeek
            | Self::GemmaToolCode
            | Self::Harmony
            | Self::GenericJson => None,
        }
    }

    /// Marks that may be control tokens of the model, which are otherwise no text.
    pub fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>", "</tool_call>"],
            Self::QwenCoder | Self::Glm => {
                &["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
            }
            Self::Llama3Json => &[PYTHON_TAG],
            Self::Pythonic => &[PYTHON_TAG, LIST_START, LIST_END],
            Self::Mistral => &mistral::MARKS,
            Self::DeepSeek => &deepseek::MARKS,
            Self::Harmony => &harmony::MARKS,
            Self::GemmaToolCode | Self::GenericJson => &[],
        }
    }

    /// Marks in the content behind which calls stand.
    pub(super) fn openers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes | Self::Glm => &[tagged::OPENER],
            Self::QwenCoder => &[tagged::OPENER, tagged::FUNCTION],
            Self::Llama3Json => &[PYTHON_TAG],
            Self::Pythonic => &[PYTHON_TAG, LIST_START, LIST_END],
            Self::Mistral => &[mistral::OPENER],
            Self::DeepSeek => &[deepseek::OPENER],
            Self::GemmaToolCode => &[python::FENCE],
            Self::Harmony | Self::GenericJson => &[],
        }
    }

    /// Whether an answer that begins with this letter may be calls as a whole.
    pub fn begins_with(self, letter: char) -> bool {
        match self {
            Self::Llama3Json | Self::GenericJson => letter == '{' || letter == '[',
            Self::Pythonic => letter == '[',
            Self::Hermes
            | Self::QwenCoder
            | Self::Glm
            | Self::Mistral
            | Self::DeepSeek
            | Self::GemmaToolCode
            | Self::Harmony => false,
        }
    }
}

pub(super) const PYTHON_TAG: &str = "<|python_tag|>";
pub(super) const LIST_START: &str = "<|tool_call_start|>";
pub(super) const LIST_END: &str = "<|tool_call_end|>";

impl ReasoningFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Think, Self::ThinkBrackets, Self::SeedThink, Self::StartThinking];

    /// The format that a chat template's source shows. (Harmony's reasoning is part of its call format.)
    pub fn of_template(source: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.marks().iter().any(|mark| source.contains(mark)))
    }

    /// The format of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// By which people choose it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Think => "think",
            Self::ThinkBrackets => "think-brackets",
            Self::SeedThink => "seed-think",
            Self::StartThinking => "start-thinking",
        }
    }

    /// What opens and what closes it.
    pub fn marks(self) -> [&'static str; 2] {
        match self {
            Self::Think => ["<think>", "</think>"],
            Self::ThinkBrackets => ["[THINK]", "[/THINK]"],
            Self::SeedThink => ["<seed:think>", "</seed:think>"],
            Self::StartThinking => ["<|START_THINKING|>", "<|END_THINKING|>"],
        }
    }

    /// Whether a rendered prompt has opened the reasoning that the answer begins inside of.
    pub fn is_opened_by(self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.marks()[0])
    }
}
