//! JSON shapes of experiments, documented in docs/cases.md. Units end the keys.

use serde::{Deserialize, Serialize};

/// `GET /api/v1/cases/{id}/experiment`: what an experiment would do, before it does it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// Id of this plan; the request to execute it must contain it.
    pub plan: String,
    /// Case.
    pub case: String,
    /// The lever: `tcp-nodelay`, `isolate`.
    pub lever: String,
    /// The cause it would remedy.
    pub suspect: String,
    /// Whether the verdict names the suspect; otherwise it is the one with a lever among the possible causes.
    pub is_named: bool,
    /// Side: `client` or `server`.
    pub side: String,
    /// The agent whose host is changed.
    pub agent: String,
    /// Name of that host.
    pub host_name: String,
    /// Address of the server.
    pub server: String,
    /// Current connections that may be changed.
    pub connections: Vec<ConnectionRow>,
    /// Connections that already have the value, and remain unchanged.
    pub already: u64,
    /// Connections that cannot be accessed.
    pub not_readable: u64,
    /// Of `isolate`: host settings to change.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub values: Vec<ValueRow>,
    /// Of `isolate`: interfaces whose packets are moved.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub interfaces: Vec<String>,
    /// Of `isolate`: CPUs that then handle these packets, as a list.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub net_cpus: Option<String>,
    /// Of `isolate`: the CPUs of the processes that hold the connections.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub app_cpus: Option<String>,
    /// `halves`: of the connections, drawn anew for each block; `blocks`: of time, with all connections or
    /// none.
    pub design: String,
    /// Pairs of a treated and an untreated half, at most.
    pub blocks: u32,
    /// Blocks of the first look: if the effect is clear by then, the experiment ends.
    #[serde(default)]
    pub first_look: u32,
    /// Length of one block of time.
    pub block_ms: u64,
    /// Approximate duration of all blocks.
    pub takes_ms: u64,
    /// Complete description in sentences.
    pub words: String,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnectionRow {
    /// Local address.
    pub local: String,
    /// Peer address.
    pub peer: String,
    /// Process that owns it.
    pub pid: u32,
    /// Name of that process.
    pub comm: String,
}

/// A setting of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueRow {
    /// A file, or a description of another setting.
    pub place: String,
    /// Current value.
    pub from: String,
    /// New value.
    pub to: String,
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
    /// The announced plan.
    pub plan: PlanReport,
    /// The change, as in the document of `hunt`.
    pub lever: String,
    /// Requester.
    pub asked_by: String,
    /// Start.
    pub from_unix_ms: u64,
    /// End; absent while it runs. If the meter exited meanwhile: when it last wrote about the case.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to_unix_ms: Option<u64>,
    /// `running`, `proven`, `refuted` or `undecided`.
    pub outcome: String,
    /// Explanation in a sentence.
    pub words: String,
    /// Predicted reduction of the mean duration of the client's spans.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub predicted_ns: Option<i64>,
    /// While it runs: the reduction by the blocks that are over, of which nothing may be concluded yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub so_far_ns: Option<i64>,
    /// Whether it ended at the first look, because the effect was clear.
    #[serde(default)]
    pub is_early: bool,
    /// Measured reduction; its interval holds with 95 %, whichever look it is of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub effect_ns: Option<EffectRow>,
    /// Probability that chance alone produces such an effect, adjusted for the number of looks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub probability: Option<f64>,
    /// Calls with the remedy.
    pub treated: ArmRow,
    /// Calls without the remedy.
    pub control: ArmRow,
    /// Calls in neither arm: between blocks, or on connections outside the experiment.
    pub calls_of_neither: u64,
    /// The blocks.
    pub blocks: Vec<BlockRow>,
    /// The change that the host has not yet confirmed as undone: while a block runs, and after the end if the
    /// confirmation never arrived.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub in_force: Option<InForceRow>,
    /// Whether the host has confirmed the undo of every change.
    pub undone: bool,
    /// Deviations from the plan, in sentences.
    pub lacks: Vec<String>,
}

/// A change of connections until it is undone. Times are by the meter's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InForceRow {
    /// Block, from 1.
    pub block: u32,
    /// Number of connections changed.
    pub connections: usize,
    /// Start of the change.
    pub since_unix_ms: u64,
    /// Time at which the meter requests the undo.
    pub until_unix_ms: u64,
    /// Time at which the host's guard undoes it, regardless of the meter and the agent.
    pub guard_unix_ms: u64,
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
    /// Its 95 % interval, from order statistics alone; absent for fewer than six calls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ci95_ns: Option<[u64; 2]>,
    /// 99th percentile.
    pub p99_ns: u64,
}

/// One block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockRow {
    /// Start of the change, by the host's clock.
    pub from_unix_ms: u64,
    /// Time of its undo.
    pub to_unix_ms: u64,
    /// Connections changed.
    pub treated_connections: usize,
    /// Connections left as they were.
    pub control_connections: usize,
    /// Calls with the remedy.
    pub treated: ArmRow,
    /// Calls without the remedy.
    pub control: ArmRow,
}

impl ArmRow {
    /// Summary of these durations.
    pub fn of(mut took: Vec<u64>) -> ArmRow {
        took.sort_unstable();
        let at =
            |share: f64| took.get(((took.len() as f64 * share) as usize).min(took.len().saturating_sub(1)));
        let sum: u128 = took.iter().map(|ns| u128::from(*ns)).sum();
        ArmRow {
            calls: took.len() as u64,
            mean_ns: (sum / took.len().max(1) as u128) as u64,
            p50_ns: at(0.5).copied().unwrap_or(0),
            p50_ci95_ns: around_median(took.len()).map(|[low, high]| [took[low], took[high]]),
            p99_ns: at(0.99).copied().unwrap_or(0),
        }
    }
}

/// Indices of the sorted values that bound their median with at least 95 % confidence: each value is on
/// either side of it with equal probability.
fn around_median(number: usize) -> Option<[usize; 2]> {
    let mut ln_of = -(number as f64) * std::f64::consts::LN_2;
    let mut at_most = ln_of.exp();
    if number == 0 || at_most > 0.025 {
        return None;
    }
    let mut low = 0;
    loop {
        ln_of += ((number - low) as f64 / (low + 1) as f64).ln();
        at_most += ln_of.exp();
        if at_most > 0.025 {
            return Some([low, number - 1 - low]);
        }
        low += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_intervals_match_tables() {
        // Ranks of the sign test's interval, counted from 1, as in tables.
        for (number, ranks) in
            [(6, (1, 6)), (10, (2, 9)), (20, (6, 15)), (25, (8, 18)), (66, (25, 42)), (100, (40, 61))]
        {
            assert_eq!(around_median(number), Some([ranks.0 - 1, ranks.1 - 1]), "{number}");
        }
        for few in 0..6 {
            assert_eq!(around_median(few), None, "{few}");
        }
        // So many values that 0.5 to their power underflows.
        let [low, high] = around_median(4_000_000).unwrap();
        assert!((1_998_000..1_998_100).contains(&low) && low + high == 3_999_999, "{low}");
    }

    #[test]
    fn an_arm_does_not_depend_on_order() {
        let arm = ArmRow::of((1..=20).rev().collect());
        assert_eq!(
            (arm.calls, arm.mean_ns, arm.p50_ns, arm.p50_ci95_ns, arm.p99_ns),
            (20, 10, 11, Some([6, 15]), 20)
        );
        assert_eq!(ArmRow::of(Vec::new()), ArmRow::default());
    }
}
