//! What an answer must look like, from the command line.

use crate::failure::Failure;
use clap::Args;
use gannet_grammar::{Grammar, GrammarLimits};
use std::fs;
use std::path::{Path, PathBuf};

/// What an answer must look like.
#[derive(Debug, Default, Args)]
#[group(id = "answer_grammar", multiple = false)]
pub(crate) struct GrammarArguments {
    /// Answer with JSON that this schema validates: a file, or the schema itself
    #[arg(long, value_name = "SCHEMA", help_heading = "Structured answers")]
    json_schema: Option<String>,
    /// Answer with some JSON object
    #[arg(long, help_heading = "Structured answers")]
    json_object: bool,
    /// Answer with a text that this expression matches from beginning to end
    #[arg(long, value_name = "EXPRESSION", help_heading = "Structured answers", allow_hyphen_values = true)]
    regex: Option<String>,
    /// Answer with a text of the Lark grammar in this file
    #[arg(long, value_name = "FILE", help_heading = "Structured answers")]
    grammar: Option<PathBuf>,
}

impl GrammarArguments {
    /// The grammar, if one is asked for.
    pub(crate) fn resolve(&self) -> Result<Option<Grammar>, Failure> {
        let grammar = if let Some(schema) = &self.json_schema {
            let is_itself =
                schema.trim_start().starts_with('{') || ["true", "false"].contains(&schema.as_str());
            let text = if is_itself { schema.clone() } else { read(Path::new(schema))? };
            Grammar::json_schema_from_text(&text, &GrammarLimits::DEFAULT)
        } else if self.json_object {
            Ok(Grammar::json_object())
        } else if let Some(expression) = &self.regex {
            Grammar::regex(expression, &GrammarLimits::DEFAULT)
        } else if let Some(path) = &self.grammar {
            Grammar::lark(&read(path)?, &GrammarLimits::DEFAULT)
        } else {
            return Ok(None);
        };
        Ok(Some(grammar.map_err(|error| Failure::usage(error.to_string()))?))
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", path.display())))
}
