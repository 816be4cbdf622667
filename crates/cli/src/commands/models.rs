//! `gannet models`: what is in the cache.

use crate::download;
use crate::failure::Failure;
use crate::output;
use crate::quantity::{bytes, plural};
use clap::Args;
use gannet_hub::CachedModel;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HELP: &str = "\
A model is run by its name, with a quantisation where it has several: gannet run ORG/REPO:QUANT

Examples:
  gannet models
  gannet models --json";

/// List the models in the cache
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct ModelsArguments {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Listing<'a> {
    cache: &'a Path,
    bytes: u64,
    models: Vec<ModelFacts>,
}

/// One repository.
#[derive(Debug, Serialize)]
struct ModelFacts {
    name: String,
    /// Quantisations, and `safetensors`.
    variants: Vec<String>,
    /// On disk.
    bytes: u64,
    /// Files whose download was interrupted.
    unfinished: usize,
    /// Seconds since 1970, where the file system notes it.
    last_used: Option<u64>,
}

/// Runs the command.
pub(crate) fn run(arguments: &ModelsArguments) -> Result<(), Failure> {
    let hub = download::hub()?;
    let models: Vec<ModelFacts> = hub.cached()?.iter().map(ModelFacts::new).collect();
    if arguments.json {
        let bytes = models.iter().map(|model| model.bytes).sum();
        return output::show_json(&Listing { cache: hub.cache(), bytes, models });
    }
    if models.is_empty() {
        return output::show_line(&format!("no models in `{}`", hub.cache().display()));
    }
    output::show(&(lines(&models, SystemTime::now()).join("\n") + "\n"))
}

impl ModelFacts {
    fn new(model: &CachedModel) -> Self {
        let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs());
        Self {
            name: model.name.repository(),
            variants: model.variants.clone(),
            bytes: model.bytes,
            unfinished: model.unfinished,
            last_used: model.last_used.and_then(since_1970),
        }
    }

    fn remark(&self) -> String {
        match self.unfinished {
            0 => String::new(),
            count => format!("{} unfinished", plural(count, "file")),
        }
    }
}

/// A table, a line a model and one for all.
fn lines(models: &[ModelFacts], now: SystemTime) -> Vec<String> {
    let title = ["MODEL", "VARIANTS", "SIZE", "LAST USED", ""].map(str::to_owned);
    let row = |model: &ModelFacts| {
        let used = model.last_used.map_or("unknown".to_owned(), |seconds| ago(seconds, now));
        [model.name.clone(), model.variants.join(", "), bytes(model.bytes), used, model.remark()]
    };
    let rows: Vec<[String; 5]> = [title].into_iter().chain(models.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let line = |row: &[String; 5]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let total: u64 = models.iter().map(|model| model.bytes).sum();
    let sum = format!("{} in {}", bytes(total), plural(models.len(), "model"));
    rows.iter().map(line).chain([sum]).collect()
}

/// How long ago a moment, in seconds since 1970, was.
fn ago(seconds: u64, now: SystemTime) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(seconds);
    let passed = now.duration_since(then).unwrap_or_default().as_secs();
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    match units.into_iter().find(|(length, _)| passed >= *length) {
        Some((length, unit)) => format!("{} ago", plural((passed / length) as usize, unit)),
        None => "just now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let model = |name: &str, bytes, unfinished, last_used| ModelFacts {
            name: name.to_owned(),
            variants: vec!["Q4_K_M".to_owned(), "Q8_0".to_owned()],
            bytes,
            unfinished,
            last_used,
        };
        let models = [model("org/a", 1024, 0, Some(40)), model("organisation/b", 3 << 20, 1, None)];
        let lines = lines(&models, UNIX_EPOCH + Duration::from_secs(3 * 86_400 + 40));
        assert_eq!(
            lines,
            [
                "MODEL           VARIANTS      SIZE     LAST USED",
                "org/a           Q4_K_M, Q8_0  1.0 KiB  3 days ago",
                "organisation/b  Q4_K_M, Q8_0  3.0 MiB  unknown     1 file unfinished",
                "3.0 MiB in 2 models",
            ]
        );
    }

    #[test]
    fn time_is_told_in_its_largest_unit() {
        let check = |passed: u64, expected: &str| {
            assert_eq!(ago(100, UNIX_EPOCH + Duration::from_secs(100 + passed)), expected);
        };
        check(0, "just now");
        check(59, "just now");
        check(60, "1 minute ago");
        check(7199, "1 hour ago");
        check(86_400 * 400, "400 days ago");
        assert_eq!(ago(100, UNIX_EPOCH), "just now");
    }
}
