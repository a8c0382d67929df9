//! Calls that a line made longer: packet fates from its log, matched with spans. Both use this machine's clock.

use crate::actors::line::direction::Fate;
use crate::actors::line::log::{Direct, Entry, Summary};
use crate::calls::{Call, Calls};
use crate::truth::{Active, Affected};

/// Results of a line.
#[derive(Clone, Debug, Default)]
pub struct LineReport {
    /// Number of packets by fate; `a` is to the server.
    pub summary: Summary,
    /// Packets with a fate other than the constant delay, by arrival.
    pub entries: Vec<Entry>,
}

/// A packet of a call that the line delayed or lost.
#[derive(Clone, Copy, Debug)]
pub struct DelayedCall<'a> {
    pub call: &'a Call,
    /// From the arrival of the packet to its (or its retransmission's) release.
    pub active: Active,
}

impl DelayedCall<'_> {
    /// Length of the delay.
    pub fn ns(&self) -> u64 {
        self.active.to_unix_ns - self.active.from_unix_ns
    }

    /// The call as an entry of the truth.
    pub fn affected(&self, cost_ns: Option<u64>) -> Affected {
        Affected { trace_id: self.call.trace_id.clone(), cost_ns }
    }
}

impl LineReport {
    /// Calls with packets lost in a direction, until the same bytes were retransmitted. Among concurrent calls,
    /// the one that began last.
    pub fn lost<'a>(&self, way: Direct, calls: &'a Calls) -> Vec<DelayedCall<'a>> {
        let stretches = self.of(way).filter_map(|entry| match entry.fate {
            Fate::Again { after_ns } => Some(Active {
                from_unix_ns: entry.unix_ns.saturating_sub(after_ns),
                to_unix_ns: entry.unix_ns,
            }),
            _ => None,
        });
        held(stretches, calls)
    }

    /// Calls with a counted packet delayed in a direction by at least `least_ns`.
    pub fn late<'a>(&self, way: Direct, least_ns: u64, calls: &'a Calls) -> Vec<DelayedCall<'a>> {
        let stretches = self.of(way).filter_map(|entry| match entry.fate {
            Fate::Delayed { number, by_ns } if number > 0 && by_ns >= least_ns => {
                Some(Active { from_unix_ns: entry.unix_ns, to_unix_ns: entry.unix_ns + by_ns })
            }
            _ => None,
        });
        held(stretches, calls)
    }

    /// Number of packets of a direction with such a fate in the measured phase.
    pub fn count(&self, way: Direct, calls: &Calls, which: impl Fn(&Fate) -> bool) -> usize {
        let whole = calls.whole();
        let measured = |unix_ns| whole.iter().any(|one| one.overlap_ns(unix_ns, unix_ns + 1) > 0);
        self.of(way).filter(|entry| which(&entry.fate) && measured(entry.unix_ns)).count()
    }

    /// Additional delay of a call's request and response, if both are known: from the last packet with payload
    /// to the server before its span ended, and the last one back after that. Correct for calls that have the
    /// line to themselves.
    pub fn delays_of(&self, call: &Call) -> Option<u64> {
        let [(_, served_ns)] = call.server[..] else { return None };
        let last = |way: Direct, from_ns: u64, to_ns: u64| {
            let within = self.of(way).filter(|entry| (from_ns..=to_ns).contains(&entry.unix_ns));
            within.filter_map(delay_of_payload).last()
        };
        let request = last(Direct::A, call.start_unix_ns, served_ns)?;
        let response = last(Direct::B, served_ns, call.end_unix_ns)?;
        Some(request + response)
    }

    fn of(&self, way: Direct) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.way == way)
    }
}

fn delay_of_payload(entry: &Entry) -> Option<u64> {
    match entry.fate {
        Fate::Delayed { by_ns, .. } if entry.tcp.is_some_and(|tcp| tcp.payload_bytes > 0) => Some(by_ns),
        _ => None,
    }
}

fn held(stretches: impl Iterator<Item = Active>, calls: &Calls) -> Vec<DelayedCall<'_>> {
    let call = |active: &Active| {
        let during =
            |call: &&Call| call.start_unix_ns <= active.from_unix_ns && active.to_unix_ns <= call.end_unix_ns;
        calls.all.iter().rfind(during)
    };
    stretches.filter_map(|active| Some(DelayedCall { call: call(&active)?, active })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::line::direction::Loss;
    use crate::actors::line::packet::{tcp, tests::v4};

    fn call(name: &str, start: u64, end: u64, server: &[(u64, u64)]) -> Call {
        let server = server.to_vec();
        Call { trace_id: name.into(), start_unix_ns: start, end_unix_ns: end, ok: true, server }
    }

    fn entry(unix_ns: u64, way: Direct, fate: Fate, payload: usize) -> Entry {
        Entry { unix_ns, way, fate, tcp: tcp(&v4(1, payload, 16)) }
    }

    #[test]
    fn the_call_under_way_is_the_one_that_waited() {
        let all = vec![call("a", 100, 900, &[]), call("b", 300, 800, &[]), call("c", 310, 400, &[])];
        let calls = Calls { all, server_only: 0 };
        let entries = vec![
            entry(320, Direct::B, Fate::Dropped { number: 1, because: Loss::Named }, 9),
            entry(620, Direct::B, Fate::Again { after_ns: 300 }, 9),
            entry(980, Direct::B, Fate::Again { after_ns: 300 }, 9),
            entry(610, Direct::A, Fate::Again { after_ns: 300 }, 9),
        ];
        let passed = LineReport { entries, ..LineReport::default() };
        let lost: Vec<_> = passed.lost(Direct::B, &calls);
        assert_eq!(lost.len(), 1);
        assert_eq!((lost[0].call.trace_id.as_str(), lost[0].ns()), ("b", 300));
        assert_eq!(lost[0].active, Active { from_unix_ns: 320, to_unix_ns: 620 });
        let dropped = |fate: &Fate| matches!(fate, Fate::Dropped { .. });
        assert_eq!(
            (passed.count(Direct::B, &calls, dropped), passed.count(Direct::A, &calls, dropped)),
            (1, 0)
        );
    }

    #[test]
    fn delays_of_request_and_response() {
        let delayed = |by_ns| Fate::Delayed { number: 1, by_ns };
        let entries = vec![
            entry(110, Direct::A, delayed(5), 50),
            entry(120, Direct::A, delayed(40), 30),
            entry(121, Direct::B, delayed(9), 30),
            entry(200, Direct::B, delayed(7), 30),
            entry(201, Direct::B, delayed(70), 0),
            entry(205, Direct::A, delayed(3), 30),
        ];
        let passed = LineReport { entries, ..LineReport::default() };
        assert_eq!(passed.delays_of(&call("a", 100, 300, &[(165, 190)])), Some(47));
        assert_eq!(passed.delays_of(&call("a", 100, 300, &[])), None);
        assert_eq!(passed.delays_of(&call("a", 100, 195, &[(165, 190)])), None);
    }

    #[test]
    fn only_counted_packets_are_late() {
        let calls = Calls { all: vec![call("a", 0, 500, &[])], server_only: 0 };
        let late = |number, by_ns| entry(100, Direct::B, Fate::Delayed { number, by_ns }, 9);
        let entries = vec![late(0, 200), late(1, 100), late(2, 200)];
        let passed = LineReport { entries, ..LineReport::default() };
        let ns: Vec<_> = passed.late(Direct::B, 150, &calls).iter().map(DelayedCall::ns).collect();
        assert_eq!(ns, [200]);
    }
}
