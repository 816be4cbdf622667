//! Why a grammar is refused.

/// Why a grammar is refused, or a vocabulary can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// Over a limit of [`crate::limits`].
    #[error("{what}: {found}, at most {limit} may be")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// How much there is; as far as it was counted.
        found: usize,
        /// How much may be.
        limit: usize,
    },
    /// The text of a schema is no JSON.
    #[error("the schema is not JSON: {reason}")]
    NotJson {
        /// The parser's words.
        reason: String,
    },
    /// A keyword of a schema that can't be held.
    #[error("the schema's `{keyword}` at `{path}`: {reason}")]
    Schema {
        /// Where, as a JSON pointer to the keyword; empty for the whole schema.
        path: String,
        /// Which keyword; empty where it is the whole subschema at the path.
        keyword: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A regular expression that can't be used.
    #[error("the regular expression can't be used: {reason}")]
    Regex {
        /// The compiler's words.
        reason: String,
    },
    /// A Lark grammar that can't be used.
    #[error("the grammar can't be used: {reason}")]
    Lark {
        /// The compiler's words.
        reason: String,
    },
    /// The compiler took too long.
    #[error("the grammar takes longer than {limit_ms} ms to compile; make it simpler")]
    TooSlow {
        /// The limit.
        limit_ms: u64,
    },
    /// Others are being compiled.
    #[error("{compiling} grammars are being compiled already; try again later")]
    Busy {
        /// How many.
        compiling: usize,
    },
    /// A vocabulary that masks can't be made for.
    #[error("the vocabulary can't be used for grammars: {reason}")]
    Vocabulary {
        /// Why.
        reason: String,
    },
    /// The tools of a request, or the choice among them.
    #[error("{reason}")]
    Tools {
        /// What is wrong with them.
        reason: String,
    },
}
