//! `spangap hunt 'A->B' --meter URL`: a case opened at a meter, watched until it is judged, its verdict as that of a folder.

use crate::signals::{self, ASKED};
use anyhow::{Context, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use spangap_cases::report::{AgentsReport, CaseReport, OpenCase, Opened, PairRow, State};
use spangap_diagnose::hunt::Hunt;
use spangap_report::wrap::wrapped;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

/// How often the case is looked at.
const LOOK: Duration = Duration::from_millis(300);
/// A meter that does not answer for so long is not there.
const ANSWERS: Duration = Duration::from_secs(10);
/// A case is judged long before; a meter that lost it never says so.
const PATIENCE: Duration = Duration::from_secs(180);
/// While nothing else is to be said.
const SAY: Duration = Duration::from_secs(5);
/// The longest answer: a case with its verdict.
const MOST_BYTES: u64 = 64 << 20;

/// Which meter, and who asks.
pub struct Meter {
    url: String,
    token: Option<String>,
    agent: Agent,
}

/// Splits `A->B`; `None` for what is no pair.
pub fn pair(text: &str) -> Option<PairRow> {
    let (client, server) = text.split_once("->")?;
    let (client, server) = (client.trim(), server.trim());
    (!client.is_empty() && !server.is_empty())
        .then(|| PairRow { client: client.to_owned(), server: server.to_owned() })
}

/// Opens a case of the pair and waits for its verdict: the document as the meter has it, and what it says.
pub fn hunt(
    pair: PairRow,
    method: Option<&str>,
    url: &str,
    token_file: Option<&PathBuf>,
    authorities: Option<&PathBuf>,
) -> anyhow::Result<(Value, Hunt)> {
    let stop = signals::flag(ASKED)?;
    let meter = Meter::at(url, token_file.map(PathBuf::as_path), authorities.map(PathBuf::as_path))?;
    let agents: AgentsReport = meter.get("/api/v1/agents")?;
    let connected: Vec<&str> =
        agents.agents.iter().filter(|agent| agent.connected).map(|agent| agent.host_name.as_str()).collect();
    if connected.is_empty() {
        bail!(
            "no agent is connected to {}: without packets of the hosts there is nothing to judge; `spangap agent --meter URL` on \
             each host records them",
            meter.url
        );
    }
    let asked = OpenCase { pair, method: method.map(str::to_owned) };
    let Opened { id } = meter.post("/api/v1/cases", &asked)?;
    say(&format!("case {id} at {}; agents: {}", meter.url, connected.join(", ")));
    let case = meter.judged(&id, &stop)?;
    for lack in &case.lacks {
        say(&wrapped(&format!("missing: {lack}"), 100, 9));
    }
    let Some(document) = case.hunt else {
        bail!("case {id} has no verdict: {}", case.lacks.last().map_or("nobody says why", |lack| lack));
    };
    let hunt = serde_json::from_value(document.clone());
    Ok((document, hunt.with_context(|| format!("{}: the verdict of case {id}", meter.url))?))
}

/// Who may vouch for the meter: those of a file, else those that this host knows.
fn roots(file: Option<&Path>) -> anyhow::Result<RootCerts> {
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

/// For people who wait, and for logs; standard output is for the verdict.
fn say(what: &str) {
    eprintln!("spangap: {what}");
}

impl Meter {
    fn at(url: &str, token_file: Option<&Path>, authorities: Option<&Path>) -> anyhow::Result<Meter> {
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

    fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.answer(request.call())
    }

    fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
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
        let mut answer = answer.with_context(|| format!("{}: no answer of a meter", self.url))?;
        let status = answer.status();
        let bytes = answer.body_mut().with_config().limit(MOST_BYTES).read_to_vec();
        let bytes = bytes.with_context(|| format!("{}: the answer broke off", self.url))?;
        if !status.is_success() {
            let problem: Option<Value> = serde_json::from_slice(&bytes).ok();
            let said = problem.as_ref().and_then(|problem| problem["error"].as_str());
            let said = said.map_or_else(|| format!("status {status}"), plain);
            let hint = match (status.as_u16(), &self.token) {
                (401, None) => "; --token-file names the file with a token of the role `capture`",
                (401 | 403, Some(_)) => "; the token of --token-file was refused",
                _ => "",
            };
            bail!("{}: {said}{hint}", self.url);
        }
        serde_json::from_slice(&bytes)
            .with_context(|| format!("{}: expected the answer of a meter, found something else", self.url))
    }

    /// The case once it is judged; says meanwhile what happens in it.
    fn judged(&self, id: &str, stop: &AtomicBool) -> anyhow::Result<CaseReport> {
        let begun = Instant::now();
        let (mut told, mut said) = (0, begun);
        // Nobody sends: waiting for it is a pause.
        let (_nobody, pause) = mpsc::channel::<()>();
        loop {
            let case: CaseReport = self.get(&format!("/api/v1/cases/{id}"))?;
            for moment in case.time_line.iter().skip(told) {
                let after_s = (moment.unix_ms as f64 - case.row.opened_unix_ms as f64) / 1e3;
                say(&format!("{after_s:+7.1} s  {}", wrapped(&plain(&moment.what), 90, 20)));
                said = Instant::now();
            }
            told = case.time_line.len();
            if case.row.state != State::Open {
                return Ok(case);
            }
            if begun.elapsed() > PATIENCE {
                bail!("case {id} is not judged after {PATIENCE:?}; its page: {}/#case={id}", self.url);
            }
            if std::io::stderr().is_terminal() && said.elapsed() >= SAY {
                said = Instant::now();
                say(&format!("waiting since {} s for {}", begun.elapsed().as_secs(), awaited(&case)));
            }
            // The pause is over, as nobody sends.
            let _over = pause.recv_timeout(LOOK);
            if stop.load(Relaxed) {
                bail!("interrupted; case {id} goes on at {}", self.url);
            }
        }
    }
}

/// What comes next in a case.
fn awaited(case: &CaseReport) -> &'static str {
    let has = |word: &str| case.time_line.iter().any(|moment| moment.what.contains(word));
    match () {
        () if has("complete") || has("no slice") => "the verdict",
        () if has("asked ") => "the slices of both hosts",
        () => "the answers of the last slow calls",
    }
}

/// What others wrote, fit for a terminal.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(2_000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_names_and_an_arrow() {
        let of = |text| pair(text).map(|pair| (pair.client, pair.server));
        assert_eq!(of("tank->target"), Some(("tank".into(), "target".into())));
        assert_eq!(of(" a b -> c->d"), Some(("a b".into(), "c->d".into())));
        for none in ["tank", "->target", "tank->", "-> ", ""] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_meter_is_said_with_what_one_looks_like() {
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
