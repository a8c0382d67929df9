//! JSON shapes of experiments, documented in docs/cases.md. Units end the keys.

use serde::{Deserialize, Serialize};

/// `GET /api/v1/cases/{id}/experiment`: what an experiment would do, before it does it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// Names this plan: the order to carry it out has to name it too.
    pub plan: String,
    /// Case.
    pub case: String,
    /// What is changed: `tcp-nodelay`.
    pub lever: String,
    /// The cause that it would mend.
    pub suspect: String,
    /// Whether the verdict names it; else it is the one that has a lever among those that fit.
    pub is_named: bool,
    /// On which side: `client` or `server`.
    pub side: String,
    /// The agent whose host is changed.
    pub agent: String,
    /// Its host's name.
    pub host_name: String,
    /// The server's end of the connections.
    pub server: String,
    /// Connections that may be changed, as they are now.
    pub connections: Vec<ConnectionRow>,
    /// Connections that have the value already, and are left as they are.
    pub already: u64,
    /// Connections that cannot be reached.
    pub not_readable: u64,
    /// `halves`: of the connections, drawn anew for each block; `blocks`: of time, all connections or none.
    pub design: String,
    /// Pairs of a treated and an untreated half.
    pub blocks: u32,
    /// Length of one block of time.
    pub block_ms: u64,
    /// How long it takes in all, roughly.
    pub takes_ms: u64,
    /// All of it in sentences.
    pub words: String,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionRow {
    /// This end.
    pub local: String,
    /// The other one.
    pub peer: String,
    /// Whose.
    pub pid: u32,
    /// Name of that process.
    pub comm: String,
}

/// `POST /api/v1/cases/{id}/experiment`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartExperiment {
    /// [`PlanReport::plan`].
    pub plan: String,
}

/// One experiment of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExperimentReport {
    /// What was announced.
    pub plan: PlanReport,
    /// What is changed, as in the document of `hunt`.
    pub lever: String,
    /// Who asked for it.
    pub asked_by: String,
    /// When it began.
    pub from_unix_ms: u64,
    /// When it was over; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to_unix_ms: Option<u64>,
    /// `running`, `proven`, `refuted` or `undecided`.
    pub outcome: String,
    /// In a sentence.
    pub words: String,
    /// What the remedy should take off the mean duration of the client's spans.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_ns: Option<i64>,
    /// What it took off it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub effect_ns: Option<EffectRow>,
    /// That chance alone goes as far.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probability: Option<f64>,
    /// Calls with the remedy.
    pub treated: ArmRow,
    /// Calls without.
    pub control: ArmRow,
    /// Calls meanwhile that belong to neither: between blocks, or of connections that are not part of it.
    pub calls_of_neither: u64,
    /// Block by block.
    pub blocks: Vec<BlockRow>,
    /// Whether the host has said of each change that it is undone.
    pub undone: bool,
    /// What did not go as planned, in sentences.
    pub lacks: Vec<String>,
}

/// An interval with its estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EffectRow {
    /// Lower end.
    pub low: i64,
    /// Estimate.
    pub mid: i64,
    /// Upper end.
    pub high: i64,
}

/// Durations of the client's spans of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArmRow {
    /// Number of calls.
    pub calls: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
}

/// One block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockRow {
    /// When the change was made, by the host's clock.
    pub from_unix_ms: u64,
    /// When it was undone.
    pub to_unix_ms: u64,
    /// Connections changed.
    pub treated_connections: usize,
    /// Connections left as they were.
    pub control_connections: usize,
    /// Calls with the remedy.
    pub treated: ArmRow,
    /// Calls without.
    pub control: ArmRow,
}

impl ArmRow {
    /// Of these durations.
    pub fn of(mut took: Vec<u64>) -> ArmRow {
        took.sort_unstable();
        let at =
            |share: f64| took.get(((took.len() as f64 * share) as usize).min(took.len().saturating_sub(1)));
        let sum: u128 = took.iter().map(|ns| u128::from(*ns)).sum();
        ArmRow {
            calls: took.len() as u64,
            mean_ns: (sum / took.len().max(1) as u128) as u64,
            p50_ns: at(0.5).copied().unwrap_or(0),
            p99_ns: at(0.99).copied().unwrap_or(0),
        }
    }
}
