//! What the tokenizer of each family has besides its pieces: special tokens at their places, how a text is split, the
//! chat template.
//!
//! Source: tokenizer.json, tokenizer_config.json and generation_config.json of the models. The templates say the same
//! as theirs for a plain conversation.

/// A tokenizer without its pieces.
#[derive(Debug)]
pub(super) struct Tokenizer {
    /// The value of `tokenizer.ggml.pre`.
    pub pre: &'static str,
    /// The expression that splits a text into words.
    pub words: &'static str,
    /// Whether a text is composed (NFC) before.
    pub composes: bool,
    /// Whether a word that is in the vocabulary is one token, whatever its merges.
    pub ignores_merges: bool,
    /// Ascending.
    pub special: &'static [Special],
    pub bos: u32,
    /// Ends a turn.
    pub eos: u32,
    pub pad: u32,
    /// Whether a prompt begins with `bos`.
    pub adds_bos: bool,
    pub chat_template: &'static str,
}

/// A token that no merge makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Special {
    pub id: u32,
    pub text: &'static str,
    /// Whether it is markup, and not part of a text.
    pub control: bool,
}

const fn control(id: u32, text: &'static str) -> Special {
    Special { id, text, control: true }
}

const fn text(id: u32, text: &'static str) -> Special {
    Special { id, text, control: false }
}

const CHATML: &str = "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + \
                      '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}\
                      {{- '<|im_start|>assistant\\n' }}{%- endif %}";

pub(super) const QWEN2: Tokenizer = Tokenizer {
    pre: "qwen2",
    words: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    composes: true,
    ignores_merges: false,
    special: &[
        control(151643, "<|endoftext|>"),
        control(151644, "<|im_start|>"),
        control(151645, "<|im_end|>"),
        text(151657, "<tool_call>"),
        text(151658, "</tool_call>"),
    ],
    bos: 151643,
    eos: 151645,
    pad: 151643,
    adds_bos: false,
    chat_template: CHATML,
};

pub(super) const QWEN3: Tokenizer = Tokenizer {
    special: &[
        control(151643, "<|endoftext|>"),
        control(151644, "<|im_start|>"),
        control(151645, "<|im_end|>"),
        text(151657, "<tool_call>"),
        text(151658, "</tool_call>"),
        text(151665, "<tool_response>"),
        text(151666, "</tool_response>"),
        text(151667, "<think>"),
        text(151668, "</think>"),
    ],
    ..QWEN2
};

pub(super) const QWEN35: Tokenizer = Tokenizer {
    pre: "qwen35",
    words: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    special: &[
        control(248044, "<|endoftext|>"),
        control(248045, "<|im_start|>"),
        control(248046, "<|im_end|>"),
        control(248053, "<|vision_start|>"),
        control(248054, "<|vision_end|>"),
        control(248056, "<|image_pad|>"),
        control(248057, "<|video_pad|>"),
        text(248058, "<tool_call>"),
        text(248059, "</tool_call>"),
        text(248068, "<think>"),
        text(248069, "</think>"),
    ],
    bos: 248044,
    eos: 248046,
    pad: 248044,
    ..QWEN2
};

pub(super) const DEEPSEEK: Tokenizer = Tokenizer {
    pre: "deepseek-r1-qwen",
    special: &[
        control(151643, "<｜end▁of▁sentence｜>"),
        control(151644, "<｜User｜>"),
        control(151645, "<｜Assistant｜>"),
        control(151646, "<｜begin▁of▁sentence｜>"),
        text(151648, "<think>"),
        text(151649, "</think>"),
    ],
    bos: 151646,
    eos: 151643,
    pad: 151643,
    adds_bos: true,
    chat_template: "{{- bos_token }}{%- for message in messages %}{%- if message.role == 'user' %}\
                    {{- '<｜User｜>' + message.content }}{%- elif message.role == 'assistant' %}\
                    {{- '<｜Assistant｜>' + message.content + '<｜end▁of▁sentence｜>' }}{%- else %}\
                    {{- message.content }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}\
                    {{- '<｜Assistant｜><think>\\n' }}{%- endif %}",
    ..QWEN2
};

pub(super) const LLAMA3: Tokenizer = Tokenizer {
    pre: "llama-bpe",
    words: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    composes: false,
    ignores_merges: true,
    special: &[
        control(128000, "<|begin_of_text|>"),
        control(128001, "<|end_of_text|>"),
        control(128004, "<|finetune_right_pad_id|>"),
        control(128006, "<|start_header_id|>"),
        control(128007, "<|end_header_id|>"),
        control(128008, "<|eom_id|>"),
        control(128009, "<|eot_id|>"),
        control(128010, "<|python_tag|>"),
    ],
    bos: 128000,
    eos: 128009,
    pad: 128004,
    adds_bos: true,
    chat_template: "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message.role + \
                    '<|end_header_id|>\\n\\n' + message.content + '<|eot_id|>' }}{%- endfor %}\
                    {%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\
                    {%- endif %}",
};

impl Tokenizer {
    /// The special token at this place.
    pub(super) fn special(&self, id: usize) -> Option<&Special> {
        let id = u32::try_from(id).ok()?;
        self.special.binary_search_by_key(&id, |special| special.id).ok().map(|place| &self.special[place])
    }
}
