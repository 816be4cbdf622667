//! Requests to the hub: redirects followed by our own rules, refusals explained, what may pass tried again.
//!
//! The token goes to the endpoint's own scheme, host and port. A redirect that leaves them loses it for good, and none
//! may leave HTTPS. Errors show addresses without their queries, where signatures are.

use crate::environment::Environment;
use crate::error::HubError;
use crate::model_name::ModelName;
use crate::retry::{Retries, Transfer, Trouble};
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::time::Duration;
use ureq::http::{HeaderMap, Response, Uri, header};
use ureq::tls::{PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

const REDIRECTS_MAX: usize = 5;
/// Bytes of an answer in JSON.
const JSON_BYTES_MAX: u64 = 64 << 20;
const CONNECT_SECONDS_MAX: u64 = 15;
const ANSWER_SECONDS_MAX: u64 = 60;
/// How long a connection may bring nothing.
const READ_SECONDS_MAX: u64 = 30;

/// A connection to one endpoint.
pub(crate) struct Client {
    agent: Agent,
    endpoint: String,
    origin: Origin,
    token: Option<String>,
    pub(crate) transfer: Transfer,
}

/// What to ask for.
pub(crate) struct Wanted<'a> {
    pub(crate) url: &'a str,
    /// First byte and the one after the last.
    pub(crate) range: Option<(u64, u64)>,
    /// The validator of the content that the range belongs to.
    pub(crate) if_range: Option<&'a str>,
}

/// What came, with status 200 or 206.
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
    pub(crate) facts: Facts,
}

/// What the endpoint itself says about a file; answers of other hosts don't count.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) commit: Option<String>,
    pub(crate) content: Option<String>,
    pub(crate) bytes: Option<String>,
}

#[derive(Clone, PartialEq, Eq)]
struct Origin {
    is_https: bool,
    host: String,
    port: u16,
}

impl Client {
    pub(crate) fn new(environment: &Environment, transfer: Transfer) -> Result<Self, HubError> {
        let endpoint = environment.endpoint.clone();
        let uri: Option<Uri> = endpoint.parse().ok().filter(|uri: &Uri| uri.query().is_none());
        let origin = uri.as_ref().and_then(Origin::of).ok_or_else(|| {
            let problem = format!("`{}`, expected http://HOST or https://HOST", endpoint.escape_debug());
            HubError::Setting { variable: "HF_ENDPOINT", problem }
        })?;
        let agent = agent(environment, transfer.connections)?;
        Ok(Self { agent, endpoint, origin, token: environment.token.clone(), transfer })
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// An answer in JSON and its `Link` header.
    pub(crate) fn json<T: DeserializeOwned>(
        &self,
        name: &ModelName,
        url: &str,
    ) -> Result<(T, Option<String>), HubError> {
        let wanted = Wanted { url, range: None, if_range: None };
        let (bytes, link) = Retries::new(&self.transfer, url).run(|| {
            let mut response = self.send(name, &wanted)?.response;
            let link = text(response.headers(), "link");
            let body = response.body_mut().with_config().limit(JSON_BYTES_MAX).read_to_vec();
            Ok((body.map_err(|error| trouble(url, error))?, link))
        })?;
        let value = serde_json::from_slice(&bytes).map_err(|error| HubError::Answer {
            url: without_query(url),
            problem: format!("expected JSON about a model repository: {error}"),
        })?;
        Ok((value, link))
    }

    /// Asks once, following redirects.
    pub(crate) fn send(&self, name: &ModelName, wanted: &Wanted<'_>) -> Result<Answer, Trouble> {
        let fail = |cause: String| HubError::Request { url: without_query(wanted.url), cause };
        let mut uri: Uri = wanted.url.parse().map_err(|_| fail("it is no address".to_owned()))?;
        let mut facts = Facts::default();
        let mut may_know_token = true;
        for _ in 0..=REDIRECTS_MAX {
            let origin = Origin::of(&uri).ok_or_else(|| fail("it is no HTTP address".to_owned()))?;
            let is_endpoint = origin == self.origin;
            may_know_token &= is_endpoint;
            let token = self.token.as_deref().filter(|_| may_know_token);
            let response = self.ask(&uri, wanted, token).map_err(|error| trouble(wanted.url, error))?;
            if is_endpoint {
                facts.add(response.headers());
            }
            match response.status().as_u16() {
                200 | 206 => return Ok(Answer { response, facts }),
                301 | 302 | 303 | 307 | 308 => uri = redirected(&uri, response.headers()).map_err(fail)?,
                _ => return Err(self.refusal(name, wanted.url, &response, is_endpoint)),
            }
        }
        Err(fail(format!("there are more than {REDIRECTS_MAX} redirects")).into())
    }

    fn ask(
        &self,
        uri: &Uri,
        wanted: &Wanted<'_>,
        token: Option<&str>,
    ) -> Result<Response<Body>, ureq::Error> {
        let mut request = self.agent.get(uri).header(header::ACCEPT_ENCODING, "identity");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some((first, end)) = wanted.range {
            request = request.header(header::RANGE, format!("bytes={first}-{}", end.saturating_sub(1)));
        }
        if let (Some(validator), Some(_)) = (wanted.if_range, wanted.range) {
            request = request.header(header::IF_RANGE, validator);
        }
        request.call()
    }

    /// What a status other than success and redirect means.
    fn refusal(&self, name: &ModelName, url: &str, response: &Response<Body>, is_endpoint: bool) -> Trouble {
        let status = response.status().as_u16();
        let code = text(response.headers(), "x-error-code").unwrap_or_default();
        match status {
            401 | 403 if is_endpoint => self.denied(name, status, &code).into(),
            404 if is_endpoint => self.not_found(name, &code).into(),
            // Signed addresses of other hosts expire; asking the endpoint again gets a new one.
            401 | 403 => Trouble::passing(format!("the storage host refused (HTTP {status})")),
            429 => Trouble::Passing {
                cause: format!("the server has had too many requests (HTTP 429); {}", self.patience()),
                wait: retry_after(response.headers()),
            },
            408 | 500..=599 => Trouble::Passing {
                cause: format!("the server failed (HTTP {status})"),
                wait: retry_after(response.headers()),
            },
            _ => HubError::Request { url: without_query(url), cause: format!("HTTP {status}") }.into(),
        }
    }

    fn patience(&self) -> &'static str {
        if self.token.is_some() { "try again later" } else { "set HF_TOKEN, or try again later" }
    }

    fn denied(&self, name: &ModelName, status: u16, code: &str) -> HubError {
        let page = format!("{}/{}", self.endpoint, name.repository());
        let advice = match (code, self.token.is_some()) {
            ("GatedRepo", false) => {
                format!(
                    "it is gated; accept its terms at {page}, then set HF_TOKEN to a token of that account"
                )
            }
            ("GatedRepo", true) => {
                format!("it is gated; ask for access at {page} with the account of HF_TOKEN")
            }
            (_, false) => {
                "it doesn't exist, or is private or gated; check the name, or set HF_TOKEN to a token of \
                           an account that may read it"
                    .to_owned()
            }
            (_, true) => "it doesn't exist, or HF_TOKEN is invalid or may not read it".to_owned(),
        };
        HubError::Denied { name: name.repository(), status, advice }
    }

    fn not_found(&self, name: &ModelName, code: &str) -> HubError {
        let what = match code {
            "RevisionNotFound" => "the repository has no such revision",
            "EntryNotFound" => "the repository has no such file",
            _ => "there is no such repository or revision; check the name, or set HF_TOKEN if it is private",
        };
        HubError::NotFound { name: name.to_string(), endpoint: self.endpoint.clone(), what }
    }
}

impl Facts {
    /// Takes what wasn't said before.
    fn add(&mut self, headers: &HeaderMap) {
        let take = |fact: &mut Option<String>, key: &str| {
            if fact.is_none() {
                *fact = text(headers, key);
            }
        };
        take(&mut self.commit, "x-repo-commit");
        take(&mut self.content, "x-linked-etag");
        take(&mut self.bytes, "x-linked-size");
    }
}

impl Origin {
    fn of(uri: &Uri) -> Option<Self> {
        let is_https = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        // Names and passwords before the host have no place here and hide which host it is.
        if uri.authority()?.as_str().contains('@') {
            return None;
        }
        let host = uri.host().filter(|host| !host.is_empty())?.to_ascii_lowercase();
        Some(Self { is_https, host, port: uri.port_u16().unwrap_or(if is_https { 443 } else { 80 }) })
    }
}

fn agent(environment: &Environment, connections: usize) -> Result<Agent, HubError> {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let roots = match &environment.certificates {
        Some(pem) => roots(pem)?,
        None => RootCerts::WebPki,
    };
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("gannet/", env!("CARGO_PKG_VERSION")))
        .proxy(environment.has_proxy.then(ureq::Proxy::try_from_env).flatten())
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .max_idle_connections_per_host(connections)
        .timeout_resolve(seconds(CONNECT_SECONDS_MAX))
        .timeout_connect(seconds(CONNECT_SECONDS_MAX))
        .timeout_recv_response(seconds(ANSWER_SECONDS_MAX))
        .timeout_per_read(seconds(READ_SECONDS_MAX))
        .build();
    Ok(config.into())
}

fn roots(pem: &[u8]) -> Result<RootCerts, HubError> {
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(pem) {
        if let Ok(PemItem::Certificate(certificate)) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        let problem = "a file without certificates, expected PEM".to_owned();
        return Err(HubError::Setting { variable: "SSL_CERT_FILE", problem });
    }
    Ok(RootCerts::new_with_certs(&certificates))
}

/// Where a redirect leads, or what is wrong with it.
fn redirected(from: &Uri, headers: &HeaderMap) -> Result<Uri, String> {
    let location = text(headers, "location").ok_or("a redirect names no address")?;
    let scheme = from.scheme_str().unwrap_or("https");
    let authority = from.authority().map_or("", |authority| authority.as_str());
    let absolute = if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        location
    };
    let uri: Uri = absolute.parse().map_err(|_| "a redirect names no valid address")?;
    let origin = Origin::of(&uri).ok_or("a redirect leads to something that is no plain HTTP address")?;
    if scheme == "https" && !origin.is_https {
        return Err(format!("a redirect to {} would leave HTTPS", origin.host));
    }
    Ok(uri)
}

/// What an error of the connection means.
pub(crate) fn trouble(url: &str, error: ureq::Error) -> Trouble {
    let (url, cause) = (without_query(url), error.to_string());
    // Certificates that don't hold arrive as data that is no TLS.
    let is_no_tls = matches!(&error, ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData);
    if is_no_tls || matches!(error, ureq::Error::Rustls(_) | ureq::Error::Tls(_)) {
        return HubError::Certificate { url, cause }.into();
    }
    if matches!(error, ureq::Error::BodyExceedsLimit(_) | ureq::Error::BadUri(_) | ureq::Error::Http(_)) {
        return HubError::Request { url, cause }.into();
    }
    Trouble::passing(cause)
}

/// A header that is text.
pub(crate) fn text(headers: &HeaderMap, key: &str) -> Option<String> {
    headers.get(key)?.to_str().ok().map(str::to_owned)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    text(headers, "retry-after")?.trim().parse().ok().map(Duration::from_secs)
}

fn without_query(url: &str) -> String {
    url.split('?').next().unwrap_or(url).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ureq::http::HeaderValue;

    #[test]
    fn redirects_lead_to_plain_addresses_and_stay_safe() {
        let check = |from: &str, location: &str, expected: Result<&str, &str>| {
            let mut headers = HeaderMap::new();
            headers.insert("location", HeaderValue::from_str(location).unwrap());
            let found = redirected(&from.parse().unwrap(), &headers).map(|uri| uri.to_string());
            match expected {
                Ok(address) => assert_eq!(found.as_deref(), Ok(address)),
                Err(problem) => {
                    assert!(found.as_ref().is_err_and(|error| error.contains(problem)), "{found:?}")
                }
            }
        };
        check("http://a:1/x", "/y?z", Ok("http://a:1/y?z"));
        check("https://a/x", "//b/y", Ok("https://b/y"));
        check("http://a/x", "https://b/y", Ok("https://b/y"));
        check("https://a/x", "http://a/x", Err("leave HTTPS"));
        check("http://a/x", "file:///etc/passwd", Err("no "));
        check("http://a/x", "ftp://b/y", Err("no plain HTTP"));
        check("http://a/x", "http://a@b/y", Err("no plain HTTP"));
        check("http://a/x", "y", Err("no "));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |address: &str| Origin::of(&address.parse().unwrap());
        assert!(origin("https://Hub.example/x") == origin("https://hub.example:443"));
        for other in ["http://hub.example", "https://hub.example:444", "https://hub.example.net", "https://x"]
        {
            assert!(origin("https://hub.example") != origin(other), "{other}");
        }
    }
}
