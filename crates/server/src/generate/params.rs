//! The parameters that all protocols share: how tokens are drawn, where an answer ends, what comes with it.
//!
//! OpenAI's names, and the extensions that the field uses. A filter that isn't given is off, except temperature 1.

use super::prompt::Prompt;
use crate::error::{ApiError, TimeLimit};
use crate::models::Served;
use crate::wire::fields::{Field, Fields};
use gannet_ops::TokenId;
use gannet_ops::sampling::{Sampling, Xtc};
use gannet_text::decode::SpecialTokens;
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// How a request's answers are made.
#[derive(Clone, Debug)]
pub(crate) struct Params {
    pub(crate) sampling: Arc<Sampling>,
    pub(crate) seed: u64,
    /// Answers to each prompt.
    pub(crate) choices: u32,
    /// The most tokens of an answer and the parameter that says so; all that the context leaves where absent.
    pub(crate) max_tokens: Option<(&'static str, u32)>,
    pub(crate) min_tokens: u32,
    pub(crate) ignore_end: bool,
    pub(crate) stops: Vec<String>,
    pub(crate) stop_tokens: Vec<TokenId>,
    pub(crate) logprobs: Option<u32>,
    /// The same of the prompt's tokens.
    pub(crate) prompt_logprobs: Option<u32>,
    pub(crate) priority: i32,
    pub(crate) cache_salt: u64,
    pub(crate) special_tokens: SpecialTokens,
    pub(crate) time: TimeLimit,
    /// What of a prompt is kept, where it may be cut.
    pub(crate) cut: Option<Cut>,
    pub(crate) extras: Extras,
}

/// What is kept of a prompt: its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// So many tokens.
    Last(usize),
    /// As much as leaves room for the answer.
    ToFit,
}

/// What comes with an answer, where asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// The ids of prompt and answer.
    pub(crate) token_ids: bool,
    /// How long the parts of the request took.
    pub(crate) timings: bool,
    /// How far the prompt is.
    pub(crate) progress: bool,
}

impl Params {
    /// Takes what all protocols share; each adds its own names of the rest.
    pub(crate) fn take(fields: &mut Fields, served: &Served) -> Result<Self, ApiError> {
        Ok(Self {
            sampling: Arc::new(sampling(fields, served)?),
            seed: fields
                .integer("seed", i64::MIN..=i64::MAX)?
                .map_or_else(|| served.seed(), |seed| seed as u64),
            choices: choices(fields, served)?,
            max_tokens: None,
            min_tokens: token_count(fields, "min_tokens", 0)?.unwrap_or(0),
            ignore_end: fields.boolean("ignore_eos")?.unwrap_or(false),
            stops: stops(fields, "stop")?,
            stop_tokens: token_list(fields, "stop_token_ids", served)?,
            logprobs: None,
            prompt_logprobs: None,
            priority: priority(fields)?,
            cache_salt: salt(fields)?,
            special_tokens: match fields.boolean("skip_special_tokens")?.unwrap_or(true) {
                true => SpecialTokens::Skip,
                false => SpecialTokens::Show,
            },
            time: time_limit(fields)?,
            cut: cut(fields)?,
            extras: extras(fields)?,
        })
    }

    /// Tokens of a prompt that leave room for the answer, or for one token of it where nothing is said.
    pub(crate) fn room(&self, served: &Served) -> usize {
        served.room().saturating_sub(self.max_tokens.map_or(1, |(_, most)| most.max(1) as usize))
    }

    /// Cuts a prompt where that was asked for.
    pub(crate) fn cut(&self, prompt: &mut Prompt, served: &Served) {
        match self.cut {
            Some(Cut::Last(tokens)) => prompt.keep_last(tokens),
            Some(Cut::ToFit) => prompt.keep_last(self.room(served).max(1)),
            None => {}
        }
    }

    /// Checks what depends on several parameters.
    pub(crate) fn check(self) -> Result<Self, ApiError> {
        match self.max_tokens {
            Some((_, most)) if self.min_tokens > most => Err(ApiError::Invalid {
                path: "min_tokens".to_owned(),
                why: format!("{} are more than the {most} that the answer may have", self.min_tokens),
            }),
            Some(_) | None => Ok(self),
        }
    }
}

/// Answers to each prompt, at most as many as run and wait together.
fn choices(fields: &mut Fields, served: &Served) -> Result<u32, ApiError> {
    let asked = fields.integer("n", 1..=i64::from(fields.limits().choices))?.unwrap_or(1) as usize;
    served.admission.check(asked, "n")?;
    Ok(asked as u32)
}

fn sampling(fields: &mut Fields, served: &Served) -> Result<Sampling, ApiError> {
    let vocabulary = served.handle.vocabulary();
    let greedy = Sampling::greedy();
    let xtc_probability = fields.number("xtc_probability", 0.0..=1.0)?;
    let xtc_threshold = fields.number("xtc_threshold", 0.0..=1.0)?;
    let top_p = fields.take("top_p").map(top_p).transpose()?;
    Ok(Sampling {
        temperature: fields.number("temperature", 0.0..=2.0)?.unwrap_or(1.0),
        top_p: top_p.unwrap_or(1.0),
        // -1 and 0 both mean all tokens.
        top_k: fields.integer("top_k", -1..=i64::from(u32::MAX))?.map_or(0, |k| k.max(0) as u32),
        min_p: fields.number("min_p", 0.0..=1.0)?.unwrap_or(greedy.min_p),
        typical_p: fields.number("typical_p", 0.0..=1.0)?.unwrap_or(greedy.typical_p),
        top_n_sigma: fields.number("top_n_sigma", 0.0..=1000.0)?.unwrap_or(greedy.top_n_sigma),
        repetition_penalty: repetition_penalty(fields)?,
        presence_penalty: fields.number("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        frequency_penalty: fields.number("frequency_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        logit_bias: fields
            .take("logit_bias")
            .map_or(Ok(Vec::new()), |field| logit_bias(field, vocabulary))?,
        only: token_list(fields, "allowed_token_ids", served)?,
        xtc: xtc_probability
            .filter(|probability| *probability > 0.0)
            .map(|probability| Xtc { probability, threshold: xtc_threshold.unwrap_or(0.1) }),
        ..greedy
    })
}

fn top_p(field: Field) -> Result<f32, ApiError> {
    let none = field.beyond("a number above 0, up to 1");
    let share = field.number(0.0..=1.0)?;
    if share > 0.0 { Ok(share) } else { Err(none) }
}

fn repetition_penalty(fields: &mut Fields) -> Result<f32, ApiError> {
    Ok(fields.number("repetition_penalty", 0.01..=100.0)?.unwrap_or(1.0))
}

fn logit_bias(field: Field, vocabulary: usize) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let (path, limits) = (field.path.clone(), field.limits.clone());
    let entries = field.object()?.into_rest();
    let limit = limits.biases;
    if entries.len() > limit {
        return Err(ApiError::TooMany { path, found: entries.len(), limit });
    }
    let bias = |(key, value): (String, serde_json::Value)| {
        let path = format!("{path}.{}", crate::wire::fields::shortened(&key));
        let field = Field { path, value, limits: limits.clone() };
        let id = key.parse::<u32>().ok().filter(|id| id.to_string() == key && (*id as usize) < vocabulary);
        let id = id.ok_or_else(|| field.invalid(format!("its name is no token id below {vocabulary}")))?;
        Ok((TokenId(id), field.number(-100.0..=100.0)?))
    };
    entries.into_iter().map(bias).collect()
}

/// Stop strings: none, one or a list.
pub(crate) fn stops(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let Some(field) = fields.take(name) else { return Ok(Vec::new()) };
    let stop = |field: Field| {
        let most = field.limits.stop_letters;
        let wrong = field.beyond(&format!("1 to {most} characters"));
        let stop = field.string()?;
        if (1..=most).contains(&stop.chars().count()) { Ok(stop) } else { Err(wrong) }
    };
    if field.value == "" {
        // Some clients send an empty one for none.
        return Ok(Vec::new());
    }
    if field.value.is_string() {
        return Ok(vec![stop(field)?]);
    }
    if !field.value.is_array() {
        return Err(field.wrong("a string or a list of strings"));
    }
    field.list_within(|limits| limits.stops)?.into_iter().map(stop).collect()
}

fn token_list(fields: &mut Fields, name: &str, served: &Served) -> Result<Vec<TokenId>, ApiError> {
    let vocabulary = served.handle.vocabulary();
    let Some(field) = fields.take(name) else { return Ok(Vec::new()) };
    let ids = field.list_within(|limits| limits.token_ids)?.into_iter();
    ids.map(|field| field.token_id(vocabulary).map(TokenId)).collect()
}

/// A number of tokens.
pub(crate) fn token_count(fields: &mut Fields, name: &str, least: i64) -> Result<Option<u32>, ApiError> {
    Ok(fields.integer(name, least..=i64::from(i32::MAX))?.map(|count| count as u32))
}

/// How many log-probabilities beside each token's own.
pub(crate) fn logprob_count(fields: &mut Fields, name: &str) -> Result<Option<u32>, ApiError> {
    Ok(fields.integer(name, 0..=i64::from(fields.limits().logprobs))?.map(|count| count as u32))
}

fn extras(fields: &mut Fields) -> Result<Extras, ApiError> {
    fields.only("include_stop_str_in_output", &[json!(false)], "stop strings are never part of an answer")?;
    fields.only("spaces_between_special_tokens", &[json!(true)], "only `true` is known")?;
    fields.refuse("bad_words", "use `logit_bias` with token ids")?;
    fields.refuse("logits_processors", "code from requests is never run")?;
    fields.only("use_beam_search", &[json!(false)], "there is no beam search")?;
    Ok(Extras {
        token_ids: fields.boolean("return_token_ids")?.unwrap_or(false),
        timings: fields.boolean("timings")?.unwrap_or(false),
        progress: false,
    })
}

/// Whether prompts may be cut, and what is kept then; -1 is what leaves room for the answer.
pub(crate) fn cut(fields: &mut Fields) -> Result<Option<Cut>, ApiError> {
    let Some(field) = fields.take("truncate_prompt_tokens") else { return Ok(None) };
    let nothing = field.beyond("at least one token, or -1 for what leaves room for the answer");
    match field.integer(-1..=i64::from(i32::MAX))? {
        0 => Err(nothing),
        -1 => Ok(Some(Cut::ToFit)),
        tokens => Ok(Some(Cut::Last(tokens as usize))),
    }
}

/// Here as elsewhere in the field a lower number goes first; the engine counts the other way.
pub(crate) fn priority(fields: &mut Fields) -> Result<i32, ApiError> {
    Ok(-(fields.integer("priority", -1_000_000..=1_000_000)?.unwrap_or(0) as i32))
}

/// The request's own limit of time within the server's.
pub(crate) fn time_limit(fields: &mut Fields) -> Result<TimeLimit, ApiError> {
    let most = fields.limits().request_time;
    let asked = fields.number("timeout", 0.001..=most.as_secs_f64())?;
    Ok(TimeLimit { length: asked.map_or(most, Duration::from_secs_f32), is_asked: asked.is_some() })
}

/// Requests of different salts share no cached prompt.
pub(crate) fn salt(fields: &mut Fields) -> Result<u64, ApiError> {
    Ok(fields.string("cache_salt")?.map_or(0, |salt| salt_of(&salt)))
}

/// The number that stands for a salt; 0 is for requests without one.
fn salt_of(salt: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    salt.hash(&mut hasher);
    hasher.finish().max(1)
}
