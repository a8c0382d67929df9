//! The verdict as a document: what `hunt --json` prints.

use crate::hunt::catalogue::{Cleared, NotLooked};
use crate::hunt::shares::Share;
use serde::{Deserialize, Deserializer, Serialize};
use spangap_model::evidence::{Coverage, Finding};
use spangap_model::{Culprit, Legs, Side, Taker};
use std::borrow::Cow;

/// Kinds of verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One culprit owns most of it.
    One,
    /// Two or three together do.
    Several,
    /// The place where the time passed is known, but not the reason.
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
    /// Its kind.
    pub verdict: Kind,
    /// `slow`: why slow calls are slower than others of their kind; `all`: what all calls spend their time
    /// on, or why they take longer than those of the reference.
    #[serde(deserialize_with = "question")]
    pub question: Named,
    /// The culprits; empty unless `one` or `several`.
    pub culprits: Vec<Blamed>,
    /// Where the time passed, if no culprit is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What had to be explained.
    pub excess: Excess,
    /// Owners of the excess, largest first.
    pub sheet: Vec<Line>,
    /// The share without an owner.
    pub unexplained: Share,
    /// What was seen.
    pub coverage: Seen,
    /// Suspects that are not to blame, with figures.
    pub cleared: Vec<Cleared>,
    /// Suspects that nobody looked for.
    pub not_looked: Vec<NotLooked>,
    /// What other instruments show about hosts, processes and connections, apart from the calls. It has no
    /// share, because nothing in it says which calls it delayed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Finding>,
    /// What would settle more, in sentences.
    pub look_next: Vec<String>,
    /// What was tried on the live pair; always empty for recorded files.
    pub experiments: Vec<Experiment>,
    /// Calls on which it rests.
    pub trace_ids: Vec<String>,
    /// The whole verdict in one sentence.
    pub words: String,
    /// The answers to both questions; the verdict's own fields are those of one of them.
    pub questions: Questions,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// By a name of its own, since serde borrows what looks like a reference.
type Named = &'static str;

/// When a document is read, the name must be one of the two.
fn question<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    let text = String::deserialize(from)?;
    Ok(if text == "all" { "all" } else { "slow" })
}

/// The answers to both questions; absent if there is nothing to answer.
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
    /// Its share of the excess.
    pub share: Share,
    /// Calls in question that it delayed.
    pub calls: u64,
    /// Evidence for it, in sentences.
    #[serde(rename = "for")]
    pub speaks_for: Vec<String>,
    /// Evidence against it, in sentences.
    #[serde(rename = "against")]
    pub speaks_against: Vec<String>,
    /// What the cause is, as a clause without a full stop.
    pub meaning: Cow<'static, str>,
    /// What would mend it.
    pub remedy: Cow<'static, str>,
    /// How much less calls would take without it.
    pub wins: Win,
    /// Takers of the CPU meanwhile, largest first, if threads were kept from one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<Behind>,
}

/// A taker of a CPU that threads of calls were kept from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Behind {
    /// In words: `NET_RX of eth1`, `stress (pid 812)`.
    pub words: String,
    /// The same as a value.
    pub taker: Taker,
    /// How long, over all calls examined, nanoseconds.
    pub ns: u64,
    /// As a share of the culprit's time there.
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
            meaning: Cow::Borrowed(""),
            remedy: Cow::Borrowed(""),
            wins: Win::default(),
            behind: Vec::new(),
        }
    }
}

/// How much less calls would take.
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
    /// Number of proxies in front of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// The end, if only that is known: the leg is the end's longest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
    /// Whether a thread waited there for another one of its process: for a lock or for a result, which look
    /// the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between_threads: bool,
    /// Whether it is the path in both directions, of which the leg is the longer one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub both_ways: bool,
    /// Whether bytes were lost there and sent again: on the way, or in the receiver's host, which packets of the sender's end
    /// alone do not tell apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Their share of the excess.
    pub share: Share,
}

impl Place {
    /// These legs.
    pub fn of(leg: Legs, share: Share) -> Place {
        Place { leg, hop: None, side: None, between_threads: false, both_ways: false, lost: false, share }
    }
}

/// What had to be explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Excess {
    /// `10.0.0.1->10.0.0.2:443`; counts instead of addresses if there are several.
    pub pair: String,
    /// The method, if one was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The quantile of durations from which on calls count as slow, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantile: Option<f64>,
    /// Number of calls.
    pub calls: u64,
    /// Those in question.
    pub slow_calls: u64,
    /// Their total time in question, nanoseconds.
    pub total_ns: u64,
    /// The duration of the calls that they are compared with, nanoseconds; zero without a comparison.
    pub baseline_ns: u64,
    /// Mean time in question of one of them, nanoseconds.
    pub mean_ns: u64,
    /// As a share of all time in calls.
    pub of_all: f64,
    /// Whether the calls in question are all that show the culprit, compared with calls of their kind that do not: an event
    /// that is not why most of the slow calls are slow. Otherwise they are the slow ones, compared with ordinary ones.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_event: bool,
}

/// A line of the sheet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its owner; absent if nobody owns it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub culprit: Option<Culprit>,
    /// Whether it is the machine's own noise, for which nobody is to blame; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub noise: bool,
    /// Where it passed, if nobody owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<Legs>,
    /// Number of proxies in front of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<u8>,
    /// See [`Place::between_threads`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between_threads: bool,
    /// See [`Place::lost`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Per call in question, nanoseconds.
    pub ns: i64,
    /// The lower end of that (90 %).
    pub low_ns: i64,
    /// The upper end.
    pub high_ns: i64,
    /// Its share of the excess.
    pub share: Share,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    /// Number of calls, by spans or packets.
    pub calls: u64,
    /// Number of calls with captured packets.
    pub captured: u64,
    /// Number of calls examined one by one.
    pub looked_at: u64,
    /// Calls of kinds too rare to be compared.
    pub set_aside: u64,
    /// Calls whose packets were examined but that are not compared, because others have spans, which say
    /// more.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_spans: u64,
    /// Calls that are not compared, because a proxy forwarded them while nobody captured behind it, and
    /// others were observed there.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_behind_proxies: u64,
    /// Calls that are not compared, because no recording shows what their threads did on a host, and others
    /// have that recording.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_recording: u64,
    /// Share of the time that has an owner, or lies in legs of one host or one direction.
    pub with_legs: f64,
    /// The ends whose hosts were recorded.
    pub hosts: Vec<String>,
    /// What each recording of a host covers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recordings: Vec<Coverage>,
    /// What could not be read or was not recorded, in sentences that name the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<String>,
}

/// The result of trying a remedy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Experiment {
    /// What was changed: `tcp-nodelay`, `isolate`.
    pub lever: String,
    /// How much it should reduce a call's mean duration, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ns: Option<i64>,
    /// How much it did; absent if too few calls were compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect_ns: Option<Effect>,
    /// `proven`, `refuted` or `undecided`.
    pub outcome: String,
    /// Probability that chance alone has this effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// Whether the host has confirmed for each change that it is undone.
    pub undone: bool,
    /// In a sentence.
    pub words: String,
}

/// By how much a remedy reduced a call's mean duration, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    /// Lower end of its interval.
    pub low: i64,
    /// As measured.
    pub mid: i64,
    /// Upper end.
    pub high: i64,
}
