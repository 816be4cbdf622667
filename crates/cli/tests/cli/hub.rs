//! Models by name: `gannet pull`, `models`, `rm`, and names wherever a model is taken, against a hub on this machine.

use crate::hub_server::{COMMIT, Content, Files, Site};
use crate::support::{Run, command, golden};
use crate::toy::write_toy;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// What would lead to another hub or around this one.
const FOREIGN: [&str; 14] = [
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_TOKEN_PATH",
    "HF_HUB_OFFLINE",
    "SSL_CERT_FILE",
    "XDG_CACHE_HOME",
    "ALL_PROXY",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "all_proxy",
    "http_proxy",
    "https_proxy",
];

/// A hub with a toy model and a cache of its own.
struct Place {
    site: Option<Site>,
    endpoint: String,
    home: TempDir,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let toy = fs::read(write_toy(&home.path().join("toy.gguf"), &[])).unwrap();
        let files = Files::from([
            ("toy-F32.gguf", Content { bytes: toy, is_large: true }),
            ("toy-Q2_K.gguf", Content::small("not looked at")),
            ("README.md", Content::small("read me")),
        ]);
        let site = Site::healthy(files);
        Self { endpoint: site.endpoint(), site: Some(site), home }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(words);
        for name in FOREIGN {
            command.env_remove(name);
        }
        command.env("HF_HOME", self.home.path()).env("HF_ENDPOINT", &self.endpoint);
        command
    }

    fn gannet(&self, words: &[&str]) -> Run {
        Run::new(self.command(words).output().unwrap())
    }

    fn offline(&self, words: &[&str]) -> Run {
        Run::new(self.command(words).env("HF_HUB_OFFLINE", "1").output().unwrap())
    }

    fn snapshot(&self, file: &str) -> PathBuf {
        self.home.path().join("hub/models--org--repo/snapshots").join(COMMIT).join(file)
    }

    /// How many requests the hub has had.
    fn asked(&self) -> usize {
        let site = self.site.as_ref().unwrap();
        site.hub.requests().len() + site.storage.requests().len()
    }
}

#[test]
fn a_pulled_model_is_run_by_its_name_without_the_hub() {
    let mut place = Place::new();
    let run = place.gannet(&["pull", "org/repo"]);
    assert!(run.stderr.contains("org/repo at 0123456789ab: 1 file") && run.stderr.contains("F32"), "{run:?}");
    let path = place.snapshot("toy-F32.gguf");
    assert_eq!(run.succeeded(), format!("{}\n", path.display()));
    let asked = place.asked();
    let words = ["hey", "--max-tokens", "3"];
    let by_name = place.gannet(&[&["run", "org/repo"], &words[..]].concat()).succeeded();
    let by_path = place.gannet(&[&["run", path.to_str().unwrap()], &words[..]].concat()).succeeded();
    assert_eq!(by_name, by_path);
    assert_eq!(place.asked(), asked, "what is in the cache is not asked for");
    place.site = None;
    assert_eq!(place.gannet(&[&["run", "org/repo:F32"], &words[..]].concat()).succeeded(), by_path);
    assert_eq!(place.offline(&["pull", "org/repo"]).succeeded(), format!("{}\n", path.display()));
}

#[test]
fn a_name_is_fetched_wherever_a_model_is_taken() {
    let place = Place::new();
    let json = place.gannet(&["inspect", "org/repo:F32", "--json"]).json();
    assert_eq!(json["path"], place.snapshot("toy-F32.gguf").to_str().unwrap());
    for words in [&["eval", "compare", "org/repo"][..], &["doctor", "org/repo"]] {
        place.gannet(words).succeeded();
    }
}

#[test]
fn a_path_goes_before_a_name() {
    let place = Place::new();
    let folder = place.home.path().join("org");
    fs::create_dir(&folder).unwrap();
    write_toy(&folder.join("repo"), &[]);
    let asked = place.asked();
    let output =
        place.command(&["inspect", "org/repo", "--json"]).current_dir(place.home.path()).output().unwrap();
    assert_eq!(Run::new(output).json()["path"], "org/repo");
    assert_eq!(place.asked(), asked);
}

#[test]
fn what_cant_be_had_is_said_in_one_line() {
    let mut place = Place::new();
    let run = |place: &Place, name: &str| place.gannet(&["run", name, "hey"]);
    run(&place, "org/other").failed(1, &["org/other", "was not found"]);
    run(&place, "org/repo:Q4_0").failed(1, &["no GGUF file of quantisation `Q4_0`", "F32, Q2_K"]);
    place.offline(&["run", "org/repo", "hey"]).failed(1, &["is not in the cache", "HF_HUB_OFFLINE is set"]);
    place.gannet(&["pull", "org"]).failed(2, &["`org` is no model name"]);
    place.gannet(&["run", "no-such-file", "hey"]).failed(1, &["`no-such-file` doesn't exist", "ORG/REPO"]);
    let missing = golden("absent.gguf");
    run(&place, &missing).failed(1, &["absent.gguf` doesn't exist"]);
    place.site = None;
    assert!(!place.snapshot("").exists(), "nothing was fetched");
    place.offline(&["pull", "org/repo"]).failed(1, &["is not in the cache"]);
}

#[test]
fn the_cache_is_listed_and_a_model_deleted_when_that_is_confirmed() {
    let place = Place::new();
    assert!(place.gannet(&["models"]).succeeded().starts_with("no models in "));
    place.gannet(&["pull", "org/repo"]).succeeded();
    let json = place.gannet(&["models", "--json"]).json();
    let model = &json["models"][0];
    assert_eq!((&model["name"], &model["variants"]), (&"org/repo".into(), &serde_json::json!(["F32"])));
    let size = fs::metadata(place.snapshot("toy-F32.gguf")).unwrap().len();
    assert!(model["bytes"].as_u64().unwrap() >= size && model["last_used"].is_u64(), "{model}");
    let list = place.gannet(&["models"]).succeeded();
    assert!(list.contains("org/repo  F32") && list.contains("ago") || list.contains("just now"), "{list}");
    place.gannet(&["rm", "org/repo"]).failed(2, &["--yes"]);
    assert!(place.snapshot("toy-F32.gguf").exists());
    let text = place.gannet(&["rm", "org/repo", "--yes"]).succeeded();
    assert!(text.starts_with("org/repo deleted: ") && text.contains("freed"), "{text}");
    assert!(!place.home.path().join("hub/models--org--repo").exists());
    place.gannet(&["rm", "org/repo", "--yes"]).failed(1, &["is not in the cache"]);
    place.gannet(&["rm", "org/repo:F32", "--yes"]).failed(1, &["whole repositories"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_leaves_a_download_that_goes_on() {
    use std::io::Read;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, mpsc};
    let (started, starts) = mpsc::channel();
    let (slow, home) = (Arc::new(AtomicBool::new(true)), tempfile::tempdir().unwrap());
    let content = Content::large(20 << 20, 3);
    let site = {
        let (slow, started) = (slow.clone(), std::sync::Mutex::new(started));
        // The first piece comes, and the others wait until the signal was sent.
        Site::start(
            Files::from([("m-Q8_0.gguf", content)]),
            |_, reply| reply,
            move |request, reply| {
                if request.number > 0 && slow.load(Ordering::SeqCst) {
                    let _ = started.lock().unwrap().send(());
                    std::thread::sleep(std::time::Duration::from_millis(300));
                }
                reply
            },
        )
    };
    let place = Place { endpoint: site.endpoint(), site: Some(site), home };
    let mut child = place.command(&["pull", "org/repo"]).spawn().unwrap();
    starts.recv().unwrap();
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let mut said = String::new();
    child.stderr.as_mut().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("the same command goes on from there"), "{said}");
    assert!(!place.snapshot("m-Q8_0.gguf").exists());
    let list = place.gannet(&["models"]).succeeded();
    assert!(list.contains("1 file unfinished"), "{list}");
    slow.store(false, Ordering::SeqCst);
    place.gannet(&["pull", "org/repo"]).succeeded();
    assert!(place.snapshot("m-Q8_0.gguf").exists());
}
