//! `gannet serve` as a process: where it listens, who may ask, what its log tells.

use crate::support::command;
use crate::toy::write_toy;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

const PROMPT: &str = "the hen";

/// A server with a toy, ended when this is dropped.
struct Serving {
    child: Child,
    log: BufReader<ChildStderr>,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Serving {
    fn start(arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
        let own = ["serve", &toy, "--port", "0", "--threads", "1", "--max-sequences", "2"];
        let mut command = command(&[&own[..], arguments].concat());
        command.env_remove("GANNET_API_KEYS");
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("gannet: listening on ") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended before it listened");
        }
        let address = line.trim_end().rsplit("//").next().unwrap().parse().unwrap();
        Self { child, log, address, _folder: folder }
    }

    /// Asks for a completion; the answer's status and text.
    fn ask(&self, headers: &str) -> (u16, String) {
        let body = format!(r#"{{"model":"toy","prompt":"{PROMPT}","max_tokens":2,"temperature":0}}"#);
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {headers}content-length: {length}\r\n\r\n"
        );
        socket.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        (answer[9..12].parse().unwrap(), answer)
    }

    /// The lines of the log, up to the one about the last of so many requests.
    fn log(mut self, requests: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while lines.iter().filter(|line| line.contains("answered")).count() < requests {
            let mut line = String::new();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "{lines:?}");
            lines.push(line);
        }
        lines
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_listens_on_loopback_and_everybody_there_may_ask() {
    let server = Serving::start(&[], |_| ());
    assert!(server.address.ip().is_loopback());
    assert_eq!(server.ask("").0, 200);
}

/// Processes begin with a limit of open files that is often lower than that of connections.
#[cfg(unix)]
#[test]
fn connections_are_not_limited_by_the_files_that_a_process_begins_with() {
    let server = Serving::start(&["--header-timeout", "600"], |command| {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -S -n 64 && exec \"$0\" \"$@\""]);
        limited.arg(command.get_program()).args(command.get_args()).env_remove("GANNET_API_KEYS");
        limited.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        *command = limited;
    });
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(server.ask("").0, 200);
    drop(silent);
}

#[test]
fn keys_come_from_a_file_and_from_the_environment_and_are_never_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "# ours\nkey-of-file\n").unwrap();
    let server = Serving::start(&["--api-key-file", file.to_str().unwrap()], |command| {
        command.env("GANNET_API_KEYS", "key-of-environment,another-key");
    });
    let with = |key: &str| server.ask(&format!("authorization: Bearer {key}\r\n")).0;
    assert_eq!(["key-of-file", "key-of-environment", "another-key"].map(with), [200; 3]);
    assert_eq!([with("key-of-nobody"), server.ask("").0], [401; 2]);
    let log = server.log(5).concat();
    // The first digits of `printf key-of-file | sha256sum`.
    assert!(log.contains("e5d77263"), "{log}");
    assert!(!log.contains("key-of") && !log.contains("another-key"), "{log}");
}

#[test]
fn log_lines_are_text_or_json_and_hold_what_was_said_only_where_that_was_asked_for() {
    for (arguments, tells) in [(&["--log", "json"][..], false), (&["--log", "json", "--log-text"], true)] {
        let server = Serving::start(arguments, |_| ());
        assert_eq!(server.ask("x-request-id: request-7\r\n").0, 200);
        let lines = server.log(1);
        let objects: Vec<serde_json::Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let answered = objects.iter().find(|line| line["message"] == "answered").unwrap();
        assert_eq!((&answered["status"], &answered["path"]), (&200.into(), &"/v1/completions".into()));
        assert_eq!(answered["span"]["id"], "request-7");
        assert_eq!(lines.concat().contains(PROMPT), tells, "{lines:?}");
    }
    let server = Serving::start(&[], |_| ());
    assert_eq!(server.ask("x-request-id: request-8\r\n").0, 200);
    let log = server.log(1).concat();
    assert!(log.contains("request-8") && log.contains("status=200") && !log.contains(PROMPT), "{log}");
}

/// The words that a unit, an image and a manifest start the program with.
fn started_by_deploy() -> [(&'static str, Vec<String>); 3] {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let unit = include_str!("../../../../deploy/gannet.service");
    let unit = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/gannet ")).unwrap();
    let image = include_str!("../../../../deploy/Containerfile");
    let image = image.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let manifest = include_str!("../../../../deploy/kubernetes/gannet.yaml");
    let listed = manifest.lines().map(str::trim).skip_while(|line| *line != "args:").skip(1);
    let listed = listed.filter(|line| !line.starts_with('#')).map_while(|line| line.strip_prefix("- "));
    let listed = listed.map(str::to_owned).collect();
    [("unit", words(unit)), ("image", serde_json::from_str(image).unwrap()), ("manifest", listed)]
}

#[test]
fn what_deploy_starts_the_program_with_is_understood() {
    for (what, mut words) in started_by_deploy() {
        assert!(words.len() > 3 && words[0] == "serve", "{what}: {words:?}");
        if !cfg!(feature = "kv-events") {
            words.retain(|word| !word.starts_with("--kv-events"));
        }
        let mut asked: Vec<&str> = words.iter().map(String::as_str).collect();
        // Words are taken one by one, and the last one ends with help what would begin to serve.
        asked.push("--help");
        crate::support::gannet(&asked).succeeded();
        asked.insert(1, "--nonsense");
        crate::support::gannet(&asked).failed(2, &["--nonsense"]);
    }
}

#[test]
fn a_certificate_without_its_key_and_a_file_that_is_none_are_refused() {
    let alone = crate::support::gannet(&["serve", "absent.gguf", "--tls-certificate", "a.pem"]);
    alone.failed(2, &["--tls-key"]);
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let tls = ["--tls-certificate", &toy, "--tls-key", &toy];
    let none = crate::support::gannet(&[&["serve", &toy, "--port", "0"], &tls[..]].concat());
    none.failed(1, &["toy.gguf", "PEM"]);
}
