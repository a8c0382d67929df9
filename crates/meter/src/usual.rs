//! How long calls of a pair usually take, for pairs that have left it: whoever watches baselines tells the meter, and the table of
//! pairs says how much longer clients wait than usual. The meter has no baselines of its own.

use spangap_model::{PairKey, PairStats};
use std::collections::HashMap;

/// A pair before it became slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usual {
    /// Mean duration of its CLIENT spans, nanoseconds.
    pub client_mean_ns: u64,
    /// Mean gap, nanoseconds.
    pub gap_mean_ns: u64,
    /// Since when it is slower, Unix milliseconds.
    pub since_unix_ms: u64,
}

/// Time of clients beyond the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    /// In all, nanoseconds.
    pub client_ns: u64,
    /// Of it in the gap; the rest is in the server's spans.
    pub gap_ns: u64,
    /// Since when, Unix milliseconds.
    pub since_unix_ms: u64,
}

impl Usual {
    /// What these calls took beyond the usual: nothing if they were faster.
    pub fn beyond(&self, stats: &PairStats) -> Beyond {
        let more = |sum_ns: u128, mean_ns: u64, calls: u64| {
            let usual_ns = u128::from(mean_ns) * u128::from(calls);
            u64::try_from(sum_ns.saturating_sub(usual_ns)).unwrap_or(u64::MAX)
        };
        let client_ns = more(stats.client.sum_ns(), self.client_mean_ns, stats.client.count());
        let gap_ns = more(stats.gap.sum_ns(), self.gap_mean_ns, stats.gap.count()).min(client_ns);
        Beyond { client_ns, gap_ns, since_unix_ms: self.since_unix_ms }
    }
}

impl Beyond {
    /// Together with that of another pair.
    pub fn add(&mut self, other: Beyond) {
        self.client_ns = self.client_ns.saturating_add(other.client_ns);
        self.gap_ns = self.gap_ns.saturating_add(other.gap_ns);
        self.since_unix_ms = self.since_unix_ms.min(other.since_unix_ms);
    }
}

/// Of all pairs that are slower than usual.
pub type UsualOfPairs = HashMap<PairKey, Usual>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_usual_is_divided_into_gap_and_server() {
        let mut stats = PairStats::default();
        for _ in 0..10 {
            stats.gap.record(1_000_000);
            stats.client.record(5_000_000);
        }
        let usual = Usual { client_mean_ns: 2_000_000, gap_mean_ns: 800_000, since_unix_ms: 7 };
        let beyond = usual.beyond(&stats);
        assert_eq!(beyond, Beyond { client_ns: 30_000_000, gap_ns: 2_000_000, since_unix_ms: 7 });
        // A gap that grew while the server became faster by more: no more is lost than clients waited.
        let usual = Usual { client_mean_ns: 4_900_000, gap_mean_ns: 0, since_unix_ms: 7 };
        let beyond = usual.beyond(&stats);
        assert_eq!((beyond.client_ns, beyond.gap_ns), (1_000_000, 1_000_000));
        let usual = Usual { client_mean_ns: 6_000_000, gap_mean_ns: 0, since_unix_ms: 7 };
        assert_eq!(usual.beyond(&stats), Beyond { client_ns: 0, gap_ns: 0, since_unix_ms: 7 });
    }
}
