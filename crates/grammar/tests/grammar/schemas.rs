//! 300 schemas (`goldens/schemas.py`): what ends by itself is valid, and what is refused names its keyword.

use gannet_grammar::{Grammar, GrammarError};
use serde_json::Value;

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

#[test]
fn what_ends_by_itself_is_valid_and_what_is_refused_names_its_keyword() {
    let model = qwen();
    let (mut refused, mut ended, mut made) = (0, 0, 0);
    for (number, (name, schema)) in cases().into_iter().enumerate() {
        let compiled =
            Grammar::json_schema(schema.clone()).and_then(|grammar| model.grammars.compile(&grammar));
        let constraint = match compiled {
            Ok(constraint) => constraint,
            Err(error) => {
                check_refusal(&name, &schema, &error);
                println!("{name}: {error}");
                refused += 1;
                continue;
            }
        };
        let text = model.make(constraint, number as u64, TOKENS_MAX);
        made += 1;
        if !text.has_ended {
            continue;
        }
        ended += 1;
        let document: Value =
            serde_json::from_str(&text.text).unwrap_or_else(|error| panic!("{name}: {error}: {}", text.text));
        let validator = jsonschema::options().should_validate_formats(true).build(&schema).unwrap();
        if let Err(error) = validator.validate(&document) {
            panic!("{name}: {error}\nschema {schema}\ntext {}", text.text);
        }
    }
    println!("{refused} refused, {ended} of {made} ended");
    assert!(refused * 10 < 300, "{refused} of 300 are refused");
    assert!(ended * 10 >= made * 6, "{ended} of {made} ended");
}
