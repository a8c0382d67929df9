//! Every JSON shape of agents and cases, documented in docs/cases.md. Units end the keys.

use crate::experiment::shapes::ExperimentReport;
use crate::samples::Measure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /api/v1/agents`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentsReport {
    /// All that are or were connected.
    pub agents: Vec<AgentRow>,
    /// Sides of cases for which no agent was found.
    pub unmatched: Sides,
    /// What was refused since the start.
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

/// What was refused since the start, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Requests without the right token, for another host or from a page of another one.
    pub requests: u64,
    /// Agents that were not welcome: replayed, replaced, unknown protocol, no room.
    pub hellos: u64,
    /// Agents that said nothing for too long, or no hello.
    pub idle: u64,
    /// Texts of agents that were too long, or too many.
    pub texts_cut: u64,
    /// Pieces of slices that nobody asked for.
    pub unasked: u64,
    /// Slices that broke a rule: too large, not what they should be, too slow.
    pub slices: u64,
    /// Cases that were not opened for want of slices to ask for in this minute.
    pub over_budget: u64,
    /// Cases removed to make room for newer ones.
    pub cases_removed: u64,
    /// Cases that could not be written.
    pub not_written: u64,
    /// Cases that were not judged: the judge failed, or needed more time or memory than it may have.
    #[serde(default)]
    pub verdicts: u64,
    /// Pairs beyond those that are watched.
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
    /// As the agent says.
    pub host_name: String,
    /// Whether it is there: its stream is open, and it has said something within five seconds.
    pub connected: bool,
    /// Since when it is connected, or was.
    pub since_unix_ms: u64,
    /// When it last said something.
    pub last_seen_unix_ms: u64,
    /// `headers` or `full`.
    pub payload: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Version of the program.
    pub version: String,
    /// Addresses of the host and its pods.
    pub addresses: Vec<String>,
    /// Number of control groups it knows.
    pub containers: usize,
    /// What it records.
    pub rings: Vec<RingRow>,
    /// Resident memory.
    pub memory_bytes: u64,
    /// What it may have.
    pub memory_limit_bytes: u64,
    /// Share of all CPUs of its host.
    pub cpu_share: f64,
    /// What it may have.
    pub cpu_limit: f64,
    /// Instruments given up to stay within these limits.
    pub given_up: Vec<String>,
    /// How often one of them was taken back since the agent's start.
    #[serde(default)]
    pub taken_back: u64,
    /// What it cannot see.
    pub lacks: Vec<String>,
    /// What it may be ordered to change.
    #[serde(default)]
    pub allows: Vec<String>,
    /// How often another session of the same host took its place while it was connected: more than a few are two agents with
    /// the same machine id.
    pub replacements: u64,
}

/// What an agent's ring holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RingRow {
    /// `capture`, `host-record`, `sockets`, `check`.
    pub instrument: String,
    /// Its oldest, by the host's clock.
    pub from_unix_ns: i64,
    /// Its newest.
    pub to_unix_ns: i64,
    /// Its size.
    pub bytes: u64,
    /// Taken since the start.
    pub taken: u64,
    /// Lost since the start.
    pub lost: u64,
    /// Canaries sent.
    pub canaries_sent: u64,
    /// Those seen.
    pub canaries_seen: u64,
}

/// `GET /api/v1/cases`, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CasesReport {
    /// One for each case.
    pub cases: Vec<CaseRow>,
    /// What happened to these pairs and hosts since: changes, their undoing, cases closed. Oldest first.
    #[serde(default)]
    pub events: Vec<EventRow>,
    /// Pairs that have left their usual figures and have no case, since `--case-slices-per-minute` does not allow one now.
    #[serde(default)]
    pub waiting_pairs: u64,
    /// Those of them that lose the most time, most first.
    #[serde(default)]
    pub waiting: Vec<PairRow>,
}

/// Something that belongs on a time axis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// When.
    pub unix_ms: u64,
    /// The case that it belongs to.
    pub case: String,
    /// `changed`: an experiment began; `undone`: it was over, and the host has confirmed each undo; `not_undone`: the host has
    /// not; `fixed`: the pair was back to its usual figures from here on.
    pub kind: String,
    /// What was changed, as in [`ExperimentReport::lever`]; empty for cases closed.
    pub lever: String,
}

impl EventRow {
    /// Those of one case.
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

/// Who calls whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PairRow {
    /// Calling service.
    pub client: String,
    /// Called service.
    pub server: String,
}

/// Where a case stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Evidence is being gathered.
    #[default]
    Open,
    /// A culprit is named.
    Explained,
    /// An experiment has shown it.
    Proven,
    /// The pair is back to its usual figures.
    Fixed,
    /// It left them again.
    Regressed,
    /// No culprit is named.
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

/// What opened a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The pair left its own baseline.
    #[default]
    Baseline,
    /// Calls took longer than --case-over.
    Threshold,
    /// Somebody asked.
    Person,
}

/// A case in one row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseRow {
    /// Name of its folder.
    pub id: String,
    /// Who calls whom.
    pub pair: PairRow,
    /// Method asked about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    /// Where it stands.
    pub state: State,
    /// What opened it.
    pub trigger: Trigger,
    /// When.
    pub opened_unix_ms: u64,
    /// What came of it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verdict: Option<VerdictRow>,
    /// Slow calls whose spans are in the folder.
    pub slow_calls: u64,
    /// What a slow call took beyond others of its kind, in the mean.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excess_ns: Option<u64>,
}

/// A verdict in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerdictRow {
    /// `one`, `several`, `place`, `nothing`, `unknown`.
    pub verdict: String,
    /// In a sentence.
    pub words: String,
    /// The first culprit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub culprit: Option<String>,
    /// On which side.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub side: Option<String>,
    /// Its share of the excess: `low`, `mid` and `high`, as in the document of `hunt`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<serde_json::Value>,
}

/// `GET /api/v1/cases/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaseReport {
    /// In one row.
    #[serde(flatten)]
    pub row: CaseRow,
    /// By which of their times calls are slow here: that which left the baseline.
    #[serde(default)]
    pub slow_by: Measure,
    /// From where on they are: half way, by ratio, from what is usual to what left the baseline; or the threshold.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_over_ns: Option<u64>,
    /// Where its evidence comes from, by `client` and `server`.
    pub hosts: BTreeMap<String, HostRow>,
    /// What happened when.
    pub time_line: Vec<Moment>,
    /// The document of `spangap hunt --json`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hunt: Option<serde_json::Value>,
    /// What is in the folder.
    pub files: Vec<FileRow>,
    /// Since when its calls are slow, as whoever asked for it says; else by the look back of a case.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_since_unix_ms: Option<u64>,
    /// The pair before the calls in question, where it was watched by then and faster; `lacks` says why not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub usual: Option<GapRow>,
    /// The pair when it was slow.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub before: Option<GapRow>,
    /// The pair since it is fixed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<GapRow>,
    /// What is missing, in sentences.
    pub lacks: Vec<String>,
    /// What was tried, the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub experiments: Vec<ExperimentReport>,
}

/// Which agent a side's evidence comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    /// Its id.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub agent: Option<String>,
    /// What spans and agent have in common.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why_not: Option<String>,
}

/// Something happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// When.
    pub unix_ms: u64,
    /// What, in words.
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

/// Gaps and client durations of a pair over some stretch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GapRow {
    /// Begin of the stretch.
    pub from_unix_ms: u64,
    /// Its end.
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
    /// Who calls whom.
    pub pair: PairRow,
    /// Method, where the meter tells methods apart.
    #[serde(default)]
    pub method: Option<String>,
    /// Since when calls are slow: what is usual is from before that.
    #[serde(default)]
    pub slow_since_unix_ms: Option<u64>,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// Of the case, which may have been open already.
    pub id: String,
}
