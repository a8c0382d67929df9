//! A judge's full conclusion: not only a name, but also its certainty, the place, and the calls that support
//! it.
//!
//! Parsed from either form that a judge may print: the document of `spangap hunt --json`, or the short verdict
//! of [`verdict`](super::verdict).

use super::verdict::{self, VerdictError};
use serde::{Deserialize, Serialize};
use spangap_diagnose::{Answer, Verdict};
use spangap_model::{Cause, Culprit, Legs, Side};

/// Kind of a conclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One culprit.
    One,
    /// Several culprits, each with a share.
    Several,
    /// The place of the time, but not the cause.
    Place,
    /// Nothing is wrong.
    Nothing,
    /// Undecided.
    Unknown,
}

/// The question that the shares answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Why the slow calls are slower than the others.
    Slow,
    /// What all calls spend their time on.
    All,
}

/// The 90 % interval of a share of the excess.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// A blamed culprit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlamedCulprit {
    /// Who.
    pub culprit: Culprit,
    /// Share of the excess, if the judge gives one.
    pub share: Option<Interval>,
}

/// A judge's conclusion about a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// Kind.
    pub kind: Kind,
    /// Culprits, the largest share first; empty unless `one` or `several`.
    pub culprits: Vec<BlamedCulprit>,
    /// The place, for `place`.
    pub place: Option<Legs>,
    /// Question that the shares answer.
    pub question: Option<Question>,
    /// How many of the slowest calls the shares are of, if the judge says so.
    pub slow_calls: Option<u64>,
    /// Whether the shares are of calls that show the culprit, compared with calls that do not.
    pub by_event: bool,
    /// Mean duration of the calls of a reference, nanoseconds, if the shares are of what all calls take beyond those.
    pub beyond_ns: Option<u64>,
    /// Calls that support it.
    pub trace_ids: Vec<String>,
    /// Its reasons.
    pub why: Option<String>,
}

impl Conclusion {
    /// A conclusion without a culprit.
    pub fn of(kind: Kind) -> Conclusion {
        Conclusion {
            kind,
            culprits: Vec::new(),
            place: None,
            question: None,
            slow_calls: None,
            by_event: false,
            beyond_ns: None,
            trace_ids: Vec::new(),
            why: None,
        }
    }

    /// A conclusion with one culprit.
    pub fn named(culprit: Culprit) -> Conclusion {
        Conclusion { culprits: vec![BlamedCulprit { culprit, share: None }], ..Conclusion::of(Kind::One) }
    }

    /// A conclusion with a place.
    pub fn place(legs: Legs) -> Conclusion {
        Conclusion { place: Some(legs), ..Conclusion::of(Kind::Place) }
    }

    /// Parses a judge's output, in either form.
    ///
    /// # Errors
    /// It has neither form.
    pub fn parse(printed: &[u8]) -> Result<Conclusion, VerdictError> {
        let document: serde_json::Value =
            serde_json::from_slice(printed).map_err(|error| VerdictError::NoVerdict(error.to_string()))?;
        if document.get("verdict").is_none() {
            return Ok(verdict::parse(printed)?.into());
        }
        Conclusion::of_document(document)
    }

    /// Parses the document of `spangap hunt --json`.
    ///
    /// # Errors
    /// It has another form.
    pub fn of_document(document: serde_json::Value) -> Result<Conclusion, VerdictError> {
        let document: Document = serde_json::from_value(document)
            .map_err(|error| VerdictError::NoVerdict(format!("as of `spangap hunt --json`: {error}")))?;
        let culprits = document.culprits.into_iter().map(|one| {
            let cause = Cause::of_name(&one.cause).ok_or(VerdictError::NoCause(one.cause))?;
            let side = match one.side {
                Some(side) => Some(Side::of_name(&side).ok_or(VerdictError::NoSide(side))?),
                None => None,
            };
            // A share without a width does not express its uncertainty.
            let share = one.share.filter(|share| share.high > share.low);
            Ok(BlamedCulprit { culprit: Culprit { cause, side }, share })
        });
        let culprits = culprits.collect::<Result<Vec<_>, VerdictError>>()?;
        let kind = match document.verdict {
            // A verdict of culprits that names none counts as undecided.
            Kind::One | Kind::Several if culprits.is_empty() => Kind::Unknown,
            kind => kind,
        };
        let names = matches!(kind, Kind::One | Kind::Several);
        let excess = document.excess.unwrap_or_default();
        Ok(Conclusion {
            kind,
            culprits: if names { culprits } else { Vec::new() },
            place: document.place.filter(|_| kind == Kind::Place).map(|place| place.leg),
            question: document.question,
            slow_calls: Some(excess.slow_calls).filter(|calls| *calls > 0),
            by_event: excess.by_event,
            beyond_ns: Some(excess.baseline_ns)
                .filter(|ns| *ns > 0 && document.question == Some(Question::All)),
            trace_ids: document.trace_ids,
            why: document.words,
        })
    }

    /// Short form: `rto, run-queue (server)`, `at server_app`, `unknown`.
    pub fn words(&self) -> String {
        match self.kind {
            Kind::One | Kind::Several => {
                self.culprits.iter().map(|one| one.culprit.to_string()).collect::<Vec<_>>().join(", ")
            }
            Kind::Place => self.place.map_or("a place".to_owned(), |legs| format!("at {legs}")),
            Kind::Nothing => "nothing".to_owned(),
            Kind::Unknown => "unknown".to_owned(),
        }
    }
}

impl From<Verdict> for Conclusion {
    fn from(verdict: Verdict) -> Conclusion {
        let said = match (verdict.answer, verdict.leg) {
            (Answer::NOTHING, _) => Conclusion::of(Kind::Nothing),
            (Answer::Culprit(culprit), _) => Conclusion::named(culprit),
            (Answer::Unknown, Some(legs)) => Conclusion::place(legs),
            (Answer::Unknown, None) => Conclusion::of(Kind::Unknown),
        };
        Conclusion { why: verdict.why, ..said }
    }
}

/// The relevant part of the document.
#[derive(Deserialize)]
struct Document {
    verdict: Kind,
    #[serde(default)]
    question: Option<Question>,
    #[serde(default)]
    culprits: Vec<CulpritDocument>,
    #[serde(default)]
    place: Option<Place>,
    #[serde(default)]
    excess: Option<Excess>,
    #[serde(default)]
    trace_ids: Vec<String>,
    #[serde(default)]
    words: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Excess {
    slow_calls: u64,
    by_event: bool,
    baseline_ns: u64,
}

#[derive(Deserialize)]
struct CulpritDocument {
    cause: String,
    #[serde(default)]
    side: Option<String>,
    #[serde(default)]
    share: Option<Interval>,
}

#[derive(Deserialize)]
struct Place {
    leg: Legs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use spangap_model::Leg;

    fn parse(document: &serde_json::Value) -> Result<Conclusion, VerdictError> {
        Conclusion::parse(document.to_string().as_bytes())
    }

    #[test]
    fn the_document_of_a_hunt() {
        let said = parse(&json!({
            "verdict": "several", "question": "slow", "words": "because",
            "culprits": [
                { "cause": "rto", "share": { "low": 0.4, "mid": 0.5, "high": 0.6 }, "remedy": "none" },
                { "cause": "run-queue", "side": "server", "share": { "low": 0.0, "mid": 0.0, "high": 0.0 } }
            ],
            "trace_ids": ["ab"], "excess": { "calls": 3, "slow_calls": 2 }
        }))
        .expect("a conclusion");
        assert_eq!(said.words(), "rto, run-queue (server)");
        assert_eq!(said.culprits[0].share, Some(Interval { low: 0.4, high: 0.6 }));
        assert_eq!((said.culprits[1].share, said.question), (None, Some(Question::Slow)));
        assert_eq!((said.slow_calls, said.by_event, said.trace_ids), (Some(2), false, vec!["ab".to_owned()]));
        let by_event = parse(
            &json!({ "verdict": "one", "culprits": [{ "cause": "rto" }], "excess": { "by_event": true } }),
        );
        assert!(by_event.expect("one").by_event);
        let place = parse(&json!({ "verdict": "place", "place": { "leg": "server_app", "share": {} } }));
        assert_eq!(place.expect("one"), Conclusion::place(Legs::one(Leg::ServerApp)));
        let nobody = parse(&json!({ "verdict": "one", "culprits": [] })).expect("one");
        assert_eq!(nobody.kind, Kind::Unknown);
    }

    #[test]
    fn a_short_verdict() {
        let said = |document| parse(&document).expect("one");
        assert_eq!(said(json!({ "culprit": "none" })).kind, Kind::Nothing);
        assert_eq!(said(json!({ "culprit": "unknown" })).kind, Kind::Unknown);
        assert_eq!(said(json!({ "culprit": "unknown", "leg": "client_send" })).words(), "at client_send");
        // The leg of a named culprit does not count as a place.
        let rto = said(json!({ "culprit": "rto", "leg": "response_wire" }));
        assert_eq!((rto.words(), rto.place), ("rto".to_owned(), None));
    }

    #[test]
    fn other_documents_are_refused() {
        for (document, expected) in [
            (json!({ "verdict": "guilty" }), "guilty"),
            (json!({ "verdict": "one", "culprits": [{ "cause": "gremlins" }] }), "gremlins"),
            (json!({ "verdict": "one", "culprits": [{ "cause": "rto", "side": "middle" }] }), "middle"),
            (json!({ "culprit": 3 }), "expected one JSON object"),
        ] {
            let error = parse(&document).expect_err("it is none").to_string();
            assert!(error.contains(expected), "{document}: {error}");
        }
    }
}
