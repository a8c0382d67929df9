//! The HTTP API, `/metrics`, and health. Shapes are in [`crate::report`], documented in docs/api.md.

use super::Refusals;
use super::access::Denied;
use super::answer::{Coding, Rendered};
use super::changes::{changes, has, not_modified, with_tag};
use super::clock::Clock;
use super::fleet::{self, Filter, Steps};
use super::otlp::Receiver;
use super::parameters::{self, Ask, BadQuery};
use super::places::{Peer, Port};
use super::readers::Readers;
use super::recorder::Store;
use super::shared::Answers;
use super::table::{self, Table};
use super::traces;
use crate::engine::Meter;
use crate::explain::explain;
use crate::export::monotone::Monotone;
use crate::export::prometheus::{negotiate, write};
use crate::export::snapshot::{ProcessFigures, RequestFigures, Snapshot};
use crate::history::{Cancel, Covered, HistoryError};
use crate::ingest::versions::VersionChange;
use crate::kafka::{self, Kafka};
use crate::query::{self, Matches};
use crate::report::*;
use crate::spool::Spool;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use spangap_machine::facts::process_stat;
use spangap_model::PairKey;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use tokio::sync::watch;

/// Answers of one kind that are made at once; others stand in line, and those of no other kind do.
const MADE_AT_ONCE: usize = 2;
/// Answers of one kind in line; further requests are told to come again.
const LINE: usize = 64;
/// Worst calls in an answer at most.
const MAX_WORST: usize = 1_000;

/// What a request may look at.
#[derive(Clone, Debug)]
pub struct Api {
    pub(super) meter: Arc<Meter>,
    pub(super) clock: Clock,
    receiver: Arc<Receiver>,
    ports: [Arc<Port>; 3],
    pub(super) store: Arc<Store>,
    exported: Arc<Mutex<Monotone>>,
    /// The snapshot that was taken last, while anybody reads it, and when.
    latest: Arc<Mutex<(Option<Instant>, Weak<Snapshot>)>>,
    /// Who asks.
    pub(super) peer: Peer,
    answers: Arc<Answers>,
    kinds: Arc<[Kind; 4]>,
    pub(super) spool: Option<Arc<Spool>>,
    kafka: Option<Arc<Kafka>>,
    /// Tells this run from others.
    pub(super) started_unix_ms: u64,
    /// Changes when the service ends.
    pub(super) stopping: watch::Receiver<()>,
    refusals: Refusals,
}

/// Kinds of answers, none of which waits for another.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    History,
    Scrapes,
    Traces,
    Other,
}

/// Those who want answers of one kind.
#[derive(Debug)]
struct Kind {
    /// While they are made.
    turns: Arc<Readers>,
    /// While they are read.
    readers: Arc<Readers>,
}

impl Kind {
    fn new() -> Kind {
        Kind { turns: Readers::turns(MADE_AT_ONCE, LINE), readers: Readers::new() }
    }
}

/// What a request asks for. Equal requests share an answer.
pub(super) struct Wanted {
    key: String,
    coding: Coding,
}

impl Wanted {
    /// `what` must tell apart all requests whose answers differ otherwise than by the time.
    pub(super) fn new(headers: &HeaderMap, what: impl std::fmt::Display) -> Wanted {
        let coding = Coding::of(headers);
        Wanted { key: format!("{coding:?} {what}"), coding }
    }
}

/// An error of the API, with its status.
#[derive(Debug)]
pub(super) struct Problem(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(ApiError { error: self.1 })).into_response()
    }
}

impl From<BadQuery> for Problem {
    fn from(BadQuery(why): BadQuery) -> Problem {
        Problem(StatusCode::BAD_REQUEST, why)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the answer cannot be made: {error}"))
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Problem {
        let status = match error.is_damage() {
            // It is set aside at the next checkpoint.
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem(status, error.to_string())
    }
}

/// A request that is not let in.
pub fn refused(denied: &Denied) -> Response {
    let status = match denied {
        Denied::NoToken(_) => StatusCode::UNAUTHORIZED,
        Denied::WrongRole(_) | Denied::NotLocal(_) | Denied::Origin(_) | Denied::NoCertificate => {
            StatusCode::FORBIDDEN
        }
        Denied::Host(_) => StatusCode::MISDIRECTED_REQUEST,
    };
    let mut response = Problem(status, denied.to_string()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

pub(super) type Answer = Result<Response, Problem>;

/// The API as the peer of a request uses it.
pub(super) struct For(pub(super) Api);

impl FromRequestParts<Api> for For {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<For, Self::Rejection> {
        let peer = parts.extensions.get::<Peer>().copied().unwrap_or(Peer::NOBODY);
        Ok(For(Api { peer, ..api.clone() }))
    }
}

/// All routes but the page.
pub fn router(api: Api) -> Router {
    let without_parameters = Router::new()
        .route("/api/v1/annotations", get(annotations))
        .route("/api/v1/coverage", get(coverage))
        .route("/api/v1/traces/{id}", get(traces::otlp))
        .route_layer(from_fn(parameters::none));
    // Scrapers, probes and UIs of others have parameters of their own that do not matter here.
    let of_others = Router::new()
        .route("/api/traces/{id}", get(traces::of_jaeger))
        .route("/api/services", get(traces::services))
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready));
    Router::new()
        .route("/api/v1/pairs", get(pairs))
        .route("/api/v1/pair", get(pair))
        .route("/api/v1/worst", get(worst))
        .route("/api/v1/call", get(call))
        .route("/api/v1/explain", get(explained))
        .route("/api/v1/timeline", get(timeline))
        .route("/api/v1/changes", get(changes))
        .merge(without_parameters)
        .merge(of_others)
        .fallback(async || Problem(StatusCode::NOT_FOUND, "no such page: see / and /api/v1/pairs".into()))
        .with_state(api)
}

/// The stretch of time asked for: `window=15m`, or `from` and `to` in Unix seconds.
#[derive(Debug, Deserialize)]
struct Period {
    window: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
}

/// A request for a stretch of time, which may depend on when it came.
struct Within<'a>(&'a Uri, (u64, u64));

impl std::fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Within(uri, (from_s, to_s)) = self;
        write!(f, "{from_s} {to_s} {uri}")
    }
}

/// What is looked at when nothing is asked for.
const DEFAULT_WINDOW_S: u64 = 900;

impl Period {
    /// First and last second; minutes that overlap it are taken whole.
    fn seconds(&self, clock: &Clock) -> Result<(u64, u64), Problem> {
        let to = self.to.unwrap_or(clock.unix_s());
        let window_s = match &self.window {
            Some(text) => parameters::duration_ns("window", text)? / 1_000_000_000,
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
struct PairQuery {
    client: Option<String>,
    server: Option<String>,
    method: Option<String>,
}

/// Which of its worst calls.
#[derive(Debug, Default, Deserialize)]
struct WhichCalls {
    limit: Option<usize>,
    /// Gaps of the calls asked for, in nanoseconds.
    min_gap_ns: Option<u64>,
    max_gap_ns: Option<u64>,
}

impl PairQuery {
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

/// Ends the query when the client goes away: the request's future is dropped then.
struct CancelOnDrop(Arc<Cancel>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Api {
    /// Over the running meter.
    pub fn new(
        meter: Arc<Meter>,
        clock: Clock,
        receiver: Arc<Receiver>,
        ports: [Arc<Port>; 3],
        store: Arc<Store>,
        exported_pairs: usize,
        stopping: watch::Receiver<()>,
    ) -> Api {
        let exported = Arc::new(Mutex::new(Monotone::new(exported_pairs)));
        Api {
            refusals: Refusals::default(),
            meter,
            clock,
            receiver,
            ports,
            store,
            exported,
            latest: Arc::default(),
            peer: Peer::NOBODY,
            answers: Arc::default(),
            kinds: Arc::new([(); 4].map(|()| Kind::new())),
            spool: None,
            kafka: None,
            started_unix_ms: clock.unix_ms(),
            stopping,
        }
    }

    /// Answers a question to the history.
    pub(super) async fn query<T: Serialize + 'static>(
        &self,
        wanted: Wanted,
        work: impl FnOnce(&Api, &Arc<Cancel>) -> Result<Result<T, Problem>, HistoryError> + Send + 'static,
    ) -> Answer {
        let cancel = Arc::new(Cancel::default());
        let _gone = CancelOnDrop(cancel.clone());
        let of_history = move |api: &Api| {
            let done = work(api, &cancel);
            done.inspect_err(|error| api.store.report(error))?
        };
        self.look(Of::History, wanted, of_history).await
    }

    /// Answers with what `work` returns, as JSON.
    pub(super) async fn look<T: Serialize + 'static>(
        &self,
        of: Of,
        wanted: Wanted,
        work: impl FnOnce(&Api) -> Result<T, Problem> + Send + 'static,
    ) -> Answer {
        self.answer(of, wanted, move |api, coding| json(coding, &work(api)?)).await
    }

    /// Answers with what `work` makes, unless somebody else has just had it made.
    async fn answer(
        &self,
        of: Of,
        wanted: Wanted,
        work: impl FnOnce(&Api, Coding) -> Result<Rendered, Problem> + Send + 'static,
    ) -> Answer {
        let busy = |_| {
            let many = "too many requests of this kind are already waiting; try again";
            Problem(StatusCode::SERVICE_UNAVAILABLE, many.into())
        };
        let kind = &self.kinds[of as usize];
        let make = async {
            let turn = kind.turns.enter(self.peer).await.map_err(busy)?;
            let (api, coding) = (self.clone(), wanted.coding);
            off_thread(move || {
                let made = work(&api, coding);
                // Held until the work has really ended, whoever waits for it.
                drop(turn);
                made
            })
            .await
        };
        let made = self.answers.get(&wanted.key, make).await?;
        if made.is_short() {
            return Ok(made.send(None));
        }
        let place = kind.readers.enter(self.peer).await.map_err(busy)?;
        Ok(made.send(Some(place)))
    }

    fn displaced_answers(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.readers.displaced.load(Relaxed)).sum()
    }

    fn exported(&self) -> MutexGuard<'_, Monotone> {
        self.exported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn annotations(&self) -> Annotations {
        // The meter's clock does not step; the wall clock of the start places it.
        let row = |change: VersionChange| VersionRow {
            unix_ms: self.clock.epoch_unix_ms() + change.at_ms,
            service: change.service,
            version: change.version,
            before: change.before,
        };
        Annotations { versions: self.meter.version_changes().into_iter().map(row).collect() }
    }

    fn coverage(&self) -> Result<Coverage, HistoryError> {
        let holes = self.store.reader().view(Arc::default()).and_then(|view| view.holes());
        let holes = holes.inspect_err(|error| self.store.report(error))?;
        let mut overview = self.meter.overview();
        let exported = self.exported().fill();
        overview.limits.push(exported);
        let mut notes = self.store.notes();
        if exported.refused > 0 {
            notes.push(format!(
                "metrics: {} pairs past the limit of --exported-pairs are exported as the pair other",
                exported.refused
            ));
        }
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
        let kept = self.spool.as_ref().map(|spool| spool.figures());
        notes.extend(kept.iter().flat_map(traces::notes));
        let kafka = self.kafka.as_ref().map(|kafka| kafka.figures());
        notes.extend(kafka.iter().flat_map(kafka::source::notes));
        Ok(Coverage {
            kafka,
            kept: kept.map(traces::coverage),
            refused_requests: self.receiver.refused.load(Relaxed),
            invalid_requests: self.receiver.invalid.load(Relaxed),
            slow_requests: self.receiver.admission.too_slow.load(Relaxed),
            displaced_requests: self.receiver.admission.displaced.load(Relaxed),
            displaced_answers: self.displaced_answers(),
            request_bytes: self.receiver.admission.bytes(),
            request_bytes_limit: self.receiver.admission.limit(),
            ports: self.ports.iter().map(|port| query::port_report(port.name, &port.figures())).collect(),
            uptime_s: self.clock.now_ms() / 1000,
            holes,
            notes,
            history: Some(self.store.coverage()),
            ..query::coverage(&overview)
        })
    }

    /// With all spans kept for a while.
    pub(super) fn with_spool(self, spool: Option<Arc<Spool>>) -> Api {
        Api { spool, ..self }
    }

    /// With the topic that spans come from.
    pub(super) fn with_kafka(self, kafka: Option<Arc<Kafka>>) -> Api {
        Api { kafka, ..self }
    }

    /// With what is refused for other reasons than load.
    pub(super) fn with_refusals(self, refusals: Refusals) -> Api {
        Api { refusals, ..self }
    }

    /// All figures as of this moment or later, of which those who asked meanwhile have one copy.
    fn snapshot_since(&self, asked: Instant) -> Arc<Snapshot> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, snapshot) = &*latest;
        if let Some(snapshot) = snapshot.upgrade().filter(|_| taken.is_some_and(|taken| taken >= asked)) {
            return snapshot;
        }
        let (taken, snapshot) = (Instant::now(), Arc::new(self.snapshot()));
        *latest = (Some(taken), Arc::downgrade(&snapshot));
        snapshot
    }

    /// All figures since the start, for the exporters.
    pub fn snapshot(&self) -> Snapshot {
        let mut overview = self.meter.overview();
        let mut exported = self.exported();
        let pairs = exported.raise(self.meter.totals());
        overview.limits.push(exported.fill());
        drop(exported);
        Snapshot {
            pairs,
            refused_requests: self.receiver.refused.load(Relaxed),
            invalid_requests: self.receiver.invalid.load(Relaxed),
            refusals: self.refusals.counts(),
            requests: RequestFigures {
                bytes: self.receiver.admission.bytes(),
                bytes_limit: self.receiver.admission.limit(),
                slow: self.receiver.admission.too_slow.load(Relaxed),
                displaced: self.receiver.admission.displaced.load(Relaxed),
                displaced_answers: self.displaced_answers(),
            },
            ports: self.ports.iter().map(|port| (port.name, port.figures())).collect(),
            // Follows the wall clock when that is set: a start in the future would be refused by receivers.
            started_unix_ns: overview.epoch_unix_ms.max(0) as u64 * 1_000_000,
            now_unix_ns: overview.epoch_unix_ms.saturating_add(self.clock.now_ms() as i64).max(0) as u64
                * 1_000_000,
            overview,
            version: env!("CARGO_PKG_VERSION"),
            process: process_figures(),
            history: Some(self.store.figures()),
            kept: self.spool.as_ref().map(|spool| spool.figures()),
            kafka: self.kafka.as_ref().map(|kafka| kafka.figures().into()),
        }
    }
}

/// A value as JSON.
pub(super) fn json(coding: Coding, value: &impl Serialize) -> Result<Rendered, Problem> {
    let write = |out: &mut dyn io::Write| Ok(serde_json::to_writer(out, value)?);
    Ok(Rendered::new(coding, "application/json", write)?)
}

/// Runs a query off the threads that receive spans: it may read the database.
pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Problem(StatusCode::INTERNAL_SERVER_ERROR, format!("the query failed: {e}"))))
}

/// The first second covered, where it is not the minute asked for.
pub(super) fn covered(covered: Covered, from_s: u64) -> Option<u64> {
    (covered.from_unix_s != from_s - from_s % 60).then_some(covered.from_unix_s)
}

async fn pairs(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, filter, table)): Ask<(Period, Filter, Table)>,
) -> Answer {
    let stretch = stretch.seconds(&api.clock)?;
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, stretch));
    Ok(with_tag(table::pairs(&api, wanted, stretch, filter, table).await?, &tag))
}

async fn timeline(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, filter, steps)): Ask<(Period, Filter, Steps)>,
) -> Answer {
    let stretch = stretch.seconds(&api.clock)?;
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, stretch));
    Ok(with_tag(fleet::timeline(&api, wanted, stretch, filter, steps).await?, &tag))
}

async fn pair(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, asked)): Ask<(Period, PairQuery)>,
) -> Answer {
    let key = asked.key()?;
    let (from_s, to_s) = stretch.seconds(&api.clock)?;
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, (from_s, to_s)));
    let answer = api.query(wanted, move |api, cancel| {
        let (view, memory) = api.store.view(cancel, |other| *other == key)?;
        let over_time = view.over_time(&key, from_s, to_s, &memory)?;
        if over_time.points.is_empty() {
            let why = format!("no calls of {} -> {} in this period", key.client, key.server);
            return Ok(Err(Problem(StatusCode::NOT_FOUND, why)));
        }
        Ok(Ok(PairOverTime {
            covered_from_unix_s: covered(over_time.covered, from_s),
            ..query::over_time(&key, &over_time, &Matches::new(&api.meter.overview()))
        }))
    });
    Ok(with_tag(answer.await?, &tag))
}

/// Worst calls in an answer unless told otherwise.
const DEFAULT_LIMIT: usize = 20;

async fn worst(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, asked, which)): Ask<(Period, PairQuery, WhichCalls)>,
) -> Answer {
    let (from_s, to_s) = stretch.seconds(&api.clock)?;
    let limit = which.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_WORST);
    let gap_ns = which.min_gap_ns.unwrap_or(0)..=which.max_gap_ns.unwrap_or(u64::MAX);
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, (from_s, to_s)));
    let answer = api.query(wanted, move |api, cancel| {
        let (view, memory) = api.store.view(cancel, |key| asked.matches(key))?;
        let worst = view.worst(from_s, to_s, |key| asked.matches(key), gap_ns, limit, &memory)?;
        let last_ns = worst.calls.last().map_or(0, |(_, call)| call.gap_ns);
        let calls = worst.calls.iter().map(|(key, call)| query::worst_of_pair(key, call));
        Ok(Ok(WorstReport {
            calls: calls.collect(),
            complete_above_ns: (last_ns < worst.floor_ns).then_some(worst.floor_ns),
        }))
    });
    Ok(with_tag(answer.await?, &tag))
}

/// What sets the slow calls of a pair apart, by its samples.
async fn explained(For(api): For, uri: Uri, headers: HeaderMap, Ask((asked,)): Ask<(PairQuery,)>) -> Answer {
    let key = asked.key()?;
    api.query(Wanted::new(&headers, &uri), move |api, _| {
        let samples = api.meter.samples(|other| *other == key);
        let (key, drawn) = samples.into_iter().next().unwrap_or((key, Vec::new()));
        Ok(Ok(explain(&key, &drawn)))
    })
    .await
}

async fn call(For(api): For, uri: Uri, headers: HeaderMap, Ask((asked,)): Ask<(AskedCall,)>) -> Answer {
    let missing = || BadQuery("trace_id is missing: expected 32 hex digits".into());
    let trace_id = parameters::id("trace_id", asked.trace_id.as_deref().ok_or_else(missing)?)?;
    let span_id = asked.client_span_id.as_deref().map(|text| parameters::id("client_span_id", text));
    let span_id = span_id.transpose()?;
    api.query(Wanted::new(&headers, &uri), move |api, cancel| {
        let (view, memory) = api.store.view(cancel, |_| true)?;
        let found = view.call(&trace_id, span_id.as_ref(), &memory)?;
        Ok(found.map(|(key, call)| query::call_report(&key, &call)).ok_or_else(|| {
            let why =
                "not among the worst calls that are kept: only the largest gaps of each pair and minute are";
            Problem(StatusCode::NOT_FOUND, why.into())
        }))
    })
    .await
}

/// Ready as long as spans are taken. A disk that is full does not make it unready: whoever took it out of service for
/// that would lose the spans as well. The answer says so, and metrics do.
async fn ready(For(api): For) -> String {
    match api.store.degraded() {
        None => "ready\n".into(),
        Some(why) => format!("ready, degraded: {why}\n"),
    }
}

pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

async fn annotations(For(api): For, headers: HeaderMap) -> Answer {
    api.look(Of::Other, Wanted::new(&headers, "annotations"), |api| Ok(api.annotations())).await
}

async fn coverage(For(api): For, headers: HeaderMap) -> Answer {
    api.look(Of::Other, Wanted::new(&headers, "coverage"), |api| Ok(api.coverage()?)).await
}

async fn metrics(For(api): For, headers: HeaderMap) -> Answer {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    let format = negotiate(accept);
    let wanted = Wanted::new(&headers, format_args!("metrics {format:?}"));
    api.answer(Of::Scrapes, wanted, move |api, coding| {
        let snapshot = api.snapshot_since(Instant::now());
        Ok(Rendered::new(coding, format.content_type(), |out| write(&snapshot, format, out))?)
    })
    .await
}

/// Resident memory and CPU time of this process; `None` where there is no /proc.
fn process_figures() -> Option<ProcessFigures> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let stat = process_stat::of(std::process::id()).ok()??;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    // USER_HZ is 100 on every Linux architecture in use; pages of 4 KiB likewise here.
    Some(ProcessFigures { resident_bytes: pages * 4096, cpu_s: stat.own_ticks as f64 / 100.0 })
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
