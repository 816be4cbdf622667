//! TLS: the same answers through it, and nothing without it. The certificate is one for `localhost` that nobody trusts but
//! these tests.

use crate::support::Server;
use gannet_server::Tls;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

const BODY: &str = r#"{"model":"toy","prompt":"the hen","max_tokens":4,"stream":true,"temperature":0}"#;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/data").join(name)
}

fn encrypted(change: impl FnOnce(&mut gannet_server::Limits)) -> Server {
    Server::with(|setup| {
        setup.config.tls = Some(Tls { certificate: file("certificate.pem"), key: file("key.pem") });
        change(&mut setup.limits);
    })
}

/// A client that trusts these certificates alone.
fn client(roots: RootCertStore) -> ClientConnection {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap()
}

fn ask(server: &Server, client: &mut ClientConnection) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(server.address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut stream = Stream::new(client, &mut socket);
    let length = BODY.len();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all((head + BODY).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn answers_come_through_tls_to_who_trusts_the_certificate() {
    let server = encrypted(|_| ());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(file("certificate.pem")).unwrap()).unwrap();
    for _ in 0..2 {
        let answer = ask(&server, &mut client(roots.clone())).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("data: [DONE]"), "{answer}");
    }
    let refused = ask(&server, &mut client(RootCertStore::empty())).unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    // Plain HTTP hears nothing of a model, and others are still served.
    let mut plain = server.connect();
    plain.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n");
    let heard = plain.read_bytes();
    assert!(!String::from_utf8_lossy(&heard).contains("toy"), "{heard:?}");
    assert!(ask(&server, &mut client(roots)).is_ok());
}

#[test]
fn a_handshake_that_does_not_come_is_not_waited_for() {
    let server = encrypted(|limits| limits.header_time = Duration::from_secs(1));
    let mut silent = server.connect();
    // The beginning of a record whose rest never comes.
    let mut half = server.connect();
    half.write(&[22, 3, 1, 2, 0, 1]);
    assert!(silent.read_bytes().is_empty());
    half.read_bytes();
}
