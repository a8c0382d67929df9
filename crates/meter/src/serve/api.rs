//! The HTTP API, `/metrics`, and health. Shapes are in [`crate::report`], documented in docs/api.md.

use super::clock::Clock;
use super::otlp::Receiver;
use super::places::Port;
use super::recorder::Store;
use crate::engine::{Meter, PairMinute};
use crate::export::monotone::Monotone;
use crate::export::prometheus::{encode, negotiate};
use crate::export::snapshot::{ProcessFigures, RequestFigures, Snapshot};
use crate::history::{HistoryError, Which, by_pair};
use crate::query::{self, Matches};
use crate::report::*;
use axum::extract::{FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use spangap_model::{PairKey, PairStats, WorstCall};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

/// What a request may look at.
#[derive(Clone, Debug)]
pub struct Api {
    meter: Arc<Meter>,
    clock: Clock,
    receiver: Arc<Receiver>,
    ports: [Arc<Port>; 3],
    store: Arc<Store>,
    exported: Arc<Mutex<Monotone>>,
}

/// An error of the API, with its status.
#[derive(Debug)]
struct Problem(StatusCode, String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(ApiError { error: self.1 })).into_response()
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Problem {
        Problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

type Answer<T> = Result<Json<T>, Problem>;

/// What the query string asks for; one that cannot be read is an error in the API's own shape.
struct Ask<T>(T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Ask<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Ask(asked)),
            Err(rejection) => Err(Problem(StatusCode::BAD_REQUEST, rejection.body_text())),
        }
    }
}

/// All routes but the page.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/api/v1/pairs", get(pairs))
        .route("/api/v1/pair", get(pair))
        .route("/api/v1/worst", get(worst))
        .route("/api/v1/call", get(call))
        .route("/api/v1/coverage", get(coverage))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(async || "ready\n"))
        .fallback(async || Problem(StatusCode::NOT_FOUND, "no such page: see / and /api/v1/pairs".into()))
        .with_state(api)
}

/// The stretch of time asked for: `window=15m`, or `from` and `to` in Unix seconds.
#[derive(Debug, Deserialize)]
struct Stretch {
    window: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
}

/// What is looked at when nothing is asked for.
const DEFAULT_WINDOW_S: u64 = 900;

impl Stretch {
    /// First and last second; minutes that overlap it are taken whole.
    fn seconds(&self, clock: &Clock) -> Result<(u64, u64), Problem> {
        let to = self.to.unwrap_or(clock.unix_s());
        let window_s = match &self.window {
            Some(text) => {
                let ns = spangap_model::duration::parse_ns(text);
                ns.map_err(|e| Problem(StatusCode::BAD_REQUEST, format!("window: {e}")))? / 1_000_000_000
            }
            None => DEFAULT_WINDOW_S,
        };
        let from = self.from.unwrap_or(to.saturating_sub(window_s));
        if from > to {
            return Err(Problem(StatusCode::BAD_REQUEST, format!("from {from} lies after to {to}")));
        }
        Ok((from, to))
    }
}

/// Which pair is asked for; of those left out any will do.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    client: Option<String>,
    server: Option<String>,
    method: Option<String>,
    limit: Option<usize>,
}

impl Asked {
    fn matches(&self, key: &PairKey) -> bool {
        let same =
            |asked: &Option<String>, is: Option<&str>| asked.as_deref().is_none_or(|asked| is == Some(asked));
        same(&self.client, Some(&key.client))
            && same(&self.server, Some(&key.server))
            && same(&self.method, key.method.as_deref())
    }

    /// Exactly one pair: without a method, the pair without one.
    fn key(self) -> Result<PairKey, Problem> {
        match (self.client, self.server) {
            (Some(client), Some(server)) => Ok(PairKey {
                client: client.into(),
                server: server.into(),
                method: self.method.map(|method| method.into()),
            }),
            _ => Err(Problem(StatusCode::BAD_REQUEST, "expected client=SERVICE and server=SERVICE".into())),
        }
    }
}

/// Which call is asked for.
#[derive(Debug, Deserialize)]
struct AskedCall {
    trace_id: Option<String>,
    client_span_id: Option<String>,
}

/// Minutes of the answer, and from which second on they can still change.
struct Minutes {
    all: Vec<PairMinute>,
    open_from_s: Option<u64>,
}

impl Api {
    /// Over the running meter.
    pub fn new(
        meter: Arc<Meter>,
        clock: Clock,
        receiver: Arc<Receiver>,
        ports: [Arc<Port>; 3],
        store: Arc<Store>,
    ) -> Api {
        Api { meter, clock, receiver, ports, store, exported: Arc::default() }
    }

    /// Open minutes from the engine and closed ones from the history, none twice.
    fn minutes(
        &self,
        (from_s, to_s): (u64, u64),
        pair: Option<&PairKey>,
        worst: bool,
    ) -> Result<Minutes, HistoryError> {
        let from_s = from_s - from_s % 60;
        // The recorder moves minutes from the engine to the history under this lock.
        let mut history = self.store.lock();
        let mut open = self.meter.open_minutes();
        let open_from_s = open.iter().map(|m| m.unix_s).min();
        open.retain(|m| (from_s..=to_s).contains(&m.unix_s) && pair.is_none_or(|pair| m.key == *pair));
        let mut all = history.minutes(from_s, to_s, Which { pair, open_from_s, worst })?;
        all.append(&mut open);
        Ok(Minutes { all, open_from_s })
    }

    fn coverage(&self) -> Result<Coverage, HistoryError> {
        // In a statement of its own: `notes` takes the same lock.
        let holes = self.store.lock().holes()?;
        let overview = self.meter.overview();
        let mut notes = self.store.notes();
        notes.extend(query::size_note(&overview));
        if overview.minutes_dropped > 0 {
            notes.push(format!(
                "history: {} minutes were not written in time and are missing",
                overview.minutes_dropped
            ));
        }
        notes.extend(
            overview.last_clock_steps.last().map(|last| query::clock_note(overview.clock_steps, last)),
        );
        Ok(Coverage {
            refused_requests: self.receiver.refused.load(Relaxed),
            invalid_requests: self.receiver.invalid.load(Relaxed),
            slow_requests: self.receiver.admission.too_slow.load(Relaxed),
            displaced_requests: self.receiver.admission.displaced.load(Relaxed),
            request_bytes: self.receiver.admission.bytes(),
            request_bytes_limit: self.receiver.admission.limit(),
            ports: self.ports.iter().map(|port| query::port_report(port.name, &port.figures())).collect(),
            uptime_s: self.clock.now_ms() / 1000,
            holes,
            notes,
            ..query::coverage(&overview)
        })
    }

    /// All figures since the start, for the exporters.
    pub fn snapshot(&self) -> Snapshot {
        let overview = self.meter.overview();
        let mut exported = self.exported.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            pairs: exported.raise(self.meter.totals()),
            refused_requests: self.receiver.refused.load(Relaxed),
            invalid_requests: self.receiver.invalid.load(Relaxed),
            requests: RequestFigures {
                bytes: self.receiver.admission.bytes(),
                bytes_limit: self.receiver.admission.limit(),
                slow: self.receiver.admission.too_slow.load(Relaxed),
                displaced: self.receiver.admission.displaced.load(Relaxed),
            },
            ports: self.ports.iter().map(|port| (port.name, port.figures())).collect(),
            // Follows the wall clock when that is set: a start in the future would be refused by receivers.
            started_unix_ns: overview.epoch_unix_ms.max(0) as u64 * 1_000_000,
            now_unix_ns: overview.epoch_unix_ms.saturating_add(self.clock.now_ms() as i64).max(0) as u64
                * 1_000_000,
            overview,
            version: env!("CARGO_PKG_VERSION"),
            process: process_figures(),
            history: self.store.lock().figures().ok(),
        }
    }

    fn find_call(
        &self,
        trace_id: &[u8; 16],
        span_id: Option<&[u8; 8]>,
    ) -> Result<Option<CallReport>, HistoryError> {
        let history = self.store.lock();
        for minute in self.meter.open_minutes() {
            let is_it = |call: &&WorstCall| {
                call.trace_id == *trace_id && span_id.is_none_or(|id| call.client_span_id == *id)
            };
            if let Some(call) = minute.stats.worst.iter().find(is_it) {
                return Ok(Some(query::call_report(&minute.key, call)));
            }
        }
        Ok(history.find_call(trace_id, span_id)?.map(|(key, call)| query::call_report(&key, &call)))
    }
}

/// Runs a query off the threads that receive spans: it may read the database.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the query failed: {e}"))))
}

async fn pairs(State(api): State<Api>, Ask(stretch): Ask<Stretch>) -> Answer<PairsReport> {
    off_thread(move || {
        let (from_s, to_s) = stretch.seconds(&api.clock)?;
        let pairs = by_pair(api.minutes((from_s, to_s), None, true)?.all);
        Ok(Json(query::pairs_report(&pairs, &api.meter.overview(), from_s, to_s)))
    })
    .await
}

async fn pair(
    State(api): State<Api>,
    Ask(stretch): Ask<Stretch>,
    Ask(asked): Ask<Asked>,
) -> Answer<PairOverTime> {
    off_thread(move || {
        let key = asked.key()?;
        let minutes = api.minutes(stretch.seconds(&api.clock)?, Some(&key), true)?;
        if minutes.all.is_empty() {
            let names = format!("{} -> {}", key.client, key.server);
            return Err(Problem(
                StatusCode::NOT_FOUND,
                format!("no calls of {names} in this stretch of time"),
            ));
        }
        let mut by_minute = BTreeMap::<u64, (PairStats, bool)>::new();
        for minute in minutes.all {
            let open = minutes.open_from_s.is_some_and(|from| minute.unix_s >= from);
            let entry = by_minute.entry(minute.unix_s).or_default();
            entry.0.merge(&minute.stats);
            entry.1 |= open;
        }
        Ok(Json(query::over_time(&key, &by_minute, &Matches::new(&api.meter.overview()))))
    })
    .await
}

/// Worst calls in an answer unless told otherwise.
const DEFAULT_LIMIT: usize = 20;

async fn worst(
    State(api): State<Api>,
    Ask(stretch): Ask<Stretch>,
    Ask(asked): Ask<Asked>,
) -> Answer<WorstReport> {
    off_thread(move || {
        let minutes = api.minutes(stretch.seconds(&api.clock)?, None, true)?.all;
        let matching = minutes.iter().filter(|minute| asked.matches(&minute.key));
        let of_minute = |m: &PairMinute| {
            m.stats.worst.iter().map(|c| query::worst_of_pair(&m.key, c)).collect::<Vec<_>>()
        };
        let mut calls: Vec<WorstOfPair> = matching.flat_map(of_minute).collect();
        calls.sort_by(|a, b| {
            b.call.gap_ns.cmp(&a.call.gap_ns).then_with(|| a.call.trace_id.cmp(&b.call.trace_id))
        });
        calls.truncate(asked.limit.unwrap_or(DEFAULT_LIMIT));
        let floor_ns = minutes.iter().filter(|m| asked.matches(&m.key)).map(|m| m.stats.worst_floor_ns).max();
        let last_ns = calls.last().map_or(0, |c| c.call.gap_ns);
        Ok(Json(WorstReport { calls, complete_above_ns: floor_ns.filter(|floor_ns| last_ns < *floor_ns) }))
    })
    .await
}

async fn call(State(api): State<Api>, Ask(asked): Ask<AskedCall>) -> Answer<CallReport> {
    off_thread(move || {
        let wrong = |what: &str, digits| {
            Problem(StatusCode::BAD_REQUEST, format!("expected {what}={digits} hex digits"))
        };
        let trace_id = asked.trace_id.as_deref().and_then(from_hex).ok_or_else(|| wrong("trace_id", 32))?;
        let span_id = match asked.client_span_id.as_deref() {
            Some(text) => Some(from_hex(text).ok_or_else(|| wrong("client_span_id", 16))?),
            None => None,
        };
        let found = api.find_call(&trace_id, span_id.as_ref())?;
        found.map(Json).ok_or_else(|| {
            let why =
                "not among the worst calls that are kept: only the largest gaps of each pair and minute are";
            Problem(StatusCode::NOT_FOUND, why.into())
        })
    })
    .await
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

async fn coverage(State(api): State<Api>) -> Answer<Coverage> {
    off_thread(move || Ok(Json(api.coverage()?))).await
}

async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    let format = negotiate(accept);
    let body = off_thread(move || Ok(encode(&api.snapshot(), format))).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], body).into_response())
}

/// Resident memory and CPU time of this process; `None` where there is no /proc.
fn process_figures() -> Option<ProcessFigures> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // Fields after the command name, which may hold anything: utime and stime are the 14th and 15th of all,
    // in ticks of 10 ms (USER_HZ is 100 on every Linux architecture in use; pages of 4 KiB likewise here).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ProcessFigures { resident_bytes: pages * 4096, cpu_s: (ticks()? + ticks()?) as f64 / 100.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_whole_or_not_at_all() {
        assert_eq!(from_hex::<2>("0aFf"), Some([0x0a, 0xff]));
        assert_eq!(from_hex::<2>("0af"), None);
        assert_eq!(from_hex::<2>("0ag0"), None);
        assert_eq!(from_hex::<2>("0é0"), None);
    }
}
