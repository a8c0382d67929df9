//! Injected failures: some calls fail for a number of attempts.

use spangap_model::CallStatus;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// Number of earlier attempts of a call, as reported by gRPC clients.
pub const PREVIOUS_ATTEMPTS: &str = "grpc-previous-rpc-attempts";

/// Which attempts fail: `UNAVAILABLE:2/10` is the first two of every tenth call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// Status.
    pub status: Code,
    /// Number of failing attempts per call.
    pub attempts: u32,
    /// One call in this many fails.
    pub every: u64,
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = CallStatus::from_grpc(self.status as u64);
        write!(f, "{}:{}/{}", status.name(), self.attempts, self.every)
    }
}

impl FromStr for Failing {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = |why: &str| format!("{why}: expected STATUS:ATTEMPTS/CALLS, such as UNAVAILABLE:2/10");
        let (status, rest) = text.split_once(':').ok_or_else(|| refused("there is no colon"))?;
        let (attempts, every) = rest.split_once('/').ok_or_else(|| refused("there is no slash"))?;
        let code = (1..=16).find(|code| CallStatus::from_grpc(*code).name() == status);
        let code = code.ok_or_else(|| refused(&format!("{status:?} is not a status of a failed call")))?;
        let attempts = attempts.parse().ok().filter(|attempts| *attempts > 0);
        let every = every.parse().ok().filter(|every| *every > 0);
        Ok(Failing {
            status: Code::from(code as i32),
            attempts: attempts.ok_or_else(|| refused("ATTEMPTS is not a whole number from 1 up"))?,
            every: every.ok_or_else(|| refused("CALLS is not a whole number from 1 up"))?,
        })
    }
}

/// Decides which attempts fail. Keeps no state per call: a retry carries the number of earlier attempts, and
/// only failed calls are retried.
pub struct Failures {
    failing: Failing,
    /// Number of calls that arrived for the first time.
    calls: AtomicU64,
}

impl Failures {
    /// None yet.
    pub fn new(failing: Failing) -> Self {
        Failures { failing, calls: AtomicU64::new(0) }
    }

    /// Status of this attempt, if it shall fail.
    pub fn of(&self, headers: &MetadataMap) -> Option<Status> {
        let Failing { status, attempts, every } = self.failing;
        let said = headers.get(PREVIOUS_ATTEMPTS).and_then(|value| value.to_str().ok());
        let fails = match said.and_then(|value| value.parse::<u32>().ok()).unwrap_or(0) {
            0 => (self.calls.fetch_add(1, Relaxed) + 1).is_multiple_of(every),
            previous => previous < attempts,
        };
        fails.then(|| Status::new(status, format!("made to fail by --fail {}", self.failing)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn problems_are_reported() {
        for (text, word) in [
            ("UNAVAILABLE", "colon"),
            ("UNAVAILABLE:2", "slash"),
            ("OK:2/3", "not a status"),
            ("Unavailable:2/3", "not a status"),
            ("UNAVAILABLE:0/3", "ATTEMPTS is"),
            ("UNAVAILABLE:1/0", "CALLS is"),
            ("UNAVAILABLE:1/x", "CALLS is"),
        ] {
            let error = text.parse::<Failing>().unwrap_err();
            assert!(error.contains(word) && error.contains("UNAVAILABLE:2/10"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn its_text_is_read_back(code in 1i32..=16, attempts in 1u32.., every in 1u64..) {
            let failing = Failing { status: Code::from(code), attempts, every };
            prop_assert_eq!(failing.to_string().parse(), Ok(failing));
        }

        #[test]
        fn arbitrary_text_is_rejected_or_parsed(text in "\\PC{0,30}") {
            if let Ok(failing) = text.parse::<Failing>() {
                prop_assert!(failing.attempts > 0 && failing.every > 0 && failing.status != Code::Ok);
            }
        }

        /// A client that retries each call until it succeeds sees exactly the chosen calls fail, each for the
        /// set number of attempts.
        #[test]
        fn configured_share_of_calls_fails(attempts in 1u32..6, every in 1u64..9, calls in 0u64..40) {
            let failures = Failures::new(Failing { status: Code::Unavailable, attempts, every });
            for call in 1..=calls {
                let mut failed = 0;
                loop {
                    let mut headers = MetadataMap::new();
                    if failed > 0 {
                        headers.insert(PREVIOUS_ATTEMPTS, failed.to_string().parse().unwrap());
                    }
                    match failures.of(&headers) {
                        Some(status) => prop_assert_eq!(status.code(), Code::Unavailable),
                        None => break,
                    }
                    failed += 1;
                }
                prop_assert_eq!(failed, if call % every == 0 { attempts } else { 0 });
            }
        }
    }
}
