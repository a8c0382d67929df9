//! Legs that pass on one host: what somebody who recorded that host has to know to split them, and the split.
//!
//! Nothing of a host is read here: `cli` takes the legs to a recording and brings back the parts.

use crate::call::{Call, CallFinding, Halves, When};
use crate::dissect::Dissection;
use crate::findings::{WORTH_NAMING_NS, by_weight};
use crate::legs::Moments;
use crate::segment::Endpoint;
use spangap_model::duration::format_ns;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::evidence::{HostPart, HostTime};
use spangap_model::{Cause, Doing, Leg, Legs, Side, Taker};

/// A leg of a call that begins and ends on one host, by that host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLeg {
    /// Place of the call in [`Dissection::calls`].
    pub call: usize,
    /// Which of the calls by which proxies passed it on, counted from 1 as [`Call::nth`] does; zero for the call itself.
    pub nth: usize,
    /// Place of the leg in [`Call::legs`].
    pub leg: usize,
    /// Which host.
    pub side: Side,
    /// Begin, Unix nanoseconds by the clock of that host.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// This host's end of the connection.
    pub local: Endpoint,
    /// The other one.
    pub peer: Endpoint,
    /// The leg begins with bytes at the tap: the application has them when it has read all before this sequence number.
    pub read_to: Option<u32>,
    /// The leg ends with a byte at the tap: it has this sequence number.
    pub write_from: Option<u32>,
    /// Sequence numbers as above of the call at this host, whether in this leg or not: they tell the threads.
    pub call_read_to: Option<u32>,
    /// The first byte of those.
    pub call_read_from: Option<u32>,
    /// See `call_read_to`.
    pub call_write_from: Option<u32>,
}

/// The legs of the calls kept that pass on one host and take any time.
pub fn host_legs(dissection: &Dissection) -> Vec<HostLeg> {
    let mut legs = Vec::new();
    for (place, call) in dissection.calls.iter().enumerate() {
        let mut nth = 0;
        of_call((place, &mut nth), call, dissection, &mut legs);
    }
    legs
}

/// The legs of a call and of those by which proxies passed it on.
fn of_call((place, nth): (usize, &mut usize), call: &Call, dissection: &Dissection, legs: &mut Vec<HostLeg>) {
    let own = *nth;
    Moments::of(&call.halves).raw(|raw| {
        let Some(side) = host_of(raw.legs).filter(|side| (raw.from.1, raw.to.1) == (*side, *side)) else {
            return;
        };
        let Some(leg) = call.legs.iter().position(|leg| leg.legs == raw.legs) else { return };
        let Some((local, peer)) = ends(call, side, dissection) else { return };
        let (read, call_write_from) = bytes(&call.halves, side);
        let (call_read_from, call_read_to) = read.unzip();
        let reads = raw.legs.contains(Leg::ServerHostIn) || raw.legs.contains(Leg::ClientAppIn);
        let writes = raw.legs.contains(Leg::ServerHostOut) || raw.legs.contains(Leg::ClientAppOut);
        if raw.to.0 > raw.from.0 {
            legs.push(HostLeg {
                call: place,
                nth: own,
                leg,
                side,
                from_ns: raw.from.0,
                to_ns: raw.to.0,
                local,
                peer,
                read_to: call_read_to.filter(|_| reads),
                write_from: call_write_from.filter(|_| writes),
                call_read_to,
                call_read_from,
                call_write_from,
            });
        }
    });
    for hop in &call.hops {
        *nth += 1;
        of_call((place, nth), &hop.call, dissection, legs);
    }
}

/// The host that neighbouring legs pass on, if they do on one.
fn host_of(legs: Legs) -> Option<Side> {
    match (legs.first, legs.last) {
        (Leg::ClientAppOut, Leg::ClientAppOut) | (Leg::ClientAppIn, Leg::ClientAppIn) => Some(Side::Client),
        (Leg::ClientSend, Leg::ClientSend) => Some(Side::Client),
        (Leg::ServerSend, Leg::ServerSend) => Some(Side::Server),
        (first, last) if Leg::ServerHostIn <= first && last <= Leg::ServerHostOut => Some(Side::Server),
        _ => None,
    }
}

fn ends(call: &Call, side: Side, dissection: &Dissection) -> Option<(Endpoint, Endpoint)> {
    let totals = dissection.connection_of(call)?;
    call.halves.exchanges[side.index()].as_ref()?;
    let facts = totals.seen_by(call.halves.captures[side.index()])?;
    Some((facts.ends[side.index()], facts.ends[side.other().index()]))
}

/// What that side reads and writes of the call: begin and end of the bytes read, begin of the bytes written.
fn bytes(halves: &Halves, side: Side) -> (Option<(u32, u32)>, Option<u32>) {
    let Some(half) = &halves.exchanges[side.index()] else { return (None, None) };
    let (request, response) = (half.request, half.response);
    match side {
        Side::Server => {
            (Some((request.start as u32, request.end as u32)), response.map(|part| part.start as u32))
        }
        Side::Client => {
            (response.map(|part| (part.start as u32, part.end as u32)), Some(request.start as u32))
        }
    }
}

impl Call {
    /// The call itself for zero, and from 1 on those by which proxies passed it on: each before its own hops.
    pub fn nth(&mut self, nth: usize) -> Option<&mut Call> {
        fn find<'c>(call: &'c mut Call, left: &mut usize) -> Option<&'c mut Call> {
            if *left == 0 {
                return Some(call);
            }
            call.hops.iter_mut().find_map(|hop| {
                *left -= 1;
                find(&mut hop.call, left)
            })
        }
        find(self, &mut { nth })
    }

    /// Takes in what a host did in a leg: parts that sum to it by that host's own clock. The client's clock may run
    /// at another rate, so the longest part takes up the difference.
    pub fn take_host(&mut self, leg: usize, side: Side, host: HostTime) {
        let HostTime { threads, tids, read, mut parts } = host;
        let Some(time) = self.legs.get(leg) else { return };
        parts.sort_by_key(|part| std::cmp::Reverse(part.ns));
        let sum: u64 = parts.iter().map(|part| part.ns).sum();
        if let Some(longest) = parts.first_mut() {
            longest.ns = longest.ns.saturating_add_signed(time.ns.saturating_sub_unsigned(sum));
        }
        // A thread that has begun to send has done the application's work: what it does afterwards says
        // nothing about that.
        let sends = matches!(time.legs.first, Leg::ClientSend | Leg::ServerSend);
        // With what the threads did, it is only the application that packets leave in question.
        for finding in self.findings.iter_mut().filter(|finding| finding.cause == Cause::ServerHostOrApp) {
            if side == Side::Server && !sends {
                finding.cause = Cause::ServerApp;
                finding.certainty = Certainty::Possible(Missing::ServerSpan);
            }
        }
        for cause in HELD_UP {
            if let Some(finding) = finding(leg, cause, side, &threads, &parts) {
                self.findings.push(finding);
            }
        }
        // Where the thread neither ran nor waited for anything of its own, there is no application to
        // suspect.
        let own = |part: &&HostPart| shows(part).is_none();
        let own_ns: u64 = parts.iter().filter(own).map(|part| part.ns).sum();
        let app = if side == Side::Server { Cause::ServerApp } else { Cause::ClientApp };
        self.findings.retain(|finding| {
            finding.cause != app
                || finding.certainty == Certainty::Shown
                || own_ns >= WORTH_NAMING_NS
                || sends
        });
        by_weight(&mut self.findings);
        self.hosts.insert(leg, HostTime { threads, tids, read, parts });
    }
}

/// Causes that what a thread did shows.
const HELD_UP: [Cause; 8] = [
    Cause::RunQueue,
    Cause::CpuQuota,
    Cause::Stopped,
    Cause::SoftirqOnCpu,
    Cause::SoftirqLate,
    Cause::Lock,
    Cause::Disk,
    Cause::Memory,
];

/// What a part of a leg shows, and the phrase for it that follows the threads' names.
fn shows(part: &HostPart) -> Option<(Cause, &'static str)> {
    Some(match part.doing {
        // A process that has more to do than CPUs to do it on keeps itself waiting.
        Doing::Runnable if matches!(part.behind, Some(Taker::Sibling { .. })) => return None,
        Doing::Runnable => (Cause::RunQueue, "was runnable and waited for a CPU"),
        Doing::Throttled => (Cause::CpuQuota, "was kept from running by the CPU quota of its cgroup"),
        Doing::Stopped => (Cause::Stopped, "was stopped"),
        Doing::Interrupted => (Cause::SoftirqOnCpu, "was interrupted"),
        Doing::SoftirqLate => (Cause::SoftirqLate, "had no data yet, although the data had reached the tap"),
        Doing::Blocked => {
            let reason = part.waited_for?;
            (reason.cause()?, reason.words())
        }
        Doing::Running | Doing::Unknown => return None,
    })
}

fn finding(
    leg: usize,
    cause: Cause,
    side: Side,
    threads: &[String],
    parts: &[HostPart],
) -> Option<CallFinding> {
    let these: Vec<(&HostPart, &'static str)> = parts
        .iter()
        .filter_map(|part| shows(part).filter(|(shown, _)| *shown == cause).map(|(_, what)| (part, what)))
        .collect();
    let cost_ns: u64 = these.iter().map(|(part, _)| part.ns).sum();
    if cost_ns < WORTH_NAMING_NS {
        return None;
    }
    // The longest comes first.
    let (longest, what) = these.first()?;
    let doing = longest.doing;
    let what = if doing == Doing::Blocked { format!("waited for {what}") } else { what.to_string() };
    let woken =
        these.iter().find_map(|(part, _)| part.woken_by.as_ref().filter(|_| part.doing == Doing::Blocked));
    let woken = woken.map_or(String::new(), |by| format!("; {by} ended it"));
    let takers: Vec<String> = these
        .iter()
        .filter_map(|(part, _)| Some(format!("{} {}", part.behind.as_ref()?, format_ns(part.ns))))
        .take(3)
        .collect();
    let behind = match (takers.is_empty(), doing) {
        (true, _) => String::new(),
        (false, Doing::Interrupted) => format!(" by {}", takers.join(", ")),
        (false, _) => format!("; meanwhile the CPU ran {}", takers.join(", ")),
    };
    Some(CallFinding {
        cause,
        certainty: Certainty::Shown,
        side: Some(side),
        when: When::InLeg(leg),
        cost_ns: Some(cost_ns),
        note: format!("{} {what} for {}{behind}{woken}", threads.join(" and "), format_ns(cost_ns)).into(),
        evidence: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::LegTime;

    fn call(ns: i64) -> Call {
        let leg = LegTime { legs: Legs::one(Leg::ServerHostIn), ns, bound_ns: 1 };
        Call {
            halves: Halves::default(),
            connection: 1,
            ends: None,
            start_ns: 0,
            duration_ns: ns as u64,
            legs: vec![leg],
            findings: Vec::new(),
            hosts: Default::default(),
            section: 0,
            hops: Vec::new(),
            path: Vec::new(),
        }
    }

    fn part(doing: Doing, behind: Option<(&str, u32)>, ns: u64) -> HostPart {
        let task =
            |(name, pid): (&str, u32)| Taker::Task { tid: pid, pid: Some(pid), name: Some(name.into()) };
        HostPart { doing, behind: behind.map(task), waited_for: None, woken_by: None, waker: None, ns }
    }

    #[test]
    fn parts_sum_to_the_leg_and_what_took_long_is_found() {
        let mut call = call(20_000_003);
        let parts = vec![
            part(Doing::Blocked, None, 3_000_000),
            part(Doing::Runnable, Some(("stress", 7)), 16_000_000),
            part(Doing::Runnable, Some(("backup", 8)), 500_000),
            part(Doing::Running, None, 500_000),
        ];
        let host = HostTime { threads: vec!["server (thread 5)".into()], tids: vec![5], read: None, parts };
        call.take_host(0, Side::Server, host);
        let sum: u64 = call.hosts[&0].parts.iter().map(|part| part.ns).sum();
        assert_eq!((sum, call.hosts[&0].parts[0].ns), (20_000_003, 16_000_003));
        let [finding] = call.findings.as_slice() else { panic!("{:?}", call.findings) };
        assert_eq!(
            (finding.cause, finding.side, finding.cost_ns),
            (Cause::RunQueue, Some(Side::Server), Some(16_500_003))
        );
        assert_eq!(
            finding.note.to_string(),
            "server (thread 5) was runnable and waited for a CPU for 16.5 ms; meanwhile the CPU ran stress (pid 7) \
             16.0 ms, backup (pid 8) 500 us"
        );
    }

    #[test]
    fn what_takes_no_time_is_no_finding() {
        let mut call = call(2_000_000);
        let parts = vec![part(Doing::Blocked, None, 1_500_000), part(Doing::Runnable, None, 500_000)];
        call.take_host(0, Side::Server, HostTime { parts, ..HostTime::default() });
        assert!(call.findings.is_empty(), "{:?}", call.findings);
        call.take_host(9, Side::Server, HostTime::default());
        assert_eq!(call.hosts.len(), 1, "there is no such leg");
    }

    #[test]
    fn only_what_passes_on_one_host_is_split() {
        let legs = |first, last| host_of(Legs { first, last });
        assert_eq!(legs(Leg::ServerHostIn, Leg::ServerHostOut), Some(Side::Server));
        assert_eq!(legs(Leg::ServerApp, Leg::ServerApp), Some(Side::Server));
        assert_eq!(legs(Leg::ClientAppIn, Leg::ClientAppIn), Some(Side::Client));
        assert_eq!(legs(Leg::ClientAppOut, Leg::ClientSend), None);
        assert_eq!(legs(Leg::RequestWire, Leg::ServerHostIn), None);
        assert_eq!(legs(Leg::ServerSend, Leg::ServerSend), Some(Side::Server));
        assert_eq!(legs(Leg::ClientSend, Leg::ClientSend), Some(Side::Client));
        assert_eq!(legs(Leg::ServerSend, Leg::ResponseWire), None);
    }
}
