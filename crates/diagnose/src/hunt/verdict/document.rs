//! The verdict as a document: what `hunt --json` prints.

use crate::hunt::catalogue::{Cleared, NotLooked};
use crate::hunt::shares::Share;
use serde::{Deserialize, Deserializer, Serialize};
use spangap_model::evidence::Finding;
use spangap_model::{Culprit, Legs, Side, Taker};
use std::borrow::Cow;

/// What a verdict comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One culprit owns most of it.
    One,
    /// Two or three together do.
    Several,
    /// It is known where the time passed, and not why.
    Place,
    /// Nothing stands out.
    #[default]
    Nothing,
    /// Neither is known.
    Unknown,
}

/// The verdict, with its sheet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hunt {
    /// What it comes to.
    pub verdict: Kind,
    /// `slow`: why slow calls are slower than others of their kind; `all`: what all calls spend their time on, or why they
    /// take longer than those of the reference.
    #[serde(deserialize_with = "question")]
    pub question: Named,
    /// Who is to blame; empty unless `one` or `several`.
    pub culprits: Vec<Blamed>,
    /// Where the time passed, where no culprit is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What had to be explained.
    pub excess: Excess,
    /// Who owns it, the most first.
    pub sheet: Vec<Line>,
    /// Share that nobody owns.
    pub unexplained: Share,
    /// What was seen.
    pub coverage: Seen,
    /// Suspects that are not to blame, with figures.
    pub cleared: Vec<Cleared>,
    /// Suspects that nobody looked for.
    pub not_looked: Vec<NotLooked>,
    /// What other instruments show of hosts, processes and connections, beside the calls. It has no share: none of it says
    /// which calls it held up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Finding>,
    /// What would decide more, in sentences.
    pub look_next: Vec<String>,
    /// What was tried on the live pair; nothing of recorded files.
    pub experiments: Vec<Experiment>,
    /// Calls that it rests on.
    pub trace_ids: Vec<String>,
    /// All of it in one sentence.
    pub words: String,
    /// The answers to both questions, of which the first lines are one.
    pub questions: Questions,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// By a name of its own, since serde borrows what looks like a reference.
type Named = &'static str;

/// Of a document that was read, one of the two.
fn question<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    let text = String::deserialize(from)?;
    Ok(if text == "all" { "all" } else { "slow" })
}

/// The answers to both questions; absent where there is nothing to answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Questions {
    /// Why slow calls are slower than others of their kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow: Option<Answer>,
    /// What all calls spend their time on, or why they take longer than those of the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all: Option<Answer>,
}

/// The answer to one question. Members as in [`Hunt`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// See [`Hunt::verdict`].
    pub verdict: Kind,
    /// See [`Hunt::culprits`].
    pub culprits: Vec<Blamed>,
    /// See [`Hunt::place`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// See [`Hunt::excess`].
    pub excess: Excess,
    /// See [`Hunt::sheet`].
    pub sheet: Vec<Line>,
    /// See [`Hunt::unexplained`].
    pub unexplained: Share,
    /// See [`Hunt::trace_ids`].
    pub trace_ids: Vec<String>,
    /// See [`Hunt::words`].
    pub words: String,
}

/// Somebody to blame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blamed {
    /// Who.
    #[serde(flatten)]
    pub culprit: Culprit,
    /// What it has of the excess.
    pub share: Share,
    /// Calls in question that it has held up.
    pub calls: u64,
    /// What speaks for it, in sentences.
    #[serde(rename = "for")]
    pub speaks_for: Vec<String>,
    /// What speaks against it, in sentences.
    #[serde(rename = "against")]
    pub speaks_against: Vec<String>,
    /// What would mend it.
    pub remedy: Cow<'static, str>,
    /// What calls would take less without it.
    pub wins: Win,
    /// Who had the CPU meanwhile, the most first, where threads were kept from one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
}

/// Who had a CPU that threads of calls were kept from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// In words: `NET_RX of eth1`, `stress (pid 812)`.
    pub words: String,
    /// The same, to go by.
    pub taker: Taker,
    /// For how long, over all calls looked at, nanoseconds.
    pub ns: u64,
    /// Of the time that the culprit has there.
    pub share: f64,
}

impl Default for Blamed {
    fn default() -> Blamed {
        Blamed {
            culprit: Culprit::NOTHING,
            share: Share::default(),
            calls: 0,
            speaks_for: Vec::new(),
            speaks_against: Vec::new(),
            remedy: Cow::Borrowed(""),
            wins: Win::default(),
            behind: Vec::new(),
        }
    }
}

/// What calls would take less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Win {
    /// At the median, nanoseconds.
    pub p50_ns: u64,
    /// At the 99th percentile.
    pub p99_ns: u64,
}

/// Where the time passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The legs.
    pub leg: Legs,
    /// How many proxies are before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// The end, where only that is known: the leg is the one of it that has most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// Whether a thread waited there for another one of its process: for a lock or for a result, which nothing tells apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between_threads: bool,
    /// Whether it is the way there and back, of which the leg is the longer one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both_ways: bool,
    /// What they have of the excess.
    pub share: Share,
}

impl Place {
    /// These legs.
    pub fn of(leg: Legs, share: Share) -> Place {
        Place { leg, hop: None, side: None, between_threads: false, both_ways: false, share }
    }
}

/// What had to be explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Excess {
    /// `10.0.0.1->10.0.0.2:443`; counts in place of addresses where there are several.
    pub pair: String,
    /// The method, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The quantile of durations from which on calls are slow, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// Calls that there were.
    pub calls: u64,
    /// Those in question.
    pub slow_calls: u64,
    /// Time in question of all of these, nanoseconds.
    pub total_ns: u64,
    /// What a call takes with which they are compared, nanoseconds; zero without a comparison.
    pub baseline_ns: u64,
    /// Mean time in question of one of them, nanoseconds.
    pub mean_ns: u64,
    /// As a share of all time in calls.
    pub of_all: f64,
}

/// A line of the sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Who owns it; absent where nobody does.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<Culprit>,
    /// Whether that is the machine's own noise, for which there is nobody to blame; absent where it is not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noise: bool,
    /// Where it passed, where nobody owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<Legs>,
    /// How many proxies are before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// See [`Place::between_threads`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between_threads: bool,
    /// Of a call in question, nanoseconds.
    pub ns: i64,
    /// The lower end of that (90 %).
    pub low_ns: i64,
    /// The upper end.
    pub high_ns: i64,
    /// What it has of the excess.
    pub share: Share,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Calls that there were, by spans or packets.
    pub calls: u64,
    /// Calls of which packets were captured.
    pub captured: u64,
    /// Calls that were looked at one by one.
    pub looked_at: u64,
    /// Calls of kinds too rare to be compared.
    pub set_aside: u64,
    /// Calls whose packets were looked at and that are not compared, since others have spans, which say more.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_spans: u64,
    /// Calls that are not compared, since a proxy passed them on while nobody captured behind it, and others were seen there.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_behind_proxies: u64,
    /// Calls that are not compared, since nobody recorded a host while they were there and others have that recorded.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_recording: u64,
    /// Share of the time that has an owner, or lies in legs of one host or of one way.
    pub with_legs: f64,
    /// The ends whose hosts were recorded.
    pub hosts: Vec<String>,
}

/// What a trial of a remedy showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experiment {
    /// What was changed: `tcp-nodelay`, `isolate`.
    pub lever: String,
    /// What it should take off a call in the mean, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<i64>,
    /// What it took off it; absent where too few calls were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_ns: Option<Effect>,
    /// `proven`, `refuted` or `undecided`.
    pub outcome: String,
    /// That chance alone goes as far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Whether the host has said of each change that it is undone.
    pub undone: bool,
    /// In a sentence.
    pub words: String,
}

/// What a remedy took off a call in the mean, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// Lower end of its interval.
    pub low: i64,
    /// As measured.
    pub mid: i64,
    /// Upper end.
    pub high: i64,
}
