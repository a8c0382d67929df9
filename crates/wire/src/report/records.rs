//! The legs of a call and its causes of delay as evidence, built once the clocks are known.

use crate::call::{self, Call, When};
use crate::dissect::Dissection;
use spangap_model::evidence::{Finding, Instrument, Interval, LegRecord, PacketRecord, Proof, Scope};
use spangap_model::{Culprit, Side};

/// The legs of a call, with the recorded activity of its hosts.
pub(super) fn legs(call: &Call) -> Vec<LegRecord> {
    let with_host = |(place, leg): (usize, &call::LegTime)| {
        let call::LegTime { legs, ns, bound_ns } = *leg;
        LegRecord { legs, ns, bound_ns, host: call.hosts.get(&place).cloned() }
    };
    call.legs.iter().enumerate().map(with_host).collect()
}

/// The causes of delay of a call.
pub(super) fn findings(call: &Call, dissection: &Dissection) -> Vec<Finding> {
    let one = |finding: &call::CallFinding| {
        let packets = finding.evidence.iter().map(|(capture, packet)| PacketRecord {
            capture: *capture,
            packet: packet.packet,
            time_unix_ns: packet.time_ns,
            what: packet.what.to_string(),
        });
        Finding {
            hop: None,
            culprit: Culprit { cause: finding.cause, side: finding.side },
            certainty: finding.certainty,
            instrument: match finding.when {
                When::InLeg(_) => Instrument::HostRecording,
                _ => Instrument::Packets,
            },
            scope: Scope::Call,
            when: when(finding.when, call, dissection),
            cost_ns: finding.cost_ns,
            note: finding.note.to_string(),
            proofs: packets.map(Proof::Packet).collect(),
        }
    };
    call.findings.iter().map(one).collect()
}

/// By the clock of the call's start.
fn when(of: When, call: &Call, dissection: &Dissection) -> Option<Interval> {
    match of {
        When::Unknown => None,
        When::InLeg(place) => {
            let leg = call.legs.get(place)?;
            let before: i64 = call.legs[..place].iter().map(|leg| leg.ns).sum();
            let from_unix_ns = call.start_ns.saturating_add(before);
            Some(Interval { from_unix_ns, to_unix_ns: from_unix_ns.saturating_add(leg.ns.max(0)) })
        }
        When::Between(from, to) => {
            let base = Side::ALL.into_iter().find(|side| call.halves.exchanges[side.index()].is_some())?;
            let first = dissection.first_capture_of(call);
            let ahead = |at: i64| match call.halves.captures[base.index()] == first {
                true => Some(0),
                false => dissection.clock_of(call)?.offset_ns(at).map(|(low, high)| low + (high - low) / 2),
            };
            let shifted = |at: i64| Some(at.saturating_add(ahead(at)?));
            Some(Interval { from_unix_ns: shifted(from)?, to_unix_ns: shifted(to)? })
        }
    }
}
