//! Classes of received spans. Every dropped span is counted in one of them.

use serde::Serialize;
use std::ops::{AddAssign, Sub};

/// Counts of spans by outcome. [`Accounting::holds`] is true at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Accounting {
    /// Spans accepted from an exporter or a file.
    pub received: u64,
    /// Halves of calls that found their mate: two for each joined call.
    pub joined: u64,
    /// Halves still waiting for their mate.
    pub pending: u64,
    /// CLIENT spans whose SERVER span did not come within the time to live.
    pub expired_client_only: u64,
    /// SERVER spans whose CLIENT span did not come within the time to live.
    pub expired_server_only: u64,
    /// Halves whose mate reached another meter, within the time to live.
    pub apart: u64,
    /// Halves without a mate here or at a meter that answers, whose mate may have reached one that does not.
    pub unresolved: u64,
    /// Halves evicted early, oldest first, because the store was full.
    pub evicted: u64,
    /// Spans seen before with the same ids.
    pub duplicate: u64,
    /// Further SERVER spans under one CLIENT span: retries and hedges.
    pub extra_attempts: u64,
    /// SERVER spans without a parent: the entry points of the system.
    pub root: u64,
    /// INTERNAL, PRODUCER, CONSUMER and unspecified spans.
    pub other_kind: u64,
    /// Unusable spans; [`Malformed`] says why.
    pub malformed: u64,
}

impl Accounting {
    /// The sum of all classes.
    pub fn classified(&self) -> u64 {
        self.joined
            + self.pending
            + self.expired_client_only
            + self.expired_server_only
            + self.apart
            + self.unresolved
            + self.evicted
            + self.duplicate
            + self.extra_attempts
            + self.root
            + self.other_kind
            + self.malformed
    }

    /// The identity: every received span is in exactly one class.
    pub fn holds(&self) -> bool {
        self.received == self.classified()
    }

    /// Share of CLIENT and SERVER spans that found their mate, among those whose outcome is final and of which other meters
    /// have nothing to say; `None` before the first.
    pub fn match_ratio(&self) -> Option<f64> {
        let settled = self.joined + self.expired_client_only + self.expired_server_only + self.evicted;
        (settled > 0).then(|| self.joined as f64 / settled as f64)
    }
}

/// Malformed spans by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Malformed {
    /// A trace id that is not 16 bytes or a span id that is not 8 bytes, or one that is all zero.
    pub bad_id: u64,
    /// The end lies before the start.
    pub end_before_start: u64,
    /// Start or end is missing.
    pub no_time: u64,
    /// Longer than 78 hours (2^48 ns), which no call is.
    pub too_long: u64,
}

impl AddAssign for Accounting {
    fn add_assign(&mut self, other: Accounting) {
        self.received += other.received;
        self.joined += other.joined;
        self.pending += other.pending;
        self.expired_client_only += other.expired_client_only;
        self.expired_server_only += other.expired_server_only;
        self.apart += other.apart;
        self.unresolved += other.unresolved;
        self.evicted += other.evicted;
        self.duplicate += other.duplicate;
        self.extra_attempts += other.extra_attempts;
        self.root += other.root;
        self.other_kind += other.other_kind;
        self.malformed += other.malformed;
    }
}

impl AddAssign for Malformed {
    fn add_assign(&mut self, other: Malformed) {
        self.bad_id += other.bad_id;
        self.end_before_start += other.end_before_start;
        self.no_time += other.no_time;
        self.too_long += other.too_long;
    }
}

impl Sub for Malformed {
    type Output = Malformed;

    fn sub(self, other: Malformed) -> Malformed {
        Malformed {
            bad_id: self.bad_id - other.bad_id,
            end_before_start: self.end_before_start - other.end_before_start,
            no_time: self.no_time - other.no_time,
            too_long: self.too_long - other.too_long,
        }
    }
}

impl Malformed {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.bad_id + self.end_before_start + self.no_time + self.too_long
    }
}
