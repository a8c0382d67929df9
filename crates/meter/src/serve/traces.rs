//! Kept traces by id: as OTLP JSON, and through Jaeger's query API, so that a trace UI can be pointed at the meter.

use super::api::{Answer, Api, For, Of, Problem, Wanted};
use super::parameters::{Ask, Period, from_hex};
use crate::report::{KeptCoverage, Note};
use crate::spool::window::Window;
use crate::spool::{Kept, Spool, SpoolFigures, jaeger};
use axum::Json;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use spangap_model::count::grouped;
use std::sync::Arc;

impl Api {
    /// Returns what is kept of a trace, in this shape. Few requests at a time, so that receiving spans does
    /// not lack disk and CPU.
    async fn kept(
        &self,
        wanted: Wanted,
        trace_id: [u8; 16],
        shape: impl FnOnce(Kept) -> Result<Value, Problem> + Send + 'static,
    ) -> Answer {
        let (spool, clickhouse) = (self.spool.clone(), self.clickhouse.clone());
        if spool.is_none() && clickhouse.is_none() {
            let why = "no whole traces are kept: the meter runs without --keep-spans and --clickhouse".into();
            return Err(Problem(StatusCode::NOT_FOUND, why));
        }
        self.look(Of::Traces, wanted, move |_| {
            let mut why = Vec::new();
            if let Some(spool) = spool {
                let kept = spool.find(&trace_id);
                if kept.trace.spans > 0 {
                    return shape(kept);
                }
                why.push(nothing(&spool.figures(), &kept.incomplete));
            }
            if let Some(clickhouse) = clickhouse {
                match clickhouse.trace(&trace_id) {
                    Ok(kept) if kept.trace.spans > 0 => return shape(kept),
                    Ok(_) => {
                        why.push("no span of this trace is in the Collector's table in ClickHouse".into())
                    }
                    // It may be there: a missing answer is no missing trace.
                    Err(error) => return Err(error.into()),
                }
            }
            Err(Problem(StatusCode::NOT_FOUND, why.join("; ")))
        })
        .await
    }
}

impl Api {
    fn spool(&self) -> Result<Arc<Spool>, Problem> {
        self.spool.clone().ok_or_else(|| {
            let why = "no whole traces are kept: the meter runs without --keep-spans".into();
            Problem(StatusCode::NOT_FOUND, why)
        })
    }
}

/// All kept spans that arrived in a period.
pub(super) async fn parquet(For(api): For, Ask((period,)): Ask<(Period,)>) -> Answer {
    let spool = api.spool()?;
    let (from_s, to_s) = period.seconds(&api.clock)?;
    // The last second counts as a whole: it may be the present one.
    let to_unix_ms = to_s.saturating_mul(1000).saturating_add(999);
    let window = Window { from_unix_ms: from_s.saturating_mul(1000), to_unix_ms };
    let answer = api.stream(Of::Exports, "application/vnd.apache.parquet", move |out| {
        spool.export(window, out).map(|_| ())
    });
    let mut answer = answer.await?;
    let name = HeaderValue::from_static("attachment; filename=\"spans.parquet\"");
    answer.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    Ok(answer)
}

/// Why a trace may not be there.
fn nothing(figures: &SpoolFigures, incomplete: &[String]) -> String {
    let since = match figures.from_unix_ms {
        None => "no spans are kept yet".into(),
        Some(from_ms) => format!("the oldest span kept arrived at Unix time {}", from_ms / 1000),
    };
    let lost = figures.not_kept_queue + figures.not_kept_disk + figures.not_kept_large;
    let lost = if lost > 0 { format!("; {} spans were not kept", grouped(lost)) } else { String::new() };
    let problems: String = incomplete.iter().map(|problem| format!("; {problem}")).collect();
    format!("no span of this trace is kept: {since}{lost}{problems}")
}

/// Ids have 32 hex digits; UIs leave zeros at the front away.
fn trace_id(text: &str) -> Result<[u8; 16], Problem> {
    let wrong = || {
        Problem(StatusCode::BAD_REQUEST, format!("{text:?} is not a trace id: expected 1 to 32 hex digits"))
    };
    if text.is_empty() || text.len() > 32 {
        return Err(wrong());
    }
    from_hex(&format!("{text:0>32}")).ok_or_else(wrong)
}

pub(super) async fn otlp(For(api): For, headers: HeaderMap, Path(id): Path<String>) -> Answer {
    let wanted = Wanted::new(&headers, format_args!("trace {id}"));
    api.kept(wanted, trace_id(&id)?, in_otlp).await
}

fn in_otlp(Kept { trace, incomplete }: Kept) -> Result<Value, Problem> {
    let mut resource_spans = Vec::with_capacity(trace.resource_spans.len());
    for of_resource in trace.resource_spans {
        let written = serde_json::to_value(of_resource);
        resource_spans.push(written.map_err(|e| Problem(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?);
    }
    let mut answer = serde_json::json!({"resourceSpans": resource_spans});
    if !incomplete.is_empty() {
        // Readers of OTLP ignore unknown keys.
        answer["incomplete"] = serde_json::json!(incomplete);
    }
    Ok(answer)
}

pub(super) async fn of_jaeger(For(api): For, headers: HeaderMap, Path(id): Path<String>) -> Response {
    // It has a span.
    let in_jaeger =
        |kept: Kept| Ok(jaeger::answer(&kept.trace.resource_spans, &kept.incomplete).unwrap_or_default());
    let wanted = Wanted::new(&headers, format_args!("trace for Jaeger {id}"));
    let found = async { api.kept(wanted, trace_id(&id)?, in_jaeger).await };
    match found.await {
        Ok(answer) => answer,
        Err(Problem(StatusCode::NOT_FOUND, why)) => {
            (StatusCode::NOT_FOUND, Json(jaeger::not_found(&why))).into_response()
        }
        Err(problem) => problem.into_response(),
    }
}

pub(super) async fn services(For(api): For, headers: HeaderMap) -> Answer {
    let names = |api: &Api| {
        let services = api.meter.overview().services;
        let mut names: Vec<String> = services.into_iter().map(|(name, _)| name.to_string()).collect();
        names.sort();
        Ok(jaeger::services(&names))
    };
    api.look(Of::Other, Wanted::new(&headers, "services"), names).await
}

/// What is kept, for the coverage.
pub(super) fn coverage(figures: SpoolFigures) -> KeptCoverage {
    KeptCoverage {
        spans: figures.spans,
        bytes: figures.bytes,
        bytes_limit: figures.bytes_limit,
        segments: figures.segments,
        from_unix_ms: figures.from_unix_ms,
        queued_bytes: figures.queued_bytes,
        queued_bytes_limit: figures.queued_bytes_limit,
        not_kept_queue: figures.not_kept_queue,
        not_kept_disk: figures.not_kept_disk,
        not_kept_large: figures.not_kept_large,
        forgotten_spans: figures.forgotten_spans,
        damaged_segments: figures.damaged_segments,
    }
}

/// What a reader of the coverage should know.
pub(super) fn notes(figures: &SpoolFigures) -> Vec<Note> {
    let lost = [
        (figures.not_kept_queue, "they arrived faster than they could be written"),
        (figures.not_kept_disk, "the disk refused them"),
        (figures.not_kept_large, "their request is larger than --keep-bytes allows"),
    ];
    let lost = lost.into_iter().filter(|(spans, _)| *spans > 0).map(|(spans, why)| {
        Note::wrong(format!("{} spans were counted and not kept, because {why}", grouped(spans)))
    });
    lost.chain(figures.notes.iter().cloned()).map(|note| note.about("whole traces")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_lack_their_first_zeros() {
        assert_eq!(trace_id("00ff").unwrap()[14..], [0, 0xff]);
        assert_eq!(trace_id(&"ab".repeat(16)).unwrap(), [0xab; 16]);
        for wrong in ["", "xy", &"a".repeat(33), "é"] {
            assert_eq!(trace_id(wrong).unwrap_err().0, StatusCode::BAD_REQUEST, "{wrong:?}");
        }
    }
}
