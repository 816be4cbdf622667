//! Which files of a repository are the model, and why.
//!
//! GGUF: one quantisation, whole, with nothing beside it; image projectors and importance matrices are no models.
//! Safetensors: configuration, tokenizer, template and weights. Pickled weights are never taken.
//!
//! Knows paths alone, so that a server's listing and a snapshot in the cache are chosen from by the same rules.

use crate::error::HubError;
use crate::model_name::ModelName;
use crate::paths::check_path;
use crate::quant::{gguf_stem, quant_label, split_numbers};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The order in which quantisations are preferred where none was asked for: little loss in little space first, then
/// what is larger, then what loses more, then what isn't quantised at all.
const PREFERENCE: [&str; 22] = [
    "Q4_K_M",
    "Q4_K_S",
    "UD-Q4_K_XL",
    "Q5_K_M",
    "Q5_K_S",
    "Q6_K",
    "Q8_0",
    "MXFP4",
    "MXFP4_MOE",
    "NVFP4",
    "Q5_1",
    "Q5_0",
    "Q4_1",
    "Q4_0",
    "IQ4_NL",
    "IQ4_XS",
    "Q3_K_L",
    "Q3_K_M",
    "BF16",
    "F16",
    "FP16",
    "F32",
];
/// How many names an error lists.
const LISTED_MAX: usize = 40;
/// The quantisation that asks for the safetensors weights of a repository that has GGUF files too.
const SAFETENSORS: &str = "safetensors";

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Files at the root of a repository that belong to a safetensors model where they are there.
const BESIDE_WEIGHTS: [&str; 18] = [
    CONFIG,
    "generation_config.json",
    "quantize_config.json",
    "quant_config.json",
    "hf_quant_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "spiece.model",
    "tiktoken.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
];
const PICKLES: [&str; 5] = [".bin", ".pt", ".pth", ".pkl", ".ckpt"];

/// The files that are the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Paths in the repository, in the order in which they are fetched.
    pub paths: Vec<String>,
    /// What they are.
    pub files: ModelFiles,
    /// Why these, for a person.
    pub reason: String,
}

/// What a choice consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelFiles {
    /// A GGUF model; `first` is the path of the file that opens it.
    Gguf {
        /// The whole model, or the first part of a split one.
        first: String,
    },
    /// A directory with config.json and model.safetensors.
    Safetensors,
    /// A directory whose weights are the files that model.safetensors.index.json names; see [`Choice::with_shards`].
    Shards,
}

/// Chooses the files of `name` among the paths of its repository.
///
/// # Errors
/// What is missing, ambiguous or unsafe, with what is there.
pub fn choose(name: &ModelName, paths: &[&str]) -> Result<Choice, HubError> {
    let models = gguf_models(paths);
    let safetensors = paths.contains(&CONFIG) && (paths.contains(&WEIGHTS) || paths.contains(&INDEX));
    let asked = name.quant();
    let choice = if asked == Some(SAFETENSORS) || (asked.is_none() && models.is_empty()) {
        if !safetensors {
            return Err(no_model(name, paths));
        }
        choose_safetensors(paths)
    } else {
        choose_gguf(name, &models, asked, safetensors)?
    };
    choice.paths.iter().try_for_each(|path| check_path(&name.repository(), path))?;
    Ok(choice)
}

impl Choice {
    /// The choice with the weight files that the text of model.safetensors.index.json names.
    ///
    /// # Errors
    /// Where the index is no index or names what isn't in the repository.
    pub fn with_shards(mut self, name: &ModelName, index: &[u8], paths: &[&str]) -> Result<Self, HubError> {
        let fail =
            |problem| HubError::ShardIndex { name: name.repository(), index: INDEX.to_owned(), problem };
        let index: serde_json::Value =
            serde_json::from_slice(index).map_err(|error| fail(format!("is no JSON: {error}")))?;
        let map = index.get("weight_map").and_then(|map| map.as_object());
        let map = map.ok_or_else(|| fail("has no object `weight_map`".to_owned()))?;
        let mut shards = BTreeSet::new();
        for (tensor, shard) in map {
            let shard = shard.as_str().ok_or_else(|| fail(format!("names no file for tensor {tensor:?}")))?;
            shards.insert(shard);
        }
        let paths: HashSet<&str> = paths.iter().copied().collect();
        for shard in shards {
            check_path(&name.repository(), shard)?;
            if !paths.contains(shard) || !shard.ends_with(".safetensors") {
                return Err(fail(format!("names {shard:?}, which is no weight file of the repository")));
            }
            self.paths.push(shard.to_owned());
        }
        Ok(self)
    }

    /// The paths of the shard index, where its shards are still to be named.
    pub(crate) fn index(&self) -> Option<&'static str> {
        (self.files == ModelFiles::Shards).then_some(INDEX)
    }
}

/// A GGUF model, perhaps in several files.
struct GgufModel<'a> {
    stem: &'a str,
    label: Option<String>,
    /// Files by their part number.
    parts: BTreeMap<u32, &'a str>,
    part_count: u32,
}

impl GgufModel<'_> {
    /// What a person may ask for to get it.
    fn handle(&self) -> String {
        let file = self.stem.rsplit('/').next().unwrap_or(self.stem);
        self.label.clone().unwrap_or_else(|| file.escape_debug().to_string())
    }

    fn has_name(&self, asked: &str) -> bool {
        let file = self.stem.rsplit('/').next().unwrap_or(self.stem);
        let asked = gguf_stem(asked).unwrap_or(asked);
        file.eq_ignore_ascii_case(split_numbers(asked).0)
    }

    fn has_label(&self, asked: &str) -> bool {
        self.label.as_deref().is_some_and(|label| label.eq_ignore_ascii_case(asked))
    }

    fn has_dynamic_label(&self, asked: &str) -> bool {
        let plain = self.label.as_deref().and_then(|label| label.strip_prefix("UD-"));
        plain.is_some_and(|label| label.eq_ignore_ascii_case(asked))
    }
}

fn gguf_models<'a>(paths: &[&'a str]) -> Vec<GgufModel<'a>> {
    let mut models: BTreeMap<(&str, u32), GgufModel<'_>> = BTreeMap::new();
    for path in paths {
        let file = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let Some(stem) = gguf_stem(path) else { continue };
        if file.contains("mmproj") || file.contains("imatrix") {
            continue;
        }
        let (stem, numbers) = split_numbers(stem);
        let (part, part_count) = numbers.unwrap_or((1, 1));
        let model = models.entry((stem, part_count)).or_insert_with(|| GgufModel {
            stem,
            label: quant_label(path),
            parts: BTreeMap::new(),
            part_count,
        });
        model.parts.insert(part, path);
    }
    models.into_values().collect()
}

fn choose_gguf(
    name: &ModelName,
    models: &[GgufModel<'_>],
    asked: Option<&str>,
    has_safetensors: bool,
) -> Result<Choice, HubError> {
    let (model, mut reason) = match asked {
        Some(asked) => (find_asked(name, models, asked)?, "as asked".to_owned()),
        None => prefer(name, models)?,
    };
    if has_safetensors && asked.is_none() {
        reason.push_str("; safetensors weights are there too (`:safetensors`)");
    }
    let is_whole = model.parts.keys().copied().eq(1..=model.part_count);
    if !is_whole {
        return Err(HubError::IncompleteSplit {
            name: name.repository(),
            stem: model.stem.escape_debug().to_string(),
            found: model.parts.len(),
            expected: model.part_count as usize,
        });
    }
    let paths: Vec<String> = model.parts.values().map(|path| (*path).to_owned()).collect();
    let first = paths.first().expect("a model is made from a file").clone();
    Ok(Choice { paths, files: ModelFiles::Gguf { first }, reason: format!("{}: {reason}", model.handle()) })
}

/// The one model that was asked for: by its file's name, its label, or its label without `UD-`.
fn find_asked<'m, 'a>(
    name: &ModelName,
    models: &'m [GgufModel<'a>],
    asked: &str,
) -> Result<&'m GgufModel<'a>, HubError> {
    let ways: [fn(&GgufModel<'a>, &str) -> bool; 3] =
        [GgufModel::has_name, GgufModel::has_label, GgufModel::has_dynamic_label];
    for fits in ways {
        let found: Vec<&GgufModel<'a>> = models.iter().filter(|model| fits(model, asked)).collect();
        match found[..] {
            [] => {}
            [model] => return Ok(model),
            _ => return Err(ambiguous(name, &found)),
        }
    }
    let there = listed(models.iter().map(GgufModel::handle));
    Err(HubError::NoSuchQuant { name: name.repository(), asked: asked.to_owned(), there })
}

/// The model that is best where nothing was asked for, and why it is.
fn prefer<'m, 'a>(
    name: &ModelName,
    models: &'m [GgufModel<'a>],
) -> Result<(&'m GgufModel<'a>, String), HubError> {
    if let [model] = models {
        return Ok((model, "the only GGUF model there".to_owned()));
    }
    for label in PREFERENCE {
        let found: Vec<&GgufModel<'_>> = models.iter().filter(|model| model.has_label(label)).collect();
        match found[..] {
            [] => {}
            [model] => {
                let there = listed(models.iter().map(GgufModel::handle));
                let order = PREFERENCE[..7].join(", ");
                return Ok((model, format!("the first of {order}, ... among {there}")));
            }
            _ => return Err(ambiguous(name, &found)),
        }
    }
    Err(ambiguous(name, &models.iter().collect::<Vec<_>>()))
}

fn choose_safetensors(paths: &[&str]) -> Choice {
    let is_beside = |path: &&&str| {
        BESIDE_WEIGHTS.contains(*path)
            || (!path.contains('/') && path.ends_with(".tiktoken"))
            || (path.starts_with("additional_chat_templates/") && path.ends_with(".jinja"))
    };
    let mut chosen: Vec<String> = paths.iter().filter(is_beside).map(|path| (*path).to_owned()).collect();
    let is_single = paths.contains(&WEIGHTS);
    let (weights, files) =
        if is_single { (WEIGHTS, ModelFiles::Safetensors) } else { (INDEX, ModelFiles::Shards) };
    chosen.push(weights.to_owned());
    let reason = if is_single { "the safetensors weights" } else { "the safetensors weights, in shards" };
    Choice { paths: chosen, files, reason: format!("{reason}, with configuration, tokenizer and template") }
}

fn ambiguous(name: &ModelName, found: &[&GgufModel<'_>]) -> HubError {
    let there = listed(found.iter().map(|model| model.stem.escape_debug().to_string()));
    HubError::Ambiguous { name: name.repository(), there }
}

fn no_model(name: &ModelName, paths: &[&str]) -> HubError {
    let pickles = || paths.iter().filter(|path| PICKLES.iter().any(|ending| path.ends_with(ending)));
    let has_weights = paths.iter().any(|path| path.ends_with(".safetensors") || gguf_stem(path).is_some());
    let escaped = |path: &&str| path.escape_debug().to_string();
    if pickles().next().is_some() && !has_weights {
        return HubError::OnlyPickles { name: name.repository(), there: listed(pickles().map(escaped)) };
    }
    HubError::NoModel { name: name.repository(), there: listed(paths.iter().map(escaped)) }
}

/// Names for an error, each once, and how many more there are.
fn listed(names: impl Iterator<Item = String>) -> String {
    let names: BTreeSet<String> = names.collect();
    let mut shown: Vec<&str> = names.iter().take(LISTED_MAX).map(String::as_str).collect();
    let more = format!("{} more", names.len().saturating_sub(LISTED_MAX));
    if names.len() > LISTED_MAX {
        shown.push(&more);
    }
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str, paths: &[&str]) -> Result<Choice, String> {
        choose(&ModelName::parse(name).unwrap(), paths).map_err(|error| error.to_string())
    }

    const QUANTS: [&str; 7] = [
        "README.md",
        "m-Q8_0.gguf",
        "m-Q4_K_M.gguf",
        "m-UD-Q2_K_XL.gguf",
        "mmproj-F16.gguf",
        "m.imatrix.gguf",
        "BF16/m-BF16-00001-of-00002.gguf",
    ];

    #[test]
    fn one_gguf_model_is_chosen() {
        let check = |name: &str, paths: &[&str], expected: &[&str], reason: &str| {
            let choice = chosen(name, paths).unwrap();
            assert_eq!(choice.paths, expected, "{name}");
            assert_eq!(choice.files, ModelFiles::Gguf { first: expected[0].to_owned() });
            assert!(choice.reason.contains(reason), "{}", choice.reason);
        };
        check("a/b", &QUANTS, &["m-Q4_K_M.gguf"], "Q4_K_M: the first of Q4_K_M, Q4_K_S");
        check("a/b:q8_0", &QUANTS, &["m-Q8_0.gguf"], "Q8_0: as asked");
        check("a/b:M-q8_0.gguf", &QUANTS, &["m-Q8_0.gguf"], "Q8_0: as asked");
        check("a/b:Q2_K_XL", &QUANTS, &["m-UD-Q2_K_XL.gguf"], "UD-Q2_K_XL: as asked");
        check("a/b", &["x.gguf", "mmproj-x.gguf"], &["x.gguf"], "the only GGUF model");
        check("a/b", &["m-Q4_0.gguf", "m-F16.gguf"], &["m-Q4_0.gguf"], "the first of");
        let parts = ["x/m-Q4_0-00002-of-00002.gguf", "x/m-Q4_0-00001-of-00002.gguf"];
        check("a/b", &parts, &[parts[1], parts[0]], "Q4_0: the only");
        check(
            "a/b",
            &["config.json", "model.safetensors", "m-Q4_0.gguf"],
            &["m-Q4_0.gguf"],
            "`:safetensors`",
        );
    }

    #[test]
    fn what_is_absent_or_ambiguous_is_an_error_with_what_is_there() {
        let check = |name: &str, paths: &[&str], message: &str| {
            let error = chosen(name, paths).unwrap_err();
            assert!(error.contains(message), "{name}: {error}");
        };
        check(
            "a/b:Q4_K",
            &QUANTS,
            "no GGUF file of quantisation `Q4_K`; there are: BF16, Q4_K_M, Q8_0, UD-Q2_K_XL",
        );
        check("a/b:BF16", &QUANTS, "lacks parts of the split model `BF16/m-BF16`: 1 of 2");
        check("a/b", &["x-Q4_0.gguf", "y-Q4_0.gguf"], "several models that fit: x-Q4_0, y-Q4_0;");
        check("a/b:Q4_0", &["x-Q4_0.gguf", "y-Q4_0.gguf"], "several models that fit");
        check("a/b", &["x.gguf", "y.gguf"], "several models that fit: x, y;");
        check("a/b:Q4_0", &["config.json", "model.safetensors"], "`Q4_0`; there are: nothing");
        check("a/b", &[], "no model: expected");
        check("a/b", &["model.safetensors"], "there are: model.safetensors");
        check("a/b", &["config.json", "pytorch_model.bin"], "only pickled weights (pytorch_model.bin)");
        check("a/b:safetensors", &QUANTS, "has no model");
        check("a/b", &["a/../../m.gguf"], "can't be stored safely: it leaves its folder");
        check("a/b", &["/m.gguf"], "can't be stored safely");
        check("a/b", &["m-00001-of-99999.gguf"], "1 of 99999");
        check("a/b", &["m-00000-of-00001.gguf", "m-00001-of-00001.gguf", "m-00002-of-00001.gguf"], "3 of 1");
    }

    #[test]
    fn a_safetensors_model_brings_its_texts_and_no_pickles() {
        let paths = [
            ".gitattributes",
            "README.md",
            "config.json",
            "consolidated.safetensors",
            "model.safetensors",
            "onnx/config.json",
            "pytorch_model.bin",
            "qwen.tiktoken",
            "tokenizer.json",
            "training_args.bin",
            "additional_chat_templates/tool.jinja",
        ];
        let choice = chosen("a/b", &paths).unwrap();
        let expected = [
            "config.json",
            "qwen.tiktoken",
            "tokenizer.json",
            "additional_chat_templates/tool.jinja",
            "model.safetensors",
        ];
        assert_eq!(choice.paths, expected);
        assert_eq!(choice.files, ModelFiles::Safetensors);
    }

    #[test]
    fn the_index_names_the_shards() {
        let name = ModelName::parse("a/b").unwrap();
        let paths =
            ["config.json", INDEX, "x-1.safetensors", "x-2.safetensors", "other.safetensors", "y.bin"];
        let choice = choose(&name, &paths).unwrap();
        assert_eq!(choice.index(), Some(INDEX));
        let with = |index: &str| {
            let found = choice.clone().with_shards(&name, index.as_bytes(), &paths);
            found.map(|choice| choice.paths.join(" ")).map_err(|error| error.to_string())
        };
        let good =
            r#"{"weight_map": {"b": "x-2.safetensors", "a": "x-1.safetensors", "c": "x-2.safetensors"}}"#;
        assert_eq!(with(good).unwrap(), format!("config.json {INDEX} x-1.safetensors x-2.safetensors"));
        let check = |index: &str, message: &str| {
            let error = with(index).unwrap_err();
            assert!(error.contains(message), "{error}");
        };
        check("[", "is no JSON");
        check("{}", "no object `weight_map`");
        check(r#"{"weight_map": {"a": 1}}"#, "names no file for tensor \"a\"");
        check(r#"{"weight_map": {"a": "z.safetensors"}}"#, "names \"z.safetensors\"");
        check(r#"{"weight_map": {"a": "y.bin"}}"#, "no weight file");
        check(r#"{"weight_map": {"a": "../x"}}"#, "can't be stored safely");
    }
}
