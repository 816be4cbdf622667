//! What is in the cache, and its removal.

use crate::server::{COMMIT, Content, Files, Site};
use crate::{Place, gguf, name_of, read};
use gannet_hub::HubError;
use std::fs::{self, File};

fn nowhere() -> Place {
    Place::new("http://127.0.0.1:9".to_owned())
}

#[test]
fn the_cache_lists_models_with_sizes_and_variants() {
    let content = Content::large(2500, 30);
    let mut files = gguf(&content);
    files.insert("m-Q4_0.gguf", Content::large(600, 31));
    files.insert("mmproj-F16.gguf", Content::large(600, 32));
    let site = Site::healthy(files);
    let place = Place::of(&site);
    assert!(place.hub().cached().unwrap().is_empty(), "there is no cache yet");
    place.pull("org/repo:Q8_0").unwrap();
    place.pull("org/repo:Q4_0").unwrap();
    fs::create_dir_all(place.folder.path().join("hub/datasets--a--b")).unwrap();
    fs::create_dir_all(place.folder.path().join("hub/models--..--x")).unwrap();
    fs::write(place.repo().join("blobs/x.incomplete"), "").unwrap();
    let models = place.hub().cached().unwrap();
    assert_eq!(models.len(), 1);
    assert_eq!(models[0].name, name_of("org/repo"));
    assert_eq!(models[0].bytes, 2500 + 600 + COMMIT.len() as u64);
    assert_eq!(models[0].variants, ["Q4_0", "Q8_0"]);
    assert_eq!(models[0].unfinished, 1);
    assert!(models[0].last_used.is_some());
}

#[test]
fn a_removed_model_is_gone_and_can_come_again() {
    let content = Content::large(2500, 33);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    place.pull("org/repo").unwrap();
    assert_eq!(place.hub().remove(&name_of("org/repo")).unwrap(), 2500 + COMMIT.len() as u64);
    assert!(!place.repo().exists());
    assert!(!place.folder.path().join("hub/.locks/models--org--repo").exists());
    let error = place.hub().remove(&name_of("org/repo")).unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }), "{error}");
    assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
}

#[test]
fn only_whole_repositories_that_nobody_fetches_are_removed() {
    let place = nowhere();
    let locks = place.folder.path().join("hub/.locks/models--org--repo");
    fs::create_dir_all(&locks).unwrap();
    fs::create_dir_all(place.repo().join("blobs")).unwrap();
    let error = place.hub().remove(&name_of("org/repo:Q8_0")).unwrap_err().to_string();
    assert!(error.contains("removed by whole repositories"), "{error}");
    let held = File::create(locks.join("x.lock")).unwrap();
    held.lock().unwrap();
    let error = place.hub().remove(&name_of("org/repo")).unwrap_err();
    assert!(matches!(error, HubError::InUse { .. }), "{error}");
    assert!(place.repo().exists());
    drop(held);
    assert_eq!(place.hub().remove(&name_of("org/repo")).unwrap(), 0);
}

#[cfg(unix)]
#[test]
fn links_are_neither_followed_out_of_the_cache_nor_round_in_circles() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "bytes").unwrap();
    let place = nowhere();
    let snapshot = place.repo().join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(place.repo().join("refs")).unwrap();
    fs::write(place.repo().join("refs/main"), COMMIT).unwrap();
    symlink(outside.path(), snapshot.join("outside")).unwrap();
    symlink(&snapshot, snapshot.join("circle")).unwrap();
    symlink("loop.gguf", snapshot.join("loop.gguf")).unwrap();
    symlink("../../blobs/gone", snapshot.join("gone.gguf")).unwrap();
    let error = place.hub().locate(&name_of("org/repo")).unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }), "{error}");
    let models = place.hub().cached().unwrap();
    assert_eq!((models[0].bytes, models[0].variants.len()), (COMMIT.len() as u64, 0));

    // A folder that is itself a link isn't ours to delete.
    let moved = outside.path().join("moved");
    fs::rename(place.repo(), &moved).unwrap();
    symlink(&moved, place.repo()).unwrap();
    assert!(place.hub().cached().unwrap().is_empty());
    let error = place.hub().remove(&name_of("org/repo")).unwrap_err();
    assert!(matches!(error, HubError::NotAFolder { .. }), "{error}");
    fs::remove_file(place.repo()).unwrap();
    fs::rename(&moved, place.repo()).unwrap();
    place.hub().remove(&name_of("org/repo")).unwrap();
    assert!(!place.repo().exists());
    assert_eq!(read(outside.path().join("precious")), b"bytes");
}

#[test]
fn a_snapshot_of_plain_files_is_a_model_too() {
    let place = nowhere();
    let snapshot = place.repo().join("snapshots").join(COMMIT);
    let parts =
        Files::from([("m-Q8_0-00001-of-00002.gguf", Content::small("a")), ("x.txt", Content::small("b"))]);
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(place.repo().join("refs")).unwrap();
    fs::write(place.repo().join("refs/main"), format!("{COMMIT}\n")).unwrap();
    for (path, content) in parts {
        fs::write(snapshot.join(path), content.bytes).unwrap();
    }
    let error = place.hub().locate(&name_of("org/repo")).unwrap_err().to_string();
    assert!(error.contains("lacks parts of the split model") && error.contains("1 of 2"), "{error}");
    fs::write(snapshot.join("m-Q8_0-00002-of-00002.gguf"), "c").unwrap();
    let located = place.hub().locate(&name_of("org/repo:Q8_0")).unwrap();
    assert_eq!(located.path, snapshot.join("m-Q8_0-00001-of-00002.gguf"));
}
