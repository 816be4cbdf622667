//! The hub against servers that behave and servers that don't: what is fetched, kept, refused and said.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod cached;
mod faults;
mod names;
mod server;

use gannet_hub::{Hub, HubError, Located, ModelName, Phase, Progress, Transfer};
use server::{COMMIT, Content, Files, Site};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

const TOKEN: &str = "hf_secret";

/// A cache of its own and the settings to reach a site.
struct Place {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
    transfer: Transfer,
}

impl Place {
    /// Pieces of 1,000 bytes over 3 connections; nothing waits.
    fn new(endpoint: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap().to_owned();
        let transfer = Transfer {
            connections: 3,
            piece_bytes: 1000,
            attempts: 3,
            first_wait: Duration::ZERO,
            sleep: |_| {},
        };
        Self { folder, variables: vec![("HF_HOME", home), ("HF_ENDPOINT", endpoint)], transfer }
    }

    fn of(site: &Site) -> Self {
        Self::new(site.endpoint())
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn hub(&self) -> Hub {
        let lookup = |name: &str| {
            let found = self.variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.clone())
        };
        Hub::with_transfer(lookup, self.transfer).unwrap()
    }

    fn pull(&self, name: &str) -> Result<Located, HubError> {
        let watch = |progress: Progress<'_>| {
            assert!(progress.done <= progress.total, "{progress:?}");
            ControlFlow::Continue(())
        };
        self.hub().pull(&name_of(name), &watch)
    }

    fn pull_error(&self, name: &str) -> String {
        self.pull(name).unwrap_err().to_string()
    }

    fn repo(&self) -> PathBuf {
        self.folder.path().join("hub/models--org--repo")
    }

    /// Names in the folder of contents.
    fn blobs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.repo().join("blobs")).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Nothing of the file can be seen under a final name.
    fn check_nothing_final(&self) {
        assert!(self.blobs().iter().all(|name| name.ends_with(".incomplete")), "{:?}", self.blobs());
        assert!(!self.repo().join("snapshots").exists());
        assert!(!self.repo().join("refs").exists());
    }
}

fn name_of(name: &str) -> ModelName {
    ModelName::parse(name).unwrap()
}

fn gguf(content: &Content) -> Files {
    Files::from([("m-Q8_0.gguf", content.clone()), ("README.md", Content::small("read me"))])
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path).unwrap()
}

#[test]
fn a_large_file_comes_in_pieces_and_lies_where_other_tools_look() {
    let content = Content::large(10_500, 1);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    let located = place.pull("org/repo").unwrap();
    assert_eq!(located.path, place.repo().join(format!("snapshots/{COMMIT}/m-Q8_0.gguf")));
    assert_eq!(read(&located.path), content.bytes);
    assert_eq!(read(place.repo().join("refs/main")), COMMIT.as_bytes());
    assert_eq!(place.blobs(), [content.hash()]);
    #[cfg(unix)]
    {
        let target = fs::read_link(&located.path).unwrap();
        assert_eq!(target, Path::new("../../blobs").join(content.hash()));
    }
    let mut ranges: Vec<String> =
        site.storage.requests().iter().map(|request| request.header("range").unwrap().to_owned()).collect();
    ranges.sort_by_key(|range| range.len());
    assert_eq!(ranges.len(), 11);
    assert_eq!(ranges[10], "bytes=10000-10499");
}

#[test]
fn a_second_pull_fetches_nothing_and_offline_needs_no_server() {
    let content = Content::large(3500, 2);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    let first = place.pull("org/repo").unwrap();
    let (asked, stored) = (site.hub.requests().len(), site.storage.requests().len());
    assert_eq!(place.pull("org/repo:Q8_0").unwrap().path, first.path);
    assert_eq!(site.hub.requests().len(), asked + 2, "the revision and the listing");
    assert_eq!(site.storage.requests().len(), stored);
    let watch = |_: Progress<'_>| ControlFlow::Continue(());
    assert_eq!(place.hub().obtain(&name_of("org/repo"), &watch).unwrap().path, first.path);
    drop(site);
    let place = place.with("HF_HUB_OFFLINE", "1");
    for name in ["org/repo", "org/repo:q8_0", &format!("org/repo@{COMMIT}")] {
        assert_eq!(place.pull(name).unwrap().path, first.path);
    }
    let check = |name: &str, why: &str| {
        let error = place.pull_error(name);
        assert!(error.contains("is not in the cache") && error.contains(why), "{error}");
        assert!(error.contains("HF_HUB_OFFLINE is set"), "{error}");
    };
    check("org/other", "revision `main` was never fetched");
    check("org/repo@v2", "revision `v2` was never fetched");
    check("org/repo:Q4_0", "there are: Q8_0");
    let error = place.hub().plan(&name_of("org/repo")).unwrap_err().to_string();
    assert!(error.contains("HF_HUB_OFFLINE is set"), "{error}");
}

#[test]
fn a_safetensors_model_comes_with_the_shards_of_its_index() {
    let index = r#"{"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}"#;
    let files = Files::from([
        ("config.json", Content::small("{}")),
        ("tokenizer.json", Content::small("")),
        ("additional_chat_templates/tools.jinja", Content::small("{{ tools }}")),
        ("model.safetensors.index.json", Content::small(index)),
        ("model-1.safetensors", Content::large(2500, 3)),
        ("model-2.safetensors", Content::large(999, 4)),
        ("other.safetensors", Content::large(10, 5)),
        ("pytorch_model.bin", Content::large(10, 6)),
    ]);
    let site = Site::healthy(files.clone());
    let place = Place::of(&site);
    let plan = place.hub().plan(&name_of("org/repo")).unwrap();
    assert_eq!(plan.bytes(), 2500 + 999 + index.len() as u64 + 2 + 11);
    let located = place.pull("org/repo").unwrap();
    assert_eq!(located.path, place.repo().join("snapshots").join(COMMIT));
    for plan in &plan.files {
        assert_eq!(read(located.path.join(&plan.path)), files[plan.path.as_str()].bytes, "{}", plan.path);
    }
    assert!(!located.path.join("other.safetensors").exists());
    assert!(!located.path.join("pytorch_model.bin").exists());
    assert_eq!(place.hub().locate(&name_of("org/repo")).unwrap(), located);
    fs::remove_file(located.path.join("model-2.safetensors")).unwrap();
    let error = place.hub().locate(&name_of("org/repo")).unwrap_err().to_string();
    assert!(error.contains("is not in the cache") && error.contains("model-2.safetensors"), "{error}");
}

#[test]
fn a_listing_of_several_pages_is_read_to_its_end() {
    let content = Content::large(100, 7);
    let files = gguf(&content);
    let first: Files = [("README.md", Content::small("read me"))].into();
    let second: Files = [("m-Q8_0.gguf", content.clone())].into();
    let pages =
        move |request: &server::Request, reply: server::Reply| match request.target.split_once("/tree/") {
            Some((_, query)) if query.contains("cursor=2") => {
                server::Reply::new(200, server::tree(second.iter()))
            }
            Some(_) => server::Reply::new(200, server::tree(first.iter()))
                .with("Link", r#"<http://other.example/x?recursive=true&cursor=2>; rel="next""#),
            None => reply,
        };
    let site = Site::start(files, pages, |_, reply| reply);
    let place = Place::of(&site);
    assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
}

#[test]
fn progress_grows_to_the_size_and_can_stop_the_download() {
    let content = Content::large(5500, 8);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    let stop = |progress: Progress<'_>| {
        if progress.done > 2000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let error = place.hub().pull(&name_of("org/repo"), &stop).unwrap_err();
    assert!(matches!(error, HubError::Stopped));
    place.check_nothing_final();

    let seen = Mutex::new(vec![]);
    let watch = |progress: Progress<'_>| {
        assert_eq!((progress.file, progress.total), ("m-Q8_0.gguf", 5500));
        seen.lock().unwrap().push((progress.phase, progress.done));
        ControlFlow::Continue(())
    };
    let before = site.storage.requests().len();
    place.hub().pull(&name_of("org/repo"), &watch).unwrap();
    assert!(site.storage.requests().len() - before < 6, "whole pieces of the first attempt are kept");
    let seen = seen.into_inner().unwrap();
    for phase in [Phase::Fetching, Phase::Checking] {
        let most = seen.iter().filter(|(found, _)| *found == phase).map(|(_, done)| *done).max();
        assert_eq!(most, Some(5500), "{phase:?}");
    }
}

#[test]
fn two_downloads_at_once_fetch_a_file_once() {
    let content = Content::large(20_000, 9);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    let paths: Vec<PathBuf> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| place.pull("org/repo").unwrap().path)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for path in paths {
        assert_eq!(read(path), content.bytes);
    }
    assert_eq!(site.storage.requests().len(), 20);
    assert_eq!(place.blobs(), [content.hash()]);
}

#[test]
fn the_token_goes_to_the_endpoint_alone() {
    let content = Content::large(2500, 10);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site).with("HF_TOKEN", TOKEN);
    place.pull("org/repo").unwrap();
    let expected = format!("Bearer {TOKEN}");
    assert!(site.hub.requests().iter().all(|request| request.header("authorization") == Some(&expected)));
    assert!(!site.storage.requests().is_empty());
    for request in site.storage.requests() {
        let has_token = request.headers.values().any(|value| value.contains(TOKEN));
        assert!(!has_token && !request.target.contains(TOKEN), "{request:?}");
    }
}
