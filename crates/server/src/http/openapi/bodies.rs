//! What routes take: a schema a body.

use super::kinds::{Property, flag, integer, json_schema, list, number, one_of, taken, text};
use crate::limits::Limits;
use crate::openai::request::OWN_VARIABLES;
use serde_json::{Map, Value, json};

/// All of them, for a server of these models and limits.
pub(super) fn schemas(models: &[&str], limits: &Limits) -> Map<String, Value> {
    Bodies { limits }.all(models)
}

/// Bodies whose lists and numbers are bounded by these limits.
pub(super) struct Bodies<'a> {
    pub(super) limits: &'a Limits,
}

impl Bodies<'_> {
    fn all(&self, models: &[&str]) -> Map<String, Value> {
        let model = json!({"type": "string", "enum": models});
        let body = |required: &[&str], groups: &[&[Property]]| {
            let all: Vec<Property> =
                [&[("model", model.clone())][..]].iter().chain(groups).copied().flatten().cloned().collect();
            taken(required, &all)
        };
        let said = ["model", "messages"];
        let time = [("timeout", number(0.001, self.limits.request_time.as_secs_f64()))];
        let token_ids = |kind: Value| vec![("return_token_ids", kind)];
        let one = [self.drawing_one(), token_ids(constant(&json!(false))), time.to_vec()].concat();
        let several = [self.drawing(), token_ids(flag()), time.to_vec()].concat();
        let nested = self.tools(self.nested_tool(), self.nested_choice());
        let flat = self.tools(self.flat_tool(), self.flat_choice());
        let anthropic = [
            ("tools", list(self.anthropic_tool(), 0, self.limits.tools)),
            ("tool_choice", anthropic_choice()),
        ];
        let entries = [
            ("Chat", body(&said, &[&several, &client(), &self.forms(), &nested, &self.chat(), &streaming()])),
            (
                "Completion",
                body(
                    &["model", "prompt"],
                    &[&several, &client(), &self.forms(), &self.completion(), &streaming()],
                ),
            ),
            (
                "Response",
                body(&["model", "input"], &[&one, &client_kept(), &self.guided(), &flat, &self.response()]),
            ),
            (
                "Message",
                body(
                    &["model", "messages", "max_tokens"],
                    &[&one, &self.guided(), &anthropic, &self.message()],
                ),
            ),
            ("Count", body(&said, &[&anthropic, &self.conversation()])),
            ("Embedding", body(&["model", "input"], &[&self.embedding(), &time])),
            ("Tokenize", self.tokenize(models, &model)),
            ("Detokenize", body(&with_model(models, "tokens"), &[&[("tokens", ids(0))]])),
        ];
        entries.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
    }

    fn scores(&self) -> Value {
        integer(0, i64::from(self.limits.logprobs))
    }

    /// How tokens are drawn and where an answer ends, on every route.
    fn drawing_one(&self) -> Vec<Property> {
        vec![
            ("stream", flag()),
            ("temperature", number(0.0, 2.0)),
            ("top_p", json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1})),
            ("top_k", integer(-1, i64::from(u32::MAX))),
            ("min_p", number(0.0, 1.0)),
            ("typical_p", number(0.0, 1.0)),
            ("top_n_sigma", number(0.0, 1000.0)),
            ("xtc_probability", number(0.0, 1.0)),
            ("xtc_threshold", number(0.0, 1.0)),
            ("presence_penalty", number(-2.0, 2.0)),
            ("frequency_penalty", number(-2.0, 2.0)),
            ("repetition_penalty", number(0.01, 100.0)),
            ("logit_bias", self.biases()),
            ("seed", integer(i64::MIN, i64::MAX)),
            ("ignore_eos", flag()),
            ("min_tokens", count(0)),
            ("stop_token_ids", self.token_list()),
            ("allowed_token_ids", self.token_list()),
            ("priority", integer(-1_000_000, 1_000_000)),
            ("cache_salt", text()),
            ("skip_special_tokens", flag()),
            ("include_stop_str_in_output", constant(&json!(false))),
            ("spaces_between_special_tokens", constant(&json!(true))),
            ("use_beam_search", constant(&json!(false))),
            ("timings", flag()),
            ("truncate_prompt_tokens", cut()),
        ]
    }

    fn token_list(&self) -> Value {
        list(integer(0, i64::from(u32::MAX)), 0, self.limits.token_ids)
    }

    fn biases(&self) -> Value {
        json!({
            "type": "object", "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
            "additionalProperties": number(-100.0, 100.0), "maxProperties": self.limits.biases,
        })
    }

    /// The same with what routes of several answers add.
    fn drawing(&self) -> Vec<Property> {
        let own = vec![("n", integer(1, i64::from(self.limits.choices))), ("stop", self.stops())];
        [self.drawing_one(), own].concat()
    }

    /// A stop string, where the empty one is none, or several.
    fn stops(&self) -> Value {
        let stop =
            |least: u32| json!({"type": "string", "minLength": least, "maxLength": self.limits.stop_letters});
        json!({"anyOf": [stop(0), list(stop(1), 0, self.limits.stops)]})
    }

    /// The field's names for the form of an answer.
    fn guided(&self) -> Vec<Property> {
        let schema = json_schema();
        let texts = list(text(), 1, self.limits.choice_texts);
        let outputs = [
            ("json", schema.clone()),
            ("json_object", flag()),
            ("regex", text()),
            ("choice", texts.clone()),
            ("grammar", text()),
        ];
        vec![
            ("guided_json", schema.clone()),
            ("json_schema", schema),
            ("guided_regex", text()),
            ("guided_grammar", text()),
            ("guided_choice", texts),
            ("structured_outputs", taken(&[], &outputs)),
        ]
    }

    /// The same with the protocol's own.
    fn forms(&self) -> Vec<Property> {
        let named = json!({"anyOf": [
            taken(&["type"], &[("type", one_of(&["text"]))]),
            taken(&["type"], &[("type", one_of(&["json_object"])), ("schema", json_schema())]),
            taken(&["type", "json_schema"], &[
                ("type", one_of(&["json_schema"])), ("json_schema", taken(&["name", "schema"], &self.schema())),
            ]),
        ]});
        [self.guided(), vec![("response_format", named)]].concat()
    }

    /// A schema with its name.
    fn schema(&self) -> Vec<Property> {
        vec![
            ("name", json!({"type": "string", "minLength": 1, "maxLength": self.limits.name_letters})),
            ("description", text()),
            ("strict", flag()),
            ("schema", json_schema()),
        ]
    }

    fn tools(&self, tool: Value, choice: Value) -> Vec<Property> {
        vec![
            ("tools", list(tool, 0, self.limits.tools)),
            ("tool_choice", choice),
            ("parallel_tool_calls", flag()),
        ]
    }

    fn tool_name(&self) -> Value {
        json!({"type": "string", "pattern": format!("^[a-zA-Z0-9_.-]{{1,{}}}$", self.limits.name_letters)})
    }

    /// What a tool is, whatever its schema is called.
    fn function(&self, schema: &'static str) -> Vec<Property> {
        vec![
            ("name", self.tool_name()),
            ("description", text()),
            ("strict", flag()),
            (schema, json!({"type": "object"})),
        ]
    }

    fn nested_tool(&self) -> Value {
        let own = [
            function_type(),
            ("function", taken(&["name"], &self.function("parameters"))),
            ("cache_control", json!({})),
        ];
        taken(&["type", "function"], &own)
    }

    fn flat_tool(&self) -> Value {
        let own = [self.function("parameters"), vec![function_type(), ("cache_control", json!({}))]].concat();
        taken(&["type", "name"], &own)
    }

    fn anthropic_tool(&self) -> Value {
        let own = [
            self.function("input_schema"),
            vec![("type", one_of(&["custom"])), ("cache_control", json!({}))],
        ]
        .concat();
        taken(&["name"], &own)
    }

    fn allowed(&self, reference: Value) -> Vec<Property> {
        vec![("mode", one_of(&["auto", "required"])), ("tools", list(reference, 0, self.limits.tools))]
    }

    fn nested_choice(&self) -> Value {
        let function = taken(&["name"], &[("name", text())]);
        let reference = taken(&["type", "function"], &[function_type(), ("function", function)]);
        let inner = taken(&["mode", "tools"], &self.allowed(reference.clone()));
        let allowed = taken(
            &["type", "allowed_tools"],
            &[("type", one_of(&["allowed_tools"])), ("allowed_tools", inner)],
        );
        choices(reference, allowed)
    }

    fn flat_choice(&self) -> Value {
        let reference = taken(&["type", "name"], &[function_type(), ("name", text())]);
        let own = [vec![("type", one_of(&["allowed_tools"]))], self.allowed(reference.clone())].concat();
        choices(reference, taken(&["type", "mode", "tools"], &own))
    }

    /// What a template is told beside the conversation.
    fn template(&self) -> Vec<Property> {
        let variables = json!({
            "type": "object", "maxProperties": self.limits.template_variables,
            "propertyNames": {"not": {"enum": OWN_VARIABLES}},
        });
        vec![
            ("continue_final_message", flag()),
            ("add_generation_prompt", flag()),
            ("chat_template_kwargs", variables),
        ]
    }

    fn chat(&self) -> Vec<Property> {
        let own = vec![
            ("messages", self.messages()),
            ("max_tokens", count(1)),
            ("max_completion_tokens", count(1)),
            ("logprobs", flag()),
            ("top_logprobs", self.scores()),
            ("prompt_logprobs", self.scores()),
            ("reasoning_effort", effort()),
            ("thinking_token_budget", count(0)),
            ("modalities", constant(&json!(["text"]))),
        ];
        [own, self.template()].concat()
    }

    /// A text, token ids, or a list of them.
    fn prompt(&self) -> Value {
        json!({"anyOf": [text(), list(text(), 1, self.limits.prompts), ids(1), list(ids(1), 1, self.limits.prompts)]})
    }

    fn completion(&self) -> Vec<Property> {
        vec![
            ("prompt", self.prompt()),
            ("max_tokens", count(0)),
            ("logprobs", self.scores()),
            ("prompt_logprobs", self.scores()),
            ("echo", flag()),
            ("add_special_tokens", flag()),
            ("suffix", constant(&json!(""))),
            ("best_of", integer(1, i64::from(self.limits.choices))),
        ]
    }

    fn response(&self) -> Vec<Property> {
        let format = json!({"anyOf": [
            taken(&["type"], &[("type", one_of(&["text"]))]),
            taken(&["type"], &[("type", one_of(&["json_object"])), ("schema", json_schema())]),
            taken(&["type", "name", "schema"], &[vec![("type", one_of(&["json_schema"]))], self.schema()].concat()),
        ]});
        vec![
            ("input", json!({"anyOf": [text(), self.items()]})),
            ("instructions", text()),
            ("previous_response_id", text()),
            ("max_output_tokens", count(1)),
            ("store", flag()),
            ("background", flag()),
            ("text", taken(&[], &[("format", format)])),
            ("reasoning", taken(&[], &[("effort", effort())])),
            ("thinking_token_budget", count(0)),
            ("stream_options", taken(&[], &[("include_obfuscation", constant(&json!(false)))])),
            ("truncation", one_of(&["auto", "disabled"])),
            ("include", constant(&json!([]))),
            ("top_logprobs", constant(&json!(0))),
            ("prompt_logprobs", json!({"type": "null"})),
        ]
    }

    fn message(&self) -> Vec<Property> {
        let own = vec![
            ("max_tokens", count(1)),
            ("stop_sequences", self.stops()),
            ("metadata", json!({"type": "object"})),
            ("service_tier", one_of(&["auto", "standard_only"])),
        ];
        [self.conversation(), own].concat()
    }

    fn embedding(&self) -> Vec<Property> {
        vec![
            ("input", self.prompt()),
            ("dimensions", integer(1, i64::from(u32::MAX))),
            ("encoding_format", one_of(&["float", "base64"])),
            ("add_special_tokens", flag()),
            ("priority", integer(-1_000_000, 1_000_000)),
            ("cache_salt", text()),
            ("user", text()),
            ("truncate_prompt_tokens", cut()),
        ]
    }

    /// A text or a conversation.
    fn tokenize(&self, models: &[&str], model: &Value) -> Value {
        let shared = [("model", model.clone()), ("return_token_strs", flag())];
        let words = [("prompt", text()), ("add_special_tokens", flag())];
        let chat = [
            vec![("messages", self.messages())],
            self.template(),
            self.tools(self.nested_tool(), self.nested_choice()),
        ]
        .concat();
        json!({"anyOf": [
            taken(&with_model(models, "prompt"), &[&shared[..], &words].concat()),
            taken(&with_model(models, "messages"), &[&shared[..], &chat].concat()),
        ]})
    }
}

/// A server of one model needs not be told which one it is.
fn with_model(models: &[&str], name: &'static str) -> Vec<&'static str> {
    if models.len() == 1 { vec![name] } else { vec!["model", name] }
}

/// How many tokens of a prompt are kept.
fn cut() -> Value {
    json!({"anyOf": [constant(&json!(-1)), count(1)]})
}

pub(super) fn count(least: i64) -> Value {
    integer(least, i64::from(i32::MAX))
}

fn ids(least: usize) -> Value {
    json!({"type": "array", "items": integer(0, i64::from(u32::MAX)), "minItems": least})
}

pub(super) fn constant(value: &Value) -> Value {
    json!({"const": value})
}

/// Parameters about the client.
fn client_kept() -> Vec<Property> {
    vec![
        ("user", text()),
        ("safety_identifier", text()),
        ("prompt_cache_key", text()),
        ("prompt_cache_retention", text()),
        ("metadata", json!({"type": "object"})),
        ("service_tier", one_of(&["auto", "default"])),
    ]
}

/// The same where answers are not kept.
fn client() -> Vec<Property> {
    [client_kept(), vec![("store", constant(&json!(false)))]].concat()
}

fn streaming() -> Vec<Property> {
    let no = constant(&json!(false));
    let options =
        [("include_usage", flag()), ("include_obfuscation", no.clone()), ("continuous_usage_stats", no)];
    vec![("stream_options", taken(&[], &options)), ("return_progress", flag())]
}

pub(super) fn function_type() -> Property {
    ("type", one_of(&["function"]))
}

/// What a choice among tools may be, where a tool is named in this way.
fn choices(reference: Value, allowed: Value) -> Value {
    json!({"anyOf": [one_of(&["none", "auto", "required"]), reference, allowed]})
}

fn anthropic_choice() -> Value {
    let one_call = ("disable_parallel_tool_use", flag());
    json!({"anyOf": [
        taken(&["type"], &[("type", one_of(&["auto", "any", "none"])), one_call.clone()]),
        taken(&["type", "name"], &[("type", one_of(&["tool"])), ("name", text()), one_call]),
    ]})
}

fn effort() -> Value {
    one_of(&["none", "minimal", "low", "medium", "high", "xhigh"])
}
