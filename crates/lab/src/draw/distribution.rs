//! The declared distribution: what `spangap lab grade --draw` draws from, all of it, to be read as documentation.
//!
//! Of 100 runs about 20 are of [`Part::Nothing`], 20 near misses, 50 of one fault and 10 of two. Each fault has a row in
//! [`FAULTS`]: how often it is drawn beside the others, and the ends between which its strength, its rate and its sizes lie.
//! A number is drawn *log-uniformly* between its ends: as often between 1 and 10 as between 10 and 100, so that a fault that
//! can barely be seen is as likely as one that nobody could miss. Each run also draws the stacks of both ends, the clocks of
//! both hosts, the sizes of messages, and what else goes on on the machine.
//!
//! Nothing here depends on what the machine has: a stack or program that is not installed is replaced by one that is, and
//! the report says which were not drawn and why.

/// What kind of run is drawn, in per cent.
pub const PARTS: [(Part, u32); 4] =
    [(Part::Nothing, 20), (Part::NearMiss, 20), (Part::Fault, 50), (Part::Both, 10)];

/// What kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// No fault at all: one of the [`INNOCENT`] scenarios.
    Nothing,
    /// The near miss of a fault.
    NearMiss,
    /// One fault.
    Fault,
    /// One fault, and stops of the client's or the server's process beside it ([`SECOND`]).
    Both,
}

/// A scenario, and what of it is drawn.
#[derive(Debug)]
pub struct Row {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// How often, beside the others.
    pub weight: u32,
    /// Its parameters that are drawn. The others keep their defaults.
    pub ranges: &'static [Range],
    /// What may be drawn around it.
    pub around: Variation,
}

/// A parameter of a scenario, and between what it lies: a plain number, or nanoseconds.
#[derive(Debug)]
pub struct Range {
    /// Name of the parameter.
    pub name: &'static str,
    /// Least.
    pub low: u64,
    /// Most.
    pub high: u64,
}

/// What may be drawn around a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Variation {
    /// Other stacks than tonic for target and client; the scenario needs nothing that only tonic's have.
    pub stacks: bool,
    /// Payloads of messages.
    pub sizes: bool,
    /// Clocks that differ.
    pub clocks: bool,
    /// A second fault.
    pub second: bool,
}

/// Anything may be drawn around it, but a second fault.
const OPEN: Variation = Variation { stacks: true, sizes: true, clocks: true, second: false };
/// Its own stack and sizes.
const OWN: Variation = Variation { stacks: false, sizes: false, clocks: true, second: false };
/// The same, and a second fault may act beside it.
const PAIRED: Variation = Variation { second: true, ..OWN };
/// Clocks are what it is about.
const CLOCKS: Variation = Variation { clocks: false, ..OPEN };

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

const fn range(name: &'static str, low: u64, high: u64) -> Range {
    Range { name, low, high }
}

const fn row(scenario: &'static str, weight: u32, around: Variation, ranges: &'static [Range]) -> Row {
    Row { scenario, weight, ranges, around }
}

/// Runs in which nothing is wrong.
pub const INNOCENT: &[Row] = &[
    row("healthy", 8, OPEN, &[range("rate", 1, 2_000)]),
    row(
        "slow-method",
        2,
        OWN,
        &[range("rate", 20, 120), range("slow", 5 * MS, 80 * MS), range("every", 4, 20)],
    ),
    row("long-streams", 2, OWN, &[range("rate", 10, 120), range("streams", 1, 6)]),
    row("clock", 2, CLOCKS, &[range("rate", 5, 500), range("offset", 100 * US, 1_000 * MS)]),
];

/// The faults.
pub const FAULTS: &[Row] = &[
    row("accept-overflow", 1, OWN, &[range("rate", 55, 120)]),
    row(
        "back-off",
        2,
        OWN,
        &[range("rate", 15, 120), range("pause", 5 * MS, 150 * MS), range("every", 4, 12)],
    ),
    row(
        "black-hole",
        1,
        OWN,
        &[range("rate", 30, 90), range("every", 12, 40), range("timeout", 250 * MS, 700 * MS)],
    ),
    row("client-app", 2, PAIRED, &[range("rate", 10, 60), range("pause", 15 * MS, 80 * MS)]),
    row("connection-per-call", 2, PAIRED, &[range("rate", 5, 150), range("delay", 500 * US, 30 * MS)]),
    row("cpu-quota-client", 2, OWN, &[range("rate", 50, 500), range("quota", 10 * MS, 30 * MS)]),
    row("cpu-quota-server", 2, OWN, &[range("rate", 50, 500), range("quota", 10 * MS, 30 * MS)]),
    row("disk", 2, OWN, &[range("rate", 20, 80), range("records", 4, 60), range("every", 4, 12)]),
    row("dns", 2, OWN, &[range("rate", 15, 60), range("calls", 3, 12)]),
    row("fast-retransmit", 2, OWN, &[range("every", 60, 250), range("delay", 4 * MS, 25 * MS)]),
    row(
        "flow-control",
        2,
        PAIRED,
        &[range("request-bytes", 150_000, 900_000), range("delay", 2 * MS, 20 * MS)],
    ),
    row("head-of-line", 2, OWN, &[range("kb", 500, 3_000), range("every", 30, 90), range("rate", 50, 200)]),
    row("large-payload", 1, OWN, &[range("mib", 6, 32), range("rate", 1, 4)]),
    row("lock", 3, OWN, &[range("rate", 40, 150), range("hold", 8 * MS, 120 * MS)]),
    row("memory", 1, OWN, &[range("rate", 20, 60), range("pages", 60, 400), range("every", 4, 10)]),
    row("nagle-client", 3, PAIRED, &[range("rate", 6, 22)]),
    // After a pause between calls the kernel acknowledges at once: at 9 a second nothing is held.
    row("nagle-server", 3, PAIRED, &[range("rate", 12, 20)]),
    row(
        "network-delay",
        3,
        Variation { second: true, ..OPEN },
        &[range("rate", 2, 500), range("delay", 200 * US, 60 * MS)],
    ),
    row("network-jitter", 2, OWN, &[range("jitter", 2 * MS, 40 * MS)]),
    row("path-asymmetry", 1, CLOCKS, &[range("rate", 5, 100), range("there", 5 * MS, 60 * MS)]),
    row("path-mtu", 1, OWN, &[range("rate", 30, 90), range("every", 4, 12), range("bytes", 3_000, 20_000)]),
    row(
        "pool-wait",
        3,
        OWN,
        &[range("rate", 60, 100), range("think", 15 * MS, 30 * MS), range("pool", 2, 4)],
    ),
    row("proxy-queue", 2, OWN, &[range("rate", 50, 90), range("passes", 95, 140)]),
    row("receive-window-client", 1, OWN, &[range("rate", 2, 6), range("bytes", 120_000, 400_000)]),
    row("receive-window-server", 1, OWN, &[range("rate", 2, 6), range("bytes", 120_000, 400_000)]),
    row("receiver-drop", 2, OWN, &[range("rate", 30, 200), range("every", 15, 60)]),
    row(
        "retries",
        3,
        PAIRED,
        &[
            range("rate", 10, 100),
            range("think", 2 * MS, 50 * MS),
            range("failed", 1, 3),
            range("every", 3, 15),
        ],
    ),
    row("rto", 2, PAIRED, &[range("every", 6, 25), range("delay", MS, 15 * MS)]),
    row("run-queue-client", 3, OWN, &[range("rate", 50, 1_000), range("burst", 15 * MS, 90 * MS)]),
    row("run-queue-server", 3, OWN, &[range("rate", 50, 1_000), range("burst", 15 * MS, 90 * MS)]),
    row("server-app", 3, OPEN, &[range("think", 500 * US, 80 * MS), range("in-flight", 1, 24)]),
    row(
        "server-queue",
        3,
        PAIRED,
        &[range("workers", 1, 3), range("think", MS, 20 * MS), range("in-flight", 6, 40)],
    ),
    row("shared-connection", 2, OWN, &[range("in-flight", 4, 32), range("cost", 300 * US, 4 * MS)]),
    row("softirq-client", 1, OWN, &[range("rate", 50, 400)]),
    row("softirq-server", 1, OWN, &[range("rate", 50, 400)]),
    row("stop-the-world", 2, OWN, &[range("rate", 30, 150), range("objects", 40, 250)]),
    row("stopped-client", 2, OPEN, &[range("rate", 50, 1_000), range("stop", 20 * MS, 200 * MS)]),
    row("stopped-server", 2, OPEN, &[range("rate", 50, 1_000), range("stop", 20 * MS, 200 * MS)]),
    row(
        "stream-limit",
        3,
        PAIRED,
        &[range("limit", 4, 40), range("in-flight", 50, 120), range("think", 2 * MS, 30 * MS)],
    ),
    row("syn-loss", 2, PAIRED, &[range("every", 8, 40), range("delay", MS, 10 * MS)]),
    row("tail-loss", 2, PAIRED, &[range("every", 6, 25), range("delay", 2 * MS, 15 * MS)]),
    row(
        "tls-handshake",
        3,
        OWN,
        &[range("rate", 25, 100), range("calls", 2, 15), range("delay", MS, 20 * MS)],
    ),
];

/// Time that is measured: 4 s, and 8 s at fewer calls a second than this, so that there are some.
pub const FEW_PER_S: u64 = 8;

/// Stacks of target and client, as `spangap target` and `spangap tank` name them; tonic with tonic as often as all others
/// together.
pub const STACKS: &[(&str, &str, u32)] = &[
    ("rust", "rust", 6),
    ("raw", "raw", 1),
    ("cpp", "cpp-async", 1),
    ("go", "go", 1),
    ("rust", "cpp-sync", 1),
    ("go", "rust", 1),
    ("cpp", "go", 1),
];

/// Near misses that limit the workers of their target, which tonic's alone can: its stack is not drawn.
pub const OWN_NEAR_MISS: &[&str] = &["server-app"];

/// Payloads of requests and of responses, bytes.
pub const SIZES: (u64, u64) = (16, 64 << 10);
/// Runs with payloads, in per cent.
pub const WITH_SIZES: u32 = 50;

/// Runs in which one host's clock differs, in per cent.
pub const WITH_CLOCKS: u32 = 50;
/// By how much it is ahead or behind, nanoseconds.
pub const OFFSETS: (u64, u64) = (20 * US, 20_000 * MS);
/// And what it gains or loses, millionths at most.
pub const MOST_PPM: f64 = 50.0;

/// What else goes on, in per cent: nothing, a busy loop beside either end, another pair of programs that call each other.
pub const NOISE: [u32; 3] = [60, 20, 20];
/// Calls a second of the other pair.
pub const OTHER_PAIR: (u64, u64) = (20, 1_000);
/// How long the busy loop runs in each 100 ms.
pub const BUSY: (u64, u64) = (5 * MS, 60 * MS);

/// The second fault: how long a process is stopped, every 430 ms.
pub const SECOND: (u64, u64) = (20 * MS, 150 * MS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Value;
    use crate::scenarios;
    use std::collections::BTreeSet;

    #[test]
    fn every_scenario_is_drawn_with_parameters_that_it_has() {
        let rows = || INNOCENT.iter().chain(FAULTS);
        for row in rows() {
            let (scenario, near_miss) = scenarios::find(row.scenario).expect(row.scenario);
            assert!(!near_miss && row.weight > 0, "{}", row.scenario);
            for range in row.ranges {
                let parameter = scenario.parameters.iter().find(|one| one.name == range.name);
                let parameter = parameter.unwrap_or_else(|| panic!("{}: no {}", row.scenario, range.name));
                assert!(0 < range.low && range.low <= range.high, "{}: {}", row.scenario, range.name);
                if let Value::Duration(_) = parameter.default {
                    assert!(range.low >= 1_000, "{}: {} in microseconds", row.scenario, range.name);
                }
            }
        }
        let drawn: BTreeSet<_> = rows().map(|row| row.scenario).collect();
        let all: BTreeSet<_> = scenarios::ALL.iter().map(|one| one.name).collect();
        assert_eq!(drawn, all);
        assert_eq!(PARTS.iter().map(|(_, percent)| percent).sum::<u32>(), 100);
        assert_eq!(NOISE.iter().sum::<u32>(), 100);
    }
}
