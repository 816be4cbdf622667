//! The settings that Hugging Face's tools read from the environment, with their defaults.

use crate::error::HubError;
use std::fs;
use std::path::{Path, PathBuf};

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// Bytes of the file that holds the token.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Bytes of a file with certificates.
const CERTIFICATES_BYTES_MAX: u64 = 16 << 20;

/// What the environment says.
pub(crate) struct Environment {
    /// The folder that holds `models--ORG--REPO`.
    pub(crate) cache: PathBuf,
    /// Scheme, host and perhaps a path, without a slash at the end.
    pub(crate) endpoint: String,
    pub(crate) token: Option<String>,
    pub(crate) is_offline: bool,
    /// Certificates (PEM) to trust instead of the built-in ones.
    pub(crate) certificates: Option<Vec<u8>>,
    /// Whether a variable names a proxy.
    pub(crate) has_proxy: bool,
}

impl Environment {
    pub(crate) fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let home = set("HOME").or_else(|| set("USERPROFILE")).map(PathBuf::from);
        let folder = |name: &str| set(name).map(|value| expand_home(&value, home.as_deref()));
        let hub_home = folder("HF_HOME")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("huggingface")))
            .or_else(|| home.as_ref().map(|home| home.join(".cache/huggingface")));
        let cache = folder("HF_HUB_CACHE")
            .or_else(|| folder("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| hub_home.as_ref().map(|home| home.join("hub")))
            .ok_or(HubError::NoCacheFolder)?;
        let token_file = folder("HF_TOKEN_PATH").or_else(|| hub_home.map(|home| home.join("token")));
        let token = match set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN")) {
            Some(token) => Some(token),
            None => token_file.and_then(|file| read_token(&file)),
        };
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Ok(Self {
            cache,
            endpoint: endpoint.trim().trim_end_matches('/').to_owned(),
            token: token.map(|token| check_token(token.trim())).transpose()?,
            is_offline: set("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            certificates: folder("SSL_CERT_FILE").map(|file| read_certificates(&file)).transpose()?,
            has_proxy: ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"]
                .iter()
                .any(|name| set(name).is_some()),
        })
    }
}

fn expand_home(value: &str, home: Option<&Path>) -> PathBuf {
    match (value.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(value),
    }
}

fn is_true(value: &str) -> bool {
    ["1", "ON", "YES", "TRUE"].contains(&value.trim().to_ascii_uppercase().as_str())
}

/// The token in a file; one that can't be read is the same as none.
fn read_token(file: &Path) -> Option<String> {
    let is_small = fs::metadata(file).is_ok_and(|metadata| metadata.len() <= TOKEN_BYTES_MAX);
    is_small.then(|| fs::read_to_string(file).ok()).flatten().filter(|token| !token.trim().is_empty())
}

/// A token is never shown, not even a wrong one.
fn check_token(token: &str) -> Result<String, HubError> {
    if token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token.to_owned());
    }
    let problem = "no token: it has a space or another character that no token has".to_owned();
    Err(HubError::Setting { variable: "HF_TOKEN (or the token file)", problem })
}

fn read_certificates(file: &Path) -> Result<Vec<u8>, HubError> {
    let metadata = fs::metadata(file).map_err(|error| HubError::io(file, "read", error))?;
    if metadata.len() > CERTIFICATES_BYTES_MAX {
        let problem =
            format!("a file of {} bytes, expected at most {CERTIFICATES_BYTES_MAX}", metadata.len());
        return Err(HubError::Setting { variable: "SSL_CERT_FILE", problem });
    }
    fs::read(file).map_err(|error| HubError::io(file, "read", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Environment, HubError> {
        let lookup = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        };
        Environment::read(lookup)
    }

    #[test]
    fn the_cache_is_where_other_tools_have_it() {
        let check = |variables: &[(&str, &str)], cache: &str| {
            assert_eq!(read(variables).unwrap().cache, Path::new(cache), "{variables:?}");
        };
        let home = ("HOME", "/h");
        check(&[home], "/h/.cache/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub");
        check(&[home, ("XDG_CACHE_HOME", "/x"), ("HF_HOME", "/y")], "/y/hub");
        check(&[home, ("HF_HOME", "~/y")], "/h/y/hub");
        check(&[home, ("HF_HOME", "/y"), ("HF_HUB_CACHE", "/z")], "/z");
        check(&[home, ("HF_HOME", "")], "/h/.cache/huggingface/hub");
        check(&[("USERPROFILE", "/u")], "/u/.cache/huggingface/hub");
        assert!(matches!(read(&[]), Err(HubError::NoCacheFolder)));
    }

    #[test]
    fn tokens_come_from_the_variable_or_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let check = |variables: &[(&str, &str)], token: Option<&str>| {
            let variables = [&[("HF_HOME", home)], variables].concat();
            assert_eq!(read(&variables).unwrap().token.as_deref(), token);
        };
        check(&[], None);
        fs::write(folder.path().join("token"), "from-file\n").unwrap();
        check(&[], Some("from-file"));
        check(&[("HF_TOKEN", " from-variable ")], Some("from-variable"));
        check(&[("HF_TOKEN_PATH", "/nowhere")], None);
        let error = read(&[("HF_HOME", home), ("HF_TOKEN", "se\ncret")]).err().unwrap().to_string();
        assert!(error.contains("HF_TOKEN") && !error.contains("cret"), "{error}");
    }

    #[test]
    fn endpoint_and_offline_mode() {
        let check = |variables: &[(&str, &str)], endpoint: &str, is_offline: bool| {
            let found = read(&[&[("HF_HOME", "/y")], variables].concat()).unwrap();
            assert_eq!((found.endpoint.as_str(), found.is_offline), (endpoint, is_offline));
        };
        check(&[], DEFAULT_ENDPOINT, false);
        check(&[("HF_ENDPOINT", "http://x:1/y/"), ("HF_HUB_OFFLINE", "0")], "http://x:1/y", false);
        check(&[("HF_HUB_OFFLINE", "true")], DEFAULT_ENDPOINT, true);
        check(&[("HF_HUB_OFFLINE", "1")], DEFAULT_ENDPOINT, true);
    }
}
