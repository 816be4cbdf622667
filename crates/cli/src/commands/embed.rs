//! `gannet embed`: the vectors of texts.
//!
//! All texts are tokenised before the model is loaded, so that its context is no longer than they need. Several run at
//! once; the vectors come out in the order of the texts.

use crate::arguments::values::{self, TokenIds};
use crate::arguments::{ContextArguments, ModelArguments};
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Bar};
use clap::{Args, ValueEnum};
use crossbeam_channel::unbounded;
use gannet_engine::{Embedding, EmbeddingRequest, EngineHandle, EngineOptions};
use gannet_loader::{LoadOptions, Opened, Purpose, Running};
use gannet_ops::{KvFormat, PoolKind, TokenId};
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Texts that run at once at most: together they fill a step even where each is short.
const SEQUENCES_MAX: usize = 16;

const HELP: &str = "\
Prints one line a text: its vector, of unit length, as a JSON list. What the model's files say is done to the rows:
which of them count, and what they are projected by. A text longer than the model takes is refused, not cut.

Examples:
  gannet embed model.gguf \"one text\" \"and another\"
  gannet embed folder --file lines.txt --dimensions 256 --json";

/// Make vectors of texts
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct EmbedArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The texts
    #[arg(value_name = "TEXT", conflicts_with_all = ["file", "ids"])]
    texts: Vec<String>,
    /// A UTF-8 file with a text a line; empty lines are left out
    #[arg(long, value_name = "FILE", conflicts_with = "ids")]
    file: Option<PathBuf>,
    /// The token ids of one text, as 1,2,3 or @FILE, for models without a tokenizer
    #[arg(long, value_name = "LIST")]
    ids: Option<TokenIds>,
    /// Keep the first N elements of each vector, at unit length [default: all]
    #[arg(long, value_name = "N", value_parser = values::dimensions)]
    dimensions: Option<usize>,
    /// Which rows of a text make its vector [default: those that the model's files name]
    #[arg(long, value_enum)]
    pooling: Option<Pooling>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArguments,
}

/// The rows that make a vector, by the names that the field has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pooling {
    /// The last row
    Last,
    /// The mean of all rows
    Mean,
    /// The first row
    Cls,
}

impl Pooling {
    pub(crate) fn kind(self) -> PoolKind {
        match self {
            Pooling::Last => PoolKind::Last,
            Pooling::Mean => PoolKind::Mean,
            Pooling::Cls => PoolKind::First,
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Vectors<'a> {
    dimensions: usize,
    embeddings: Vec<VectorObject<'a>>,
}

#[derive(Serialize)]
struct VectorObject<'a> {
    tokens: u32,
    vector: &'a [f32],
}

/// Runs the command.
pub(crate) fn run(arguments: &EmbedArguments) -> Result<(), Failure> {
    let source = Source::choose(arguments)?;
    let path = arguments.model.reference.locate()?;
    let texts = token_lists(&source, &path)?;
    let backend = arguments.model.device.open()?;
    let options = load_options(arguments, &texts, &path)?;
    let loaded = progress::load(&path, backend.as_ref(), &options)?;
    let sequences = options.sequences.unwrap_or(1);
    let options = EngineOptions { sequences, waiting: texts.len(), ..EngineOptions::default() };
    let Running { handle, thread } = gannet_loader::start(loaded.runner, options)?;
    let embeddings = embed(&handle, texts, arguments.dimensions);
    drop(handle);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    show(&embeddings?, arguments.json)
}

/// What is embedded.
enum Source {
    Texts(Vec<String>),
    Ids(Vec<TokenId>),
}

impl Source {
    fn choose(arguments: &EmbedArguments) -> Result<Self, Failure> {
        if let Some(ids) = &arguments.ids {
            return Ok(Source::Ids(ids.read()?));
        }
        let texts = match &arguments.file {
            Some(file) => {
                let text = values::read_text(file)?;
                text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
            }
            None => arguments.texts.clone(),
        };
        if texts.is_empty() {
            return Err(Failure::usage("there is nothing to embed: give a TEXT, --file or --ids"));
        }
        Ok(Source::Texts(texts))
    }
}

/// The tokens of each text, with what the tokenizer puts around it.
fn token_lists(source: &Source, path: &Path) -> Result<Vec<Vec<TokenId>>, Failure> {
    let texts = match source {
        Source::Ids(ids) => return Ok(vec![ids.clone()]),
        Source::Texts(texts) => texts,
    };
    let Opened { text, .. } = gannet_loader::open(path)?;
    let tokenizer = text?.tokenizer;
    let ids = |text: &String| -> Result<Vec<TokenId>, Failure> {
        Ok(tokenizer.encode_prompt(text)?.into_iter().map(TokenId).collect())
    };
    texts.iter().map(ids).collect()
}

/// Room for the longest text, as far as the model reaches; a longer one is refused with the numbers when it is asked for.
fn load_options(
    arguments: &EmbedArguments,
    texts: &[Vec<TokenId>],
    path: &Path,
) -> Result<LoadOptions, Failure> {
    let longest = texts.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let options = arguments.context.load_options();
    let mut model = gannet_loader::open(path)?.model;
    if let Some(scaling) = &options.rope_scaling {
        model.scale_rope(scaling)?;
    }
    let reach = longest.min(model.default_context(options.rope_scaling.as_ref()));
    Ok(LoadOptions {
        context: Some(options.context.unwrap_or(reach)),
        sequences: Some(texts.len().clamp(1, SEQUENCES_MAX)),
        // They live no longer than a text, so that exact ones cost little.
        kv_format: Some(KvFormat::F32),
        purpose: Purpose::Vectors { pooling: arguments.pooling.map(Pooling::kind) },
        ..options
    })
}

/// The vectors of all texts, in their order.
fn embed(
    handle: &EngineHandle,
    texts: Vec<Vec<TokenId>>,
    dimensions: Option<usize>,
) -> Result<Vec<Embedding>, Failure> {
    let (sink, results) = unbounded();
    let sink = Arc::new(sink);
    let mut places = HashMap::new();
    let mut embeddings: Vec<Option<Embedding>> = vec![None; texts.len()];
    let bar = Bar::new("embedding");
    let total = texts.len();
    let mut waiting: Vec<(usize, Vec<TokenId>)> = texts.into_iter().enumerate().rev().collect();
    for done in 0..total {
        while places.len() < SEQUENCES_MAX * 2
            && let Some((place, tokens)) = waiting.pop()
        {
            let request = EmbeddingRequest { dimensions, ..EmbeddingRequest::whole(tokens, sink.clone()) };
            let id = handle.embed(request).map_err(|error| in_text(place, &error))?;
            places.insert(id, place);
        }
        let (id, result) = results.recv().map_err(|_| anyhow::anyhow!("the engine has stopped"))?;
        let place = places.remove(&id).expect("each request has one result");
        embeddings[place] = Some(result.map_err(|reason| in_text(place, &reason))?);
        bar.show(done + 1, total);
    }
    Ok(embeddings.into_iter().flatten().collect())
}

fn in_text(place: usize, why: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow::anyhow!("text {}: {why}", place + 1)
}

fn show(embeddings: &[Embedding], as_json: bool) -> Result<(), Failure> {
    if as_json {
        let objects = embeddings.iter().map(|embedding| VectorObject {
            tokens: embedding.usage.prompt_tokens,
            vector: &embedding.vector,
        });
        let dimensions = embeddings.first().map_or(0, |embedding| embedding.vector.len());
        return output::show_json(&Vectors { dimensions, embeddings: objects.collect() });
    }
    for embedding in embeddings {
        output::show_line(&serde_json::to_string(&embedding.vector)?)?;
    }
    Ok(())
}
