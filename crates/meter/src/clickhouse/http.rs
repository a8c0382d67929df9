//! Requests to the HTTP interface of ClickHouse.

use super::settings::ClickHouseSettings;
use std::fmt;
use std::io::Read;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

/// Time for a connection, and for a whole request.
const CONNECT: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(60);
/// Largest answer: the statistics of some ten thousand pairs.
const MOST_BYTES: u64 = 512 << 20;
/// Longest statement: it names up to some ten thousand pairs.
const MOST_QUERY_BYTES: &str = "67108864";
/// Part of a refusal that is repeated.
const SAID_CHARS: usize = 400;
/// `UNKNOWN_TABLE` and `UNKNOWN_DATABASE` in the server's words.
const UNKNOWN: [&str; 2] = ["60", "81"];

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A table or database does not exist.
    NoTable(String),
    /// Anything else: no connection, no answer in time, an error of the server.
    Other(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoTable(text) | Refusal::Other(text) => f.write_str(text),
        }
    }
}

/// A server, and the user to ask it as.
pub struct Server {
    agent: Agent,
    url: String,
    database: String,
    user: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("url", &self.url)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

/// The certificates in a file of authorities.
///
/// # Errors
/// What is wrong with it.
pub fn authorities(pem: &[u8]) -> Result<RootCerts, String> {
    let mut all = Vec::new();
    for item in ureq::tls::parse_pem(pem) {
        if let PemItem::Certificate(one) = item.map_err(|error| error.to_string())? {
            all.push(one);
        }
    }
    match all.is_empty() {
        true => Err("expected certificates in PEM, found none".into()),
        false => Ok(RootCerts::new_with_certs(&all)),
    }
}

impl Server {
    /// Connects to nothing yet. `roots` are the authorities of its certificate.
    pub fn new(settings: &ClickHouseSettings, password: Option<String>, roots: Option<RootCerts>) -> Server {
        let roots = roots.unwrap_or(RootCerts::PlatformVerifier);
        let agent = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(WHOLE))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .build();
        Server {
            agent: agent.into(),
            url: format!("{}/", settings.url.0),
            database: settings.database.0.clone(),
            user: settings.user.as_ref().map(|user| user.0.clone()),
            password,
        }
    }

    /// The answer to a query, in RowBinary.
    ///
    /// # Errors
    /// When there is none.
    pub fn select(&self, query: &str) -> Result<Vec<u8>, Refusal> {
        // The first error must be the status: an answer that ends in words would be read as rows.
        let settings = [
            ("default_format", "RowBinary"),
            ("wait_end_of_query", "1"),
            ("max_query_size", MOST_QUERY_BYTES),
        ];
        self.post(&settings, query.as_bytes())
    }

    /// Executes a statement without rows.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn execute(&self, statement: &str) -> Result<(), Refusal> {
        self.post(&[], statement.as_bytes()).map(|_| ())
    }

    /// Inserts rows in RowBinary. The server has them when this returns.
    ///
    /// # Errors
    /// When it may not have them.
    pub fn insert(&self, into: &str, rows: &[u8]) -> Result<(), Refusal> {
        let query = format!("INSERT INTO {into} FORMAT RowBinary");
        // A profile of the user may have the server answer before the rows are in the table.
        self.post(&[("async_insert", "0"), ("query", &query)], rows).map(|_| ())
    }

    fn post(&self, parameters: &[(&str, &str)], body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut request = self.agent.post(&self.url).query("database", &self.database);
        for (name, value) in parameters {
            request = request.query(name, value);
        }
        if let Some(user) = &self.user {
            request = request.header("X-ClickHouse-User", user);
        }
        if let Some(password) = &self.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let failed = |error: &dyn fmt::Display| Refusal::Other(said(&error.to_string()));
        let answer = request.send(body).map_err(|error| failed(&error))?;
        let status = answer.status().as_u16();
        let code = answer.headers().get("X-ClickHouse-Exception-Code");
        let code = code.and_then(|code| code.to_str().ok()).map(String::from);
        let mut text = Vec::new();
        let reader = answer.into_body().into_with_config().limit(MOST_BYTES).reader();
        let most = if status == 200 { MOST_BYTES } else { 64 << 10 };
        reader.take(most).read_to_end(&mut text).map_err(|error| failed(&error))?;
        if status == 200 && code.is_none() {
            return Ok(text);
        }
        let words = format!("status {status}: {}", said(String::from_utf8_lossy(&text).trim()));
        match code.is_some_and(|code| UNKNOWN.contains(&&*code)) {
            true => Err(Refusal::NoTable(words)),
            false => Err(Refusal::Other(words)),
        }
    }
}

/// Another program's words on one line of bounded length.
fn said(text: &str) -> String {
    text.chars().take(SAID_CHARS).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
