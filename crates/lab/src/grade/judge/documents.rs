//! What the judge reads: of the documents of `dissect --json`, `gaps --json` and `tank --json`, the parts that it needs.

use serde::Deserialize;

/// Of `spangap dissect --json`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Dissect {
    /// Calls in the captures, shown or not.
    pub matching_calls: u64,
    /// The slowest of them.
    pub calls: Vec<Call>,
    /// Clock of the server's capture minus that of the client's.
    #[serde(default)]
    pub clock: Option<Clock>,
}

/// A call.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Call {
    /// `:path`, or method and target.
    #[serde(default)]
    pub method: Option<String>,
    /// Its begin.
    pub start_unix_ns: i64,
    /// How long it took.
    pub duration_ns: u64,
    /// Bytes of the request's body.
    #[serde(default)]
    pub request_bytes: u64,
    /// Bytes of the response's body.
    #[serde(default)]
    pub response_bytes: Option<u64>,
    /// Where its time went.
    #[serde(default)]
    pub legs: Vec<Leg>,
    /// What held it up.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// A leg.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Leg {
    /// Its name, or those of neighbours joined by `+`.
    pub leg: String,
    /// How long it took; below zero where a span contradicts the wire.
    pub ns: i64,
    /// What its host did meanwhile.
    #[serde(default)]
    pub host: Option<Host>,
}

/// What a host did in a leg.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Host {
    /// They sum to the leg.
    pub parts: Vec<Part>,
}

/// A part of that.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Part {
    /// What the threads of the call did.
    pub doing: String,
    /// Who had the CPU.
    #[serde(default)]
    pub behind: Option<String>,
    /// For how long.
    pub ns: u64,
}

/// What held a call up.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Finding {
    /// Name of the cause.
    pub cause: String,
    /// The end at which it sits.
    #[serde(default)]
    pub side: Option<String>,
    /// `shown` or `possible`.
    pub certainty: String,
    /// For a possible one: what it takes to show it.
    #[serde(default)]
    pub missing: Option<String>,
    /// What it took, where that is known.
    #[serde(default)]
    pub cost_ns: Option<u64>,
}

/// The clocks.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Clock {
    /// Lowest offset that the packets allow.
    pub offset_low_ns: i64,
    /// Highest.
    pub offset_high_ns: i64,
    /// Lowest rate that they allow, parts per million.
    #[serde(default)]
    pub skew_low_ppm: Option<f64>,
    /// Highest.
    #[serde(default)]
    pub skew_high_ppm: Option<f64>,
    /// Stretches within each of which one line fits.
    #[serde(default)]
    pub stretches: Vec<serde::de::IgnoredAny>,
}

/// Of `spangap gaps --json`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Gaps {
    /// Where every span went.
    pub spans: Spans,
}

/// Spans, counted.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Spans {
    /// Calls of which both halves are there.
    pub joined: u64,
    /// SERVER spans beyond the first of a call.
    pub extra_attempts: u64,
}

/// Of `spangap tank --json`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Tank {
    /// Its runs.
    pub runs: Vec<TankRun>,
}

/// A run.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct TankRun {
    /// When it had warmed up.
    pub start_unix_ns: i64,
}
