//! 300 schemas (`goldens/schemas.py`): what ends by itself is valid, and what is refused names its keyword.

use gannet_engine::Constraint;
use gannet_grammar::{Grammar, GrammarConstraint, GrammarError, GrammarLimits};
use serde_json::Value;
use std::ops::Range;

use crate::validator::Validator;
use crate::walker::qwen;

/// Tokens of the longest text.
const TOKENS_MAX: usize = 512;

fn cases() -> Vec<(String, Value)> {
    let text = include_str!("../data/schemas.json");
    let Value::Array(cases) = serde_json::from_str(text).unwrap() else { panic!("a list") };
    cases
        .into_iter()
        .map(|mut case| (case["name"].as_str().unwrap().to_owned(), case["schema"].take()))
        .collect()
}

/// The keyword's path leads into the schema.
fn check_refusal(name: &str, schema: &Value, error: &GrammarError) {
    let GrammarError::Schema { path, keyword, .. } = error else { panic!("{name}: {error}") };
    assert!(path.is_empty() || schema.pointer(path).is_some(), "{name}: no `{path}` in {schema}");
    assert!(!keyword.is_empty() && path.contains(keyword.as_str()), "{name}: {error}");
}

/// Makes texts with some seeds; how many ended by themselves. Those are valid.
fn check_texts(name: &str, schema: &Value, constraint: &GrammarConstraint, seeds: Range<u64>) -> usize {
    let validator = Validator::new(schema);
    let check = |seed: &u64| {
        let text = qwen().make(constraint.copy(), *seed, TOKENS_MAX);
        if text.has_ended {
            let document: Value = serde_json::from_str(&text.text)
                .unwrap_or_else(|error| panic!("{name}, seed {seed}: {error}: {}", text.text));
            if let Err(error) = validator.validate(&document) {
                panic!("{name}, seed {seed}: {error}\nschema {schema}\ntext {}", text.text);
            }
        }
        text.has_ended
    };
    seeds.filter(check).count()
}

#[test]
fn what_ends_by_itself_is_valid_and_what_is_refused_names_its_keyword() {
    let rounds = if std::env::var_os("GANNET_LONG_RUN").is_some() { 50 } else { 1 };
    let (mut refused, mut ended, mut made) = (0, 0, 0);
    for (number, (name, schema)) in cases().into_iter().enumerate() {
        let compiled = Grammar::json_schema(schema.clone(), &GrammarLimits::DEFAULT)
            .and_then(|grammar| qwen().grammars.compile(&grammar));
        match compiled {
            Ok(constraint) => {
                let first = number as u64 * 1000;
                ended += check_texts(&name, &schema, &constraint, first..first + rounds);
                made += rounds as usize;
            }
            Err(error) => {
                check_refusal(&name, &schema, &error);
                println!("{name}: {error}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {ended} of {made} ended");
    assert!(refused * 10 < 300, "{refused} of 300 are refused");
    assert!(ended * 10 >= made * 6, "{ended} of {made} ended");
}
