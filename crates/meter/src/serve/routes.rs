//! The routes of the API, `/metrics` and health: what each asks for, and what it answers. Shapes are in [`crate::report`], documented in
//! docs/api.md.

use super::access::bearer;
use super::answer::Rendered;
use super::api::{Answer, Api, For, Of, Problem, Wanted, covered};
use super::changes::{changes, has, not_modified, with_tag};
use super::fleet::{self, Filter, Steps};
use super::parameters::{self, Ask, BadQuery, Period};
use super::table::{self, Table};
use super::traces;
use super::whose::Whose;
use crate::explain::explain;
use crate::export::prometheus::{negotiate, write};
use crate::history::HistoryError;
use crate::ingest::versions::VersionChange;
use crate::kafka;
use crate::peers;
use crate::query::{self, Matches};
use crate::report::*;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::IntoResponse;
use axum::routing::get;
use serde::Deserialize;
use spangap_model::PairKey;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Worst calls in an answer at most.
const MAX_WORST: usize = 1_000;

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
        .route("/api/v1/spans.parquet", get(traces::parquet))
        .route(peers::PATH, get(halves))
        .merge(without_parameters)
        .merge(of_others)
        .fallback(async || Problem(StatusCode::NOT_FOUND, "no such page: see / and /api/v1/pairs".into()))
        .with_state(api)
}

/// A request for a stretch of time, which may depend on when it came.
struct Within<'a>(&'a Uri, (u64, u64));

impl std::fmt::Display for Within<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Within(uri, (from_s, to_s)) = self;
        write!(f, "{from_s} {to_s} {uri}")
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

async fn pairs(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, filter, table, whose)): Ask<(Period, Filter, Table, Whose)>,
) -> Answer {
    let stretch = stretch.seconds(&api.clock)?;
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, stretch));
    Ok(with_tag(table::pairs(&api, wanted, stretch, filter, table, whose).await?, &tag))
}

async fn timeline(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, filter, steps, whose)): Ask<(Period, Filter, Steps, Whose)>,
) -> Answer {
    let stretch = stretch.seconds(&api.clock)?;
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, stretch));
    Ok(with_tag(fleet::timeline(&api, wanted, stretch, filter, steps, whose).await?, &tag))
}

async fn pair(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((stretch, asked, whose)): Ask<(Period, PairQuery, Whose)>,
) -> Answer {
    let key = asked.key()?;
    let (from_s, to_s) = stretch.seconds(&api.clock)?;
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, (from_s, to_s)));
    let answer = api.ask_source(wanted, whose, move |api, source| {
        let over_time = source.minutes(|other| *other == key)?.over_time(&key, (from_s, to_s))?;
        if over_time.points.is_empty() {
            let why = format!("no calls of {} -> {} in this period", key.client, key.server);
            return Ok(Err(Problem(StatusCode::NOT_FOUND, why)));
        }
        Ok(Ok(PairOverTime {
            covered_from_unix_s: covered(over_time.covered, from_s),
            of_meters: source.of_meters,
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
    Ask((stretch, asked, which, whose)): Ask<(Period, PairQuery, WhichCalls, Whose)>,
) -> Answer {
    let (from_s, to_s) = stretch.seconds(&api.clock)?;
    let limit = which.limit.unwrap_or(DEFAULT_LIMIT).min(MAX_WORST);
    let gap_ns = which.min_gap_ns.unwrap_or(0)..=which.max_gap_ns.unwrap_or(u64::MAX);
    let tag = api.tag(&uri);
    if has(&headers, &tag) {
        return Ok(not_modified(&tag));
    }
    let wanted = Wanted::new(&headers, Within(&uri, (from_s, to_s)));
    let answer = api.ask_source(wanted, whose, move |_, source| {
        let matches = |key: &PairKey| asked.matches(key);
        let worst = source.minutes(matches)?.worst((from_s, to_s), &matches, gap_ns, limit)?;
        let last_ns = worst.calls.last().map_or(0, |(_, call)| call.gap_ns);
        let calls = worst.calls.iter().map(|(key, call)| query::worst_of_pair(key, call));
        Ok(Ok(WorstReport {
            calls: calls.collect(),
            complete_above_ns: (last_ns < worst.floor_ns).then_some(worst.floor_ns),
            of_meters: source.of_meters,
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

async fn call(
    For(api): For,
    uri: Uri,
    headers: HeaderMap,
    Ask((asked, whose)): Ask<(AskedCall, Whose)>,
) -> Answer {
    let missing = || BadQuery("trace_id is missing: expected 32 hex digits".into());
    let trace_id = parameters::id("trace_id", asked.trace_id.as_deref().ok_or_else(missing)?)?;
    let span_id = asked.client_span_id.as_deref().map(|text| parameters::id("client_span_id", text));
    let span_id = span_id.transpose()?;
    api.ask_source(Wanted::new(&headers, &uri), whose, move |_, source| {
        let found = source.minutes(|_| true)?.call(&trace_id, span_id.as_ref())?;
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

async fn annotations(For(api): For, headers: HeaderMap) -> Answer {
    api.look(Of::Other, Wanted::new(&headers, "annotations"), |api| Ok(annotations_of(api))).await
}

async fn coverage(For(api): For, headers: HeaderMap) -> Answer {
    api.look(Of::Other, Wanted::new(&headers, "coverage"), |api| Ok(coverage_of(api)?)).await
}

/// Which halves a peer knows already.
#[derive(Debug, Deserialize)]
struct After {
    after: Option<u64>,
}

/// What another meter asks for. It comes with a secret of its own, which is checked here.
async fn halves(For(api): For, headers: HeaderMap, Ask((asked,)): Ask<(After,)>) -> Answer {
    let Some(peers) = api.meter.peers() else {
        let why = "this meter runs without --peers".into();
        return Err(Problem(StatusCode::NOT_FOUND, why));
    };
    if !bearer(&headers).is_some_and(|token| peers.knows(token)) {
        let why = "expected the token of a meter with the same --peers-key".into();
        return Err(Problem(StatusCode::UNAUTHORIZED, why));
    }
    let told = peers.tell(asked.after.unwrap_or(0), api.clock.now_ms());
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], told).into_response())
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

fn annotations_of(api: &Api) -> Annotations {
    // The meter's clock does not step; the wall clock of the start places it.
    let row = |change: VersionChange| VersionRow {
        unix_ms: api.clock.epoch_unix_ms() + change.at_ms,
        service: change.service,
        version: change.version,
        before: change.before,
    };
    Annotations { versions: api.meter.version_changes().into_iter().map(row).collect() }
}

fn coverage_of(api: &Api) -> Result<Coverage, HistoryError> {
    let holes = api.store.reader().view(Arc::default()).and_then(|view| view.holes());
    let holes = holes.inspect_err(|error| api.store.report(error))?;
    let mut overview = api.meter.overview();
    let exported = api.exported().fill();
    overview.limits.push(exported);
    let mut notes = api.store.notes();
    if exported.refused > 0 {
        notes.push(Note::caveat(format!(
            "metrics: {} pairs past the limit of --exported-pairs are exported as the pair other",
            exported.refused
        )));
    }
    notes.extend(query::size_note(&overview).map(Note::aside));
    if overview.minutes_dropped > 0 {
        notes.push(Note::wrong(format!(
            "history: {} minutes were not written in time and are missing",
            overview.minutes_dropped
        )));
    }
    let clock = overview.last_clock_steps.last().map(|last| query::clock_note(overview.clock_steps, last));
    notes.extend(clock.map(Note::caveat));
    let kept = api.spool.as_ref().map(|spool| spool.figures());
    notes.extend(kept.iter().flat_map(traces::notes));
    let kafka = api.kafka.as_ref().map(|kafka| kafka.figures());
    notes.extend(kafka.iter().flat_map(kafka::source::notes));
    let peers = api.meter.peers().map(|peers| peers.coverage(api.clock.now_ms()));
    let accounting = &overview.accounting;
    notes.extend(peers.iter().flat_map(|peers| peers.notes(accounting.apart, accounting.unresolved)));
    let clickhouse = api.clickhouse.as_ref().map(|shared| shared.coverage());
    notes.extend(api.clickhouse.iter().flat_map(|shared| shared.notes()));
    let kubernetes = api.meter.kubernetes();
    notes.extend(kubernetes.iter().flat_map(KubernetesCoverage::notes));
    Ok(Coverage {
        kafka,
        clickhouse,
        kubernetes,
        peers,
        kept: kept.map(traces::coverage),
        refused_requests: api.receiver.refused.load(Relaxed),
        invalid_requests: api.receiver.invalid.load(Relaxed),
        slow_requests: api.receiver.admission.too_slow.load(Relaxed),
        displaced_requests: api.receiver.admission.displaced.load(Relaxed),
        displaced_answers: api.displaced_answers(),
        request_bytes: api.receiver.admission.bytes(),
        request_bytes_limit: api.receiver.admission.limit(),
        ports: api.ports.iter().map(|port| query::port_report(port.name, &port.figures())).collect(),
        uptime_s: api.clock.now_ms() / 1000,
        holes,
        history: Some(api.store.coverage()),
        ..query::coverage(&overview)
    }
    .with_notes(notes))
}
