//! SERVER spans by another clock than that of the packets at their server. Call by call, a span that does not overlap its request
//! and response is taken for another attempt's, and left out. With a clock that is 5 ms late, quick calls lose their spans and
//! slow ones keep them, in the wrong place: neither would be compared with the other. Whether that is so shows over all calls.

use spangap_model::evidence::{CallRecord, Evidence, HostTime, LegRecord};
use spangap_model::{Leg, Legs};

/// Fewer calls with and without SERVER spans show nothing.
const LEAST: usize = 8;
/// Of the calls with CLIENT spans, so many without a SERVER span are more than a lost export.
const MANY: f64 = 0.1;
/// Share of either group that may be on the wrong side: spans of retries, and spans that packets place.
const APART: f64 = 0.1;

/// The server's host, from the request's last byte there to the response's first.
const AT_SERVER: Legs = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };

/// What is said where SERVER spans are left aside.
pub const LEFT_ASIDE: &str = "SERVER spans are left aside: of the calls with CLIENT spans, only those that took longer at the server \
     have one that fits their packets. The spans have another clock than the server's capture, or were made for slow calls alone.";

/// The same evidence without SERVER spans, if only the calls that took longer at the server have one that fits their packets.
pub fn without_foreign_spans(evidence: &Evidence) -> Option<Evidence> {
    let (mut with, mut without): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
    for call in evidence.measured().filter(|call| knows(call, Legs::one(Leg::ClientAppOut))) {
        if knows(call, Legs::one(Leg::ServerApp)) {
            with.push(at_server_ns(call));
        } else if knows(call, AT_SERVER) {
            without.push(at_server_ns(call));
        }
    }
    let share = without.len() as f64 / (with.len() + without.len()).max(1) as f64;
    if with.len().min(without.len()) < LEAST || share < MANY || at(with, APART) < at(without, 1.0 - APART) {
        return None;
    }
    let calls = evidence.calls.iter().map(without_server_span).collect();
    Some(Evidence { calls, ..evidence.clone() })
}

fn knows(call: &CallRecord, legs: Legs) -> bool {
    call.legs.iter().any(|own| own.legs == legs)
}

fn at_server_ns(call: &CallRecord) -> i64 {
    at_server(call).map(|leg| leg.ns).sum()
}

fn at_server(call: &CallRecord) -> impl Iterator<Item = &LegRecord> {
    call.legs.iter().filter(|leg| AT_SERVER.contains(leg.legs.first) && AT_SERVER.contains(leg.legs.last))
}

/// The value below which this share of them lies.
fn at(mut values: Vec<i64>, share: f64) -> i64 {
    values.sort_unstable();
    let place = (values.len() as f64 * share) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// The call with one leg for all of its time at the server, in which a recording still shows what threads did.
fn without_server_span(call: &CallRecord) -> CallRecord {
    if !knows(call, Legs::one(Leg::ServerApp)) || !call.path.is_empty() {
        return call.clone();
    }
    let is_there = |leg: &LegRecord| AT_SERVER.contains(leg.legs.first) && AT_SERVER.contains(leg.legs.last);
    let mut joined: Option<LegRecord> = None;
    for leg in at_server(call) {
        joined =
            Some(joined.map_or_else(|| LegRecord { legs: AT_SERVER, ..leg.clone() }, |one| and(one, leg)));
    }
    let first = call.legs.iter().position(is_there).unwrap_or(0);
    let (before, after) = call.legs.split_at(first);
    let after = after.iter().filter(|leg| !is_there(leg)).cloned();
    CallRecord { legs: before.iter().cloned().chain(joined).chain(after).collect(), ..call.clone() }
}

/// Two legs that follow each other, as one. The clock that put the moment between them where it is no longer matters.
fn and(mut one: LegRecord, next: &LegRecord) -> LegRecord {
    one.ns += next.ns;
    one.bound_ns = 0;
    one.host = match (one.host, &next.host) {
        (Some(one), Some(next)) => Some(both(one, next)),
        (one, next) => one.or_else(|| next.clone()),
    };
    one
}

fn both(mut one: HostTime, next: &HostTime) -> HostTime {
    for (tid, thread) in next.tids.iter().zip(&next.threads) {
        if !one.tids.contains(tid) {
            one.tids.push(*tid);
            one.threads.push(thread.clone());
        }
    }
    one.parts.extend(next.parts.iter().cloned());
    one.parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
    one
}

#[cfg(test)]
mod tests {
    use crate::hunt::tests::{MS, call, leg};
    use crate::hunt::{CallRecord, Evidence, Hunt, Kind, Question, hunt};
    use spangap_model::evidence::LegRecord;
    use spangap_model::{Leg, Legs};

    /// Calls that the server answers after 1 ms, and every tenth after 40; spans that begin so late fit a call if it is there then.
    fn served(late_ms: i64) -> Hunt {
        let one = |n: i64| -> CallRecord {
            let ms = if n % 10 == 0 { 40 } else { 1 };
            let at_server = match late_ms < ms {
                true => {
                    let after = LegRecord { ns: -late_ms * MS, ..leg(Leg::ServerHostOut, 0) };
                    vec![leg(Leg::ServerHostIn, late_ms), leg(Leg::ServerApp, ms), after]
                }
                false => {
                    let legs = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
                    vec![LegRecord { legs, ..leg(Leg::ServerHostIn, ms) }]
                }
            };
            let own = [vec![leg(Leg::ClientAppOut, 0)], at_server, vec![leg(Leg::ClientAppIn, 0)]].concat();
            call(n * 10, "/a", own, Vec::new())
        };
        let calls: Vec<CallRecord> = (0..400).map(one).collect();
        hunt(&Evidence { matching_calls: 400, calls, ..Evidence::default() }, &Question::default())
    }

    #[test]
    fn spans_by_another_clock_do_not_hide_that_calls_are_slow() {
        let exact = served(0);
        assert_eq!((exact.verdict, exact.question), (Kind::Place, "slow"), "{exact:#?}");
        let late = served(5);
        assert_eq!((late.verdict, late.question), (Kind::Place, "slow"), "{late:#?}");
        assert_eq!((late.excess.slow_calls, exact.excess.slow_calls), (40, 40), "{late:#?}");
        assert_eq!(late.place.as_ref().map(|place| place.leg.first), Some(Leg::ServerHostIn), "{late:#?}");
        let is_said = |hunt: &Hunt| hunt.coverage.limits.iter().any(|limit| limit.contains("another clock"));
        assert!(is_said(&late) && !is_said(&exact), "{late:#?}");
    }

    #[test]
    fn a_lost_export_is_of_calls_of_any_length() {
        // Every other call has no SERVER span, slow or not.
        let one = |n: i64| -> CallRecord {
            let ms = if n % 20 < 2 { 40 } else { 1 };
            let at_server = match n % 2 {
                0 => leg(Leg::ServerApp, ms),
                _ => {
                    let legs = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
                    LegRecord { legs, ..leg(Leg::ServerHostIn, ms) }
                }
            };
            call(
                n * 10,
                "/a",
                vec![leg(Leg::ClientAppOut, 0), at_server, leg(Leg::ClientAppIn, 0)],
                Vec::new(),
            )
        };
        let calls: Vec<CallRecord> = (0..400).map(one).collect();
        let evidence = Evidence { matching_calls: 400, calls, ..Evidence::default() };
        assert!(super::without_foreign_spans(&evidence).is_none());
    }
}
