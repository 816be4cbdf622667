//! What an answer must look like: `response_format` and the field's older and newer names for grammars.

use crate::error::ApiError;
use crate::generate::held::Form;
use crate::wire::fields::{Field, Fields};
use gannet_grammar::{Grammar, GrammarError};
use serde_json::Value;

/// Takes the one parameter that says it, if any does.
pub(crate) fn take(fields: &mut Fields) -> Result<Option<Form>, ApiError> {
    let mut forms = Vec::new();
    if let Some(field) = fields.take("response_format") {
        forms.extend(response_format(field, Schema::Nested)?);
    }
    forms.extend(guided(fields)?);
    only_one(forms)
}

/// The field's names alone.
pub(crate) fn take_guided(fields: &mut Fields) -> Result<Option<Form>, ApiError> {
    let forms = guided(fields)?;
    only_one(forms)
}

/// Where a format holds its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// In an object of its own, `json_schema`.
    Nested,
    /// Beside the type.
    Flat,
}

/// Takes a format; none where it is text.
pub(crate) fn response_format(field: Field, schema: Schema) -> Result<Option<Form>, ApiError> {
    let mut format = field.object()?;
    let kind = format.require("type", "one of text, json_object, json_schema")?;
    let path = kind.path.clone();
    let form = match kind.value.as_str() {
        Some("text") => None,
        // Others of the field take a schema here.
        Some("json_object") => match format.take("schema") {
            Some(schema) => Some(json(schema)?),
            None => Some(Form { path, grammar: Grammar::json_object() }),
        },
        Some("json_schema") => match schema {
            Schema::Nested => {
                let mut inner = format.require("json_schema", "an object with name and schema")?.object()?;
                let form = named_schema(&mut inner)?;
                inner.finish()?;
                Some(form)
            }
            Schema::Flat => Some(named_schema(&mut format)?),
        },
        Some(_) | None => return Err(kind.wrong("one of text, json_object, json_schema")),
    };
    format.finish()?;
    Ok(form)
}

/// A schema is held whether it is `strict` or not: an answer that doesn't follow it would help nobody.
fn named_schema(fields: &mut Fields) -> Result<Form, ApiError> {
    let name = fields.require("name", "a name for the schema")?;
    let most = name.limits.name_letters;
    let wrong = name.wrong(&format!("1 to {most} characters"));
    if !(1..=most).contains(&name.string()?.chars().count()) {
        return Err(wrong);
    }
    fields.string("description")?;
    fields.boolean("strict")?;
    json(fields.require("schema", "a JSON schema")?)
}

fn guided(fields: &mut Fields) -> Result<Vec<Form>, ApiError> {
    let mut forms = Vec::new();
    for (name, form) in [
        ("guided_json", json as fn(Field) -> Result<Form, ApiError>),
        ("json_schema", json),
        ("guided_regex", regex),
        ("guided_choice", choice),
        ("guided_grammar", lark),
    ] {
        forms.extend(fields.take(name).map(form).transpose()?);
    }
    if let Some(field) = fields.take("structured_outputs") {
        let missing = field.invalid("one of json, json_object, regex, choice, grammar is needed");
        let mut outputs = field.object()?;
        let before = forms.len();
        for (name, form) in [
            ("json", json as fn(Field) -> Result<Form, ApiError>),
            ("regex", regex),
            ("choice", choice),
            ("grammar", lark),
        ] {
            forms.extend(outputs.take(name).map(form).transpose()?);
        }
        let path = outputs.path_of("json_object");
        if outputs.boolean("json_object")?.unwrap_or(false) {
            forms.push(Form { path, grammar: Grammar::json_object() });
        }
        outputs.finish()?;
        if forms.len() == before {
            return Err(missing);
        }
    }
    Ok(forms)
}

fn only_one(forms: Vec<Form>) -> Result<Option<Form>, ApiError> {
    let mut forms = forms.into_iter();
    match (forms.next(), forms.next()) {
        (Some(first), Some(second)) => {
            let why = format!("`{}` says already what the answer must look like", first.path);
            Err(ApiError::Invalid { path: second.path, why })
        }
        (first, _) => Ok(first),
    }
}

/// A schema, or its text.
fn json(field: Field) -> Result<Form, ApiError> {
    let limits = field.limits.grammar();
    let grammar = match &field.value {
        Value::String(text) => Grammar::json_schema_from_text(text, &limits),
        schema @ (Value::Object(_) | Value::Bool(_)) => Grammar::json_schema(schema.clone(), &limits),
        Value::Null | Value::Number(_) | Value::Array(_) => return Err(field.wrong("a JSON schema")),
    };
    formed(field.path, grammar)
}

fn regex(field: Field) -> Result<Form, ApiError> {
    let (path, limits) = (field.path.clone(), field.limits.grammar());
    formed(path, Grammar::regex(&field.string()?, &limits))
}

fn lark(field: Field) -> Result<Form, ApiError> {
    let (path, limits) = (field.path.clone(), field.limits.grammar());
    formed(path, Grammar::lark(&field.string()?, &limits))
}

fn choice(field: Field) -> Result<Form, ApiError> {
    let (path, limits) = (field.path.clone(), field.limits.grammar());
    let texts = field.list_within(|limits| limits.choice_texts)?;
    let choices = texts.into_iter().map(Field::string).collect::<Result<Vec<_>, _>>()?;
    formed(path, Grammar::choice(&choices, &limits))
}

fn formed(path: String, grammar: Result<Grammar, GrammarError>) -> Result<Form, ApiError> {
    match grammar {
        Ok(grammar) => Ok(Form { path, grammar }),
        Err(error) => Err(ApiError::grammar(&path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_grammar::GrammarLimits;
    use serde_json::json;

    fn taken(body: Value) -> Result<Option<Form>, String> {
        let mut fields = Fields::of_body(body, &std::sync::Arc::default()).unwrap();
        let form = take(&mut fields).map_err(|error| error.to_string())?;
        fields.finish().map_err(|error| error.to_string())?;
        Ok(form)
    }

    #[test]
    fn each_name_gives_its_grammar() {
        let check = |body: Value, expected: Option<(&str, Grammar)>| {
            let form = taken(body).unwrap();
            let found = form.map(|form| (form.path, form.grammar));
            assert_eq!(found, expected.map(|(path, grammar)| (path.to_owned(), grammar)));
        };
        let schema = json!({"type": "integer"});
        let grammar = Grammar::json_schema(schema.clone(), &GrammarLimits::DEFAULT).unwrap();
        check(json!({}), None);
        check(json!({"response_format": {"type": "text"}}), None);
        let object = Grammar::json_object();
        check(
            json!({"response_format": {"type": "json_object"}}),
            Some(("response_format.type", object.clone())),
        );
        check(
            json!({"response_format": {"type": "json_object", "schema": schema}}),
            Some(("response_format.schema", grammar.clone())),
        );
        let named = json!({"name": "n", "schema": schema, "strict": true});
        let format = json!({"type": "json_schema", "json_schema": named});
        check(
            json!({"response_format": format}),
            Some(("response_format.json_schema.schema", grammar.clone())),
        );
        check(json!({"guided_json": schema}), Some(("guided_json", grammar.clone())));
        check(json!({"json_schema": schema}), Some(("json_schema", grammar.clone())));
        check(json!({"guided_json": schema.to_string()}), Some(("guided_json", grammar.clone())));
        check(json!({"structured_outputs": {"json": schema}}), Some(("structured_outputs.json", grammar)));
        check(
            json!({"guided_regex": "a+"}),
            Some(("guided_regex", Grammar::regex("a+", &GrammarLimits::DEFAULT).unwrap())),
        );
        let choice = Grammar::choice(&["a", "b"], &GrammarLimits::DEFAULT).unwrap();
        check(
            json!({"structured_outputs": {"choice": ["a", "b"]}}),
            Some(("structured_outputs.choice", choice)),
        );
        let lark = Grammar::lark("start: \"a\"", &GrammarLimits::DEFAULT).unwrap();
        check(json!({"guided_grammar": "start: \"a\""}), Some(("guided_grammar", lark)));
        check(
            json!({"structured_outputs": {"json_object": true}}),
            Some(("structured_outputs.json_object", object)),
        );
    }

    #[test]
    fn faults_name_their_place() {
        let check = |body: Value, part: &str| {
            let error = taken(body).unwrap_err();
            assert!(error.contains(part), "{part} is not in {error}");
        };
        check(json!({"response_format": "json"}), "`response_format` is the string");
        check(json!({"response_format": {"type": "xml"}}), "`response_format.type` is the string");
        check(
            json!({"response_format": {"type": "json_schema"}}),
            "`response_format.json_schema` is missing",
        );
        let format =
            |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": schema}});
        check(format(json!({"schema": {}})), "`response_format.json_schema.name` is missing");
        check(
            format(json!({"name": "n", "schema": 5})),
            "`response_format.json_schema.schema` is the number 5",
        );
        let wrong = json!({"properties": {"a": {"not": {}}}});
        check(
            format(json!({"name": "n", "schema": wrong})),
            "`response_format.json_schema.schema.properties.a",
        );
        check(
            json!({"guided_regex": "a", "guided_choice": ["b"]}),
            "`guided_choice`: `guided_regex` says already",
        );
        check(json!({"guided_choice": []}), "`guided_choice`: ");
        check(json!({"structured_outputs": {}}), "`structured_outputs`: one of json");
        check(
            json!({"structured_outputs": {"whitespace": 1}}),
            "unknown parameter `structured_outputs.whitespace`",
        );
    }
}
