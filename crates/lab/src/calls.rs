//! The calls of a run, from the spans of both sides.

use crate::truth::{Active, Affected};
use crate::{LabError, folder};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use std::collections::HashMap;
use std::path::Path;

/// Trace id, and id of the client's span.
type Ids = (Vec<u8>, Vec<u8>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// Start of its CLIENT span, nanoseconds since 1970 by this machine's clock.
    pub start_unix_ns: u64,
    pub end_unix_ns: u64,
    /// Whether it succeeded.
    pub ok: bool,
    /// Start and end of its SERVER spans: one per attempt that the server saw.
    pub server: Vec<(u64, u64)>,
}

impl Call {
    /// How long the client waited.
    pub fn duration_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }

    /// From its start until the server started handling its last attempt; `None` without the server's half. The
    /// spans of a run have one clock.
    pub fn until_served_ns(&self) -> Option<u64> {
        self.server.last().map(|(start, _)| start.saturating_sub(self.start_unix_ns))
    }

    /// From the start of its first attempt at the server to that of its last.
    pub fn made_again_ns(&self) -> u64 {
        let (first, last) = (self.server.first(), self.server.last());
        first.zip(last).map_or(0, |((first, _), (last, _))| last.saturating_sub(*first))
    }

    /// Total duration of all attempts, according to the server.
    pub fn server_ns(&self) -> u64 {
        self.server.iter().map(|(start, end)| end.saturating_sub(*start)).sum()
    }
}

/// All calls of a run, by their start.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Those whose client's half was recorded, of the measured phase.
    pub all: Vec<Call>,
    /// SERVER spans without a client's half.
    pub server_only: usize,
}

impl Calls {
    /// Reads the spans of both sides; calls before `from_unix_ns` are warm-up.
    ///
    /// # Errors
    /// A file does not exist or is not OTLP JSON.
    pub fn read(client: &Path, server: &Path, from_unix_ns: u64) -> Result<Calls, LabError> {
        let mut served: HashMap<Ids, Vec<(u64, u64)>> = HashMap::new();
        for span in spans(server)?.into_iter().filter(|span| span.kind() == SpanKind::Server) {
            let times = (span.start_time_unix_nano, span.end_time_unix_nano);
            served.entry((span.trace_id, span.parent_span_id)).or_default().push(times);
        }
        let mut all = Vec::new();
        for span in spans(client)?.into_iter().filter(|span| span.kind() == SpanKind::Client) {
            let failed = span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error);
            let trace_id = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut attempts = served.remove(&(span.trace_id, span.span_id)).unwrap_or_default();
            attempts.sort_unstable();
            if span.start_time_unix_nano >= from_unix_ns {
                all.push(Call {
                    trace_id,
                    start_unix_ns: span.start_time_unix_nano,
                    end_unix_ns: span.end_time_unix_nano,
                    ok: !failed,
                    server: attempts,
                });
            }
        }
        all.sort_unstable_by_key(|call| call.start_unix_ns);
        Ok(Calls { all, server_only: served.len() })
    }

    /// Calls that took longer than this.
    pub fn over_ns(&self, ns: u64) -> impl Iterator<Item = &Call> {
        self.all.iter().filter(move |call| call.duration_ns() > ns)
    }

    /// Calls that took longer than this, excluding pauses of the machine itself.
    pub fn over_ns_but(&self, ns: u64, pauses: &[Active]) -> impl Iterator<Item = &Call> {
        let paused = |call: &Call| -> u64 {
            pauses.iter().map(|one| one.overlap_ns(call.start_unix_ns, call.end_unix_ns)).sum()
        };
        self.all.iter().filter(move |call| call.duration_ns().saturating_sub(paused(call)) > ns)
    }

    /// The duration that a share `q` of the calls does not exceed; 0 without calls.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        quantile(self.all.iter().map(Call::duration_ns).collect(), q)
    }

    /// The same quantile of the gap.
    pub fn gap_quantile_ns(&self, q: f64) -> u64 {
        quantile(self.all.iter().map(|call| call.duration_ns().saturating_sub(call.server_ns())).collect(), q)
    }

    /// The same quantile of the time that the server took.
    pub fn server_quantile_ns(&self, q: f64) -> u64 {
        quantile(self.all.iter().map(Call::server_ns).collect(), q)
    }

    /// Maximum number of SERVER spans at the same time.
    pub fn most_served_at_once(&self) -> usize {
        let spans = self.all.iter().flat_map(|call| &call.server);
        // At the same nanosecond, an end comes before a beginning.
        let mut edges: Vec<_> = spans.flat_map(|(start, end)| [(*start, 1), (*end, -1)]).collect();
        edges.sort_unstable();
        let (mut now, mut most) = (0_i64, 0);
        for (_, step) in edges {
            now += step;
            most = most.max(now);
        }
        most as usize
    }

    /// All calls, each with the same cost.
    pub fn each_costs(&self, cost_ns: Option<u64>) -> Vec<Affected> {
        self.all.iter().map(|call| Affected { trace_id: call.trace_id.clone(), cost_ns }).collect()
    }

    /// Calls that overlap with the fault for at least `least_ns`; the overlap is their cost.
    pub fn during(&self, active: &[Active], least_ns: u64) -> Vec<Affected> {
        let overlap = |call: &Call| -> u64 {
            active.iter().map(|one| one.overlap_ns(call.start_unix_ns, call.end_unix_ns)).sum()
        };
        self.all
            .iter()
            .map(|call| (call, overlap(call)))
            .filter(|(_, ns)| *ns >= least_ns.max(1))
            .map(|(call, ns)| Affected { trace_id: call.trace_id.clone(), cost_ns: Some(ns) })
            .collect()
    }

    /// From the start of the first call to the end of the last.
    pub fn whole(&self) -> Vec<Active> {
        let Some(first) = self.all.first() else { return Vec::new() };
        let end = self.all.iter().map(|call| call.end_unix_ns).max().unwrap_or(first.end_unix_ns);
        vec![Active { from_unix_ns: first.start_unix_ns, to_unix_ns: end }]
    }
}

/// The duration that a share `q` of them does not exceed; 0 if empty.
pub fn quantile(mut durations: Vec<u64>, q: f64) -> u64 {
    durations.sort_unstable();
    // The smallest with at least a share of q at or below it.
    let rank = (durations.len() as f64 * q).ceil().max(1.0) as usize;
    durations.get(rank.min(durations.len()).wrapping_sub(1)).copied().unwrap_or(0)
}

fn spans(path: &Path) -> Result<Vec<Span>, LabError> {
    let request: ExportTraceServiceRequest = folder::read_json(path)?;
    let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    Ok(scopes.flat_map(|scope| scope.spans).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_spans_do_not_overlap() {
        let with = |spans: &[(u64, u64)]| {
            let call = |span| Call { server: vec![span], ..Call::default() };
            Calls { all: spans.iter().copied().map(call).collect(), server_only: 0 }.most_served_at_once()
        };
        assert_eq!(with(&[]), 0);
        assert_eq!(with(&[(0, 5), (5, 9), (9, 12)]), 1);
        assert_eq!(with(&[(0, 6), (5, 9), (2, 12)]), 3);
        assert_eq!(with(&[(0, 4), (5, 9), (2, 12)]), 2);
    }
}
