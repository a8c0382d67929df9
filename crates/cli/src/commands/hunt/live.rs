//! `spangap hunt 'A->B' --meter URL`: opens a case at a meter, waits for its verdict, and presents it like that
//! of a folder.

use super::meter::{Meter, plain};
use crate::signals::{self, ASKED};
use anyhow::{Context, bail};
use serde_json::Value;
use spangap_cases::report::{AgentsReport, CaseReport, OpenCase, Opened, PairRow, State};
use spangap_diagnose::hunt::Hunt;
use spangap_report::wrap::wrapped;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Polling interval of the case.
const LOOK: Duration = Duration::from_millis(300);
/// A case is normally judged much sooner; a meter that lost it never reports that.
const PATIENCE: Duration = Duration::from_secs(180);
/// Interval of progress messages when nothing changes.
const SAY: Duration = Duration::from_secs(5);

/// Splits `A->B`; `None` if it is not a pair.
pub fn pair(text: &str) -> Option<PairRow> {
    let (client, server) = text.split_once("->")?;
    let (client, server) = (client.trim(), server.trim());
    (!client.is_empty() && !server.is_empty())
        .then(|| PairRow { client: client.to_owned(), server: server.to_owned() })
}

/// A judged case.
pub struct Case {
    /// The meter that holds it.
    pub meter: Meter,
    /// Id at the meter.
    pub id: String,
    /// The verdict as received: a newer meter's may contain more than this version understands.
    pub document: Value,
    /// The understood part of it.
    pub hunt: Hunt,
    /// Set by Ctrl-C.
    pub stop: Arc<AtomicBool>,
}

/// Opens a case of the pair and waits for its verdict.
pub fn hunt(
    pair: PairRow,
    method: Option<&str>,
    url: &str,
    token_file: Option<&PathBuf>,
    authorities: Option<&PathBuf>,
) -> anyhow::Result<Case> {
    let stop = signals::flag(ASKED)?;
    let meter = Meter::at(url, token_file.map(PathBuf::as_path), authorities.map(PathBuf::as_path))?;
    let agents: AgentsReport = meter.get("/api/v1/agents")?;
    let connected: Vec<&str> =
        agents.agents.iter().filter(|agent| agent.connected).map(|agent| agent.host_name.as_str()).collect();
    if connected.is_empty() {
        bail!(
            "no agent is connected to {}: without packets from the hosts there is nothing to judge; `spangap agent \
             --meter URL` on each host records them",
            meter.url
        );
    }
    let asked = OpenCase { pair, method: method.map(str::to_owned), ..OpenCase::default() };
    let Opened { id } = meter.post("/api/v1/cases", &asked)?;
    say(&format!("case {id} at {}; agents: {}", meter.url, connected.join(", ")));
    let case = judged(&meter, &id, &stop)?;
    for lack in &case.lacks {
        say(&wrapped(&format!("missing: {lack}"), 100, 9));
    }
    let Some(document) = case.hunt else {
        bail!("case {id} has no verdict: {}", case.lacks.last().map_or("nobody says why", |lack| lack));
    };
    let hunt = serde_json::from_value(document.clone());
    let hunt = hunt.with_context(|| format!("{}: the verdict of case {id}", meter.url))?;
    Ok(Case { meter, id, document, hunt, stop })
}

/// Prints progress for people and logs on standard error; standard output is for the verdict.
pub fn say(what: &str) {
    eprintln!("spangap: {what}");
}

/// Waits before the next request to the meter.
pub fn pause() {
    // Nothing is ever sent: the timeout is the pause.
    let (_nobody, never) = mpsc::channel::<()>();
    let _over = never.recv_timeout(LOOK);
}

/// Waits until the case is judged, and reports its progress.
fn judged(meter: &Meter, id: &str, stop: &AtomicBool) -> anyhow::Result<CaseReport> {
    let begun = Instant::now();
    let (mut told, mut said) = (0, begun);
    loop {
        let case: CaseReport = meter.get(&format!("/api/v1/cases/{id}"))?;
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
            bail!("case {id} has no verdict after {PATIENCE:?}; its page: {}/#case={id}", meter.url);
        }
        if std::io::stderr().is_terminal() && said.elapsed() >= SAY {
            said = Instant::now();
            say(&format!("waiting for {} s for {}", begun.elapsed().as_secs(), awaited(&case)));
        }
        pause();
        if stop.load(Relaxed) {
            bail!("interrupted; case {id} continues at {}", meter.url);
        }
    }
}

/// The next step of a case.
fn awaited(case: &CaseReport) -> &'static str {
    let has = |word: &str| case.time_line.iter().any(|moment| moment.what.contains(word));
    match () {
        () if has("complete") || has("no slice") => "the verdict",
        () if has("asked ") => "the slices of both hosts",
        () => "the answers of the last slow calls",
    }
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
}
