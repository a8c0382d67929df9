//! Measured call durations: a gap table (`spangap gaps --json`, the meter's API) or a report of tank.

use super::order::{KnownQuantile, enclose};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Measurements that can be compared with those of another time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// Source of the measurements.
    pub proof: Source,
    /// One per pair of services, or per run.
    pub measured: Vec<Measurement>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A gap table: the client's duration minus the server's.
    GapTable,
    /// A report of tank: from the time a call was due to its response.
    Tank,
}

/// Measurements of one pair of services, or one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Subject: `client`, `server` and `method`, or the settings of the run. Measurements of equal subjects can
    /// be compared.
    pub of: BTreeMap<String, String>,
    /// Calls in the distribution.
    pub calls: u64,
    /// Calls that failed or were never made, which the distribution excludes; `None` if unknown.
    pub failed: Option<u64>,
    pub p50: Option<Figure>,
    pub p99: Option<Figure>,
    /// 99.9th percentile.
    pub p999: Option<Figure>,
    /// Largest value.
    pub max_ns: Option<u64>,
}

/// A quantile with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub ns: u64,
    /// Encloses the true quantile with at least 95 %, if calls are independent of each other; `None` if
    /// unknown, or with too few calls.
    pub ci95_ns: Option<[u64; 2]>,
}

/// Reason for a document not to be a proof.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// A document of another kind.
    #[error(
        "found {found}, expected a gap table (`spangap gaps --json`) or a tank's report (`spangap tank --json`)"
    )]
    Unknown {
        /// What it contains.
        found: String,
    },
    /// A document of a known kind in an unknown form.
    #[error("{what} of an unknown form")]
    Form {
        /// Apparent kind.
        what: &'static str,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// A text that is not JSON.
    #[error("document {number} is not JSON")]
    Text {
        /// Number of the document in the text, from 1.
        number: usize,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// Documents that cannot be combined.
    #[error("a gap table and a tank's report in one")]
    Mixed,
}

/// Parses a text with one JSON document, or several reports of the same kind in a row.
///
/// # Errors
/// It is not JSON, or of another kind.
pub fn parse(text: &str) -> Result<Proof, ProofError> {
    let mut all: Option<Proof> = None;
    for (at, document) in serde_json::Deserializer::from_str(text).into_iter::<Value>().enumerate() {
        let next = read(&document.map_err(|source| ProofError::Text { number: at + 1, source })?)?;
        match &mut all {
            None => all = Some(next),
            Some(all) if all.proof == next.proof => all.measured.extend(next.measured),
            Some(_) => return Err(ProofError::Mixed),
        }
    }
    all.ok_or_else(|| ProofError::Unknown { found: "nothing".into() })
}

/// Parses one JSON document: a gap table, a report of tank, or a saved [`Proof`].
///
/// # Errors
/// It is none of these.
pub fn read(document: &Value) -> Result<Proof, ProofError> {
    let form = |what| move |source| ProofError::Form { what, source };
    if document.get("measured").is_some() {
        return Proof::deserialize(document).map_err(form("a proof"));
    }
    if document.get("pairs").is_some() {
        let table = GapTable::deserialize(document).map_err(form("a gap table"))?;
        let measured = table.pairs.into_iter().map(Measurement::from).collect();
        return Ok(Proof { proof: Source::GapTable, measured });
    }
    if document.get("runs").is_some() {
        let report = TankReport::deserialize(document).map_err(form("a tank's report"))?;
        let measured = report.runs.into_iter().map(Measurement::from).collect();
        return Ok(Proof { proof: Source::Tank, measured });
    }
    let found = match document {
        Value::Object(keys) if keys.is_empty() => "an object without a key".into(),
        Value::Object(keys) => {
            let keys: Vec<&str> = keys.keys().take(6).map(String::as_str).collect();
            format!("an object with {}", keys.join(", "))
        }
        Value::Array(_) => "a list".into(),
        _ => "a single value".into(),
    };
    Err(ProofError::Unknown { found })
}

/// The relevant part of `spangap gaps --json`.
#[derive(Deserialize)]
struct GapTable {
    pairs: Vec<PairRow>,
}

#[derive(Deserialize)]
struct PairRow {
    client: String,
    server: String,
    method: Option<String>,
    calls: u64,
    gap: Gap,
}

#[derive(Deserialize)]
struct Gap {
    p50_ns: u64,
    p90_ns: u64,
    p95_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    p50_ci95_ns: Option<[u64; 2]>,
    p99_ci95_ns: Option<[u64; 2]>,
}

/// Maximum relative deviation of a gap table's quantile from the call of its rank: the width of a bucket.
const GAP_GRAIN: f64 = 0.045;
/// The same for a report of tank, whose distributions have three digits.
const TANK_GRAIN: f64 = 0.001;

impl From<PairRow> for Measurement {
    fn from(row: PairRow) -> Measurement {
        let (calls, gap) = (row.calls, row.gap);
        let known: [KnownQuantile; 6] = [
            (0.5, gap.p50_ns),
            (0.9, gap.p90_ns),
            (0.95, gap.p95_ns),
            (0.99, gap.p99_ns),
            (0.999, gap.p999_ns),
            (1.0, gap.max_ns),
        ];
        // The table's own interval is computed from all its buckets, and is narrower; but it ends at the
        // largest call even where there are too few calls for an upper bound.
        let figure = |q: f64, ns: u64, own: Option<[u64; 2]>| {
            let bracket = enclose(&known, calls, q, GAP_GRAIN);
            (calls > 0).then_some(Figure { ns, ci95_ns: bracket.and(own).or(bracket) })
        };
        let names = [("client", Some(row.client)), ("server", Some(row.server)), ("method", row.method)];
        Measurement {
            of: names.into_iter().filter_map(|(key, name)| Some((key.to_owned(), name?))).collect(),
            calls,
            failed: None,
            p50: figure(0.5, gap.p50_ns, gap.p50_ci95_ns),
            p99: figure(0.99, gap.p99_ns, gap.p99_ci95_ns),
            p999: figure(0.999, gap.p999_ns, None),
            max_ns: (calls > 0).then_some(gap.max_ns),
        }
    }
}

/// The relevant part of `spangap tank --json`.
#[derive(Deserialize)]
struct TankReport {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    target: String,
    stack: String,
    call: String,
    channels: Value,
    inflight: Option<u64>,
    rate_per_s: Option<f64>,
    request_bytes: u64,
    response_bytes: Option<u64>,
    think_ns: Option<u64>,
    nodelay: Value,
    split_writes: bool,
    threads: u64,
    cpus: Option<String>,
    trace: bool,
    ok: u64,
    errors: BTreeMap<String, u64>,
    skipped_overload: u64,
    latency: Latency,
    spectrum: Vec<KnownQuantile>,
}

#[derive(Deserialize)]
struct Latency {
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
}

impl From<Run> for Measurement {
    fn from(run: Run) -> Measurement {
        let plain = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let settings = [
            ("target", Some(run.target)),
            ("stack", Some(run.stack)),
            ("call", Some(run.call)),
            ("channels", Some(plain(run.channels))),
            ("inflight", number(run.inflight)),
            ("rate_per_s", run.rate_per_s.map(|rate| rate.to_string())),
            ("request_bytes", number(Some(run.request_bytes))),
            ("response_bytes", number(run.response_bytes)),
            ("think_ns", number(run.think_ns)),
            ("nodelay", Some(plain(run.nodelay))),
            ("split_writes", Some(run.split_writes.to_string())),
            ("threads", number(Some(run.threads))),
            ("cpus", run.cpus),
            ("trace", Some(run.trace.to_string())),
        ];
        let figure = |q: f64, ns: Option<u64>| {
            ns.map(|ns| Figure { ns, ci95_ns: enclose(&run.spectrum, run.ok, q, TANK_GRAIN) })
        };
        let failed =
            run.errors.values().fold(run.skipped_overload, |all, failed| all.saturating_add(*failed));
        Measurement {
            of: settings.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect(),
            calls: run.ok,
            failed: Some(failed),
            p50: figure(0.5, run.latency.p50_ns),
            p99: figure(0.99, run.latency.p99_ns),
            p999: figure(0.999, run.latency.p999_ns),
            max_ns: run.latency.max_ns,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
