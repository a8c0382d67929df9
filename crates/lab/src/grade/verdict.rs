//! A third-party judge's output: one JSON object, whose names are checked.

use serde::Deserialize;
use spangap_diagnose::{Answer, Verdict};
use spangap_model::{Cause, Culprit, Side};

/// A verdict as written.
#[derive(Debug, Deserialize)]
struct RawVerdict {
    culprit: String,
    #[serde(default)]
    side: Option<String>,
    #[serde(default)]
    leg: Option<String>,
    #[serde(default)]
    why: Option<String>,
}

/// Reason for an invalid verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerdictError {
    /// Not the JSON of a verdict.
    #[error(
        "{0}; expected one JSON object {{\"culprit\": CAUSE, \"none\" or \"unknown\", \"side\"?: \"client\" or \"server\", \"leg\"?: LEG, \"why\"?: TEXT}}"
    )]
    NoVerdict(String),
    /// An unknown cause.
    #[error("\"culprit\" is {0:?}; expected \"unknown\" or one of: {names}", names = names())]
    NoCause(String),
    /// Not a side.
    #[error("\"side\" is {0:?}; expected \"client\" or \"server\"")]
    NoSide(String),
    /// Not a leg.
    #[error("\"leg\" is {0:?}; expected a leg such as \"server_app\", or neighbours joined by `+`")]
    NoLeg(String),
}

fn names() -> String {
    Cause::ALL.iter().map(|cause| cause.name()).collect::<Vec<_>>().join(", ")
}

/// Parses a judge's output.
///
/// # Errors
/// It is not a verdict, or contains an unknown name.
pub fn parse(printed: &[u8]) -> Result<Verdict, VerdictError> {
    let written: RawVerdict =
        serde_json::from_slice(printed).map_err(|error| VerdictError::NoVerdict(error.to_string()))?;
    let side = match written.side {
        Some(side) => Some(Side::of_name(&side).ok_or(VerdictError::NoSide(side))?),
        None => None,
    };
    let answer = match written.culprit.as_str() {
        Answer::UNKNOWN => Answer::Unknown,
        name => {
            let cause = Cause::of_name(name).ok_or_else(|| VerdictError::NoCause(name.to_owned()))?;
            // `none` has no side.
            let side = side.filter(|_| cause != Cause::None);
            Answer::Culprit(Culprit { cause, side })
        }
    };
    let leg = match written.leg {
        Some(leg) => Some(leg.parse().map_err(|_| VerdictError::NoLeg(leg))?),
        None => None,
    };
    Ok(Verdict { answer, leg, why: written.why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spangap_model::{Leg, Legs};

    fn text(verdict: &Verdict) -> String {
        serde_json::to_string(verdict).expect("it is plain data")
    }

    #[test]
    fn a_verdict_is_read_and_written() {
        let printed = br#"{"culprit": "rto", "side": "server", "leg": "response_wire", "why": "sent again"}"#;
        let verdict = parse(printed).expect("a verdict");
        assert_eq!(verdict.answer, Answer::Culprit(Culprit::at(Cause::Rto, Side::Server)));
        assert_eq!(verdict.leg, Some(Legs::one(Leg::ResponseWire)));
        assert_eq!(parse(text(&verdict).as_bytes()), Ok(verdict));
        assert_eq!(parse(br#"{"culprit":"unknown"}"#).expect("one").answer, Answer::Unknown);
        let nothing = parse(br#"{"culprit":"none","side":"client"}"#).expect("one");
        assert_eq!(nothing.answer, Answer::NOTHING);
    }

    #[test]
    fn invalid_verdict_names_the_expected_form() {
        let cases: [(&str, &str); 6] = [
            ("", "expected one JSON object"),
            ("rto", "expected one JSON object"),
            (r#"{"culprit":"rto"} {"culprit":"rto"}"#, "expected one JSON object"),
            (r#"{"culprit":"gremlins"}"#, "nagle-delayed-ack"),
            (r#"{"culprit":"rto","side":"middle"}"#, "\"client\" or \"server\""),
            (r#"{"culprit":"rto","leg":"server_app+client_app_in"}"#, "expected a leg"),
        ];
        for (printed, expected) in cases {
            let error = parse(printed.as_bytes()).expect_err(printed).to_string();
            assert!(error.contains(expected), "{printed}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_verdict_survives_being_written(
            cause in prop::sample::select(&Cause::ALL[..]), side in prop::option::of(any::<bool>()),
            first in 0..9_usize, more in 0..9_usize, leg in any::<bool>(), why in prop::option::of(".*")
        ) {
            let side = side.filter(|_| cause != Cause::None);
            let side = side.map(|client| if client { Side::Client } else { Side::Server });
            let legs = Legs { first: Leg::ALL[first], last: Leg::ALL[(first + more).min(8)] };
            let answer = Answer::Culprit(Culprit { cause, side });
            let verdict = Verdict { answer, leg: leg.then_some(legs), why };
            prop_assert_eq!(answer.to_string().parse(), Ok(Culprit { cause, side }));
            prop_assert_eq!(parse(text(&verdict).as_bytes()), Ok(verdict));
        }

        #[test]
        fn any_bytes_are_a_verdict_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), text in ".*") {
            let _ = (parse(&bytes), parse(text.as_bytes()), text.parse::<Legs>(), text.parse::<Culprit>());
        }
    }
}
