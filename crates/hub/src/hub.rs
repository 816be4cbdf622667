//! The hub and its cache: what a model's name leads to.

use crate::cache::{CachedModel, RepoCache, cached_models};
use crate::choose::{Choice, ModelFiles, choose};
use crate::client::Client;
use crate::download::Download;
use crate::environment::Environment;
use crate::error::HubError;
use crate::listing::{self, Listing, RepoFile};
use crate::model_name::ModelName;
use crate::progress::Watch;
use crate::retry::Transfer;
use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Bytes of model.safetensors.index.json.
const INDEX_BYTES_MAX: u64 = 64 << 20;

/// Where models are fetched from and kept.
pub struct Hub {
    cache: PathBuf,
    client: Client,
    is_offline: bool,
}

/// What would be fetched for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The model.
    pub name: ModelName,
    /// The commit that its revision is now.
    pub commit: String,
    /// The files, in the order in which they are fetched.
    pub files: Vec<RepoFile>,
    /// What they are together.
    pub kind: ModelFiles,
    /// Why these, for a person.
    pub reason: String,
}

impl Plan {
    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

/// A model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// What opens it: a GGUF file (the first of a split model), or a directory with config.json.
    pub path: PathBuf,
    /// Its commit.
    pub commit: String,
    /// Why these files, for a person.
    pub reason: String,
}

impl Hub {
    /// The hub that the environment describes: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN (else the token file),
    /// HF_HUB_OFFLINE, SSL_CERT_FILE and the usual variables for folders and proxies.
    ///
    /// # Errors
    /// Settings that can't be used.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        Self::with_transfer(lookup, Transfer::default())
    }

    /// The same, with other numbers of connections and attempts.
    ///
    /// # Errors
    /// Settings that can't be used.
    pub fn with_transfer(
        lookup: impl Fn(&str) -> Option<String>,
        transfer: Transfer,
    ) -> Result<Self, HubError> {
        let transfer = Transfer {
            connections: transfer.connections.max(1),
            piece_bytes: transfer.piece_bytes.max(1),
            attempts: transfer.attempts.max(1),
            ..transfer
        };
        let environment = Environment::read(lookup)?;
        let client = Client::new(&environment, transfer)?;
        Ok(Self { cache: environment.cache, client, is_offline: environment.is_offline })
    }

    /// The folder of the cache.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// Whether the network is not to be used.
    pub fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// The model from the cache, else from the hub.
    ///
    /// # Errors
    /// Those of [`Hub::locate`] when offline, else those of [`Hub::pull`].
    pub fn obtain(&self, name: &ModelName, watch: &Watch<'_>) -> Result<Located, HubError> {
        match self.locate(name) {
            Err(HubError::NotCached { .. }) if !self.is_offline => self.pull(name, watch),
            located => located,
        }
    }

    /// The model as the hub has it now, fetching what the cache lacks; when offline, from the cache.
    ///
    /// # Errors
    /// What can't be found, chosen, fetched or written.
    pub fn pull(&self, name: &ModelName, watch: &Watch<'_>) -> Result<Located, HubError> {
        if self.is_offline {
            return self.locate(name);
        }
        self.fetch(&self.plan(name)?, watch)
    }

    /// Lists the repository and chooses its files. Fetches the index of a model in shards, which names them.
    ///
    /// # Errors
    /// What can't be reached, found or chosen.
    pub fn plan(&self, name: &ModelName) -> Result<Plan, HubError> {
        if self.is_offline {
            return Err(HubError::Offline { name: name.to_string() });
        }
        let Listing { commit, files } = listing::list(&self.client, name)?;
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let mut choice = choose(name, &paths)?;
        if let Some(index) = choice.index() {
            let file = files.iter().find(|file| file.path == index);
            let file = file.expect("an index is chosen among the paths of the listing");
            let quiet = |_: crate::Progress<'_>| ControlFlow::Continue(());
            let repo = RepoCache::new(&self.cache, name);
            Download::new(&self.client, &repo, name, &commit, file, &quiet).run()?;
            choice =
                choice.with_shards(name, &read_index(name, &repo.snapshot(&commit).join(index))?, &paths)?;
        }
        let Choice { paths, files: kind, reason } = choice;
        let by_path: HashMap<&str, &RepoFile> = files.iter().map(|file| (file.path.as_str(), file)).collect();
        let files = paths.iter().map(|path| by_path[path.as_str()].clone()).collect();
        Ok(Plan { name: name.clone(), commit, files, kind, reason })
    }

    /// Fetches what the cache lacks of a plan. What another process fetches at the same time is waited for.
    ///
    /// # Errors
    /// What can't be fetched or written; what has come by then is used by the next attempt.
    pub fn fetch(&self, plan: &Plan, watch: &Watch<'_>) -> Result<Located, HubError> {
        let Plan { name, commit, files, kind, reason } = plan;
        let repo = RepoCache::new(&self.cache, name);
        for file in files {
            Download::new(&self.client, &repo, name, commit, file, watch).run()?;
        }
        repo.set_commit(name.revision(), commit)?;
        let path = opened(&repo.snapshot(commit), kind);
        Ok(Located { path, commit: commit.clone(), reason: reason.clone() })
    }

    /// The model as the cache has it, without the network.
    ///
    /// # Errors
    /// [`HubError::NotCached`] where it isn't there, or not whole.
    pub fn locate(&self, name: &ModelName) -> Result<Located, HubError> {
        let absent = |why: String| {
            let why = if self.is_offline { format!("{why}; HF_HUB_OFFLINE is set") } else { why };
            HubError::not_cached(name, &self.cache, why)
        };
        let repo = RepoCache::new(&self.cache, name);
        let commit = repo.commit_of(name.revision());
        let commit =
            commit.ok_or_else(|| absent(format!("revision `{}` was never fetched", name.revision())))?;
        let paths = repo.files(&commit);
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let snapshot = repo.snapshot(&commit);
        let mut choice = choose(name, &paths).map_err(|error| absent(error.to_string()))?;
        if let Some(index) = choice.index() {
            let index = read_index(name, &snapshot.join(index))?;
            choice = choice.with_shards(name, &index, &paths).map_err(|error| absent(error.to_string()))?;
        }
        Ok(Located { path: opened(&snapshot, &choice.files), commit, reason: choice.reason })
    }

    /// The models of the cache, by name.
    ///
    /// # Errors
    /// Where the cache can't be read.
    pub fn cached(&self) -> Result<Vec<CachedModel>, HubError> {
        cached_models(&self.cache)
    }

    /// Deletes a model repository from the cache with all its revisions; returns the bytes that it took.
    ///
    /// # Errors
    /// Where it isn't there, is being fetched, or can't be deleted; and where `name` has a quantisation or a revision,
    /// since the repository goes as a whole.
    pub fn remove(&self, name: &ModelName) -> Result<u64, HubError> {
        if name.to_string() != name.repository() {
            let problem = "models are removed by whole repositories, so leave out what follows it";
            return Err(HubError::Name { name: name.to_string(), problem });
        }
        let repo = RepoCache::new(&self.cache, name);
        if fs::symlink_metadata(&repo.folder).is_err() {
            return Err(HubError::not_cached(name, &self.cache, "there is no such folder"));
        }
        repo.remove(name)
    }
}

/// The path that a loader opens.
fn opened(snapshot: &Path, kind: &ModelFiles) -> PathBuf {
    match kind {
        ModelFiles::Gguf { first } => snapshot.join(first),
        ModelFiles::Safetensors | ModelFiles::Shards => snapshot.to_path_buf(),
    }
}

fn read_index(name: &ModelName, file: &Path) -> Result<Vec<u8>, HubError> {
    let io = |error| HubError::io(file, "read", error);
    let found = fs::metadata(file).map_err(io)?.len();
    if found > INDEX_BYTES_MAX {
        let (what, limit, limit_name) = ("the size of the shard index", INDEX_BYTES_MAX, "INDEX_BYTES_MAX");
        return Err(HubError::OverLimit { name: name.repository(), what, found, limit, limit_name });
    }
    fs::read(file).map_err(io)
}
