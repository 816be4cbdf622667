//! Every limit of the server in one place: what a client may send, how long it may take, how much may wait.
//!
//! One table says of each limit what it bounds, its flag, the value that stands where nobody chose, and what may be
//! chosen; `gannet serve` makes its flags of it, and a test holds `docs/server.md` to it.
//!
//! Knows no route.

use gannet_grammar::GrammarLimits;
use gannet_text::stop::{MAX_STOP_BYTES, MAX_STOPS};
use std::ops::RangeInclusive;
use std::time::Duration;

/// A limit as people see it.
pub struct Limit {
    /// Its flag, without the dashes.
    pub flag: &'static str,
    /// What it bounds, and in which unit.
    pub about: &'static str,
    /// What stands for its value in the flag's help.
    pub unit: &'static str,
    /// The value that stands where nobody chose.
    pub default: fn() -> String,
    /// Takes a value; the error says what was expected.
    pub set: fn(&mut Limits, &str) -> Result<(), String>,
}

/// A kind of value that limits have.
trait Value: Sized {
    /// What stands for it in a flag's help.
    const UNIT: &'static str;

    fn parse(text: &str, range: RangeInclusive<u64>) -> Result<Self, String>;

    fn show(&self) -> String;
}

/// Makes the limits, and the table of them, of one list.
macro_rules! limits {
    ($($(#[doc = $about:literal])+ $field:ident: $kind:ty = $default:expr, $flag:literal, $range:expr;)+) => {
        /// The limits, by name.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Limits {
            $($(#[doc = $about])+ pub $field: $kind,)+
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Limits {
            /// All of them, in the order in which people are shown them.
            pub const ALL: &[Limit] = &[$(Limit {
                flag: $flag,
                about: concat!($($about),+),
                unit: <$kind as Value>::UNIT,
                default: || Limits::default().$field.show(),
                set: |limits, text| {
                    limits.$field = <$kind as Value>::parse(text, $range)?;
                    Ok(())
                },
            },)+];
        }
    };
}

/// The most that any count may be set to.
const COUNT: u64 = 1 << 20;
/// The most seconds that anything may be set to take.
const SECONDS: u64 = 1_000_000;
/// The most bytes that anything may be set to.
const BYTES: u64 = 1 << 32;
/// Characters of a stop string, each of which may be four bytes.
const STOP_LETTERS: usize = MAX_STOP_BYTES / 4;
const GRAMMAR: GrammarLimits = GrammarLimits::DEFAULT;

limits! {
    /// Connections that are open at once; further ones wait to be accepted
    connections: usize = 4096, "max-connections", 1..=COUNT;
    /// Seconds for a request's head to arrive, and for an idle connection
    header_time: Duration = Duration::from_secs(10), "header-timeout", 0..=SECONDS;
    /// Bytes of a request's head
    header_bytes: usize = 64 << 10, "max-header-bytes", 8192..=1 << 24;
    /// Header lines of a request
    header_lines: usize = 100, "max-header-lines", 16..=1000;
    /// Seconds for a request's body to arrive
    body_time: Duration = Duration::from_secs(30), "body-timeout", 0..=SECONDS;
    /// Bytes of a request's body
    body_bytes: usize = 32 << 20, "max-body-bytes", 1..=BYTES;
    /// Bytes of a body over its limit that are read and thrown away, so that the client hears why
    discarded_bytes: usize = 1 << 30, "max-discarded-bytes", 0..=1 << 40;
    /// Seconds for throwing them away
    discard_time: Duration = Duration::from_secs(5), "discard-timeout", 0..=SECONDS;
    /// Answers that wait for a sequence; more are refused with 429
    waiting: usize = 256, "max-waiting", 1..=COUNT;
    /// Seconds for a request, from its arrival to its end
    request_time: Duration = Duration::from_secs(600), "request-timeout", 0..=SECONDS;
    /// Requests of one key at once, or of all without keys
    concurrent_per_key: usize = 1024, "max-concurrent-per-key", 1..=COUNT;
    /// Requests of one key a minute
    requests_per_minute: Option<u32> = None, "requests-per-minute", 1..=1 << 30;
    /// Seconds of silence in a stream after which a comment is sent
    keep_alive: Duration = Duration::from_secs(15), "keep-alive", 0..=SECONDS;
    /// Bytes of a stream that a slow reader may leave
    unsent_bytes: usize = 8 << 20, "max-unsent-bytes", 1 << 16..=BYTES;
    /// Seconds for running requests to end when the server stops
    drain_time: Duration = Duration::from_secs(30), "drain-timeout", 0..=SECONDS;
    /// Seconds without a step after which a busy engine counts as stuck
    stall_time: Duration = Duration::from_secs(120), "stall-timeout", 0..=SECONDS;
    /// Prompts that are rendered, encoded and given a grammar at once
    encoders: usize = 4, "max-encoders", 1..=1024;
    /// Responses that are kept
    stored_responses: usize = 1000, "max-stored-responses", 1..=COUNT;
    /// Bytes of kept responses with their conversations
    stored_bytes: usize = 64 << 20, "max-stored-bytes", 1..=1 << 40;
    /// Nesting of lists and objects in a body
    json_depth: usize = 64, "max-json-depth", 4..=120;
    /// Messages of a conversation
    messages: usize = 8192, "max-messages", 1..=COUNT;
    /// Parts of one message
    content_parts: usize = 1024, "max-content-parts", 1..=COUNT;
    /// Tool calls of one message
    tool_calls: usize = 128, "max-tool-calls", 1..=COUNT;
    /// Tools of a request
    tools: usize = GRAMMAR.tools, "max-tools", 1..=4096;
    /// Characters of the name of a tool or a schema
    name_letters: usize = 64, "max-name-letters", 1..=4096;
    /// Prompts of a completion request, inputs of vectors
    prompts: usize = 256, "max-prompts", 1..=COUNT;
    /// Answers to one prompt (n)
    choices: u32 = 128, "max-choices", 1..=COUNT;
    /// Log-probabilities beside each token
    logprobs: u32 = 20, "max-logprobs", 0..=gannet_engine::LOGPROBS_MAX as u64;
    /// Entries of logit_bias
    biases: usize = 4096, "max-logit-biases", 1..=COUNT;
    /// Stop strings of a request
    stops: usize = 16, "max-stops", 1..=MAX_STOPS as u64;
    /// Characters of a stop string
    stop_letters: usize = STOP_LETTERS, "max-stop-letters", 1..=STOP_LETTERS as u64;
    /// Ids of stop_token_ids and allowed_token_ids
    token_ids: usize = 1024, "max-token-ids", 1..=COUNT;
    /// Variables for the chat template
    template_variables: usize = 64, "max-template-variables", 1..=COUNT;
    /// Texts of guided_choice
    choice_texts: usize = 1024, "max-choice-texts", 1..=COUNT;
    /// Bytes of a schema's or a grammar's text
    grammar_bytes: usize = GRAMMAR.grammar_bytes, "max-grammar-bytes", 1..=BYTES;
    /// Nesting of a schema
    schema_depth: usize = GRAMMAR.schema_depth, "max-schema-depth", 1..=120;
    /// Values of a schema, the literals of enums included
    schema_nodes: usize = GRAMMAR.schema_nodes, "max-schema-nodes", 1..=1 << 24;
    /// Bytes of a regular expression
    regex_bytes: usize = GRAMMAR.regex_bytes, "max-regex-bytes", 1..=1 << 20;
    /// Open brackets of a regular expression or a grammar
    brackets: usize = GRAMMAR.brackets, "max-open-brackets", 1..=1000;
    /// Symbols in all productions of a grammar
    grammar_symbols: usize = GRAMMAR.symbols, "max-grammar-symbols", 1..=1 << 24;
    /// States of a grammar's automaton, about 2 KiB each
    grammar_states: usize = GRAMMAR.states, "max-grammar-states", 1..=1 << 24;
    /// Seconds to compile a grammar
    compile_time: Duration = GRAMMAR.compile_time, "compile-timeout", 0..=SECONDS;
    /// Grammars that are compiled at once for a model; others are refused with 429
    compiles_at_once: usize = GRAMMAR.compiles_at_once, "max-compiles", 1..=1024;
}

impl Limits {
    /// What a grammar may cost.
    pub(crate) fn grammar(&self) -> GrammarLimits {
        GrammarLimits {
            grammar_bytes: self.grammar_bytes,
            schema_depth: self.schema_depth,
            schema_nodes: self.schema_nodes,
            regex_bytes: self.regex_bytes,
            brackets: self.brackets,
            compile_time: self.compile_time,
            compiles_at_once: self.compiles_at_once,
            tools: self.tools,
            symbols: self.grammar_symbols,
            states: self.grammar_states,
        }
    }
}

fn whole(text: &str, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let found = text.parse().ok().filter(|number| range.contains(number));
    found.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
}

/// With commas between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |place: usize| if place > 0 && (digits.len() - place).is_multiple_of(3) { "," } else { "" };
    digits.chars().enumerate().map(|(place, digit)| format!("{}{digit}", comma(place))).collect()
}

impl Value for usize {
    const UNIT: &'static str = "N";

    fn parse(text: &str, range: RangeInclusive<u64>) -> Result<Self, String> {
        whole(text, &range)?.try_into().map_err(|_| "expected what this machine can count".to_owned())
    }

    fn show(&self) -> String {
        grouped(*self as u64)
    }
}

impl Value for u32 {
    const UNIT: &'static str = "N";

    fn parse(text: &str, range: RangeInclusive<u64>) -> Result<Self, String> {
        whole(text, &range)?.try_into().map_err(|_| "expected a number below 2 to the power of 32".to_owned())
    }

    fn show(&self) -> String {
        grouped(u64::from(*self))
    }
}

impl Value for Option<u32> {
    const UNIT: &'static str = "N";

    fn parse(text: &str, range: RangeInclusive<u64>) -> Result<Self, String> {
        u32::parse(text, range).map(Some)
    }

    fn show(&self) -> String {
        self.map_or_else(|| "none".to_owned(), |number| number.show())
    }
}

impl Value for Duration {
    const UNIT: &'static str = "S";

    fn parse(text: &str, range: RangeInclusive<u64>) -> Result<Self, String> {
        let most = *range.end() as f64;
        let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds <= most);
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        time.ok_or_else(|| format!("expected seconds above 0 and up to {most}"))
    }

    fn show(&self) -> String {
        self.as_secs_f64().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_limit_is_one_row_of_the_documents_table() {
        let document = include_str!("../../../docs/server.md");
        let row = |Limit { flag, about, default, .. }: &Limit| {
            format!("| {} | {} | `--{flag}` |", about.trim(), default())
        };
        let missing: Vec<String> =
            Limits::ALL.iter().map(row).filter(|row| !document.lines().any(|line| line == row)).collect();
        assert!(missing.is_empty(), "docs/server.md lacks\n{}", missing.join("\n"));
        let flags: HashSet<&str> = Limits::ALL.iter().map(|limit| limit.flag).collect();
        assert_eq!(flags.len(), Limits::ALL.len());
    }

    #[test]
    fn values_are_taken_within_their_range() {
        let check = |flag: &str, text: &str, expected: Result<&str, &str>| {
            let limit = Limits::ALL.iter().find(|limit| limit.flag == flag).unwrap();
            let mut limits = Limits::default();
            match ((limit.set)(&mut limits, text), expected) {
                (Ok(()), Ok(part)) => assert!(format!("{limits:?}").contains(part), "{limits:?}"),
                (found, expected) => assert_eq!(found.unwrap_err(), expected.unwrap_err()),
            }
        };
        check("max-tools", "7", Ok("tools: 7,"));
        check("max-tools", "0", Err("expected a whole number from 1 to 4096"));
        check("max-tools", "many", Err("expected a whole number from 1 to 4096"));
        check("keep-alive", "0.5", Ok("keep_alive: 500ms"));
        check("keep-alive", "0", Err("expected seconds above 0 and up to 1000000"));
        check("keep-alive", "NaN", Err("expected seconds above 0 and up to 1000000"));
        check("requests-per-minute", "9", Ok("requests_per_minute: Some(9)"));
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
