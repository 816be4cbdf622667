//! What a grammar may cost. Each limit is checked before the work that it bounds, or by the worker while it works.

use std::time::Duration;

/// Bytes of a schema's, an expression's or a grammar's text.
pub const GRAMMAR_BYTES_MAX: usize = 1 << 20;
/// Nesting of a schema's values.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Objects, lists and scalars of a schema, the literals of enums included.
pub const SCHEMA_NODES_MAX: usize = 50_000;
/// Bytes of one regular expression in a schema, and of one that is a grammar.
pub const REGEX_BYTES_MAX: usize = 16 << 10;
/// Open brackets of an expression or a Lark grammar.
pub const BRACKET_DEPTH_MAX: usize = 100;
/// How long compiling may take, the search for the keyword at fault included.
pub const COMPILE_TIME_MAX: Duration = Duration::from_secs(5);
/// Grammars that are compiled at once; others are refused, to be tried again.
pub const COMPILES_AT_ONCE_MAX: usize = 4;
/// Stack of the thread that compiles.
pub const COMPILE_STACK_BYTES: usize = 64 << 20;
/// Compiled grammars that are kept for the next request.
pub const COMPILED_KEPT: usize = 32;
/// Symbols in all productions.
pub const PRODUCTION_SYMBOLS_MAX: usize = 500_000;
/// Work on the expressions of the terminals when they are compiled; about 50,000 a millisecond.
pub const TERMINAL_WORK_MAX: u64 = 1_000_000;
/// States of the automaton that recognises terminals, over a whole answer; about 2 KiB each.
pub const TERMINAL_STATES_MAX: usize = 250_000;
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
