//! What joined spans show, as the values that every instrument speaks in.

use crate::engine::Meter;
use spangap_model::evidence::{Certainty, Coverage, Finding, Instrument, Proof, Scope, SpanCounts};
use spangap_model::{Cause, Culprit};

/// What spans show of the calls whose halves they are.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvidence {
    /// Counts.
    pub counts: SpanCounts,
    /// What they show of all calls.
    pub findings: Vec<Finding>,
    /// What was seen, and what not.
    pub coverage: Coverage,
}

/// Of all spans that a meter has taken in; `source` is what they came from, in words.
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
