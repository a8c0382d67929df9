//! Verdicts of a judge.

use serde::{Serialize, Serializer};
use spangap_model::{Culprit, Legs};
use std::fmt;

/// What is to blame, as far as the judge can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// This culprit; [`Culprit::NOTHING`] if nothing is wrong.
    Culprit(Culprit),
    /// It cannot tell.
    Unknown,
}

impl Answer {
    /// Nothing is wrong.
    pub const NOTHING: Answer = Answer::Culprit(Culprit::NOTHING);
    /// The name of [`Answer::Unknown`].
    pub const UNKNOWN: &str = "unknown";
}

/// `rto`, `run-queue (server)`, `unknown`
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Culprit(culprit) => culprit.fmt(f),
            Answer::Unknown => f.write_str(Answer::UNKNOWN),
        }
    }
}

/// A judge's verdict on one run: `{"culprit": "run-queue", "side": "server", "leg": "server_app", "why": "..."}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What is to blame.
    #[serde(flatten, serialize_with = "named")]
    pub answer: Answer,
    /// The leg that it considers longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leg: Option<Legs>,
    /// Its reasons, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

fn named<S: Serializer>(answer: &Answer, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named {
        culprit: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        side: Option<&'static str>,
    }
    let (culprit, side) = match answer {
        Answer::Culprit(culprit) => (culprit.cause.name(), culprit.side.map(|side| side.name())),
        Answer::Unknown => (Answer::UNKNOWN, None),
    };
    Named { culprit, side }.serialize(to)
}
