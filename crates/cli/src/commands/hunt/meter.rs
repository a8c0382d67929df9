//! Client of a meter's API, for `hunt`.

use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

/// Timeout of a request; longer than the meter waits for an agent.
const ANSWERS: Duration = Duration::from_secs(20);
/// Maximum size of a response: a case with its verdict.
const MOST_BYTES: u64 = 64 << 20;

/// A meter and the credentials for it.
pub struct Meter {
    /// Without a trailing slash.
    pub url: String,
    token: Option<String>,
    agent: Agent,
}

/// The meter responded, and refused.
#[derive(Debug)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    url: String,
    /// Its message.
    pub said: String,
    has_token: bool,
}

impl Refusal {
    /// Whether a permission is missing.
    pub fn is_denied(&self) -> bool {
        matches!(self.status, 401 | 403)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match (self.status, self.has_token) {
            (401, false) => "; --token-file names the file with a token of the role `capture`",
            (401 | 403, true) => "; the token of --token-file was refused",
            _ => "",
        };
        write!(f, "{}: {}{hint}", self.url, self.said)
    }
}

impl std::error::Error for Refusal {}

/// Trusted authorities: those of a file, else those of this host.
pub fn roots(file: Option<&Path>) -> anyhow::Result<RootCerts> {
    let Some(path) = file else { return Ok(RootCerts::PlatformVerifier) };
    let text = std::fs::read(path).with_context(|| path.display().to_string())?;
    let mut all = Vec::new();
    for item in ureq::tls::parse_pem(&text) {
        if let PemItem::Certificate(one) = item.with_context(|| path.display().to_string())? {
            all.push(one);
        }
    }
    if all.is_empty() {
        bail!("{}: expected certificates in PEM, found none", path.display());
    }
    Ok(RootCerts::new_with_certs(&all))
}

impl Meter {
    pub fn at(url: &str, token_file: Option<&Path>, authorities: Option<&Path>) -> anyhow::Result<Meter> {
        let url = url.trim_end_matches('/');
        let place = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
        let Some(place) = place.filter(|place| !place.is_empty()) else {
            bail!("--meter {url}: expected the URL of a meter's page, such as http://127.0.0.1:7070");
        };
        if place.contains('/') {
            bail!("--meter {url}: expected http://HOST:PORT without a path");
        }
        let token = token_file.map(|path| -> anyhow::Result<String> {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let token = text.trim();
            if token.is_empty() || token.contains(|letter: char| letter.is_control() || letter == ' ') {
                bail!("{}: expected one line with a token", path.display());
            }
            Ok(token.to_owned())
        });
        let config = Agent::config_builder()
            .timeout_global(Some(ANSWERS))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(TlsConfig::builder().root_certs(roots(authorities)?).build())
            .build();
        Ok(Meter { url: url.to_owned(), token: token.transpose()?, agent: config.into() })
    }

    /// # Errors [`Refusal`] if the meter refuses.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.answer(request.call())
    }

    /// # Errors
    /// See [`Meter::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = serde_json::to_vec(body).context("a question is plain data")?;
        self.answer(request.header("content-type", "application/json").send(body))
    }

    fn answer<T: DeserializeOwned>(
        &self,
        answer: Result<Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<T> {
        let mut answer = answer.with_context(|| format!("{}: this is not a meter's answer", self.url))?;
        let status = answer.status();
        let bytes = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        let bytes = bytes.with_context(|| format!("{}: the answer broke off", self.url))?;
        if !status.is_success() {
            let problem: Option<Value> = serde_json::from_slice(&bytes).ok();
            let said = problem.as_ref().and_then(|problem| problem["error"].as_str());
            let said = said.map_or_else(|| format!("status {status}"), plain);
            let refusal = Refusal {
                status: status.as_u16(),
                url: self.url.clone(),
                said,
                has_token: self.token.is_some(),
            };
            return Err(refusal.into());
        }
        serde_json::from_slice(&bytes)
            .with_context(|| format!("{}: expected a meter's answer, found something else", self.url))
    }

    /// # Errors
    /// See [`Meter::get`].
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut request = self.agent.delete(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.answer(request.call())
    }
}

/// Foreign text, made safe for a terminal.
pub fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(2_000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_urls_are_rejected_with_an_example() {
        for url in ["127.0.0.1:7070", "http://", "http://host:1/api", "ftp://host"] {
            let error = Meter::at(url, None, None).err().expect("refused").to_string();
            assert!(error.contains(url) && error.contains("http://"), "{error}");
        }
        let missing = Meter::at("http://127.0.0.1:1", Some(Path::new("/no/such/file")), None).err();
        assert!(format!("{:#}", missing.expect("refused")).contains("/no/such/file"));
        for (file, said) in
            [("/no/such/file", "/no/such/file"), ("/dev/null", "/dev/null: expected certificates in PEM")]
        {
            let error = Meter::at("https://localhost:1", None, Some(Path::new(file))).err().expect("refused");
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
    }
}
