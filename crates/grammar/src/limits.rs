//! What a grammar may cost. Each limit is checked before the work that it bounds, or by the worker while it works.

use std::time::Duration;

/// What a person may choose of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrammarLimits {
    /// Bytes of a schema's, an expression's or a grammar's text.
    pub grammar_bytes: usize,
    /// Nesting of a schema's values.
    pub schema_depth: usize,
    /// Objects, lists and scalars of a schema, the literals of enums included.
    pub schema_nodes: usize,
    /// Bytes of one regular expression in a schema, and of one that is a grammar.
    pub regex_bytes: usize,
    /// Open brackets of an expression or a Lark grammar.
    pub brackets: usize,
    /// How long compiling may take, the search for the keyword at fault included.
    pub compile_time: Duration,
    /// Grammars that are compiled at once; others are refused, to be tried again.
    pub compiles_at_once: usize,
    /// Tools of one grammar.
    pub tools: usize,
    /// Symbols in all productions.
    pub symbols: usize,
    /// States of the automaton that recognises terminals, over a whole answer; about 2 KiB each.
    pub states: usize,
}

impl GrammarLimits {
    /// What stands where nobody chose.
    pub const DEFAULT: Self = Self {
        grammar_bytes: 1 << 20,
        schema_depth: 64,
        schema_nodes: 50_000,
        regex_bytes: 16 << 10,
        brackets: 100,
        compile_time: Duration::from_secs(5),
        compiles_at_once: 4,
        tools: 256,
        symbols: 500_000,
        states: 250_000,
    };
}

/// Stack of the thread that compiles.
pub const COMPILE_STACK_BYTES: usize = 64 << 20;
/// Compiled grammars that are kept for the next request.
pub const COMPILED_KEPT: usize = 32;
/// Work on the expressions of the terminals when they are compiled; about 50,000 a millisecond.
pub const TERMINAL_WORK_MAX: u64 = 1_000_000;
/// Work on new states of that automaton for one mask; about 14,000 a millisecond.
pub const MASK_TERMINAL_WORK_MAX: u64 = 200_000;
/// Items of the parser for one mask; about 20,000 a millisecond.
pub const MASK_ITEMS_MAX: usize = 50_000;
/// Items of the parser after one byte: how ambiguous a grammar may be.
pub const ITEMS_A_BYTE_MAX: usize = 2_000;
/// Bytes of all tokens of a vocabulary; the largest public ones have two million.
pub const VOCABULARY_BYTES_MAX: usize = (1 << 22) - 1;
/// Bytes of a token that a grammar may use; longer ones are never drawn.
pub const TOKEN_BYTES_MAX: usize = 1_000;
