//! Agents and cases over HTTP. Shapes are in [`crate::report`].

use crate::cases::{Cases, NotOpened};
use crate::experiment::NoExperiment;
use crate::experiment::shapes::StartExperiment;
use crate::folder::HUNT;
use crate::report::{CaseReport, OpenCase, Opened, PairRow, State};
use crate::whole::{NoLook, trace_id};
use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use spangap_meter::report::ApiError;
use spangap_meter::serve::access::{Denied, Role};
use spangap_meter::serve::parameters::{self, Ask};
use spangap_meter::serve::places::Peer;
use std::io::Read;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Cases in an answer unless told otherwise, and at most.
const DEFAULT_LIMIT: usize = 100;
const MOST: usize = 1_000;
/// A question has no more bytes than this.
const MOST_BODY: usize = 16 << 10;
/// A file is sent in pieces of this size.
const PIECE: usize = 256 << 10;

/// The routes.
pub fn router(cases: Arc<Cases>) -> Router {
    Router::new()
        .route("/api/v1/agents", get(agents))
        .route("/api/v1/cases", post(open))
        .route("/api/v1/cases/{id}", get(one))
        .route("/api/v1/cases/{id}/files/{name}", get(file))
        .route("/api/v1/cases/{id}/calls/{trace_id}", get(calls))
        .route("/api/v1/cases/{id}/calls/{trace_id}/perfetto", get(perfetto_of_calls))
        .route("/api/v1/cases/{id}/perfetto", get(perfetto))
        .route("/api/v1/cases/{id}/experiment", get(plan).post(start).delete(end))
        .route_layer(from_fn(parameters::none))
        // Alone of them it takes parameters.
        .route("/api/v1/cases", get(list))
        .layer(DefaultBodyLimit::max(MOST_BODY))
        .with_state(cases)
}

struct Problem(StatusCode, String);

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.0, Json(ApiError { error: self.1 })).into_response()
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Problem {
        let status = match denied {
            Denied::NoToken(_) => StatusCode::UNAUTHORIZED,
            _ => StatusCode::FORBIDDEN,
        };
        Problem(status, denied.to_string())
    }
}

impl From<NoLook> for Problem {
    fn from(problem: NoLook) -> Problem {
        let status = match &problem {
            NoLook::Gather(_) | NoLook::NoCall(_) => StatusCode::NOT_FOUND,
            NoLook::TooLong => StatusCode::SERVICE_UNAVAILABLE,
            NoLook::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Problem(status, problem.to_string())
    }
}

fn no_case(id: &str) -> Problem {
    let id: String = id.chars().take(80).collect();
    Problem(
        StatusCode::NOT_FOUND,
        format!(
            "there is no case {id:?}; it may have been removed to make room for \
    newer ones"
        ),
    )
}

async fn agents(Shared(cases): Shared<Arc<Cases>>) -> Response {
    Json(cases.agents_report()).into_response()
}

#[derive(Debug, Default, Deserialize)]
struct Wanted {
    state: Option<State>,
    /// `CLIENT->SERVER`.
    pair: Option<String>,
    limit: Option<usize>,
}

async fn list(
    Shared(cases): Shared<Arc<Cases>>,
    Ask((wanted,)): Ask<(Wanted,)>,
) -> Result<Response, Problem> {
    let pair = wanted.pair.map(|text| {
        let (client, server) = text.split_once("->").ok_or_else(|| {
            Problem(StatusCode::BAD_REQUEST, format!("pair={text}: expected CLIENT->SERVER"))
        })?;
        Ok::<_, Problem>(PairRow { client: client.trim().into(), server: server.trim().into() })
    });
    let limit = wanted.limit.unwrap_or(DEFAULT_LIMIT).min(MOST);
    Ok(Json(cases.report(wanted.state, pair.transpose()?.as_ref(), limit)).into_response())
}

async fn one(Shared(cases): Shared<Arc<Cases>>, Path(id): Path<String>) -> Result<Response, Problem> {
    let case = cases.case(&id).ok_or_else(|| no_case(&id))?;
    let path = cases.folder.of(&case.row.id).join(HUNT);
    // A case without a verdict has no such file.
    let hunt =
        tokio::task::spawn_blocking(move || serde_json::from_slice(&std::fs::read(path).ok()?).ok()).await;
    Ok(Json(CaseReport { hunt: hunt.ok().flatten(), ..case }).into_response())
}

fn id_of_trace(text: &str) -> Result<[u8; 16], Problem> {
    trace_id(text)
        .ok_or_else(|| Problem(StatusCode::BAD_REQUEST, "expected a trace id of 32 hex digits".into()))
}

async fn calls(
    Shared(cases): Shared<Arc<Cases>>,
    Path((id, trace)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let case = cases.case(&id).ok_or_else(|| no_case(&id))?.row.id;
    let found = cases.looker.calls(&case, &cases.folder.of(&case), id_of_trace(&trace)?).await?;
    Ok(Json(found).into_response())
}

async fn perfetto_of_calls(
    Shared(cases): Shared<Arc<Cases>>,
    Path((id, trace)): Path<(String, String)>,
) -> Result<Response, Problem> {
    perfetto_file(&cases, &id, Some(id_of_trace(&trace)?)).await
}

async fn perfetto(Shared(cases): Shared<Arc<Cases>>, Path(id): Path<String>) -> Result<Response, Problem> {
    perfetto_file(&cases, &id, None).await
}

async fn perfetto_file(cases: &Cases, id: &str, trace: Option<[u8; 16]>) -> Result<Response, Problem> {
    let case = cases.case(id).ok_or_else(|| no_case(id))?.row.id;
    let drawn = cases.looker.perfetto(&cases.folder.of(&case), trace).await?;
    // A call's trace and its case's are different files, and may lie in one folder.
    let call = trace.map_or(String::new(), |id| format!(".{:032x}", u128::from_be_bytes(id)));
    let disposition = format!("attachment; filename=\"{case}{call}.perfetto-trace\"");
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, drawn).into_response())
}

async fn open(
    Shared(cases): Shared<Arc<Cases>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    asked: Result<Json<OpenCase>, JsonRejection>,
) -> Result<Response, Problem> {
    cases.access.may(Role::Capture, &headers, peer.map(|Extension(peer)| peer))?;
    let Json(asked) = asked.map_err(|error| Problem(error.status(), error.body_text()))?;
    let opened = tokio::task::block_in_place(|| {
        cases.ask(&asked.pair, asked.method.as_deref(), asked.slow_since_unix_ms)
    });
    let id = opened.map_err(|error| {
        let status = match error {
            NotOpened::NoPair { .. } | NotOpened::NoMethod(..) => StatusCode::NOT_FOUND,
            NotOpened::Budget(_) => StatusCode::TOO_MANY_REQUESTS,
            NotOpened::Folder(_) => StatusCode::INSUFFICIENT_STORAGE,
        };
        Problem(status, error.to_string())
    })?;
    Ok((StatusCode::ACCEPTED, Json(Opened { id })).into_response())
}

/// Who asks, for the audit logs.
fn may_change(cases: &Cases, headers: &HeaderMap, peer: Option<Extension<Peer>>) -> Result<String, Problem> {
    let peer = peer.map(|Extension(peer)| peer);
    cases.access.may(Role::Change, headers, peer)?;
    let by = if cases.access.has_tokens() { "a token for change" } else { "somebody without a token" };
    Ok(match peer {
        Some(peer) => format!("{by}, from {peer}"),
        None => by.to_owned(),
    })
}

fn no_experiment(id: &str, why: NoExperiment) -> Problem {
    match why {
        NoExperiment::NoCase => no_case(id),
        why => Problem(StatusCode::CONFLICT, why.to_string()),
    }
}

async fn plan(
    Shared(cases): Shared<Arc<Cases>>,
    Path(id): Path<String>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let asked_by = may_change(&cases, &headers, peer)?;
    let plan = cases.plan_experiment(&id, &asked_by).await;
    Ok(Json(plan.map_err(|why| no_experiment(&id, why))?).into_response())
}

async fn start(
    Shared(cases): Shared<Arc<Cases>>,
    Path(id): Path<String>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    asked: Result<Json<StartExperiment>, JsonRejection>,
) -> Result<Response, Problem> {
    let asked_by = may_change(&cases, &headers, peer)?;
    let Json(asked) = asked.map_err(|error| Problem(error.status(), error.body_text()))?;
    let started = tokio::task::block_in_place(|| cases.start_experiment(&id, &asked.plan, &asked_by));
    started.map_err(|why| no_experiment(&id, why))?;
    Ok((StatusCode::ACCEPTED, Json(Opened { id })).into_response())
}

async fn end(
    Shared(cases): Shared<Arc<Cases>>,
    Path(id): Path<String>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    may_change(&cases, &headers, peer)?;
    match cases.end_experiment(&id) {
        true => Ok((StatusCode::ACCEPTED, Json(Opened { id })).into_response()),
        false => Err(Problem(StatusCode::CONFLICT, "this case has no experiment running".into())),
    }
}

async fn file(
    Shared(cases): Shared<Arc<Cases>>,
    Path((id, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let case = cases.case(&id).ok_or_else(|| no_case(&id))?;
    // Names come from the list alone: nothing that is asked becomes part of a path.
    let Some(known) = case.files.iter().find(|file| file.name == name) else {
        let names: Vec<&str> = case.files.iter().map(|file| file.name.as_str()).collect();
        return Err(Problem(StatusCode::NOT_FOUND, format!("expected one of {}", names.join(", "))));
    };
    let path = cases.folder.of(&case.row.id).join(&known.name);
    let opened = tokio::task::block_in_place(|| std::fs::File::open(path));
    let mut file = opened.map_err(|error| Problem(StatusCode::GONE, error.to_string()))?;
    let kind = match known.name.rsplit_once('.') {
        Some((_, "json")) => "application/json",
        Some((_, "pcapng")) => "application/vnd.tcpdump.pcap",
        _ => "application/octet-stream",
    };
    let (to, pieces) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let read = file.by_ref().take(PIECE as u64).read_to_end(&mut piece).map(|_| piece);
            let is_last = !matches!(&read, Ok(piece) if !piece.is_empty());
            let is_end = matches!(&read, Ok(piece) if piece.is_empty());
            if is_end || to.blocking_send(read).is_err() || is_last {
                break;
            }
        }
    });
    let disposition = format!("attachment; filename=\"{id}.{}\"", known.name);
    let headers = [(header::CONTENT_TYPE, kind.to_owned()), (header::CONTENT_DISPOSITION, disposition)];
    Ok((headers, Body::from_stream(ReceiverStream::new(pieces))).into_response())
}
