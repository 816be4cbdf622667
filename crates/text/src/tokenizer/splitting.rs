//! How a text is split before the model sees it: the steps of a pre-tokenizer, those by expressions run here.
//!
//! The expressions of tokenizers look ahead, so an engine that backtracks runs them, within limits: a million steps back
//! and a million places to come back to. Where one is reached, the library's own steps take the rest of the text as one
//! word and say nothing; the ids are then wrong. Here it is an error. The expressions and what they cut are the library's.
//!
//! Knows no model and no source format.

use fancy_regex::Regex;
use tokenizers::pattern::Invert;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{
    NormalizedString, PreTokenizedString, PreTokenizer, PreTokenizerWrapper, SplitDelimiterBehavior,
};

use crate::error::{TextError, first_characters};

/// GPT-2's words, which `ByteLevel` splits by unless it is told not to.
const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The steps of a pre-tokenizer, in order.
#[derive(Debug)]
pub(super) struct Splitting {
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    /// Cut at what an expression finds, or between it.
    Cut { expression: Regex, behavior: SplitDelimiterBehavior, invert: bool },
    /// Put a space before a piece that has none.
    SpaceBefore,
    /// A step of the library that needs no expression, or one that the library runs without limits.
    Library(PreTokenizerWrapper),
}

impl Splitting {
    /// # Errors
    /// `Library` for an expression that is none.
    pub(super) fn new(pre_tokenizer: PreTokenizerWrapper) -> Result<Self, TextError> {
        let parts = if let PreTokenizerWrapper::Sequence(sequence) = pre_tokenizer {
            sequence.into_iter().collect()
        } else {
            vec![pre_tokenizer]
        };
        let mut steps = Vec::new();
        for part in parts {
            if let PreTokenizerWrapper::Split(split) = &part {
                steps.push(cut(split)?);
            } else if let PreTokenizerWrapper::ByteLevel(bytes) = part {
                steps.extend(byte_level(bytes)?);
            } else {
                steps.push(Step::Library(part));
            }
        }
        Ok(Self { steps })
    }

    /// Splits every piece of `text` that isn't a token yet.
    pub(super) fn run(&self, text: &mut PreTokenizedString) -> tokenizers::Result<()> {
        for step in &self.steps {
            match step {
                Step::Cut { expression, behavior, invert } => {
                    text.split(|_, piece| cut_piece(piece, expression, *behavior, *invert))?;
                }
                Step::SpaceBefore => text.normalize(|piece| {
                    if !piece.get().starts_with(' ') {
                        piece.prepend(" ");
                    }
                    Ok(())
                })?,
                Step::Library(part) => part.pre_tokenize(text)?,
            }
        }
        Ok(())
    }
}

fn cut(split: &Split) -> Result<Step, TextError> {
    let pattern = match &split.pattern {
        SplitPattern::String(text) => fancy_regex::escape(text).into_owned(),
        SplitPattern::Regex(pattern) => pattern.clone(),
    };
    Ok(Step::Cut { expression: compiled(&pattern)?, behavior: split.behavior, invert: split.invert })
}

fn byte_level(mut bytes: ByteLevel) -> Result<Vec<Step>, TextError> {
    let space = bytes.add_prefix_space.then_some(Step::SpaceBefore);
    let behavior = SplitDelimiterBehavior::Isolated;
    let words = match bytes.use_regex {
        true => Some(Step::Cut { expression: compiled(WORDS)?, behavior, invert: false }),
        false => None,
    };
    bytes.add_prefix_space = false;
    bytes.use_regex = false;
    let bytes = Step::Library(PreTokenizerWrapper::ByteLevel(bytes));
    Ok(space.into_iter().chain(words).chain([bytes]).collect())
}

fn compiled(pattern: &str) -> Result<Regex, TextError> {
    Regex::new(pattern)
        .map_err(|error| TextError::Library { stage: "configuration", reason: error.to_string() })
}

fn cut_piece(
    piece: NormalizedString,
    expression: &Regex,
    behavior: SplitDelimiterBehavior,
    invert: bool,
) -> tokenizers::Result<Vec<NormalizedString>> {
    let bytes = piece.get().len();
    let parts =
        if invert { piece.split(Invert(expression), behavior) } else { piece.split(expression, behavior) };
    parts.map_err(|error| {
        let (expression, reason) = (first_characters(expression.as_str()), error.to_string());
        TextError::SplitTooHard { bytes, expression, reason }.into()
    })
}
