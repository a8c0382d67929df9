//! JSON shapes of agents and cases, documented in docs/cases.md. Units end the keys.

use crate::experiment::shapes::ExperimentReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// By which of its times a call is slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Client duration minus server duration.
    #[default]
    Gap,
    /// What the client waited: also for the server itself.
    ClientDuration,
}

/// `GET /api/v1/agents`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentsReport {
    /// All agents that are or were connected.
    pub agents: Vec<AgentRow>,
    /// Number of case sides without an agent.
    pub unmatched: Sides,
    /// Refusals since the start.
    pub refused: Refused,
}

/// Counts by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sides {
    /// Of clients.
    pub client: u64,
    /// Of servers.
    pub server: u64,
}

/// Refusals since the start, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Requests without the right token, for another host, or from a foreign page.
    pub requests: u64,
    /// Agents refused: replayed, replaced, unknown protocol, no room.
    pub hellos: u64,
    /// Agents silent for too long, or without a hello.
    pub idle: u64,
    /// Texts of agents that were too long or too many.
    pub texts_cut: u64,
    /// Pieces of slices that were not requested.
    pub unasked: u64,
    /// Slices that violated a rule: too large, malformed, too slow.
    pub slices: u64,
    /// Cases not opened because this minute's slices were used up.
    pub over_budget: u64,
    /// Cases removed to make room for newer ones.
    pub cases_removed: u64,
    /// Cases that could not be written.
    pub not_written: u64,
    /// Cases without a verdict: the judge failed, or exceeded its time or memory.
    #[serde(default)]
    pub verdicts: u64,
    /// Pairs beyond the limit of watched pairs.
    pub pairs_not_watched: u64,
}

impl Refused {
    /// The counts by reason, as labels; requests are counted where they are refused.
    pub fn reasons(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("hello", self.hellos),
            ("idle_agent", self.idle),
            ("agent_text", self.texts_cut),
            ("piece_unasked", self.unasked),
            ("slice", self.slices),
            ("slice_budget", self.over_budget),
            ("case_for_room", self.cases_removed),
            ("case_not_written", self.not_written),
            ("verdict", self.verdicts),
            ("pair_not_watched", self.pairs_not_watched),
        ]
    }
}

/// One agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentRow {
    /// Machine id and network namespace.
    pub id: String,
    /// Host name according to the agent.
    pub host_name: String,
    /// Whether its stream is open and it sent a message within five seconds.
    pub connected: bool,
    /// Start of its latest connection.
    pub since_unix_ms: u64,
    /// Time of its latest message.
    pub last_seen_unix_ms: u64,
    /// `headers` or `full`.
    pub payload: String,
    /// Kernel release.
    pub kernel: String,
    /// Version of the program.
    pub version: String,
    /// Addresses of the host and its pods.
    pub addresses: Vec<String>,
    /// Number of known control groups.
    pub containers: usize,
    /// Its recordings.
    pub rings: Vec<RingRow>,
    /// Resident memory.
    pub memory_bytes: u64,
    /// Limit of the memory.
    pub memory_limit_bytes: u64,
    /// Share of all CPUs of its host.
    pub cpu_share: f64,
    /// Limit of the CPU share.
    pub cpu_limit: f64,
    /// Instruments dropped to stay within these limits.
    pub given_up: Vec<String>,
    /// Number of times an instrument was restored since the agent's start.
    #[serde(default)]
    pub taken_back: u64,
    /// What it cannot observe.
    pub lacks: Vec<String>,
    /// Changes that it permits.
    #[serde(default)]
    pub allows: Vec<String>,
    /// Number of times another session of the same host replaced it while it was connected: more than a few
    /// indicate two agents with the same machine id.
    pub replacements: u64,
}

/// Content of an agent's ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingRow {
    /// `capture`, `host-record`, `sockets`, `check`.
    pub instrument: String,
    /// Time of the oldest entry, by the host's clock.
    pub from_unix_ns: i64,
    /// Time of the newest entry.
    pub to_unix_ns: i64,
    /// Size.
    pub bytes: u64,
    /// Entries recorded since the start.
    pub taken: u64,
    /// Entries lost since the start.
    pub lost: u64,
    /// Canaries sent.
    pub canaries_sent: u64,
    /// Canaries observed.
    pub canaries_seen: u64,
}

/// `GET /api/v1/cases`, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CasesReport {
    /// One row per case.
    pub cases: Vec<CaseRow>,
    /// Events of these pairs and hosts, oldest first: changes, their undo, cases closed.
    #[serde(default)]
    pub events: Vec<EventRow>,
    /// Pairs outside their usual figures without a case, because `--case-slices-per-minute` currently permits
    /// none.
    #[serde(default)]
    pub waiting_pairs: u64,
    /// The pairs among them that lose the most time, most first.
    #[serde(default)]
    pub waiting: Vec<PairRow>,
}

/// An event for a time axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// Time.
    pub unix_ms: u64,
    /// The case it belongs to.
    pub case: String,
    /// `changed`: an experiment began; `undone`: it ended, and the host has confirmed every undo;
    /// `not_undone`: the host has not; `fixed`: the pair was back to its usual figures from then on.
    pub kind: String,
    /// The change, as in [`ExperimentReport::lever`]; empty for cases closed.
    pub lever: String,
}

impl EventRow {
    /// The events of one case.
    pub fn of(case: &CaseReport) -> impl Iterator<Item = EventRow> {
        let event = |unix_ms: u64, kind: &str, lever: &str| EventRow {
            unix_ms,
            case: case.row.id.clone(),
            kind: kind.into(),
            lever: lever.into(),
        };
        let tried = case.experiments.iter().flat_map(move |tried| {
            let over = if tried.undone { "undone" } else { "not_undone" };
            let over = tried.to_unix_ms.map(|unix_ms| event(unix_ms, over, &tried.lever));
            [Some(event(tried.from_unix_ms, "changed", &tried.lever)), over]
        });
        let fixed = case.after.as_ref().map(|after| event(after.from_unix_ms, "fixed", ""));
        tried.chain([fixed]).flatten()
    }
}

/// A pair of services.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PairRow {
    /// Calling service.
    pub client: String,
    /// Called service.
    pub server: String,
}

/// State of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Evidence is being gathered.
    #[default]
    Open,
    /// The verdict names a culprit.
    Explained,
    /// An experiment has confirmed it.
    Proven,
    /// The pair is back to its usual figures.
    Fixed,
    /// The pair left its usual figures again.
    Regressed,
    /// The verdict names no culprit.
    Unknown,
}

impl State {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Explained => "explained",
            State::Proven => "proven",
            State::Fixed => "fixed",
            State::Regressed => "regressed",
            State::Unknown => "unknown",
        }
    }
}

/// Trigger of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The pair left its own baseline.
    #[default]
    Baseline,
    /// Calls took longer than --case-over.
    Threshold,
    /// A person requested it.
    Person,
}

/// A case in one row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseRow {
    /// Name of its folder.
    pub id: String,
    /// The pair.
    pub pair: PairRow,
    /// Requested method.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// State.
    pub state: State,
    /// Trigger.
    pub trigger: Trigger,
    /// Time of opening.
    pub opened_unix_ms: u64,
    /// In lists: until when the pair was as usual, if that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usual_until_unix_ms: Option<u64>,
    /// Verdict.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<VerdictRow>,
    /// Slow calls whose spans are in the folder.
    pub slow_calls: u64,
    /// Mean excess duration of a slow call compared with others of its kind.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excess_ns: Option<u64>,
}

/// Summary of a verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerdictRow {
    /// `one`, `several`, `place`, `nothing`, `unknown`.
    pub verdict: String,
    /// Explanation in a sentence.
    pub words: String,
    /// The first culprit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub culprit: Option<String>,
    /// Side of the culprit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<String>,
    /// Its share of the excess: `low`, `mid` and `high`, as in the document of `hunt`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<serde_json::Value>,
}

/// `GET /api/v1/cases/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// Summary row.
    #[serde(flatten)]
    pub row: CaseRow,
    /// The duration by which calls count as slow: the one that left the baseline.
    #[serde(default)]
    pub slow_by: Measure,
    /// Limit above which calls count as slow: the geometric mean of the usual value and the one that left the
    /// baseline, or the threshold.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_over_ns: Option<u64>,
    /// Source of evidence, by `client` and `server`.
    pub hosts: BTreeMap<String, HostRow>,
    /// Timeline of events.
    pub time_line: Vec<Moment>,
    /// The document of `spangap hunt --json`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hunt: Option<serde_json::Value>,
    /// Files in the folder.
    pub files: Vec<FileRow>,
    /// Start of the slowness according to the requester; otherwise from the look back of a case.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_since_unix_ms: Option<u64>,
    /// The pair before the calls in question, if it was already watched and faster; otherwise `lacks`
    /// explains why not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usual: Option<GapRow>,
    /// The pair while it was slow.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<GapRow>,
    /// The pair since it was fixed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<GapRow>,
    /// Missing evidence, in sentences.
    pub lacks: Vec<String>,
    /// Experiments, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub experiments: Vec<ExperimentReport>,
}

/// The agent that provides a side's evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    /// The property that spans and agent share.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// Why there is no agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why_not: Option<String>,
    /// Whether that is because the spans' properties fit several agents, so that another agent would not help.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub of_several: bool,
}

/// An event of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Time.
    pub unix_ms: u64,
    /// Description in words.
    pub what: String,
}

/// A file of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileRow {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Gaps and client durations of a pair over a time range.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GapRow {
    /// Start of the time range.
    pub from_unix_ms: u64,
    /// End of the time range.
    pub to_unix_ms: u64,
    /// Calls in it.
    pub calls: u64,
    /// Gap.
    pub gap: Spread,
    /// Client duration.
    pub client_duration: Spread,
    /// Sum of the gaps.
    pub lost_ns_total: u64,
}

/// Two quantiles of a distribution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Mean.
    #[serde(default)]
    pub mean_ns: u64,
}

/// `POST /api/v1/cases`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenCase {
    /// The pair.
    pub pair: PairRow,
    /// Method, if the meter separates methods.
    #[serde(default)]
    pub method: Option<String>,
    /// Start of the slowness; the usual figures are from before.
    #[serde(default)]
    pub slow_since_unix_ms: Option<u64>,
}

/// The answer to [`OpenCase`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Id of the case, which may have been open already.
    pub id: String,
}
