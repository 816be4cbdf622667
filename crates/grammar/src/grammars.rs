//! The compiler of one model's grammars: its token tree, and what it compiled lately.
//!
//! A grammar is compiled on a thread of its own, with a stack for deep recursion and a deadline; a thread that is over it
//! is left to end by the compiler's own limits, and as many as there may be at once bound what that costs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use gannet_text::tokenizer::Tokenizer;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{InferenceCapabilities, TokEnv, TokTrie};
use llguidance::{Matcher, ParserFactory};

use crate::constraint::GrammarConstraint;
use crate::error::GrammarError;
use crate::grammar::{Grammar, Source, lark_choice};
use crate::limits::{
    COMPILE_STACK_BYTES, COMPILED_KEPT, GrammarLimits, ITEMS_A_BYTE_MAX, MASK_ITEMS_MAX,
    MASK_TERMINAL_WORK_MAX, TERMINAL_WORK_MAX,
};
use crate::schema;
use crate::vocabulary::{spelled, token_tree};

/// The compiler of one model's grammars; cloning is cheap, and clones share everything.
#[derive(Clone)]
pub struct Grammars {
    inner: Arc<Inner>,
}

struct Inner {
    tokenizer: Tokenizer,
    tokens: TokEnv,
    factory: ParserFactory,
    limits: GrammarLimits,
    compiling: AtomicUsize,
    /// What was compiled lately, the newest first.
    kept: Mutex<VecDeque<(String, Matcher)>>,
}

impl Grammars {
    /// Reads a vocabulary. Takes a second for the largest ones, so it is done once a model.
    ///
    /// # Errors
    /// The vocabulary is too large, or has no text.
    pub fn new(tokenizer: &Tokenizer, limits: GrammarLimits) -> Result<Self, GrammarError> {
        let tokens = token_tree(tokenizer)?;
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&tokens, InferenceCapabilities::default(), &slices)
            .map_err(|error| GrammarError::Vocabulary { reason: error.to_string() })?;
        factory.quiet();
        *factory.limits_mut() = parser_limits(&limits);
        let (compiling, kept) = (AtomicUsize::new(0), Mutex::default());
        let tokenizer = tokenizer.clone();
        Ok(Self { inner: Arc::new(Inner { tokenizer, tokens, factory, limits, compiling, kept }) })
    }

    /// A constraint that stands at the beginning of an answer.
    ///
    /// # Errors
    /// The grammar can't be held: it has a fault, is too large, too slow to compile, or nothing fits it; a text of a choice
    /// has a byte that no token of the vocabulary has.
    pub fn compile(&self, grammar: &Grammar) -> Result<GrammarConstraint, GrammarError> {
        check_texts(&grammar.source, self.inner.tokens.tok_trie())?;
        let key = key(&grammar.source);
        let kept = self.take_kept(&key);
        let matcher = kept.map_or_else(|| self.compile_apart(grammar), Ok)?;
        let constraint = GrammarConstraint::new(matcher.deep_clone(), self.inner.tokens.clone());
        let mut kept = self.inner.kept.lock().expect("no holder of the lock panics");
        kept.push_front((key, matcher));
        kept.truncate(COMPILED_KEPT);
        Ok(constraint)
    }

    pub(crate) fn tokenizer(&self) -> &Tokenizer {
        &self.inner.tokenizer
    }

    /// What a grammar may cost.
    pub fn limits(&self) -> &GrammarLimits {
        &self.inner.limits
    }

    fn take_kept(&self, key: &str) -> Option<Matcher> {
        let mut kept = self.inner.kept.lock().expect("no holder of the lock panics");
        let place = kept.iter().position(|(other, _)| other == key)?;
        kept.remove(place).map(|(_, matcher)| matcher)
    }

    fn compile_apart(&self, grammar: &Grammar) -> Result<Matcher, GrammarError> {
        let compiling = self.inner.compiling.fetch_add(1, Ordering::Relaxed);
        let turn = Turn(self.inner.clone());
        let GrammarLimits { compile_time, compiles_at_once, .. } = self.inner.limits;
        if compiling >= compiles_at_once {
            return Err(GrammarError::Busy { compiling });
        }
        let (sender, receiver) = sync_channel(1);
        let source = grammar.source.clone();
        let work = move || {
            let compiled = compile(&turn.0.factory, source);
            // Given back first: who hears of the end may compile the next one at once.
            drop(turn);
            // Nobody listens any more where the deadline has passed.
            let _late = sender.send(compiled);
        };
        let thread = thread::Builder::new().name("grammar".to_owned()).stack_size(COMPILE_STACK_BYTES);
        thread.spawn(work).map_err(|error| GrammarError::Vocabulary { reason: error.to_string() })?;
        match receiver.recv_timeout(compile_time) {
            Ok(compiled) => compiled,
            Err(RecvTimeoutError::Timeout) => {
                Err(GrammarError::TooSlow { limit_ms: compile_time.as_millis() as u64 })
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(refused(&grammar.source, "the compiler gave up on it".to_owned()))
            }
        }
    }
}

/// One of the compilations that may run at once; given back when it is dropped, after a panic too.
struct Turn(Arc<Inner>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.compiling.fetch_sub(1, Ordering::Relaxed);
    }
}

fn parser_limits(limits: &GrammarLimits) -> ParserLimits {
    ParserLimits {
        max_items_in_row: ITEMS_A_BYTE_MAX,
        initial_lexer_fuel: TERMINAL_WORK_MAX,
        step_lexer_fuel: MASK_TERMINAL_WORK_MAX,
        step_max_items: MASK_ITEMS_MAX,
        max_lexer_states: limits.states,
        max_grammar_size: limits.symbols,
        precompute_large_lexemes: true,
        verbose_errors: false,
    }
}

/// Refuses a choice that no tokens spell: an answer would begin with it and get stuck.
fn check_texts(source: &Source, tokens: &TokTrie) -> Result<(), GrammarError> {
    let choices: &[String] = match source {
        Source::Choice(choices) => choices,
        Source::Around { answer, .. } => return check_texts(answer, tokens),
        Source::Json(_) | Source::Regex(_) | Source::Lark(_) => &[],
    };
    let lost = choices.iter().find_map(|choice| Some((choice, spelled(tokens, choice.as_bytes()).err()?)));
    let Some((choice, place)) = lost else { return Ok(()) };
    let byte = choice.as_bytes()[place];
    let reason = format!("no token goes on with byte 0x{byte:02x} of the text {choice:?}");
    Err(GrammarError::Vocabulary { reason })
}

/// What tells one grammar from another.
fn key(source: &Source) -> String {
    match source {
        Source::Json(schema) => format!("json {schema}"),
        Source::Regex(expression) => format!("regex {expression}"),
        Source::Lark(grammar) => format!("lark {grammar}"),
        Source::Choice(choices) => format!("lark {}", lark_choice(choices)),
        Source::Around { lark, answer } => format!("around {lark} {}", key(answer)),
    }
}

fn compile(factory: &ParserFactory, source: Source) -> Result<Matcher, GrammarError> {
    match &source {
        Source::Json(schema) => {
            let compile =
                |schema: serde_json::Value| try_compile(factory, TopLevelGrammar::from_json_schema(schema));
            compile(schema.clone()).map_err(|reason| schema::locate(schema, reason, &compile))
        }
        Source::Regex(_) | Source::Lark(_) | Source::Choice(_) => {
            try_compile(factory, top_level(&source)).map_err(|reason| refused(&source, reason))
        }
        Source::Around { answer, .. } => {
            // Alone first, so that a fault is the answer's own and has its place.
            compile(factory, answer.as_ref().clone())?;
            try_compile(factory, top_level(&source)).map_err(|reason| refused(&source, reason))
        }
    }
}

/// The compiler's form of a grammar.
fn top_level(source: &Source) -> TopLevelGrammar {
    match source {
        Source::Json(schema) => TopLevelGrammar::from_json_schema(schema.clone()),
        // The grammar's expressions are anchored on both sides.
        Source::Regex(expression) => TopLevelGrammar::from_regex(expression),
        Source::Lark(grammar) => TopLevelGrammar::from_lark(grammar.clone()),
        Source::Choice(choices) => TopLevelGrammar::from_lark(lark_choice(choices)),
        Source::Around { lark, answer } => {
            let mut whole = TopLevelGrammar::from_lark(lark.clone());
            let mut inner = top_level(answer).grammars;
            if let Some(first) = inner.first_mut() {
                first.name = Some("answer".to_owned());
            }
            whole.grammars.extend(inner);
            whole
        }
    }
}

fn try_compile(factory: &ParserFactory, grammar: TopLevelGrammar) -> Result<Matcher, String> {
    let matcher = Matcher::new(factory.create_parser(grammar));
    match matcher.get_error() {
        Some(error) => Err(first_lines(&error)),
        None => Ok(matcher),
    }
}

/// The compiler's words without what it prints for its developers.
fn first_lines(error: &str) -> String {
    let end = error.find("\n<").unwrap_or(error.len());
    error[..end].trim().to_owned()
}

fn refused(source: &Source, reason: String) -> GrammarError {
    match source {
        Source::Json(_) => GrammarError::Schema { path: String::new(), keyword: String::new(), reason },
        Source::Regex(_) => GrammarError::Regex { reason },
        Source::Lark(_) | Source::Choice(_) | Source::Around { .. } => GrammarError::Lark { reason },
    }
}
