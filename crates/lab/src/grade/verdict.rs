//! What a judge says of a run: one JSON object, whose names are checked.

use crate::truth::Culprit;
use serde::{Deserialize, Serialize};
use spangap_model::{Cause, Leg, Legs, Side};
use std::fmt;

/// What is to blame, as far as the judge can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// This; [`Culprit::NOTHING`] when nothing is wrong.
    Culprit(Culprit),
    /// It cannot tell.
    Unknown,
}

impl Answer {
    /// Nothing is wrong.
    pub const NOTHING: Answer = Answer::Culprit(Culprit::NOTHING);
}

/// `rto`, `run-queue (server)`, `unknown`
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Culprit(culprit) => culprit.fmt(f),
            Answer::Unknown => f.write_str(UNKNOWN),
        }
    }
}

/// The name of [`Answer::Unknown`].
pub const UNKNOWN: &str = "unknown";

/// A judge's verdict on one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What is to blame.
    pub answer: Answer,
    /// The leg that it says is longer.
    pub leg: Option<Legs>,
    /// Its reasons, for people.
    pub why: Option<String>,
}

/// The verdict as it is written.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    culprit: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    side: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    leg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    why: Option<String>,
}

/// Why something is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerdictError {
    /// Not the JSON of one.
    #[error(
        "{0}; expected one JSON object {{\"culprit\": CAUSE, \"none\" or \"unknown\", \"side\"?: \"client\" or \"server\", \"leg\"?: LEG, \"why\"?: TEXT}}"
    )]
    NoVerdict(String),
    /// A name that stands for no cause.
    #[error("\"culprit\" is {0:?}; expected \"unknown\" or one of: {names}", names = names())]
    NoCause(String),
    /// Neither end.
    #[error("\"side\" is {0:?}; expected \"client\" or \"server\"")]
    NoSide(String),
    /// No leg of a call.
    #[error("\"leg\" is {0:?}; expected a leg such as \"server_app\", or neighbours joined by `+`")]
    NoLeg(String),
}

fn names() -> String {
    Cause::ALL.iter().map(|cause| cause.name()).collect::<Vec<_>>().join(", ")
}

impl Verdict {
    /// Reads what a judge printed.
    ///
    /// # Errors
    /// When it is no verdict; one with a name that nobody knows is none.
    pub fn parse(printed: &[u8]) -> Result<Verdict, VerdictError> {
        let written: Written =
            serde_json::from_slice(printed).map_err(|error| VerdictError::NoVerdict(error.to_string()))?;
        let side = match written.side {
            Some(side) => Some(side_of(&side).ok_or(VerdictError::NoSide(side))?),
            None => None,
        };
        let answer = match written.culprit.as_str() {
            UNKNOWN => Answer::Unknown,
            name => {
                let cause = cause_of(name).ok_or_else(|| VerdictError::NoCause(name.to_owned()))?;
                // Nothing is on no side.
                let side = side.filter(|_| cause != Cause::None);
                Answer::Culprit(Culprit { cause, side })
            }
        };
        let leg = match written.leg {
            Some(leg) => Some(legs_of(&leg).ok_or(VerdictError::NoLeg(leg))?),
            None => None,
        };
        Ok(Verdict { answer, leg, why: written.why })
    }

    /// As a judge prints it.
    pub fn text(&self) -> String {
        let (culprit, side) = match self.answer {
            Answer::Culprit(culprit) => (culprit.cause.name(), culprit.side),
            Answer::Unknown => (UNKNOWN, None),
        };
        let written = Written {
            culprit: culprit.to_owned(),
            side: side.map(|side| side.name().to_owned()),
            leg: self.leg.map(|leg| leg.to_string()),
            why: self.why.clone(),
        };
        serde_json::to_string(&written).expect("it is plain data")
    }
}

/// A cause by its name.
pub fn cause_of(name: &str) -> Option<Cause> {
    Cause::ALL.iter().copied().find(|cause| cause.name() == name)
}

/// A side by its name.
pub fn side_of(name: &str) -> Option<Side> {
    [Side::Client, Side::Server].into_iter().find(|side| side.name() == name)
}

/// A culprit as [`Culprit`] is shown: `rto`, `run-queue (server)`.
pub fn culprit_of(text: &str) -> Option<Culprit> {
    match text.split_once(" (") {
        Some((cause, side)) => Some(Culprit::at(cause_of(cause)?, side_of(side.strip_suffix(')')?)?)),
        None => cause_of(text).map(Culprit::of),
    }
}

/// Legs as [`Legs`] is shown: names of neighbours in order, joined by `+`.
pub fn legs_of(text: &str) -> Option<Legs> {
    let named = |name: &str| Leg::ALL.into_iter().find(|leg| leg.name() == name);
    let mut names = text.split('+');
    let first = named(names.next()?)?;
    let last = names.next_back().map_or(Some(first), named)?;
    let legs = Legs { first, last };
    (first <= last && legs.to_string() == text).then_some(legs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_verdict_is_read_and_written() {
        let printed = br#"{"culprit": "rto", "side": "server", "leg": "response_wire", "why": "sent again"}"#;
        let verdict = Verdict::parse(printed).expect("a verdict");
        assert_eq!(verdict.answer, Answer::Culprit(Culprit::at(Cause::Rto, Side::Server)));
        assert_eq!(verdict.leg, Some(Legs::one(Leg::ResponseWire)));
        assert_eq!(Verdict::parse(verdict.text().as_bytes()), Ok(verdict));
        assert_eq!(Verdict::parse(br#"{"culprit":"unknown"}"#).expect("one").answer, Answer::Unknown);
        let nothing = Verdict::parse(br#"{"culprit":"none","side":"client"}"#).expect("one");
        assert_eq!(nothing.answer, Answer::NOTHING);
    }

    #[test]
    fn what_is_no_verdict_says_what_was_expected() {
        let cases: [(&str, &str); 6] = [
            ("", "expected one JSON object"),
            ("rto", "expected one JSON object"),
            (r#"{"culprit":"rto"} {"culprit":"rto"}"#, "expected one JSON object"),
            (r#"{"culprit":"gremlins"}"#, "nagle-delayed-ack"),
            (r#"{"culprit":"rto","side":"middle"}"#, "\"client\" or \"server\""),
            (r#"{"culprit":"rto","leg":"server_app+client_app_in"}"#, "expected a leg"),
        ];
        for (printed, expected) in cases {
            let error = Verdict::parse(printed.as_bytes()).expect_err(printed).to_string();
            assert!(error.contains(expected), "{printed}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_verdict_survives_being_written(
            cause in prop::sample::select(Cause::ALL), side in prop::option::of(any::<bool>()),
            first in 0..9_usize, more in 0..9_usize, leg in any::<bool>(), why in prop::option::of(".*")
        ) {
            let side = side.filter(|_| cause != Cause::None);
            let side = side.map(|client| if client { Side::Client } else { Side::Server });
            let legs = Legs { first: Leg::ALL[first], last: Leg::ALL[(first + more).min(8)] };
            let answer = Answer::Culprit(Culprit { cause, side });
            let verdict = Verdict { answer, leg: leg.then_some(legs), why };
            prop_assert_eq!(culprit_of(&answer.to_string()), Some(Culprit { cause, side }));
            prop_assert_eq!(Verdict::parse(verdict.text().as_bytes()), Ok(verdict));
        }

        #[test]
        fn any_bytes_are_a_verdict_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".*") {
            let _ = (Verdict::parse(&bytes), Verdict::parse(text.as_bytes()), legs_of(&text), culprit_of(&text));
        }
    }
}
