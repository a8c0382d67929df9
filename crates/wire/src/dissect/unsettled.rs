//! A kept call, with the calls by which proxies forwarded it, until the clocks are known.

use super::sections::Choice;
use crate::align::Clock;
use crate::call::{Call, CallFinding, Halves};
use crate::findings::network_delay;
use crate::hops::{Hop, LinkedBy};
use crate::legs::{Clocks, legs};
use crate::segment::Endpoint;
use rustc_hash::{FxHashMap, FxHashSet};
use spangap_model::Cause;
use std::collections::BTreeMap;

/// Facts of a section that its calls wait for, available once all of it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Settled {
    /// Number of each capture, and which of its connections belong to this section.
    pub parts: Vec<(usize, Option<Choice>)>,
    /// Number of packets read of each.
    pub packets: Vec<u64>,
    pub clock: Option<Clock>,
    pub resolution_ns: u32,
    /// See [`crate::totals::Finished::numbers`].
    pub connections: FxHashMap<u32, (u32, Option<u64>)>,
    /// See [`crate::totals::Finished::reconnects`].
    pub reconnects: FxHashSet<u32>,
}

impl Settled {
    /// The overall number of a capture.
    pub fn number(&self, local: u8) -> u8 {
        self.parts.get(usize::from(local)).map_or(local, |part| part.0 as u8)
    }

    /// The index of a capture in the section.
    pub fn local(&self, number: u8) -> Option<u8> {
        self.parts.iter().position(|part| part.0 == usize::from(number)).map(|local| local as u8)
    }
}

/// A call with its hops, before the clocks are known.
pub(super) struct UnsettledCall {
    /// Index of its section.
    pub section: usize,
    /// [`Link::key`] of its connection.
    pub link: u32,
    /// Client and server of its connection.
    pub ends: Option<[Endpoint; 2]>,
    pub halves: Box<Halves>,
    pub findings: Vec<CallFinding>,
    pub hops: Vec<(LinkedBy, UnsettledCall)>,
}

/// The causes of delay of a call across all its hops, each once. Whether a proxy opened connections for one call
/// is reported for those connections.
pub(super) fn of_all_hops(findings: &[CallFinding], hops: &[(LinkedBy, UnsettledCall)]) -> Vec<CallFinding> {
    let mut all = findings.to_vec();
    for (_, hop) in hops {
        for finding in of_all_hops(&hop.findings, &hop.hops) {
            let known = |known: &CallFinding| (known.cause, known.side) == (finding.cause, finding.side);
            if finding.cause != Cause::ConnectionPerCall && !all.iter().any(known) {
                all.push(finding);
            }
        }
    }
    all
}

impl UnsettledCall {
    /// The finished call, once all sections are settled.
    pub fn call(self, sections: &[Settled]) -> Call {
        let mut halves = *self.halves;
        let section = &sections[self.section];
        let (connection, least_path_ns) = section.connections.get(&self.link).copied().unwrap_or((0, None));
        let clocks = Clocks {
            clock: section.clock.as_ref(),
            client_capture: halves.captures[0],
            resolution_ns: section.resolution_ns,
        };
        let (start_ns, duration_ns, legs) = legs(&halves, clocks);
        let mut findings = self.findings;
        if section.reconnects.contains(&self.link) {
            findings.retain(|finding| finding.cause != Cause::ConnectionPerCall);
        }
        for finding in findings.iter_mut().filter(|finding| finding.cause == Cause::NetworkDelay) {
            finding.note = network_delay::note(finding.cost_ns.unwrap_or(0), least_path_ns).into();
        }
        halves.captures = halves.captures.map(|local| section.number(local));
        // Those of a proxy already use the overall capture numbers.
        let own =
            findings.iter_mut().filter(|finding| !matches!(finding.cause, Cause::Proxy | Cause::Retries));
        for (capture, _) in own.flat_map(|finding| &mut finding.evidence) {
            *capture = section.number(*capture);
        }
        let hops = self.hops.into_iter().map(|(by, hop)| Hop { by, call: hop.call(sections) }).collect();
        Call {
            halves,
            connection,
            ends: self.ends,
            start_ns,
            duration_ns,
            legs,
            findings,
            hosts: BTreeMap::new(),
            section: self.section,
            hops,
            path: Vec::new(),
        }
    }
}
