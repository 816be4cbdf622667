//! How byte-level vocabularies split a text before merging, by the name in `tokenizer.ggml.pre`.
//!
//! The rules are those of the models' own tokenizer.json files, or of the Python code beside their tiktoken files; where
//! a name stands for several models, of the one that the name comes from. `default` is what files from before the key
//! had a meaning say; its rule is the one that llama.cpp gives them.
//!
//! Knows no vocabulary.

use serde_json::{Value, json};

use crate::error::TextError;

/// How a text is split before merging, and what goes with it.
pub(crate) struct Split {
    pub(crate) pre_tokenizer: Value,
    pub(crate) normalizer: Value,
    /// Whether a whole split that is in the vocabulary is one token, whatever its merges.
    pub(crate) ignore_merges: bool,
    /// Whether a prompt begins with the beginning of text where the file doesn't say.
    pub(crate) add_bos: bool,
}

const SUPPORTED: &str = "default, gpt-2, phi-2, mpt, olmo, starcoder, refact, smollm, command-r, falcon, llama-bpe, \
                         llama3, llama-v3, falcon3, falcon-h1, pixtral, midm-2.0, lfm2, dbrx, smaug-bpe, glm4, \
                         chatglm-bpe, qwen2, deepseek-r1-qwen, kormo, megrez, hunyuan, qwen35, tekken, gpt-4o, \
                         llama4, kanana2, minimax-m2, kimi-k2, deepseek-llm, deepseek-coder, deepseek-v3, \
                         hunyuan-dense, joyai-llm";

/// The split of this name.
pub(crate) fn named(pre: Option<&str>) -> Result<Split, TextError> {
    let split = match pre.unwrap_or("nothing") {
        "default" => plain(expressions(&DEFAULT)),
        "gpt-2" | "phi-2" => plain(bytes_of_words()),
        "mpt" | "olmo" => composed(plain(bytes_of_words())),
        "starcoder" | "refact" | "smollm" => plain(single_digits()),
        "command-r" => composed(plain(single_digits())),
        "falcon" => plain(falcon()),
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
            Split { ignore_merges: true, add_bos: true, ..plain(expressions(&[&words(r"\p{N}{1,3}")])) }
        }
        "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => plain(expressions(&[&words(r"\p{N}{1,3}")])),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "megrez" | "hunyuan" => {
            composed(plain(expressions(&[&words(r"\p{N}")])))
        }
        "qwen35" => composed(plain(expressions(&[WORDS_WITH_MARKS]))),
        "tekken" => {
            let words = words_by_case("", "", r"\p{N}", "/");
            Split { ignore_merges: true, add_bos: true, ..plain(expressions(&[&words])) }
        }
        "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => {
            plain(expressions(&[&words_by_case("", CONTRACTIONS, r"\p{N}{1,3}", "/")]))
        }
        "kimi-k2" => {
            let words = words_by_case(r"&&[^\p{Han}]", CONTRACTIONS, r"\p{N}{1,3}", "");
            Split { ignore_merges: true, ..plain(expressions(&[&format!(r"[\p{{Han}}]+|{words}")])) }
        }
        "deepseek-llm" => plain(deepseek_llm()),
        "deepseek-coder" => plain(deepseek_coder()),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => plain(expressions(&DEEPSEEK_V3)),
        other => {
            let (part, found) = ("tokenizer.ggml.pre", other.to_owned());
            return Err(TextError::UnsupportedKind { part, found, supported: SUPPORTED });
        }
    };
    Ok(split)
}

fn plain(pre_tokenizer: Value) -> Split {
    Split { pre_tokenizer, normalizer: Value::Null, ignore_merges: false, add_bos: false }
}

/// The split behind canonical composition.
fn composed(split: Split) -> Split {
    Split { normalizer: json!({"type": "NFC"}), ..split }
}

/// GPT-2's own words, each then written in the byte-level alphabet.
fn bytes_of_words() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

fn single_digits() -> Value {
    sequence(vec![json!({"type": "Digits", "individual_digits": true}), bytes_of_words()])
}

fn sequence(steps: Vec<Value>) -> Value {
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn expression(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn bytes() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false})
}

/// Splits by each expression in turn, then writes the bytes.
fn expressions(patterns: &[&str]) -> Value {
    sequence(patterns.iter().map(|pattern| expression(pattern)).chain([bytes()]).collect())
}

const CONTRACTIONS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";

/// The words of GPT-4's family: contractions in any case, one leading mark a word, digits in groups of `digits`.
fn words(digits: &str) -> String {
    format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// The same with combining marks as parts of words, and single digits.
const WORDS_WITH_MARKS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The words of GPT-4o's family: a word ends where capitals begin again. `but` narrows the letters, `suffix` may follow
/// a word, `ends` may follow punctuation as line breaks do.
fn words_by_case(but: &str, suffix: &str, digits: &str, ends: &str) -> String {
    let upper = format!(r"[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]");
    let lower = format!(r"[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}{but}]");
    let mark = r"[^\r\n\p{L}\p{N}]?";
    format!(
        r"{mark}{upper}*{lower}+{suffix}|{mark}{upper}+{lower}*{suffix}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n{ends}]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
];

const DEEPSEEK_V3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// Falcon cuts digits after writing bytes, so the bytes that look like `²`, `³`, `¹` or fractions count as digits, too.
fn falcon() -> Value {
    sequence(vec![
        json!({"type": "Punctuation", "behavior": "Contiguous"}),
        bytes_of_words(),
        json!({"type": "Digits", "individual_digits": false}),
        expression("[0-9][0-9][0-9]"),
    ])
}

fn deepseek_coder() -> Value {
    let patterns = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CHINESE_AND_KOREAN];
    let steps = patterns.iter().map(|pattern| expression(pattern));
    sequence(steps.chain([json!({"type": "Digits", "individual_digits": true}), bytes()]).collect())
}

fn deepseek_llm() -> Value {
    let letters = format!(r"\s?[{}]+", CASED_LETTERS.concat());
    let marks = r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+";
    let patterns = [r"[\r\n]", &letters, marks, r"\s+$", CHINESE_AND_KOREAN];
    let steps = patterns.iter().map(|pattern| expression(pattern));
    sequence(steps.chain([json!({"type": "Digits", "individual_digits": true}), bytes()]).collect())
}

const CHINESE_AND_KOREAN: &str = r"[一-龥\x{800}-一가-\x{D7FF}]+";

/// The letters that have a case, as Unicode 11 knew them.
const CASED_LETTERS: [&str; 14] = [
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}",
    r"\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}",
    r"\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}",
    r"\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}",
    r"\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}",
    r"\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}",
    r"\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}",
    r"\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}",
    r"\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}",
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}",
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}",
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}",
    r"\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}",
];

#[cfg(test)]
mod tests {
    use super::{SUPPORTED, named};

    #[test]
    fn every_listed_name_has_a_split_that_the_library_takes() {
        for name in SUPPORTED.split(", ") {
            let split = named(Some(name)).unwrap();
            let taken: Result<tokenizers::PreTokenizerWrapper, _> =
                serde_json::from_value(split.pre_tokenizer);
            assert!(taken.is_ok(), "{name}: {taken:?}");
        }
    }
}
