//! How an embedding model makes one vector of a sequence: what the files beside its config say, or GGUF's keys.
//!
//! Folders have `1_Pooling/config.json`, which names the rows that count, and a folder for each projection after it
//! (`2_Dense`, `3_Dense`, ..) with a config and one matrix. GGUF has a number and tensors. A model whose files say
//! nothing of the kind gives scores.

use crate::ModelError;
use crate::config::PoolingConfig;
use crate::keys::{Key, Keys, gguf_key, json_key};
use crate::limits::WIDTH_MAX;
use gannet_formats::{Checkpoint, Source};
use gannet_ops::PoolKind;
use serde_json::{Map, Value};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a description of a module; real ones have some hundred.
const CONFIG_BYTES_MAX: u64 = 1 << 16;
/// Modules of an embedding model.
const MODULES_MAX: usize = 8;

const GGUF_KIND: Key = gguf_key("pooling_type");
const KIND: Key = json_key("pooling_mode");
const KINDS: [(&str, PoolKind); 3] = [
    ("pooling_mode_cls_token", PoolKind::First),
    ("pooling_mode_mean_tokens", PoolKind::Mean),
    ("pooling_mode_lasttoken", PoolKind::Last),
];
const OTHER_KINDS: [&str; 3] =
    ["pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens", "pooling_mode_weightedmean_tokens"];
const ACTIVATION: Key = json_key("activation_function");
const NO_ACTIVATION: &str = "torch.nn.modules.linear.Identity";
/// The matrix of a projection in its folder.
pub(crate) const PROJECTION: &str = "linear.weight";

/// The pooling of a checkpoint, where it has any, and the folders of its projections.
pub(crate) type Pooling = Option<(PoolingConfig, Vec<Arc<Checkpoint>>)>;

pub(crate) fn read(checkpoint: &Checkpoint, keys: &Keys<'_>) -> Result<Pooling, ModelError> {
    match &checkpoint.source {
        Source::Gguf(_) => from_gguf(keys),
        Source::HuggingFace(files) => from_folders(checkpoint, &files.directory),
    }
}

fn from_gguf(keys: &Keys<'_>) -> Result<Pooling, ModelError> {
    let kind = match keys.number(GGUF_KIND)? {
        None | Some(0.0) => return Ok(None),
        Some(1.0) => PoolKind::Mean,
        Some(2.0) => PoolKind::First,
        Some(3.0) => PoolKind::Last,
        Some(other) => return Err(keys.wrong(GGUF_KIND, other, "1 (mean), 2 (first) or 3 (last)")),
    };
    let mut projections = Vec::new();
    for name in ["dense_2.weight", "dense_3.weight"] {
        let tensor = keys.tensor(name)?;
        projections.extend(tensor.and_then(|tensor| tensor.shape.first().copied()));
    }
    Ok(Some((PoolingConfig { kind, projections }, Vec::new())))
}

fn from_folders(checkpoint: &Checkpoint, directory: &Path) -> Result<Pooling, ModelError> {
    let Some((file, map)) = module_config(&directory.join("1_Pooling/config.json"))? else { return Ok(None) };
    let kind = kind(&Keys::of_object(checkpoint, file, &map))?;
    let (mut widths, mut folders) = (Vec::new(), Vec::new());
    for module in 2..MODULES_MAX {
        let folder = directory.join(format!("{module}_Dense"));
        let Some((file, map)) = module_config(&folder.join("config.json"))? else { break };
        let keys = Keys::of_object(checkpoint, file, &map);
        keys.expect_off(json_key("bias"))?;
        if let Some(found) = keys.text(ACTIVATION)?
            && found != NO_ACTIVATION
        {
            return Err(keys.wrong(ACTIVATION, format!("`{found}`"), format!("`{NO_ACTIVATION}`")));
        }
        let width = json_key("out_features");
        let width = keys.count(width, WIDTH_MAX)?.ok_or_else(|| keys.missing(width, "a width"))?;
        widths.push(width);
        folders.push(Arc::new(Checkpoint::open(&folder)?));
    }
    Ok(Some((PoolingConfig { kind, projections: widths }, folders)))
}

/// Newer files name the kind, older ones have a flag for each.
fn kind(keys: &Keys<'_>) -> Result<PoolKind, ModelError> {
    for other in OTHER_KINDS {
        keys.expect_off(json_key(other))?;
    }
    match keys.text(KIND)? {
        Some("cls") => return Ok(PoolKind::First),
        Some("mean") => return Ok(PoolKind::Mean),
        Some("lasttoken") => return Ok(PoolKind::Last),
        Some(found) => return Err(keys.wrong(KIND, format!("`{found}`"), "`cls`, `mean` or `lasttoken`")),
        None => {}
    }
    let mut found = Vec::new();
    for (name, kind) in KINDS {
        found.extend(keys.flag(json_key(name))?.unwrap_or(false).then_some(kind));
    }
    match found[..] {
        [kind] => Ok(kind),
        _ => Err(keys.wrong_size("the number of ways to pool", found.len(), "1")),
    }
}

/// A module's description, and its file for errors.
type ModuleConfig = (String, Map<String, Value>);

/// The JSON object of a module, where the file is there.
fn module_config(path: &Path) -> Result<Option<ModuleConfig>, ModelError> {
    let file = path.display().to_string();
    let Ok(open) = fs::File::open(path) else { return Ok(None) };
    let mut text = String::new();
    let unreadable = |found: String| ModelError::WrongSize {
        file: file.clone(),
        what: "the description of a module".to_owned(),
        found,
        expected: format!("text of at most {CONFIG_BYTES_MAX} bytes"),
    };
    let read = open.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| unreadable(error.to_string()))? as u64;
    if bytes > CONFIG_BYTES_MAX {
        return Err(unreadable("longer".to_owned()));
    }
    let map = gannet_json::from_slice(text.as_bytes())
        .and_then(serde_json::from_value)
        .map_err(|source| ModelError::Json { file: file.clone(), source })?;
    Ok(Some((file, map)))
}
