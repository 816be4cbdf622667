//! `gannet serve`: models answer over HTTP.
//!
//! The server knows HTTP and no files; here are the flags, and how a model comes into memory when it is asked for.

#[cfg(unix)]
mod files;
mod limits;
mod source;

use crate::arguments::{ContextArguments, DeviceArguments, MemoryArguments, check_step_tokens, values};
use crate::commands::embed::Pooling;
use crate::failure::Failure;
use crate::model_reference::ModelReference;
use anyhow::Context;
use clap::{Args, ValueEnum};
use gannet_loader::{DEFAULT_STEP_ROWS, LoadOptions, MemoryBroker};
use gannet_ops::Backend;
use gannet_server::{Config, Keys, LevelFilter, LogForm, ModelEntry, Origins, Tls};
use limits::LimitArguments;
use source::{NamedModel, Pooled, Source};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Sequences of each model at once, where nothing else is chosen and there is memory.
const DEFAULT_SEQUENCES: usize = 8;

/// The variable that holds API keys, a line or comma each.
const KEYS_VARIABLE: &str = "GANNET_API_KEYS";

const HELP: &str = "\
The server speaks OpenAI's protocol: point a client at http://HOST:PORT/v1. It listens on this machine alone unless
--host says otherwise; then give it keys, in a file or in GANNET_API_KEYS. docs/server.md lists routes and limits.
Ctrl-C ends it when the requests that run have ended; a second one at once.

Examples:
  gannet serve model.gguf
  gannet serve --model small=small.gguf --model large=ORG/REPO:Q4_K_M --host 0.0.0.0 --api-key-file keys.txt";

/// Answer over HTTP, as OpenAI's API does
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ServeArguments {
    /// A .gguf file, a folder, or a name on the hub; clients call it by its file's name without the ending
    #[arg(value_name = "MODEL", required_unless_present_any = ["models", "embedding_models"])]
    model: Option<ModelReference>,
    /// A model and what clients call it; may be given several times. The first one is loaded at once
    #[arg(long = "model", value_name = "NAME=MODEL")]
    models: Vec<NamedModel>,
    /// The same for a model that makes vectors; may be given several times. One that makes nothing else needs no such word
    #[arg(long = "embedding-model", value_name = "NAME=MODEL")]
    embedding_models: Vec<NamedModel>,
    /// Which rows of a text make its vector [default: those that the model's files name]
    #[arg(long, value_enum, requires = "embedding_models")]
    pooling: Option<Pooling>,
    #[command(flatten)]
    device: DeviceArguments,
    #[command(flatten)]
    context: ContextArguments,
    #[command(flatten)]
    memory: MemoryArguments,
    /// Sequences of each model that run at once [default: 8, or as many fewer as leave each the whole context]
    #[arg(long, visible_alias = "sequences", value_name = "N", value_parser = values::streams)]
    max_sequences: Option<usize>,
    /// Tokens of a step: fewer let an arriving prompt delay others less, more let it come sooner [default: as many as fit
    /// into its time]
    #[arg(long, value_name = "N", value_parser = values::token_count)]
    step_tokens: Option<usize>,
    /// Models in memory at once, those longest unused go first [default: what memory allows]
    #[arg(long, value_name = "N", value_parser = values::streams)]
    max_loaded_models: Option<usize>,
    /// Seed of requests that name none: the same request gets the same answer then [default: a new one for each]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 lets the system choose
    #[arg(long, value_name = "N", default_value = "8080")]
    port: u16,
    /// File of API keys, a line each; requests without one of them are refused
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Web pages of this origin may ask, such as https://example.org; may be given several times, * is any
    #[arg(long = "cors-origin", value_name = "ORIGIN")]
    cors_origins: Vec<String>,
    /// Certificate for TLS, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogChoice::Text)]
    log: LogChoice,
    /// What the log tells: off, error, warn, info, debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
    /// Write prompts and answers to the log as well
    #[arg(long)]
    log_text: bool,
    /// Send requests as traces to an OTLP collector, such as http://127.0.0.1:4318
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Publish what prefix caches gain and lose over ZeroMQ, such as at tcp://0.0.0.0:5557
    #[cfg(feature = "kv-events")]
    #[arg(long, value_name = "ENDPOINT")]
    kv_events: Option<String>,
    /// What routers call this replica in these events [default: POD_IP or --host, with --port]
    #[cfg(feature = "kv-events")]
    #[arg(long, value_name = "HOST:PORT", requires = "kv_events")]
    kv_events_replica: Option<String>,
    /// Send old ones of these events again to who asks, such as at tcp://0.0.0.0:5558
    #[cfg(feature = "kv-events")]
    #[arg(long, value_name = "ENDPOINT", requires = "kv_events")]
    kv_events_replay: Option<String>,
    #[command(flatten)]
    limits: LimitArguments,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogChoice {
    /// A line for people
    Text,
    /// A JSON object a line
    Json,
}

impl LogChoice {
    fn form(self) -> LogForm {
        match self {
            LogChoice::Text => LogForm::Text,
            LogChoice::Json => LogForm::Json,
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let config = config(arguments)?;
    let backend: Arc<dyn Backend> = Arc::from(arguments.device.open()?);
    let models = models(arguments, &backend)?;
    let _log = start_log(arguments)?;
    #[cfg(unix)]
    files::allow_for(config.limits.connections);
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    gannet_server::serve(config, models, |address| eprintln!("gannet: listening on {scheme}://{address}"))?;
    Ok(())
}

/// What lasts as long as the log.
struct Log {
    /// What is left of them is sent when this is dropped.
    #[cfg(feature = "otlp")]
    _traces: Option<gannet_server::Traces>,
}

/// Starts the log.
#[cfg(not(feature = "otlp"))]
fn start_log(arguments: &ServeArguments) -> Result<Log, Failure> {
    gannet_server::start_log(arguments.log.form(), arguments.log_level);
    Ok(Log {})
}

/// Starts the log, and traces where they are asked for.
#[cfg(feature = "otlp")]
fn start_log(arguments: &ServeArguments) -> Result<Log, Failure> {
    let (form, level) = (arguments.log.form(), arguments.log_level);
    let Some(collector) = &arguments.otlp_endpoint else {
        gannet_server::start_log(form, level);
        return Ok(Log { _traces: None });
    };
    let traces = gannet_server::Traces::to(collector)
        .map_err(|error| Failure::usage(format!("--otlp-endpoint `{collector}`: {error}")))?;
    gannet_server::start_log_with_traces(form, level, &traces);
    Ok(Log { _traces: Some(traces) })
}

/// Where changes of prefix caches are published.
#[cfg(feature = "kv-events")]
fn kv_events(arguments: &ServeArguments) -> Option<gannet_server::KvEvents> {
    let own = || {
        let host = std::env::var("POD_IP").unwrap_or_else(|_| arguments.host.to_string());
        format!("{host}:{}", arguments.port)
    };
    let endpoint = arguments.kv_events.clone()?;
    let replica = arguments.kv_events_replica.clone().unwrap_or_else(own);
    Some(gannet_server::KvEvents { endpoint, replica, replay: arguments.kv_events_replay.clone() })
}

fn config(arguments: &ServeArguments) -> Result<Config, Failure> {
    let keys = keys(arguments)?;
    if keys.is_empty() && !arguments.host.is_loopback() {
        eprintln!(
            "gannet: note: everybody who reaches {} may ask; --api-key-file restricts it",
            arguments.host
        );
    }
    let tls = arguments.tls_certificate.as_ref().zip(arguments.tls_key.as_ref());
    Ok(Config {
        address: SocketAddr::new(arguments.host, arguments.port),
        keys,
        cors_origins: Origins::parse(&arguments.cors_origins)
            .map_err(|error| Failure::usage(format!("--cors-origin: {error}")))?,
        tls: tls.map(|(certificate, key)| Tls { certificate: certificate.clone(), key: key.clone() }),
        limits: Arc::new(arguments.limits.limits.clone()),
        loaded_models: arguments.max_loaded_models.unwrap_or(usize::MAX),
        seed: arguments.seed,
        logs_text: arguments.log_text,
        #[cfg(feature = "kv-events")]
        kv_events: kv_events(arguments),
    })
}

/// The keys of the file and of the environment together.
fn keys(arguments: &ServeArguments) -> Result<Keys, Failure> {
    let mut text = String::new();
    if let Some(file) = &arguments.api_key_file {
        text = fs::read_to_string(file).with_context(|| format!("can't read `{}`", file.display()))?;
        if Keys::parse(&text).is_ok_and(|keys| keys.is_empty()) {
            return Err(anyhow::anyhow!("`{}` holds no API key", file.display()).into());
        }
    }
    if let Ok(variable) = std::env::var(KEYS_VARIABLE) {
        text.push('\n');
        text.push_str(&variable.replace(',', "\n"));
    }
    Ok(Keys::parse(&text)?)
}

fn models(arguments: &ServeArguments, backend: &Arc<dyn Backend>) -> Result<Vec<ModelEntry>, Failure> {
    let text = |named: NamedModel| (named, None);
    let pooled = Pooled(arguments.pooling.map(Pooling::kind));
    let positional = arguments.model.as_ref().map(|reference| NamedModel::unnamed(reference.clone()));
    let texts = positional.into_iter().chain(arguments.models.iter().cloned()).map(text);
    let vectors = arguments.embedding_models.iter().cloned().map(|named| (named, Some(pooled)));
    let broker = MemoryBroker::of_process(arguments.memory.bytes)?;
    let mut entries: Vec<ModelEntry> = Vec::new();
    for (NamedModel { name, reference }, vectors) in texts.chain(vectors) {
        if entries.iter().any(|entry| entry.name == name) {
            return Err(Failure::usage(format!(
                "two models are called `{name}`; give them names with --model"
            )));
        }
        let source = Source {
            path: reference.locate()?,
            backend: backend.clone(),
            broker: broker.clone(),
            options: load_options(arguments)?,
            waiting: arguments.limits.limits.waiting,
            step_tokens: arguments.step_tokens,
            vectors,
        };
        source.check()?;
        entries.push(ModelEntry { name, source: Arc::new(source) });
    }
    Ok(entries)
}

/// How each model is loaded.
fn load_options(arguments: &ServeArguments) -> Result<LoadOptions, Failure> {
    let sequences = arguments.max_sequences.unwrap_or(DEFAULT_SEQUENCES);
    if let Some(tokens) = arguments.step_tokens {
        check_step_tokens(tokens, ("--max-sequences", sequences))?;
    }
    Ok(LoadOptions {
        sequences: Some(sequences),
        fewer_sequences: arguments.max_sequences.is_none(),
        // The default is what a step of most lengths has room for.
        step_rows: arguments.step_tokens.map(|tokens| tokens.max(DEFAULT_STEP_ROWS)),
        ..arguments.context.load_options()
    })
}
