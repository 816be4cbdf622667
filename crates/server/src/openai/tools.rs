//! The tools of a request and the choice among them, in the three forms that protocols have for them.

use crate::error::ApiError;
use crate::generate::held::{Choice, Tools};
use crate::wire::fields::{Field, Fields, shortened};
use gannet_grammar::{Grammar, GrammarLimits};
use gannet_text::calls::Tool;
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// How a protocol writes tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolForm {
    /// `{"type": "function", "function": {...}}`
    Nested,
    /// `{"type": "function", "name": ...}`
    Flat,
    /// `{"name": ..., "input_schema": ...}`
    Anthropic,
}

/// Takes `tools`, `tool_choice` and `parallel_tool_calls` of OpenAI's routes.
pub(crate) fn take(fields: &mut Fields, form: ToolForm) -> Result<Tools, ApiError> {
    let mut tools = list(fields, form)?;
    let parallel = fields.boolean("parallel_tool_calls")?.unwrap_or(true);
    tools.one_call = !parallel;
    if let Some(choice) = fields.take("tool_choice") {
        choose(&mut tools, choice, form)?;
    }
    Ok(tools)
}

/// Takes `tools` and `tool_choice` of Anthropic's route.
pub(crate) fn take_anthropic(fields: &mut Fields) -> Result<Tools, ApiError> {
    let mut tools = list(fields, ToolForm::Anthropic)?;
    let Some(choice) = fields.take("tool_choice") else { return Ok(tools) };
    let mut choice = choice.object()?;
    let kind = choice.require("type", "one of auto, any, tool, none")?;
    tools.one_call = choice.boolean("disable_parallel_tool_use")?.unwrap_or(false);
    match kind.value.as_str() {
        Some("auto") => {}
        Some("none") => forget(&mut tools),
        Some("any") => require(&mut tools, &kind)?,
        Some("tool") => name(&mut tools, choice.require("name", "the name of a tool")?)?,
        Some(_) | None => return Err(kind.wrong("one of auto, any, tool, none")),
    }
    choice.finish()?;
    Ok(tools)
}

fn list(fields: &mut Fields, form: ToolForm) -> Result<Tools, ApiError> {
    let mut tools = Tools::default();
    let Some(field) = fields.take("tools") else { return Ok(tools) };
    let mut names = HashSet::new();
    for field in field.list_within(|limits| limits.tools)? {
        let path = field.path.clone();
        let (shown, tool) = one(field, form)?;
        if !names.insert(tool.name.clone()) {
            let why = format!("a tool before it is called `{}` already", tool.name);
            return Err(ApiError::Invalid { path, why });
        }
        let schema = match form {
            ToolForm::Nested => "function.parameters",
            ToolForm::Flat => "parameters",
            ToolForm::Anthropic => "input_schema",
        };
        tools.schema_paths.insert(tool.name.clone(), format!("{path}.{schema}"));
        tools.shown.push(shown);
        tools.callable.push(tool);
    }
    Ok(tools)
}

/// A tool as templates know it, and as parsers do.
fn one(field: Field, form: ToolForm) -> Result<(Value, Tool), ApiError> {
    let mut fields = field.object()?;
    let kinds: &[Value] = if form == ToolForm::Anthropic { &[json!("custom")] } else { &[json!("function")] };
    if form != ToolForm::Anthropic && fields.peek("type").is_null() {
        return Err(ApiError::Missing { path: fields.path_of("type"), expected: "`function`" });
    }
    fields.only(
        "type",
        kinds,
        "this server runs no tools itself; only functions of the client's are known",
    )?;
    // A hint of where a prompt may be cut for a cache, which is found by itself here.
    fields.accept("cache_control");
    let mut inner = match form {
        ToolForm::Nested => {
            let inner = fields.require("function", "an object with name and parameters")?.object()?;
            fields.finish()?;
            inner
        }
        ToolForm::Flat | ToolForm::Anthropic => fields,
    };
    let name = tool_name(inner.require("name", "a string")?)?;
    let description = inner.string("description")?;
    let strict = inner.boolean("strict")?;
    let limits = inner.limits().grammar();
    let schema = if form == ToolForm::Anthropic { "input_schema" } else { "parameters" };
    let parameters = inner.take(schema).map(|field| field.object().map(Fields::into_rest)).transpose()?;
    inner.finish()?;
    let parameters = Value::Object(parameters.unwrap_or_default());
    let strict = strict.unwrap_or_else(|| is_strict_by_default(form, &parameters, &limits));
    let mut function = Map::new();
    function.insert("name".to_owned(), json!(name));
    function.extend(description.map(|text| ("description".to_owned(), json!(text))));
    function.insert("parameters".to_owned(), parameters.clone());
    Ok((json!({"type": "function", "function": function}), Tool { name, parameters, strict }))
}

/// Tools of the newer form are strict unless they say otherwise, where their schema can be held.
fn is_strict_by_default(form: ToolForm, parameters: &Value, limits: &GrammarLimits) -> bool {
    form == ToolForm::Flat && Grammar::json_schema(parameters.clone(), limits).is_ok()
}

fn tool_name(field: Field) -> Result<String, ApiError> {
    let most = field.limits.name_letters;
    let wrong = field.wrong(&format!("1 to {most} letters, digits, `_`, `-` or `.`"));
    let name = field.string()?;
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    let fits = (1..=most).contains(&name.len()) && name.chars().all(is_fine);
    if fits { Ok(name) } else { Err(wrong) }
}

fn choose(tools: &mut Tools, choice: Field, form: ToolForm) -> Result<(), ApiError> {
    const EXPECTED: &str = "one of none, auto, required, a function or allowed_tools";
    match choice.value.as_str() {
        Some("auto") => return Ok(()),
        Some("none") => {
            forget(tools);
            return Ok(());
        }
        Some("required") => return require(tools, &choice),
        Some(_) => return Err(choice.wrong(EXPECTED)),
        None => {}
    }
    if !choice.value.is_object() {
        return Err(choice.wrong(EXPECTED));
    }
    let mut choice = choice.object()?;
    let kind = choice.require("type", "one of function, allowed_tools")?;
    match kind.value.as_str() {
        Some("function") => {
            let named = named(&mut choice, form)?;
            name(tools, named)?;
        }
        Some("allowed_tools") => allow(tools, &mut choice, form)?,
        Some(_) | None => return Err(kind.wrong("one of function, allowed_tools")),
    }
    choice.finish()
}

/// The name in a reference to a tool.
fn named(reference: &mut Fields, form: ToolForm) -> Result<Field, ApiError> {
    match form {
        ToolForm::Nested => {
            let mut function = reference.require("function", "an object with a name")?.object()?;
            let name = function.require("name", "the name of a tool")?;
            function.finish()?;
            Ok(name)
        }
        ToolForm::Flat | ToolForm::Anthropic => reference.require("name", "the name of a tool"),
    }
}

/// Some of the tools alone may be called; the model still sees all of them.
fn allow(tools: &mut Tools, choice: &mut Fields, form: ToolForm) -> Result<(), ApiError> {
    let nested = match form {
        ToolForm::Nested => Some(choice.require("allowed_tools", "an object with mode and tools")?.object()?),
        ToolForm::Flat | ToolForm::Anthropic => None,
    };
    let mut own = nested;
    let allowed = own.as_mut().unwrap_or(choice);
    let mode = allowed.require("mode", "auto or required")?;
    let list = allowed.require("tools", "a list of tools")?;
    let mut names = HashSet::new();
    for reference in list.list_within(|limits| limits.tools)? {
        let mut reference = reference.object()?;
        reference.only("type", &[json!("function")], "only functions are known")?;
        let name = named(&mut reference, form)?;
        names.insert(known(tools, name)?);
        reference.finish()?;
    }
    tools.callable.retain(|tool| names.contains(&tool.name));
    match mode.value.as_str() {
        Some("auto") => {}
        Some("required") => require(tools, &mode)?,
        Some(_) | None => return Err(mode.wrong("auto or required")),
    }
    own.map_or(Ok(()), Fields::finish)
}

fn name(tools: &mut Tools, field: Field) -> Result<(), ApiError> {
    tools.choice = Choice::Named(known(tools, field)?);
    Ok(())
}

/// The name of a tool that is there.
fn known(tools: &Tools, field: Field) -> Result<String, ApiError> {
    let path = field.path.clone();
    let name = field.string()?;
    if tools.callable.iter().any(|tool| tool.name == name) {
        return Ok(name);
    }
    Err(ApiError::Invalid { path, why: format!("there is no tool `{}`", shortened(&name)) })
}

fn require(tools: &mut Tools, choice: &Field) -> Result<(), ApiError> {
    if tools.callable.is_empty() {
        return Err(choice.invalid("there are no tools to call"));
    }
    tools.choice = Choice::Required;
    Ok(())
}

fn forget(tools: &mut Tools) {
    *tools = Tools::default();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(body: Value, form: ToolForm) -> Result<Tools, String> {
        let mut fields = Fields::of_body(body, &std::sync::Arc::default()).unwrap();
        let tools =
            if form == ToolForm::Anthropic { take_anthropic(&mut fields) } else { take(&mut fields, form) };
        let tools = tools.map_err(|error| error.to_string())?;
        fields.finish().map_err(|error| error.to_string())?;
        Ok(tools)
    }

    fn nested(names: &[&str]) -> Value {
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
        json!(names.iter().map(tool).collect::<Vec<_>>())
    }

    #[test]
    fn each_choice_is_understood() {
        let check = |choice: Value, expected: Choice, names: &[&str]| {
            let body = json!({"tools": nested(&["a", "b"]), "tool_choice": choice});
            let tools = taken(body, ToolForm::Nested).unwrap();
            let found: Vec<&str> = tools.callable.iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!((tools.choice, found.as_slice()), (expected, names), "{choice}");
        };
        let both = ["a", "b"];
        check(json!(null), Choice::Auto, &both);
        check(json!("auto"), Choice::Auto, &both);
        check(json!("none"), Choice::Auto, &[]);
        check(json!("required"), Choice::Required, &both);
        check(json!({"type": "function", "function": {"name": "b"}}), Choice::Named("b".to_owned()), &both);
        let allowed = |mode: &str| {
            let tools = json!([{"type": "function", "function": {"name": "b"}}]);
            json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
        };
        check(allowed("auto"), Choice::Auto, &["b"]);
        check(allowed("required"), Choice::Required, &["b"]);
    }

    #[test]
    fn the_forms_of_protocols_become_one() {
        let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
        let expected =
            json!({"type": "function", "function": {"name": "a", "description": "d", "parameters": schema}});
        let function = json!({"name": "a", "description": "d", "parameters": schema, "strict": true});
        let mut flat = function.clone();
        flat["type"] = json!("function");
        for (tool, form) in [
            (json!({"type": "function", "function": function}), ToolForm::Nested),
            (flat, ToolForm::Flat),
            (json!({"name": "a", "description": "d", "input_schema": schema}), ToolForm::Anthropic),
        ] {
            let tools = taken(json!({"tools": [tool]}), form).unwrap();
            assert_eq!(tools.shown.as_slice(), std::slice::from_ref(&expected));
            assert_eq!(tools.callable[0].strict, form != ToolForm::Anthropic);
        }
        let choice = json!({"type": "tool", "name": "a", "disable_parallel_tool_use": true});
        let body = json!({"tools": [{"name": "a", "input_schema": {}}], "tool_choice": choice});
        let tools = taken(body, ToolForm::Anthropic).unwrap();
        assert_eq!((tools.choice, tools.one_call), (Choice::Named("a".to_owned()), true));
    }

    #[test]
    fn faults_name_their_place() {
        let check = |body: Value, part: &str| {
            let error = taken(body, ToolForm::Nested).unwrap_err();
            assert!(error.contains(part), "{part} is not in {error}");
        };
        check(json!({"tools": vec![0; 257]}), "`tools` has 257 entries, at most 256");
        check(json!({"tools": [{}]}), "`tools[0].type` is missing");
        check(json!({"tools": [{"type": "web_search"}]}), "`tools[0].type` is not supported");
        check(
            json!({"tools": [{"type": "function", "function": {}}]}),
            "`tools[0].function.name` is missing",
        );
        check(json!({"tools": nested(&["a b"])}), "`tools[0].function.name` is the string");
        check(json!({"tools": nested(&["a", "a"])}), "`tools[1]`: a tool before it is called `a`");
        check(json!({"tool_choice": "required"}), "`tool_choice`: there are no tools");
        check(json!({"tools": nested(&["a"]), "tool_choice": "x"}), "`tool_choice` is the string");
        let named = json!({"type": "function", "function": {"name": "c"}});
        check(
            json!({"tools": nested(&["a"]), "tool_choice": named}),
            "`tool_choice.function.name`: there is no tool `c`",
        );
    }
}
