//! What holds a request's answers to a form: a grammar, tools, a bound on the reasoning; and how their text is read.
//!
//! A route says what it wants ([`Wanted`]); which grammar that is depends on the model's formats and on whether the prompt
//! has opened the reasoning. Compiling one is work, and what it works on comes from outside: it runs where prompts are
//! rendered.

use super::parts::{Reader, Reading};
use super::prompt::aside;
use crate::app::App;
use crate::error::ApiError;
use crate::models::Served;
use gannet_engine::Constraint;
use gannet_grammar::{Grammar, GrammarError, Grammars, Reasoning, ThinkingBudget, ToolChoice};
use gannet_text::calls::{CallFormat, ReasoningFormat, Tool};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// What answers must look like, as a request says it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) form: Option<Form>,
    pub(crate) tools: Tools,
    /// The parameter that bounds the tokens of the reasoning, and the bound.
    pub(crate) thinking_budget: Option<(&'static str, u32)>,
}

/// A grammar and where it stands in the request.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) path: String,
    pub(crate) grammar: Grammar,
}

/// Tools, and what is to be done with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    /// As templates know them.
    pub(crate) shown: Vec<Value>,
    /// Those that may be called.
    pub(crate) callable: Vec<Tool>,
    /// Where the schema of each stands in the request, by its name.
    pub(crate) schema_paths: HashMap<String, String>,
    pub(crate) choice: Choice,
    /// Whether an answer calls one at most.
    pub(crate) one_call: bool,
}

/// Which tools an answer calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Choice {
    /// As the model likes.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

/// The formats of a model, and where its answer begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Formats {
    pub(crate) calls: CallFormat,
    pub(crate) reasoning: Option<ReasoningFormat>,
    /// What stands before the answer.
    pub(crate) before: Reasoning,
}

/// What holds answers, and how they are read.
pub(crate) struct Held {
    pub(crate) reading: Reading,
    pub(crate) constraint: Option<Box<dyn Constraint>>,
}

impl Held {
    /// Answers that are text, whatever they say.
    pub(crate) fn plain() -> Self {
        Self { reading: Reading::Plain, constraint: None }
    }
}

/// Holds the answers to a conversation.
pub(crate) async fn of_chat(
    app: &App,
    served: &Arc<Served>,
    wanted: Wanted,
    formats: Formats,
) -> Result<Held, ApiError> {
    let reading = reading(&wanted.tools, formats);
    if wanted.form.is_none() && wanted.tools.callable.is_empty() && wanted.thinking_budget.is_none() {
        return Ok(Held { reading, constraint: None });
    }
    let model = served.clone();
    aside(app, move || {
        let constraint = constraint(&model, &wanted, formats)?;
        Ok(Held { reading, constraint })
    })
    .await
}

/// Holds the continuations of texts.
pub(crate) async fn of_texts(app: &App, served: &Arc<Served>, form: Option<Form>) -> Result<Held, ApiError> {
    let Some(Form { path, grammar }) = form else { return Ok(Held::plain()) };
    let model = served.clone();
    aside(app, move || {
        let grammars = model.grammars().map_err(|error| ApiError::grammar(&path, &error))?;
        let constraint = grammars.compile(&grammar).map_err(|error| ApiError::grammar(&path, &error))?;
        Ok(Held { reading: Reading::Plain, constraint: Some(Box::new(constraint)) })
    })
    .await
}

fn reading(tools: &Tools, formats: Formats) -> Reading {
    let Formats { calls, reasoning, before } = formats;
    if tools.callable.is_empty() && reasoning.is_none() && calls != CallFormat::Harmony {
        return Reading::Plain;
    }
    Reading::Parts(Reader {
        format: calls,
        reasoning,
        begins_inside: matches!(before, Reasoning::IsOpen(_)),
        tools: tools.callable.clone(),
        one_call: tools.one_call,
    })
}

fn constraint(
    served: &Served,
    wanted: &Wanted,
    formats: Formats,
) -> Result<Option<Box<dyn Constraint>>, ApiError> {
    let path = wanted.form.as_ref().map_or("tools", |form| form.path.as_str());
    let needs_grammar = wanted.form.is_some() || !wanted.tools.callable.is_empty();
    let mut held: Option<Box<dyn Constraint>> = None;
    if needs_grammar {
        let grammars = served.grammars().map_err(|error| ApiError::grammar(path, &error))?;
        let compile = |grammar: Option<Grammar>| grammar.map(|it| grammars.compile(&it)).transpose();
        let compiled = grammar(&grammars, wanted, formats).and_then(compile);
        let compiled = compiled.map_err(|error| {
            fault_of_tool(&grammars, &wanted.tools).unwrap_or(ApiError::grammar(path, &error))
        })?;
        held = compiled.map(|compiled| Box::new(compiled) as Box<dyn Constraint>);
    }
    let Some((path, budget)) = wanted.thinking_budget else { return Ok(held) };
    if formats.reasoning.is_none() {
        let why = "this model's reasoning can't be bounded".to_owned();
        return Err(ApiError::ModelLacks { path: path.to_owned(), why });
    }
    if formats.before == Reasoning::None {
        return Ok(held);
    }
    let bounded = ThinkingBudget::new(&served.text.tokenizer, formats.before, budget, held);
    let bounded = bounded.map_err(|error| ApiError::grammar(path, &error))?;
    Ok(bounded.map(|bounded| Box::new(bounded) as Box<dyn Constraint>))
}

/// The fault of the first tool whose schema can't be held, with its place.
fn fault_of_tool(grammars: &Grammars, tools: &Tools) -> Option<ApiError> {
    tools.callable.iter().find_map(|tool| {
        let compiled = Grammar::json_schema(tool.parameters.clone(), grammars.limits())
            .and_then(|schema| grammars.compile(&schema));
        let path = tools.schema_paths.get(&tool.name).map_or("tools", String::as_str);
        compiled.err().map(|error| ApiError::grammar(path, &error))
    })
}

/// The grammar of answers; none where they may be anything.
fn grammar(grammars: &Grammars, wanted: &Wanted, formats: Formats) -> Result<Option<Grammar>, GrammarError> {
    let Formats { calls, before, .. } = formats;
    let Tools { callable, choice, one_call, .. } = &wanted.tools;
    let form = wanted.form.as_ref().map(|form| form.grammar.clone());
    match (choice, form) {
        (_, Some(form)) if callable.is_empty() => Ok(Some(grammars.after_reasoning(form, calls, before))),
        (Choice::Auto, Some(form)) => grammars.for_tools_or(calls, callable, form, before).map(Some),
        (Choice::Auto, None) => grammars.for_tools(calls, callable, ToolChoice::Auto, before),
        (Choice::Required, _) => {
            let choice = ToolChoice::Required { parallel: !one_call };
            grammars.for_tools(calls, callable, choice, before)
        }
        (Choice::Named(name), _) => grammars.for_tools(calls, callable, ToolChoice::Named { name }, before),
    }
}
