//! How long masks take: 300 schemas over a vocabulary, with texts drawn at random inside of the masks.
//!
//! `cargo run --release -p gannet-grammar --example mask_time -- TOKENIZER_JSON...`

use std::time::{Duration, Instant};

use gannet_engine::{Constraint, MayEnd, Progress};
use gannet_grammar::{Grammar, GrammarLimits, Grammars};
use gannet_ops::TokenId;
use gannet_text::text::{Text, TextFiles, TokenizerFile};
use serde_json::Value;

/// Tokens of each text.
const TOKENS_MAX: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let files =
            TextFiles { tokenizer: TokenizerFile::Json(&bytes), tokenizer_config: None, chat_template: None };
        let tokenizer = Text::from_files(&files)?.tokenizer;
        let started = Instant::now();
        let grammars = Grammars::new(&tokenizer, GrammarLimits::DEFAULT)?;
        let ready = started.elapsed();
        let (mut masks, mut advances, mut compiles) = (Vec::new(), Vec::new(), Vec::new());
        let cases: Vec<Value> = serde_json::from_str(include_str!("../tests/data/schemas.json"))?;
        for (number, case) in cases.iter().enumerate() {
            let started = Instant::now();
            let compiled = Grammar::json_schema(case["schema"].clone(), &GrammarLimits::DEFAULT)
                .and_then(|it| grammars.compile(&it));
            compiles.push(started.elapsed());
            if let Ok(mut constraint) = compiled {
                walk(&mut constraint, tokenizer.vocabulary_size(), number as u64, &mut masks, &mut advances);
            }
        }
        println!("{path}: {} tokens, ready in {ready:.2?}", tokenizer.vocabulary_size());
        for (what, times) in [("mask", &mut masks), ("advance", &mut advances), ("compile", &mut compiles)] {
            times.sort_unstable();
            let at = |share: usize| times[(times.len() - 1) * share / 1000];
            let (median, p90, p99) = (at(500), at(900), at(990));
            println!(
                "  {what}: median {median:.1?}, p90 {p90:.1?}, p99 {p99:.1?}, most {:.1?}, of {}",
                at(1000),
                times.len()
            );
        }
    }
    Ok(())
}

fn walk(
    constraint: &mut dyn Constraint,
    vocabulary: usize,
    seed: u64,
    masks: &mut Vec<Duration>,
    advances: &mut Vec<Duration>,
) {
    let mut state = seed;
    for _ in 0..TOKENS_MAX {
        let mut mask = vec![0u32; vocabulary.div_ceil(32)];
        let started = Instant::now();
        let Ok(may_end) = constraint.mask(&mut mask) else { return };
        masks.push(started.elapsed());
        let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if count == 0 || may_end == MayEnd::Yes && state >> 62 == 0 {
            return;
        }
        let chosen = (state >> 33) as u32 % count;
        let is_set = |token: &u32| mask[*token as usize / 32] >> (token % 32) & 1 == 1;
        let Some(token) = (0..vocabulary as u32).filter(is_set).nth(chosen as usize) else { return };
        let started = Instant::now();
        let progress = constraint.advance(TokenId(token));
        advances.push(started.elapsed());
        if progress != Ok(Progress::Open) {
            return;
        }
    }
}
