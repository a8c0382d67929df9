//! Findings from joined spans, in the types that all instruments share.

use crate::engine::Meter;
use spangap_model::evidence::{Certainty, Coverage, Finding, Instrument, Proof, Scope, SpanCounts};
use spangap_model::{Cause, Culprit};

/// Evidence about calls from their spans.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvidence {
    /// Counts.
    pub counts: SpanCounts,
    /// Findings about all calls.
    pub findings: Vec<Finding>,
    /// What was observed, and what was not.
    pub coverage: Coverage,
}

/// Evidence from all spans that the meter has ingested; `source` describes their origin in words.
pub fn evidence(meter: &Meter, source: &str) -> SpanEvidence {
    let spans = meter.overview().accounting;
    let without_mate = spans.pending + spans.expired_client_only + spans.expired_server_only;
    let retries = (spans.extra_attempts > 0).then(|| Finding {
        hop: None,
        culprit: Culprit::of(Cause::Retries),
        certainty: Certainty::Shown,
        instrument: Instrument::Spans,
        scope: Scope::Host,
        when: None,
        cost_ns: None,
        note: format!("{} SERVER spans beyond the first of a call", spans.extra_attempts),
        proofs: vec![Proof::Value {
            place: "spans.extra_attempts".into(),
            value: spans.extra_attempts.to_string(),
        }],
    });
    let cannot =
        (without_mate > 0).then(|| format!("{without_mate} spans have no mate among those that were read."));
    SpanEvidence {
        counts: SpanCounts { joined: spans.joined, extra_attempts: spans.extra_attempts },
        findings: retries.into_iter().collect(),
        coverage: Coverage {
            instrument: Instrument::Spans,
            source: source.to_owned(),
            side: None,
            when: None,
            seen: spans.received,
            lost: spans.evicted + spans.malformed,
            cannot: cannot.into_iter().collect(),
        },
    }
}
