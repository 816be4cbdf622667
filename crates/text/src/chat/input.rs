//! What a template sees: messages, tools and variables as template values, marked where they look like special tokens.
//!
//! Knows no template.

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::MAX_INPUT_DEPTH;
use super::message::{Content, Message};
use crate::error::TextError;
use crate::special::{self, SpecialTexts};
use crate::tokenizer::NamedTokens;

/// Everything that comes from outside the template.
pub(super) struct Input<'a> {
    pub(super) messages: &'a [Message],
    pub(super) tools: &'a [Json],
    pub(super) variables: &'a Map<String, Json>,
}

/// Marks strings, if there is a mark: the first pass over the input found that one is needed.
pub(super) struct Guard<'a> {
    pub(super) specials: &'a SpecialTexts,
    pub(super) mark: Option<char>,
}

impl<'a> Input<'a> {
    /// Refuses input that would overflow the stack of whoever walks it.
    pub(super) fn check_depth(&self) -> Result<(), TextError> {
        let mut level: Vec<&Json> = self.roots().collect();
        let mut depth = 0;
        while !level.is_empty() {
            depth += 1;
            if depth > MAX_INPUT_DEPTH {
                let (found, limit) = (depth, MAX_INPUT_DEPTH);
                return Err(TextError::TooLarge { what: "the nesting of messages and tools", found, limit });
            }
            level = level.into_iter().flat_map(children).collect();
        }
        Ok(())
    }

    /// Whether any string holds, or could begin, a special token.
    pub(super) fn needs_marks(&self, specials: &SpecialTexts) -> bool {
        let roles: Vec<&str> = self.messages.iter().map(|message| message.role.as_str()).collect();
        let spells = |text: &str| !specials.seams(text).is_empty();
        roles.into_iter().any(spells) || self.said().any(|text| spells(text) || specials.ends_open(text))
    }

    /// All strings, keys included.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a str> {
        self.messages.iter().map(|message| message.role.as_str()).chain(self.said())
    }

    /// The template's variables.
    pub(super) fn context(&self, guard: &Guard<'_>, named: &NamedTokens, generate: bool) -> Value {
        let messages = self.messages.iter().map(|message| guard.message(message)).collect::<Vec<_>>();
        let tools = self.tools.iter().map(|tool| guard.value(tool)).collect::<Vec<_>>();
        let mut context: Vec<(String, Value)> =
            named.entries.iter().map(|(role, text)| (role.clone(), Value::from(text.as_str()))).collect();
        context.push(("messages".to_owned(), Value::from(messages)));
        context
            .push(("tools".to_owned(), if tools.is_empty() { Value::from(()) } else { Value::from(tools) }));
        context.push(("documents".to_owned(), Value::from(())));
        context.push(("add_generation_prompt".to_owned(), Value::from(generate)));
        context.extend(self.variables.iter().map(|(name, value)| (name.clone(), guard.value(value))));
        Value::from_pairs(context)
    }

    fn roots(&self) -> impl Iterator<Item = &'a Json> {
        let parts = self.messages.iter().flat_map(|message| match &message.content {
            Content::Parts(parts) => parts.as_slice(),
            Content::Text(_) | Content::Null | Content::Absent => &[],
        });
        let rest = self.messages.iter().flat_map(|message| message.rest.values());
        parts.chain(rest).chain(self.tools).chain(self.variables.values())
    }

    fn said(&self) -> impl Iterator<Item = &'a str> {
        let texts = self.messages.iter().filter_map(|message| match &message.content {
            Content::Text(text) => Some(text.as_str()),
            Content::Parts(_) | Content::Null | Content::Absent => None,
        });
        let keys = self.messages.iter().flat_map(|message| message.rest.keys().map(String::as_str));
        let mut nested = Vec::new();
        for root in self.roots() {
            collect_strings(root, &mut nested);
        }
        texts.chain(keys).chain(nested)
    }
}

fn children(value: &Json) -> Vec<&Json> {
    match value {
        Json::Array(items) => items.iter().collect(),
        Json::Object(entries) => entries.values().collect(),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => Vec::new(),
    }
}

fn collect_strings<'a>(value: &'a Json, strings: &mut Vec<&'a str>) {
    match value {
        Json::String(text) => strings.push(text),
        Json::Array(items) => items.iter().for_each(|item| collect_strings(item, strings)),
        Json::Object(entries) => {
            for (key, value) in entries {
                strings.push(key);
                collect_strings(value, strings);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

impl Guard<'_> {
    fn message(&self, message: &Message) -> Value {
        let mut fields = vec![(self.role(&message.role), "role")];
        match &message.content {
            Content::Text(text) => fields.push((self.text(text), "content")),
            Content::Parts(parts) => {
                let parts: Vec<Value> = parts.iter().map(|part| self.value(part)).collect();
                fields.push((Value::from(parts), "content"));
            }
            // As transformers hands messages over: a field that is null is none, since templates would print it.
            Content::Null | Content::Absent => {}
        }
        let fields = fields.into_iter().map(|(value, name)| (Value::from(name), value));
        let rest = message.rest.iter().filter(|(_, value)| !value.is_null());
        let rest = rest.map(|(name, value)| (self.text(name), self.value(value)));
        Value::from_pairs(fields.chain(rest).chain(self.reasoning(message)))
    }

    /// Templates read an assistant's reasoning under one of three names; whoever wrote the message knew one of them.
    fn reasoning(&self, message: &Message) -> Vec<(Value, Value)> {
        let names = ["reasoning_content", "thinking", "reasoning"];
        let given = names.iter().find_map(|name| message.rest.get(*name).filter(|value| !value.is_null()));
        let Some(given) = given else {
            return Vec::new();
        };
        let missing = |name: &&str| *name == "reasoning_content" || !message.rest.contains_key(*name);
        let names = names.into_iter().take(2).filter(|name| missing(name));
        names.map(|name| (Value::from(name), self.value(given))).collect()
    }

    pub(super) fn value(&self, value: &Json) -> Value {
        match value {
            Json::Null => Value::from(()),
            Json::Bool(flag) => Value::from(*flag),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(number), _) => Value::from(number),
                (None, Some(number)) => Value::from(number),
                (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => self.text(text),
            Json::Array(items) => Value::from(items.iter().map(|item| self.value(item)).collect::<Vec<_>>()),
            Json::Object(entries) => {
                Value::from_pairs(entries.iter().map(|(key, value)| (self.text(key), self.value(value))))
            }
        }
    }

    fn role(&self, role: &str) -> Value {
        match self.mark {
            Some(mark) => Value::from(special::insert_marks(role, &self.specials.seams(role), mark)),
            None => Value::from(role),
        }
    }

    fn text(&self, text: &str) -> Value {
        let Some(mark) = self.mark else {
            return Value::from(text);
        };
        let mut seams = self.specials.seams(text);
        if self.specials.ends_open(text) {
            seams.push(text.len());
        }
        Value::from(special::insert_marks(text, &seams, mark))
    }
}
