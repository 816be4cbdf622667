//! The grammar of an answer that calls tools, in the format of the model.
//!
//! A mark that is a control token of the model stands as that token, any other as its text. Arguments are held to the
//! tool's schema. What the grammar lets through, the parser of the format reads (`gannet_text::calls`).

use gannet_text::calls::{CallFormat, ReasoningFormat, Tool};
use serde_json::{Map, Value, json};

use crate::error::GrammarError;
use crate::grammar::{Grammar, Source, lark_string};
use crate::grammars::Grammars;
use crate::schema;

/// Closes all of DeepSeek's calls.
const DEEPSEEK_END: &str = "<｜tool▁calls▁end｜>";

/// A message of Harmony: what opens its header, its text, and the message behind it.
const HARMONY_MARKS: [&str; 3] = ["<|channel|>", "<|message|>", "<|start|>"];

/// Which tools an answer calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice<'a> {
    /// As the model likes; where it calls a strict tool, in its format.
    Auto,
    /// One of them, or several.
    Required {
        /// Whether there may be several calls.
        parallel: bool,
    },
    /// This one.
    Named {
        /// Its name.
        name: &'a str,
    },
}

/// What stands before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Nothing.
    None,
    /// The model may open its reasoning.
    MayOpen(ReasoningFormat),
    /// The prompt has opened it.
    IsOpen(ReasoningFormat),
}

impl Grammars {
    /// The grammar of an answer that calls tools; `None` where nothing is to be held, since the model may choose and no
    /// tool is strict.
    ///
    /// # Errors
    /// There is no such tool, there are too many, or a schema can't be held.
    pub fn for_tools(
        &self,
        format: CallFormat,
        tools: &[Tool],
        choice: ToolChoice<'_>,
        reasoning: Reasoning,
    ) -> Result<Option<Grammar>, GrammarError> {
        let chosen = chosen(tools, choice, self.limits().tools)?;
        let mut writer = Writer { grammars: self, format, rules: String::new() };
        let is_free = choice == ToolChoice::Auto;
        if is_free && !chosen.iter().any(|tool| tool.strict) {
            return Ok(None);
        }
        let call = |(place, tool): (usize, &&Tool)| match writer.call(place, tool) {
            // Beside strict tools others are called with any object, where no more can be held.
            Err(GrammarError::Schema { .. }) if is_free && !tool.strict => {
                let parameters = json!({"type": "object"});
                writer.call(place, &Tool { parameters, ..(*tool).clone() })
            }
            written => written,
        };
        let calls = chosen.iter().enumerate().map(call).collect::<Result<Vec<_>, _>>()?.join(" | ");
        let answer = match (choice, writer.opener()) {
            (ToolChoice::Auto, Some(opener)) => writer.freely(opener),
            (ToolChoice::Auto, None) if format == CallFormat::Harmony => writer.in_channels(),
            (ToolChoice::Auto, None) => writer.wholly(),
            (ToolChoice::Required { parallel: true }, _) => writer.opened(&writer.several()),
            (ToolChoice::Required { parallel: false } | ToolChoice::Named { .. }, _) => {
                writer.opened(&writer.one())
            }
        };
        let thinking = writer.reasoning(reasoning);
        let text = format!("start: {thinking} answer\nanswer: {answer}\ncall: {calls}\n{}", writer.rules);
        Ok(Some(Grammar { source: Source::Lark(text) }))
    }

    /// The grammar of an answer that either calls tools, as many as it likes, or is of another form.
    ///
    /// # Errors
    /// There are no tools or too many, or a schema can't be held.
    pub fn for_tools_or(
        &self,
        format: CallFormat,
        tools: &[Tool],
        otherwise: Grammar,
        reasoning: Reasoning,
    ) -> Result<Grammar, GrammarError> {
        let chosen = chosen(tools, ToolChoice::Auto, self.limits().tools)?;
        let mut writer = Writer { grammars: self, format, rules: String::new() };
        let calls = chosen.iter().enumerate().map(|(place, tool)| writer.call(place, tool));
        let calls = calls.collect::<Result<Vec<_>, _>>()?.join(" | ");
        let answer = writer.opened(&format!("({})", writer.several()));
        let thinking = writer.reasoning(reasoning);
        let rules = &writer.rules;
        let lark = format!("start: {thinking} (answer | @answer)\nanswer: {answer}\ncall: {calls}\n{rules}");
        Ok(Grammar { source: Source::Around { lark, answer: Box::new(otherwise.source) } })
    }

    /// The grammar of an answer of a form that stands behind the model's reasoning.
    pub fn after_reasoning(&self, grammar: Grammar, format: CallFormat, reasoning: Reasoning) -> Grammar {
        let mut writer = Writer { grammars: self, format, rules: String::new() };
        let before = match (format, reasoning) {
            (CallFormat::Harmony, _) => writer.channels(),
            (_, Reasoning::None) => return grammar,
            (_, Reasoning::MayOpen(_) | Reasoning::IsOpen(_)) => writer.reasoning(reasoning),
        };
        let lark = format!("start: {before} @answer\n{}", writer.rules);
        Grammar { source: Source::Around { lark, answer: Box::new(grammar.source) } }
    }
}

fn chosen<'a>(tools: &'a [Tool], choice: ToolChoice<'_>, most: usize) -> Result<Vec<&'a Tool>, GrammarError> {
    let fault = |reason: String| Err(GrammarError::Tools { reason });
    if tools.len() > most {
        return fault(format!("there are {} tools, at most {most} may be", tools.len()));
    }
    let is_chosen = |tool: &&Tool| match choice {
        ToolChoice::Named { name } => tool.name == name,
        ToolChoice::Auto | ToolChoice::Required { .. } => true,
    };
    let chosen: Vec<&Tool> = tools.iter().filter(is_chosen).collect();
    match (chosen.is_empty(), choice) {
        (true, ToolChoice::Named { name }) => fault(format!("there is no tool `{name}` to choose")),
        (true, ToolChoice::Auto | ToolChoice::Required { .. }) => {
            fault("there is no tool to call".to_owned())
        }
        (false, _) => Ok(chosen),
    }
}

/// Writes the rules of one format.
struct Writer<'a> {
    grammars: &'a Grammars,
    format: CallFormat,
    rules: String,
}

impl Writer<'_> {
    /// A mark: the token, where it is a control token, else its text.
    fn mark(&self, mark: &str) -> String {
        let tokenizer = self.grammars.tokenizer();
        match tokenizer.id_of(mark).filter(|id| tokenizer.is_special(*id)) {
            Some(id) => format!("<[{id}]>"),
            None => lark_string(mark),
        }
    }

    /// What shows that calls begin.
    fn opener(&self) -> Option<&'static str> {
        match self.format {
            CallFormat::Hermes | CallFormat::QwenCoder | CallFormat::Glm => Some("<tool_call>"),
            CallFormat::Mistral => Some("[TOOL_CALLS]"),
            CallFormat::DeepSeek => Some("<｜tool▁calls▁begin｜>"),
            CallFormat::GemmaToolCode => Some("```tool_code"),
            CallFormat::Llama3Json | CallFormat::Pythonic | CallFormat::Harmony | CallFormat::GenericJson => {
                None
            }
        }
    }

    /// Calls with what opens them.
    fn opened(&self, calls: &str) -> String {
        let opener = self.opener().map(|opener| self.mark(opener)).unwrap_or_default();
        format!("{opener} {calls}")
    }

    /// One call and what stands around it, behind the opener.
    fn one(&self) -> String {
        match self.format {
            CallFormat::Pythonic => "\"[\" call \"]\"".to_owned(),
            CallFormat::Mistral if !self.has_arguments_mark() => "\"[\" call \"]\"".to_owned(),
            CallFormat::GemmaToolCode => "\"\\n\" call \"\\n```\"".to_owned(),
            CallFormat::DeepSeek => format!("call {}", self.mark(DEEPSEEK_END)),
            CallFormat::Hermes
            | CallFormat::QwenCoder
            | CallFormat::Glm
            | CallFormat::Llama3Json
            | CallFormat::Mistral
            | CallFormat::Harmony
            | CallFormat::GenericJson => "call".to_owned(),
        }
    }

    /// One or more calls and what stands around them, behind the first opener.
    fn several(&self) -> String {
        match self.format {
            CallFormat::Hermes | CallFormat::QwenCoder | CallFormat::Glm => {
                format!("call (\"\\n\" {} call)*", self.mark("<tool_call>"))
            }
            CallFormat::Llama3Json => "call (\"; \" call)*".to_owned(),
            CallFormat::Mistral if self.has_arguments_mark() => {
                format!("call ({} call)*", self.mark("[TOOL_CALLS]"))
            }
            CallFormat::Pythonic | CallFormat::Mistral => "\"[\" call (\", \" call)* \"]\"".to_owned(),
            CallFormat::GenericJson => "call | \"[\" call (\", \" call)* \"]\"".to_owned(),
            CallFormat::GemmaToolCode => "\"\\n\" call (\"\\n\" call)* \"\\n```\"".to_owned(),
            CallFormat::DeepSeek => format!("call (\"\\n\" call)* {}", self.mark(DEEPSEEK_END)),
            // A message ends the answer.
            CallFormat::Harmony => self.one(),
        }
    }

    /// Whether the model has Mistral's newer form.
    fn has_arguments_mark(&self) -> bool {
        self.grammars.tokenizer().id_of("[ARGS]").is_some()
    }

    /// Text, and calls where the model opens one.
    fn freely(&mut self, opener: &str) -> String {
        let before = self.up_to("before", opener);
        let calls = self.several();
        self.rules += &format!("TEXT: {}\n", without(&[opener]));
        format!("TEXT? | {before} {calls}")
    }

    /// Text, or calls as the whole answer: a text doesn't begin as calls do.
    fn wholly(&mut self) -> String {
        let calls = self.several();
        let first: String =
            ['{', '['].into_iter().filter(|letter| self.format.begins_with(*letter)).collect();
        let text = without(self.format.marks());
        self.rules += &format!("TEXT: {text} & ~/\\s*[{}](?s:.*)/\n", first.replace('[', "\\["));
        format!("TEXT? | {calls}")
    }

    /// Harmony's messages: reasoning, words that go before, then the answer or a call.
    fn in_channels(&mut self) -> String {
        let [channel, message, start] = HARMONY_MARKS.map(|mark| self.mark(mark));
        let thoughts = self.up_to("thoughts", "<|end|>");
        let calls = self.several();
        self.rules += &format!("TEXT: {}\n", without(self.format.marks()));
        let aside =
            format!("{channel} (\"analysis\" | \"commentary\") {message} {thoughts} {start} \"assistant\"");
        format!("({aside})* ({channel} \"final\" {message} TEXT? | {calls})")
    }

    fn reasoning(&mut self, reasoning: Reasoning) -> String {
        let (format, is_open) = match reasoning {
            Reasoning::None => return String::new(),
            Reasoning::MayOpen(format) => (format, false),
            Reasoning::IsOpen(format) => (format, true),
        };
        let [open, close] = format.marks();
        let thoughts = self.up_to("thoughts", close);
        self.rules += "SPACE: /[ \\n]{1,4}/\n";
        if is_open {
            format!("{thoughts} SPACE?")
        } else {
            format!("({} {thoughts} SPACE?)?", self.mark(open))
        }
    }

    /// What stands before the text of Harmony's final message.
    fn channels(&mut self) -> String {
        let [channel, message, start] = HARMONY_MARKS.map(|mark| self.mark(mark));
        let thoughts = self.up_to("thoughts", "<|end|>");
        format!(
            "({channel} \"analysis\" {message} {thoughts} {start} \"assistant\")? {channel} \"final\" {message}"
        )
    }

    /// Any text up to a mark, and the mark. A mark that is text ends it where it first stands.
    fn up_to(&mut self, rule: &str, mark: &str) -> String {
        let written = self.mark(mark);
        if written.starts_with('<') {
            let terminal = rule.to_uppercase();
            self.rules += &format!("{terminal}: /(?s:.+)/\n");
            return format!("{terminal}? {written}");
        }
        self.rules += &format!("{rule}[suffix={written}]: /(?s:.*)/\n");
        rule.to_owned()
    }

    /// The rule of a tool's call; its name.
    fn call(&mut self, place: usize, tool: &Tool) -> Result<String, GrammarError> {
        let name = lark_string(&tool.name);
        let quoted = Value::from(tool.name.as_str()).to_string();
        let json = |key: &str| {
            let before = lark_string(&format!("{{\"name\": {quoted}, \"{key}\": "));
            format!("{before} args_{place} \"}}\"")
        };
        let body = match self.format {
            CallFormat::Hermes => {
                format!("\"\\n\" {} \"\\n\" {}", json("arguments"), self.mark("</tool_call>"))
            }
            CallFormat::Llama3Json => json("parameters"),
            CallFormat::GenericJson => json("arguments"),
            CallFormat::Mistral if self.has_arguments_mark() => {
                format!("{name} {} args_{place}", self.mark("[ARGS]"))
            }
            CallFormat::Mistral => json("arguments"),
            CallFormat::DeepSeek => {
                let [begin, end] =
                    ["<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"].map(|mark| self.mark(mark));
                let separator = self.mark("<｜tool▁sep｜>");
                let fenced =
                    format!("\"function\" {separator} {name} \"\\n```json\\n\" args_{place} \"\\n```\"");
                format!("{begin} ({name} {separator} args_{place} | {fenced}) {end}")
            }
            CallFormat::Harmony => {
                let [channel, constrain, message] =
                    ["<|channel|>", "<|constrain|>", "<|message|>"].map(|mark| self.mark(mark));
                let to = lark_string(&format!("commentary to=functions.{} ", tool.name));
                format!("{channel} {to} {constrain} \"json\" {message} args_{place}")
            }
            CallFormat::QwenCoder | CallFormat::Glm | CallFormat::Pythonic | CallFormat::GemmaToolCode => {
                return self.by_argument(place, tool);
            }
        };
        let schema = schema::checked(tool.parameters.clone(), self.grammars.limits())?;
        self.rules += &format!("call_{place}: {body}\nargs_{place}: %json {schema}\n");
        Ok(format!("call_{place}"))
    }

    /// The rule of a call whose arguments stand one by one, in the order of the schema.
    fn by_argument(&mut self, place: usize, tool: &Tool) -> Result<String, GrammarError> {
        let empty = Map::new();
        let properties = tool.parameters.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required = tool.parameters.get("required").and_then(Value::as_array);
        let is_required = |key: &str| required.is_some_and(|names| names.iter().any(|name| name == key));
        // With commas between, what is required goes first, so that each has one before it or none.
        let mut keys: Vec<&String> = properties.keys().collect();
        keys.sort_by_key(|key| !is_required(key));
        let mut arguments = String::new();
        for (number, key) in keys.iter().enumerate() {
            let rule = format!("arg_{place}_{number}");
            let value = self.value(&rule, tool, &properties[*key])?;
            self.rules += &format!("{rule}: {}\n", self.argument(key, &value));
            match (self.has_commas(), is_required(key)) {
                (true, true) if number == 0 => arguments += &format!(" {rule}"),
                (true, true) => arguments += &format!(" \", \" {rule}"),
                (true, false) if number == 0 => return self.optional(place, tool, keys.len(), number),
                (true, false) => arguments += &format!(" (\", \" {rule})?"),
                (false, true) => arguments += &format!(" {rule}"),
                (false, false) => arguments += &format!(" {rule}?"),
            }
        }
        self.close(place, tool, &arguments)
    }

    /// The rule of a call all of whose arguments are optional and stand between commas.
    fn optional(
        &mut self,
        place: usize,
        tool: &Tool,
        count: usize,
        first: usize,
    ) -> Result<String, GrammarError> {
        let empty = Map::new();
        let properties = tool.parameters.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        for (number, (key, schema)) in properties.iter().enumerate().skip(first + 1) {
            let rule = format!("arg_{place}_{number}");
            let value = self.value(&rule, tool, schema)?;
            self.rules += &format!("{rule}: {}\n", self.argument(key, &value));
        }
        let from = |start: usize| {
            let later: String =
                (start + 1..count).map(|number| format!(" (\", \" arg_{place}_{number})?")).collect();
            format!("arg_{place}_{start}{later}")
        };
        let ways: Vec<String> = (0..count).map(from).collect();
        self.close(place, tool, &format!(" ({})?", ways.join(" | ")))
    }

    fn close(&mut self, place: usize, tool: &Tool, arguments: &str) -> Result<String, GrammarError> {
        let close = self.mark("</tool_call>");
        let name = &tool.name;
        let body = match self.format {
            CallFormat::QwenCoder => {
                let function = lark_string(&format!("\n<function={name}>\n"));
                format!("{function}{arguments} \"</function>\\n\" {close}")
            }
            CallFormat::Glm => format!("{}{arguments} {close}", lark_string(&format!("{name}\n"))),
            CallFormat::Pythonic
            | CallFormat::GemmaToolCode
            | CallFormat::Hermes
            | CallFormat::Llama3Json
            | CallFormat::Mistral
            | CallFormat::DeepSeek
            | CallFormat::Harmony
            | CallFormat::GenericJson => format!("{}{arguments} \")\"", lark_string(&format!("{name}("))),
        };
        self.rules += &format!("call_{place}: {body}\n");
        Ok(format!("call_{place}"))
    }

    fn has_commas(&self) -> bool {
        matches!(self.format, CallFormat::Pythonic | CallFormat::GemmaToolCode)
    }

    fn argument(&self, key: &str, value: &str) -> String {
        match self.format {
            CallFormat::QwenCoder => {
                format!("{} {value}", lark_string(&format!("<parameter={key}>\n")))
            }
            CallFormat::Glm => {
                let [key_open, key_close, open] =
                    ["<arg_key>", "</arg_key>", "<arg_value>"].map(|mark| self.mark(mark));
                format!("{key_open} {} {key_close} \"\\n\" {open} {value} \"\\n\"", lark_string(key))
            }
            CallFormat::Pythonic
            | CallFormat::GemmaToolCode
            | CallFormat::Hermes
            | CallFormat::Llama3Json
            | CallFormat::Mistral
            | CallFormat::DeepSeek
            | CallFormat::Harmony
            | CallFormat::GenericJson => format!("{} {value}", lark_string(&format!("{key}="))),
        }
    }

    /// The value of an argument and what ends it: text between tags where it is a string, else JSON.
    fn value(&mut self, rule: &str, tool: &Tool, schema: &Value) -> Result<String, GrammarError> {
        let is_string = schema.get("type").and_then(Value::as_str) == Some("string");
        let end = match self.format {
            CallFormat::QwenCoder => "\n</parameter>\n",
            CallFormat::Glm => "</arg_value>",
            CallFormat::Hermes
            | CallFormat::Llama3Json
            | CallFormat::Pythonic
            | CallFormat::Mistral
            | CallFormat::DeepSeek
            | CallFormat::GemmaToolCode
            | CallFormat::Harmony
            | CallFormat::GenericJson => return self.json_value(rule, tool, schema),
        };
        let choices = schema.get("enum").and_then(Value::as_array).filter(|_| is_string);
        if let Some(choices) = choices {
            let choices: Vec<String> = choices.iter().filter_map(Value::as_str).map(lark_string).collect();
            return Ok(format!("({}) {}", choices.join(" | "), self.mark(end)));
        }
        if is_string {
            return Ok(self.up_to(&format!("{rule}_text"), end));
        }
        Ok(format!("{} {}", self.json_value(rule, tool, schema)?, self.mark(end)))
    }

    fn json_value(&mut self, rule: &str, tool: &Tool, schema: &Value) -> Result<String, GrammarError> {
        let mut schema = schema.clone();
        for definitions in ["$defs", "definitions"] {
            if let (Some(found), Some(entries)) = (tool.parameters.get(definitions), schema.as_object_mut()) {
                entries.insert(definitions.to_owned(), found.clone());
            }
        }
        let schema = schema::checked(schema, self.grammars.limits())?;
        self.rules += &format!("{rule}_json: %json {schema}\n");
        Ok(format!("{rule}_json"))
    }
}

/// A terminal of texts that have none of these marks in them.
fn without(marks: &[&str]) -> String {
    let escape = |letter: char| {
        if "\\.+*?()|[]{}^$/".contains(letter) { format!("\\{letter}") } else { letter.to_string() }
    };
    let none = |mark: &&str| format!(" & ~/(?s:.*){}(?s:.*)/", mark.chars().map(escape).collect::<String>());
    format!("/(?s:.+)/{}", marks.iter().map(none).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_without_a_mark_is_a_terminal() {
        assert_eq!(without(&["[X]"]), r"/(?s:.+)/ & ~/(?s:.*)\[X\](?s:.*)/");
        assert_eq!(json!("a\"b").to_string(), lark_string("a\"b"));
    }
}
