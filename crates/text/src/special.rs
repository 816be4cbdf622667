//! Keeping special tokens out of text that isn't allowed to speak them.
//!
//! A special token written by a user must reach the model as plain text, else a message can end its own turn and begin
//! another's. So such text gets *seams*: byte offsets at which no special token may be matched across. A text's own
//! seams lie behind the first character of every occurrence of a special token, and at its very end if it ends with the
//! beginning of one, so that nothing that follows can complete it.
//!
//! While a template or the tokenizer library works on a string, a seam is a real character in it: a Unicode
//! noncharacter (U+FDD0 ...) that occurs nowhere else in the strings at hand. It travels through `trim`, slices,
//! concatenation and `tojson` like any character. Text without a lookalike gets no mark at all, so ordinary work is
//! untouched. A special token of a single character can't be cut and stays special everywhere.
//!
//! Knows no template and no message.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::error::TextError;

/// Noncharacters are never assigned, so no honest text needs them (Unicode 23.7).
const MARKS: std::ops::RangeInclusive<char> = '\u{FDD0}'..='\u{FDEF}';

/// Length of each mark, in bytes.
pub(crate) const MARK_BYTES: usize = 3;

/// The texts of all special tokens, ready to be looked for.
#[derive(Debug, Default)]
pub(crate) struct SpecialTexts {
    texts: BTreeSet<Box<[u8]>>,
    lengths: BTreeSet<usize>,
    first_bytes: BTreeSet<u8>,
}

impl SpecialTexts {
    pub(crate) fn new<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let texts: BTreeSet<Box<[u8]>> = texts
            .into_iter()
            .filter(|text| text.chars().nth(1).is_some())
            .map(|text| text.as_bytes().into())
            .collect();
        let lengths = texts.iter().map(|text| text.len()).collect();
        let first_bytes = texts.iter().map(|text| text[0]).collect();
        Self { texts, lengths, first_bytes }
    }

    /// Where special tokens in `text` must be cut: one seam an occurrence, overlapping ones included.
    pub(crate) fn seams(&self, text: &str) -> Vec<usize> {
        let candidates = text
            .char_indices()
            .filter(|(_, letter)| self.first_bytes.contains(&letter.encode_utf8(&mut [0; 4]).as_bytes()[0]));
        candidates
            .filter(|(start, _)| self.begins_with_special(&text.as_bytes()[*start..]))
            .map(|(start, letter)| start + letter.len_utf8())
            .collect()
    }

    /// Whether `text` ends with the beginning of a special token.
    pub(crate) fn ends_open(&self, text: &str) -> bool {
        let longest = self.lengths.last().copied().unwrap_or(0);
        let bytes = text.as_bytes();
        let tails = (bytes.len().saturating_sub(longest)..bytes.len()).map(|start| &bytes[start..]);
        tails.filter(|tail| self.first_bytes.contains(&tail[0])).any(|tail: &[u8]| {
            let following = self.texts.range::<[u8], _>((Bound::Included(tail), Bound::Unbounded)).next();
            following.is_some_and(|text| text.len() > tail.len() && text.starts_with(tail))
        })
    }

    fn begins_with_special(&self, bytes: &[u8]) -> bool {
        let fitting = self.lengths.iter().take_while(|length| **length <= bytes.len());
        fitting.into_iter().any(|&length| self.texts.contains(&bytes[..length]))
    }
}

/// Drops the seams of what is cut off a text behind `end`.
pub(crate) fn truncate(seams: &mut Vec<usize>, end: usize) {
    seams.truncate(seams.partition_point(|&seam| seam <= end));
}

/// A character to mark seams with, which occurs in none of `texts`.
pub(crate) fn free_mark<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<char, TextError> {
    let mut used = BTreeSet::new();
    for text in texts {
        used.extend(text.chars().filter(|letter| MARKS.contains(letter)));
    }
    MARKS
        .into_iter()
        .find(|mark| !used.contains(mark))
        .ok_or(TextError::NoFreeMark { candidates: MARKS.count() })
}

/// `text` with `mark` at each seam. Seams are ascending character boundaries.
pub(crate) fn insert_marks(text: &str, seams: &[usize], mark: char) -> String {
    let mut marked = String::with_capacity(text.len() + seams.len() * mark.len_utf8());
    let mut start = 0;
    for &seam in seams {
        marked.push_str(&text[start..seam]);
        marked.push(mark);
        start = seam;
    }
    marked.push_str(&text[start..]);
    marked
}

/// The inverse of `insert_marks`: the text without marks, and where they were.
pub(crate) fn remove_marks(marked: &str, mark: char) -> (String, Vec<usize>) {
    let mut text = String::with_capacity(marked.len());
    let mut seams = Vec::new();
    for (index, part) in marked.split(mark).enumerate() {
        if index > 0 {
            seams.push(text.len());
        }
        text.push_str(part);
    }
    (text, seams)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> SpecialTexts {
        SpecialTexts::new(["<|im_end|>", "<|im_start|>", "<s>", "<<s>", "é|>", "\n"])
    }

    #[test]
    fn every_occurrence_is_cut_behind_its_first_character() {
        let check = |text: &str, seams: &[usize]| assert_eq!(specials().seams(text), seams, "{text:?}");
        check("plain < text |>", &[]);
        check("a<|im_end|>b<s>", &[2, 13]);
        check("<<s>", &[1, 2]);
        check("xé|>", &[3]);
        check("<|im_end|", &[]);
        check("\n", &[]);
    }

    #[test]
    fn a_beginning_at_the_end_is_open() {
        let check = |text: &str, open: bool| assert_eq!(specials().ends_open(text), open, "{text:?}");
        check("", false);
        check("a", false);
        check("a <", true);
        check("a <|im_", true);
        check("<|im_end|", true);
        check("<|im_end|>", false);
        check("<|im_x", false);
    }

    #[test]
    fn marks_come_out_as_they_went_in() {
        let marked = insert_marks("a<s>b", &[2, 5], '\u{FDD0}');
        assert_eq!(marked, "a<\u{FDD0}s>b\u{FDD0}");
        assert_eq!(remove_marks(&marked, '\u{FDD0}'), ("a<s>b".to_owned(), vec![2, 5]));
    }

    #[test]
    fn a_mark_is_a_character_that_nobody_uses() {
        assert_eq!(free_mark(["a", "\u{FDD0}\u{FDD2}"]).unwrap(), '\u{FDD1}');
        let all: String = MARKS.collect();
        assert!(matches!(free_mark([all.as_str()]), Err(TextError::NoFreeMark { candidates: 32 })));
    }
}
