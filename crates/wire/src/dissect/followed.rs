//! A call kept, with the calls by which proxies passed it on, until the clocks are known.

use super::run::Closed;
use crate::call::{Call, Finding, Halves};
use crate::findings::network_delay;
use crate::hops::{Hop, LinkedBy};
use crate::legs::{Clocks, legs};
use spangap_model::Cause;

/// A call with its hops, the clocks not being known.
pub(super) struct Followed {
    /// Place of its section.
    pub section: usize,
    /// [`Link::key`] of its connection.
    pub link: u32,
    pub halves: Box<Halves>,
    pub findings: Vec<Finding>,
    pub hops: Vec<(LinkedBy, Followed)>,
}

/// What held a call up, over all its hops: each cause once. Whether the connections of a proxy were opened for one call is
/// told of those connections.
pub(super) fn of_all_hops(findings: &[Finding], hops: &[(LinkedBy, Followed)]) -> Vec<Finding> {
    let mut all = findings.to_vec();
    for (_, hop) in hops {
        for finding in of_all_hops(&hop.findings, &hop.hops) {
            let known = |known: &Finding| (known.cause, known.side) == (finding.cause, finding.side);
            if finding.cause != Cause::ConnectionPerCall && !all.iter().any(known) {
                all.push(finding);
            }
        }
    }
    all
}

impl Followed {
    /// The call, the clocks being known: `closed` has those of all sections, `numbers` the captures of each.
    pub fn call(self, closed: &[Closed], numbers: &[Vec<usize>]) -> Call {
        let mut halves = *self.halves;
        let section = &closed[self.section];
        let (connection, least_path_ns) =
            section.finished.numbers.get(&self.link).copied().unwrap_or((0, None));
        let clocks = Clocks {
            clock: section.clock.as_ref(),
            client_capture: halves.captures[0],
            resolution_ns: section.resolution_ns,
        };
        let (start_ns, duration_ns, legs) = legs(&halves, clocks);
        let mut findings = self.findings;
        if section.finished.reconnects.contains(&self.link) {
            findings.retain(|finding| finding.cause != Cause::ConnectionPerCall);
        }
        for finding in findings.iter_mut().filter(|finding| finding.cause == Cause::NetworkDelay) {
            finding.note = network_delay::note(finding.cost_ns.unwrap_or(0), least_path_ns);
        }
        let number = |capture: u8| {
            numbers[self.section].get(usize::from(capture)).map_or(capture, |number| *number as u8)
        };
        halves.captures = halves.captures.map(number);
        // Those of a proxy name the captures by their numbers among all already.
        let own =
            findings.iter_mut().filter(|finding| !matches!(finding.cause, Cause::Proxy | Cause::Retries));
        for (capture, _) in own.flat_map(|finding| &mut finding.evidence) {
            *capture = number(*capture);
        }
        let hops =
            self.hops.into_iter().map(|(by, hop)| Hop { by, call: hop.call(closed, numbers) }).collect();
        Call {
            halves,
            connection,
            start_ns,
            duration_ns,
            legs,
            findings,
            hosts: Vec::new(),
            section: self.section,
            hops,
            path: Vec::new(),
        }
    }
}
