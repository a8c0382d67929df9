//! What the routes of the API share: what a request may look at, how its answer is made off the threads that receive spans, and shared by
//! equal requests, and how an error is said.

use super::Refusals;
use super::access::Denied;
use super::answer::{Coding, Outlet, Rendered};
use super::clock::Clock;
use super::otlp::Receiver;
use super::parameters::BadQuery;
use super::places::{Peer, Port};
use super::readers::{LineFull, Readers};
use super::recorder::Store;
use super::shared::Answers;
use crate::clickhouse::ClickHouse;
use crate::engine::Meter;
use crate::export::monotone::Monotone;
use crate::export::snapshot::{ProcessFigures, RequestFigures, Snapshot};
use crate::history::{Cancel, Covered, HistoryError};
use crate::kafka::Kafka;
use crate::report::ApiError;
use crate::spool::Spool;
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use spangap_machine::facts::{process_stat, process_status};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use tokio::sync::watch;

/// Answers of one kind that are made at once; others stand in line, and those of no other kind do.
const MADE_AT_ONCE: usize = 2;
/// Answers of one kind in line; further requests are told to come again.
const LINE: usize = 64;

/// What a request may look at.
#[derive(Clone, Debug)]
pub struct Api {
    pub(super) meter: Arc<Meter>,
    pub(super) clock: Clock,
    pub(super) receiver: Arc<Receiver>,
    pub(super) ports: [Arc<Port>; 3],
    pub(super) store: Arc<Store>,
    exported: Arc<Mutex<Monotone>>,
    /// The snapshot that was taken last, while anybody reads it, and when.
    latest: Arc<Mutex<(Option<Instant>, Weak<Snapshot>)>>,
    /// Who asks.
    pub(super) peer: Peer,
    answers: Arc<Answers>,
    kinds: Arc<[Kind; 5]>,
    pub(super) spool: Option<Arc<Spool>>,
    pub(super) kafka: Option<Arc<Kafka>>,
    pub(super) clickhouse: Option<Arc<ClickHouse>>,
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
    Exports,
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
        let status = match error.is_damage() || matches!(error, HistoryError::Shared(_)) {
            // It is set aside at the next checkpoint, or somebody else's to end.
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
            kinds: Arc::new([(); 5].map(|()| Kind::new())),
            spool: None,
            kafka: None,
            clickhouse: None,
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
    pub(super) async fn answer(
        &self,
        of: Of,
        wanted: Wanted,
        work: impl FnOnce(&Api, Coding) -> Result<Rendered, Problem> + Send + 'static,
    ) -> Answer {
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

    /// Answers with what `write` writes, as its reader takes it: for what is too large to be made first. If it fails, the answer
    /// ends in an error, so that nobody takes the part for the whole.
    pub(super) async fn stream(
        &self,
        of: Of,
        content_type: &'static str,
        write: impl FnOnce(&mut Outlet) -> io::Result<()> + Send + 'static,
    ) -> Answer {
        let turn = self.kinds[of as usize].turns.enter(self.peer).await.map_err(busy)?;
        let (mut outlet, body) = Outlet::new();
        tokio::task::spawn_blocking(move || {
            let written = write(&mut outlet);
            outlet.finish(written);
            drop(turn);
        });
        Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
    }

    pub(super) fn displaced_answers(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.readers.displaced.load(Relaxed)).sum()
    }

    pub(super) fn exported(&self) -> MutexGuard<'_, Monotone> {
        self.exported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With all spans kept for a while.
    pub(super) fn with_spool(self, spool: Option<Arc<Spool>>) -> Api {
        Api { spool, ..self }
    }

    /// With the topic that spans come from.
    pub(super) fn with_kafka(self, kafka: Option<Arc<Kafka>>) -> Api {
        Api { kafka, ..self }
    }

    /// With the minutes of all meters.
    pub(super) fn with_clickhouse(self, clickhouse: Option<Arc<ClickHouse>>) -> Api {
        Api { clickhouse, ..self }
    }

    /// With what is refused for other reasons than load.
    pub(super) fn with_refusals(self, refusals: Refusals) -> Api {
        Api { refusals, ..self }
    }

    /// All figures as of this moment or later, of which those who asked meanwhile have one copy.
    pub(super) fn snapshot_since(&self, asked: Instant) -> Arc<Snapshot> {
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
            clickhouse: self.clickhouse.as_ref().map(|shared| shared.coverage()),
        }
    }
}

fn busy(_: LineFull) -> Problem {
    let many = "too many requests of this kind are already waiting; try again";
    Problem(StatusCode::SERVICE_UNAVAILABLE, many.into())
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

/// Resident memory and CPU time of this process; `None` where there is no /proc.
fn process_figures() -> Option<ProcessFigures> {
    let resident_bytes = process_status::own_resident_bytes().ok()?;
    let stat = process_stat::of(std::process::id()).ok()??;
    // USER_HZ is 100 on every Linux architecture in use.
    Some(ProcessFigures { resident_bytes, cpu_s: stat.own_ticks as f64 / 100.0 })
}
