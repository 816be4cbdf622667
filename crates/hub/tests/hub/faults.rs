//! Cut connections, wrong lengths and hashes, refusals, redirects, full disks.

use crate::server::{COMMIT, Content, Files, Reply, Request, Server, Site};
use crate::{Place, TOKEN, gguf, read};
use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, OnceLock};

/// The end of an error of an attempt that was made three times.
const GIVEN_UP: &str = "given up after 3 attempts";

fn check_error(place: &Place, name: &str, parts: &[&str]) {
    let error = place.pull_error(name);
    for part in parts {
        assert!(error.contains(part), "expected {part:?} in {error:?}");
    }
    assert!(!error.contains(TOKEN) && !error.contains("secret"), "{error}");
}

#[test]
fn cut_connections_are_resumed_where_they_were_cut() {
    for (length, seed) in [(9_999, 1), (1_000, 2), (1_001, 3), (700, 4)] {
        let content = Content::large(length, seed);
        let bytes_sent = Mutex::new(0);
        // Each answer is cut somewhere; the first byte always comes, so that the end is reached.
        let fault = move |request: &Request, mut reply: Reply| {
            let noise = (request.number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ seed;
            let cut = 1 + usize::try_from(noise % 600).unwrap();
            reply.cut = Some(cut);
            *bytes_sent.lock().unwrap() += cut.min(reply.body.len());
            assert!(*bytes_sent.lock().unwrap() <= length, "nothing is sent twice");
            reply
        };
        let site = Site::start(gguf(&content), |_, reply| reply, fault);
        let mut place = Place::of(&site);
        place.transfer.attempts = 1000;
        assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
        let requests = site.storage.requests();
        let resumed =
            requests.iter().filter(|request| request.header("if-range") == Some("\"stored\"")).count();
        assert!(resumed > 0, "{length}");
    }
}

#[test]
fn connections_that_bring_nothing_are_given_up_and_resumed_by_a_later_process() {
    let content = Content::large(5_000, 11);
    let fault = |request: &Request, mut reply: Reply| {
        if request.number < 12 && request.header("range").is_some_and(|range| range.contains("4000-")) {
            reply.cut = Some(0);
        }
        reply
    };
    let site = Site::start(gguf(&content), |_, reply| reply, fault);
    let mut place = Place::of(&site);
    place.transfer.connections = 1;
    check_error(&place, "org/repo", &[GIVEN_UP, "cut at byte 4000 of 5000", "/org/repo/resolve/"]);
    place.check_nothing_final();
    assert_eq!(site.storage.requests().len(), 4 + 3);
    check_error(&place, "org/repo", &[GIVEN_UP]);
    assert_eq!(site.storage.requests().len(), 7 + 3);
    assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
    assert_eq!(site.storage.requests().len(), 10 + 3, "the piece that lacked, and no other");
}

#[test]
fn wrong_lengths_and_contents_are_never_kept() {
    type Fault = fn(&Request, Reply) -> Reply;
    let longer: Fault = |_, mut reply| {
        reply.body.push(0);
        reply
    };
    let shorter: Fault = |_, mut reply| {
        reply.body.pop();
        reply
    };
    let longer_unstated: Fault = |_, mut reply| {
        (reply.has_length, reply.body) = (false, [reply.body, vec![0]].concat());
        reply
    };
    let wrong_bit: Fault = |_, mut reply| {
        reply.body[0] ^= 1;
        reply
    };
    let wrong_range: Fault = |_, reply| reply.with("Content-Range", "bytes 1-2/3");
    let no_range: Fault = |_, mut reply| {
        reply.headers.retain(|(key, _)| key != "Content-Range");
        reply
    };
    let check = |length: usize, fault: Fault, parts: &[&str]| {
        let site = Site::start(gguf(&Content::large(length, 12)), |_, reply| reply, fault);
        let place = Place::of(&site);
        check_error(&place, "org/repo", parts);
        place.check_nothing_final();
    };
    check(900, longer, &[GIVEN_UP, "has 901 bytes to send, expected 900"]);
    check(900, shorter, &[GIVEN_UP, "has 899 bytes to send, expected 900"]);
    check(900, longer_unstated, &[GIVEN_UP, "more than the 900 bytes"]);
    check(900, wrong_bit, &["m-Q8_0.gguf` came damaged: its checksum is", "nothing was kept"]);
    check(2500, wrong_bit, &["came damaged", "nothing was kept"]);
    check(2500, shorter, &[GIVEN_UP, "cut at byte"]);
    check(2500, wrong_range, &[GIVEN_UP, "has `bytes 1-2/3` to send, expected `bytes "]);
    check(2500, no_range, &[GIVEN_UP, "has `nothing` to send"]);
}

#[test]
fn small_files_are_checked_as_git_names_them() {
    let files =
        Files::from([("config.json", Content::small("{}")), ("model.safetensors", Content::large(10, 13))]);
    let fault = |request: &Request, mut reply: Reply| {
        if request.target.ends_with("config.json") {
            reply.body = b"[]".to_vec();
        }
        reply
    };
    let site = Site::start(files, fault, |_, reply| reply);
    let place = Place::of(&site);
    check_error(&place, "org/repo", &["`config.json` came damaged"]);
    place.check_nothing_final();
    assert!(place.blobs().is_empty());
}

#[test]
fn a_damaged_unfinished_file_is_fetched_anew() {
    let content = Content::large(2500, 14);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    let unfinished = place.repo().join(format!("blobs/{}.incomplete", content.hash()));
    fs::create_dir_all(unfinished.parent().unwrap()).unwrap();
    // Two of three pieces are marked whole and aren't; then, a size that belongs to nothing.
    let marked = [vec![7; 2500], vec![1, 1, 0]].concat();
    for (found, requests) in [(marked, 1 + 3), (vec![1; 100], 3)] {
        let before = site.storage.requests().len();
        fs::write(&unfinished, found).unwrap();
        assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
        assert_eq!(site.storage.requests().len() - before, requests);
        assert!(!unfinished.exists());
        fs::remove_dir_all(place.repo().join("snapshots")).unwrap();
        fs::remove_file(place.repo().join("blobs").join(content.hash())).unwrap();
    }
}

#[test]
fn servers_without_ranges_and_changing_contents_are_streamed() {
    type Fault = fn(&Request, Reply) -> Reply;
    let content = Content::large(4200, 15);
    let no_ranges = {
        let bytes = content.bytes.clone();
        move |request: &Request, _: Reply| {
            let mut reply = Reply::new(200, bytes.clone());
            // The stream is cut as well; the rest that is then asked for comes as a whole again.
            reply.cut = request.header("range").is_none().then_some(3000);
            reply
        }
    };
    let site = Site::start(gguf(&content), |_, reply| reply, no_ranges);
    assert_eq!(read(Place::of(&site).pull("org/repo").unwrap().path), content.bytes);

    // Ranges whose validator changes, with and without regard for the one that was sent.
    let restless: Fault = |request, reply| reply.with("ETag", format!("\"{}\"", request.number));
    let bytes = content.bytes.clone();
    let careless = move |request: &Request, reply: Reply| {
        let Some(range) = request.header("range").and_then(|range| range.strip_prefix("bytes=")) else {
            return reply;
        };
        let (first, last) = range.split_once('-').unwrap();
        Reply::new(206, &bytes[first.parse().unwrap()..=last.parse().unwrap()])
            .with("Content-Range", format!("bytes {range}/{}", bytes.len()))
            .with("ETag", format!("\"{}\"", request.number))
    };
    for site in [
        Site::start(gguf(&content), |_, reply| reply, restless),
        Site::start(gguf(&content), |_, reply| reply, careless),
    ] {
        assert_eq!(read(Place::of(&site).pull("org/repo").unwrap().path), content.bytes);
        let requests = site.storage.requests();
        assert!(requests.iter().any(|request| request.header("range").is_none()), "a stream decides");
    }

    let short = Content::large(900, 16);
    let changed: Fault = |request, mut reply| {
        if request.number == 0 {
            reply.body.iter_mut().for_each(|byte| *byte = 0);
            reply.cut = Some(500);
            return reply.with("ETag", "\"old\"");
        }
        reply
    };
    let site = Site::start(gguf(&short), |_, reply| reply, changed);
    assert_eq!(read(Place::of(&site).pull("org/repo").unwrap().path), short.bytes);
    let resumed = site.storage.requests()[1].clone();
    assert_eq!(
        (resumed.header("range"), resumed.header("if-range")),
        (Some("bytes=500-899"), Some("\"old\""))
    );
}

#[test]
fn what_the_endpoint_says_must_be_what_it_listed() {
    let check = |key: &'static str, value: &'static str, part: &str| {
        let fault = move |request: &Request, reply: Reply| {
            if request.target.contains("/resolve/") { reply.with(key, value) } else { reply }
        };
        for length in [900, 2500] {
            let site = Site::start(gguf(&Content::large(length, 17)), fault, |_, reply| reply);
            let place = Place::of(&site);
            check_error(&place, "org/repo", &["is not what the listing says", part]);
            place.check_nothing_final();
        }
    };
    check("X-Linked-Etag", "\"0000\"", "the checksum (X-Linked-Etag) is `0000`");
    check("X-Linked-Size", "899", "the size (X-Linked-Size) is `899`");
    check("X-Repo-Commit", "ffff", "the commit (X-Repo-Commit) is `ffff`");
}

#[test]
fn refusals_say_what_to_do() {
    let check = |token: Option<&str>, status: u16, code: &'static str, parts: &[&str]| {
        let fault = move |_: &Request, _: Reply| Reply::new(status, "<html>").with("X-Error-Code", code);
        let site = Site::start(Files::new(), fault, |_, reply| reply);
        let mut place = Place::of(&site);
        if let Some(token) = token {
            place = place.with("HF_TOKEN", token);
        }
        check_error(&place, "org/repo", parts);
        let requests = site.hub.requests().len();
        assert_eq!(requests, if matches!(status, 408 | 429 | 500..) { 3 } else { 1 }, "{status}");
    };
    let page = "/org/repo";
    check(
        None,
        401,
        "GatedRepo",
        &["(HTTP 401)", "it is gated; accept its terms at http", page, "set HF_TOKEN"],
    );
    check(None, 403, "GatedRepo", &["(HTTP 403)", "set HF_TOKEN"]);
    check(Some(TOKEN), 403, "GatedRepo", &["ask for access at", page, "the account of HF_TOKEN"]);
    check(None, 401, "RepoNotFound", &["doesn't exist, or is private or gated", "set HF_TOKEN"]);
    check(Some(TOKEN), 401, "", &["HF_TOKEN is invalid or may not read it"]);
    check(None, 404, "RepoNotFound", &["`org/repo` was not found at http://127.0.0.1", "check the name"]);
    check(None, 404, "RevisionNotFound", &["no such revision"]);
    check(None, 429, "", &[GIVEN_UP, "too many requests (HTTP 429); set HF_TOKEN, or try again later"]);
    check(Some(TOKEN), 429, "", &["HTTP 429); try again later"]);
    check(None, 503, "", &[GIVEN_UP, "the server failed (HTTP 503)"]);
    check(None, 418, "", &["can't be fetched: HTTP 418"]);
    check(None, 200, "", &["answered with what can't be understood: expected JSON"]);
}

#[test]
fn what_passes_is_tried_again() {
    let content = Content::large(2500, 18);
    let refused = Mutex::new(HashMap::new());
    let once = move |request: &Request, reply: Reply| {
        let mut refused = refused.lock().unwrap();
        let key = (request.target.clone(), request.header("range").map(str::to_owned));
        let count: &mut usize = refused.entry(key).or_default();
        *count += 1;
        match *count {
            1 => Reply::new(403, "expired"),
            2 => Reply::new(429, "").with("Retry-After", "1"),
            _ => reply,
        }
    };
    let site = Site::start(gguf(&content), |_, reply| reply, once);
    let place = Place::of(&site);
    assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
}

#[test]
fn redirects_are_followed_with_care() {
    let content = Content::large(900, 19);
    // A renamed repository: the same host, a path without a host.
    let renamed = |request: &Request, reply: Reply| match request.target.strip_prefix("/api/models/org/old/")
    {
        Some(rest) => Reply::new(307, "").with("Location", format!("/api/models/org/repo/{rest}")),
        None => match request.target.strip_prefix("/org/old/") {
            Some(rest) => Reply::new(307, "").with("Location", format!("/org/repo/{rest}")),
            None => reply,
        },
    };
    let site = Site::start(gguf(&content), renamed, |_, reply| reply);
    let place = Place::of(&site).with("HF_TOKEN", TOKEN);
    assert_eq!(read(place.pull("org/old").unwrap().path), content.bytes);
    assert!(site.hub.requests().iter().all(|request| request.header("authorization").is_some()));

    let check = |location: &'static str, part: &str| {
        let fault = move |_: &Request, _: Reply| Reply::new(302, "").with("Location", location);
        let site = Site::start(Files::new(), fault, |_, reply| reply);
        check_error(&Place::of(&site), "org/repo", &["can't be fetched", part]);
        assert!(site.hub.requests().len() <= 6, "redirects are limited");
    };
    check("/again", "more than 5 redirects");
    check("ftp://127.0.0.1/x", "no plain HTTP address");
    check("http://", "no valid address");
    check("", "a redirect names no");
}

#[test]
fn a_token_that_has_left_the_endpoint_does_not_come_back() {
    // The endpoint sends the request to another host, which sends it back: by then it is that host's, not ours.
    let endpoint_port = Arc::new(OnceLock::new());
    let back_to = Arc::clone(&endpoint_port);
    let other = Server::start(move |_| {
        Reply::new(302, "").with("Location", format!("http://127.0.0.1:{}/back", back_to.get().unwrap()))
    });
    let away = format!("http://127.0.0.1:{}/away", other.port);
    let endpoint = Server::start(move |_| Reply::new(302, "").with("Location", away.clone()));
    endpoint_port.set(endpoint.port).unwrap();
    let place = Place::new(format!("http://127.0.0.1:{}", endpoint.port)).with("HF_TOKEN", TOKEN);
    check_error(&place, "org/repo", &["more than 5 redirects"]);
    let has_token = |request: &Request| request.header("authorization").is_some();
    assert_eq!(endpoint.requests().iter().map(has_token).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(other.requests().iter().map(has_token).collect::<Vec<_>>(), [false; 3]);
}

#[test]
fn an_endpoint_that_is_not_there_is_named() {
    // A port that needs privileges and that nobody uses; one that was free a moment ago may be another test's.
    let place = Place::new("http://127.0.0.1:1".to_owned());
    check_error(&place, "org/repo", &[GIVEN_UP, "/api/models/org/repo/revision/main"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_and_cleaned_up() {
    let content = Content::large(900, 21);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    let unfinished = place.repo().join(format!("blobs/{}.incomplete", content.hash()));
    fs::create_dir_all(unfinished.parent().unwrap()).unwrap();
    // A device on which every write finds no space.
    std::os::unix::fs::symlink("/dev/full", &unfinished).unwrap();
    check_error(&place, "org/repo", &["the disk is full", "nothing half-written was kept"]);
    place.check_nothing_final();
    assert!(place.blobs().is_empty());
}

#[test]
fn a_cache_that_can_not_be_written_is_named() {
    let site = Site::healthy(gguf(&Content::large(900, 22)));
    let place = Place::of(&site);
    fs::write(place.folder.path().join("hub"), "a file").unwrap();
    check_error(&place, "org/repo", &["can't create `", "hub"]);
}

#[test]
fn a_blob_of_another_revision_is_used_again() {
    let content = Content::large(2500, 23);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    place.pull("org/repo").unwrap();
    let old = place.repo().join("snapshots").join("f".repeat(40));
    fs::rename(place.repo().join("snapshots").join(COMMIT), &old).unwrap();
    let before = site.storage.requests().len();
    assert_eq!(read(place.pull("org/repo").unwrap().path), content.bytes);
    assert_eq!(site.storage.requests().len(), before);
    assert_eq!(read(old.join("m-Q8_0.gguf")), content.bytes);
}

#[test]
fn a_link_that_can_not_be_made_leaves_nothing_unfinished() {
    let content = Content::large(900, 24);
    let site = Site::healthy(gguf(&content));
    let place = Place::of(&site);
    fs::create_dir_all(place.repo().join("snapshots").join(COMMIT).join("m-Q8_0.gguf/taken")).unwrap();
    check_error(&place, "org/repo", &["can't create `", "m-Q8_0.gguf"]);
    assert_eq!(place.blobs(), [content.hash()]);
    assert!(!place.repo().join("refs").exists());
}
