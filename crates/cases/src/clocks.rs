//! Clocks of client hosts that differ from the meter's by more than the delay of spans explains. On such a
//! host, "the last 25 seconds" are counted back from its latest call, because spans arrive some seconds after
//! their calls.

use spangap_model::KeptCall;
use std::collections::HashMap;

/// Maximum age of the latest completed call whose spans have arrived, if its host is still active.
const LATE_NS: u64 = 20_000_000_000;
/// Maximum time by which that call may lie in the future, an allowance for clock differences.
const EARLY_NS: u64 = 1_000_000_000;

/// Offsets of host clocks ahead of the meter's, nanoseconds; only those outside the tolerance.
#[derive(Debug, Default)]
pub struct Clocks<'c> {
    ahead_ns: HashMap<Option<&'c str>, i64>,
}

fn host(call: &KeptCall) -> Option<&str> {
    call.client.host.as_deref()
}

impl<'c> Clocks<'c> {
    /// Derives the offsets from calls whose spans have arrived.
    pub fn of(calls: impl IntoIterator<Item = &'c KeptCall>, now_unix_ns: u64) -> Clocks<'c> {
        let mut latest = HashMap::<Option<&str>, u64>::new();
        for call in calls {
            let end = call.client.start_unix_ns.saturating_add(call.client.duration_ns);
            let latest = latest.entry(host(call)).or_default();
            *latest = end.max(*latest);
        }
        let known = now_unix_ns.saturating_sub(LATE_NS)..=now_unix_ns.saturating_add(EARLY_NS);
        let off = latest.into_iter().filter(|(_, end)| !known.contains(end));
        let ahead = |end: u64| i64::try_from(i128::from(end) - i128::from(now_unix_ns)).unwrap_or(0);
        Clocks { ahead_ns: off.map(|(host, end)| (host, ahead(end))).collect() }
    }

    /// Whether a call began at or after a time of the meter's clock.
    pub fn began_since(&self, call: &KeptCall, unix_ns: u64) -> bool {
        let ahead_ns = self.ahead_ns.get(&host(call)).copied().unwrap_or(0);
        call.client.start_unix_ns >= unix_ns.saturating_add_signed(ahead_ns)
    }

    /// Whether all clocks are within the tolerance.
    pub fn agree(&self) -> bool {
        self.ahead_ns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::CallStatus;
    use spangap_model::pair::KeptSide;

    const S: u64 = 1_000_000_000;
    const NOW: u64 = 1_000_000 * S;

    fn call(host: &str, start_s: u64) -> KeptCall {
        let side =
            KeptSide { start_unix_ns: start_s * S, duration_ns: S, host: Some(host.into()), whole: None };
        KeptCall {
            gap_ns: 0,
            trace_id: [0; 16],
            client_span_id: [0; 8],
            status: CallStatus::from_code(0),
            legs: None,
            client: side.clone(),
            server: side,
        }
    }

    #[test]
    fn recent_calls_are_relative_to_the_clock_of_a_host_that_is_off() {
        let (now_s, hour) = (NOW / S, 3600);
        let calls: Vec<KeptCall> = [("right", now_s), ("behind", now_s - hour), ("ahead", now_s + hour)]
            .into_iter()
            .flat_map(|(host, now_s)| [5, 20, 30, 50].map(|ago| call(host, now_s - ago)))
            .collect();
        let clocks = Clocks::of(&calls, NOW);
        let recent: Vec<(&str, u64)> = calls
            .iter()
            .filter(|call| clocks.began_since(call, NOW - 25 * S))
            .map(|call| (host(call).unwrap_or_default(), call.client.start_unix_ns / S))
            .collect();
        let wanted = [("right", now_s), ("behind", now_s - hour), ("ahead", now_s + hour)];
        assert_eq!(recent, wanted.map(|(host, now_s)| [5, 20].map(|ago| (host, now_s - ago))).concat());
        assert!(!clocks.agree());
        assert!(Clocks::of(&calls[..4], NOW).agree());
    }

    #[test]
    fn any_clock_offset_is_handled() {
        for start in [0, 1, u64::MAX / S] {
            let calls = [call("odd", start)];
            for now in [0, NOW, u64::MAX] {
                let clocks = Clocks::of(&calls, now);
                // The result does not matter, only that there is one.
                let _ = clocks.began_since(&calls[0], now);
            }
        }
    }
}
