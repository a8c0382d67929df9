//! Connections that were slow to open, or never opened.

use crate::causes::syn;
use crate::episode::Episode;
use crate::tcp::{ConnectionFacts, Handshake};
use spangap_model::Cause;
use spangap_model::duration::format_ns;

/// Maximum remembered connections that did not open, including port scans.
const MAX: usize = 1000;

/// A connection as seen by each capture.
type ConnectionByCapture = [Option<ConnectionFacts>; 2];

/// Connections that never opened although their SYN was sent more than once.
#[derive(Debug, Default)]
pub(super) struct Unopened {
    seen: Vec<ConnectionByCapture>,
}

impl Unopened {
    /// Examines a connection without any observed call.
    pub fn take(&mut self, capture: usize, facts: ConnectionFacts) {
        if facts.bytes != [0; 2] || facts.handshake.syns == 0 || facts.handshake.ack.is_some() {
            return;
        }
        let same = |seen: &&mut ConnectionByCapture| {
            let other = seen[1 - capture].as_ref().filter(|_| seen[capture].is_none());
            other.is_some_and(|other| other.ends == facts.ends && other.network == facts.network)
        };
        if let Some(seen) = self.seen.iter_mut().find(same) {
            seen[capture] = Some(facts);
        } else if self.seen.len() < MAX {
            let mut seen = [None, None];
            seen[capture] = Some(facts);
            self.seen.push(seen);
        }
    }

    /// Those of one capture.
    pub fn seen_by(&self, capture: usize) -> impl Iterator<Item = &ConnectionFacts> {
        self.seen.iter().filter_map(move |seen| seen[capture].as_ref())
    }

    /// All of them, each with a sentence.
    pub fn finish(&mut self, captures: usize) -> Vec<(ConnectionByCapture, String)> {
        let again = |seen: &ConnectionByCapture| seen.iter().flatten().any(|facts| facts.handshake.syns > 1);
        let all = std::mem::take(&mut self.seen).into_iter().filter(again);
        all.map(|seen| {
            let note = never(&seen, captures);
            (seen, note)
        })
        .collect()
    }
}

fn never(seen: &ConnectionByCapture, captures: usize) -> String {
    let Some(most) = seen.iter().flatten().max_by_key(|facts| facts.handshake.syns) else {
        return String::new();
    };
    let (syns, over_ns) = (most.handshake.syns, most.last_ns.saturating_sub(most.first_ns));
    let sent = format!("It never opened: {syns} SYNs in {}", format_ns(over_ns.max(0).unsigned_abs()));
    match seen {
        [Some(first), Some(second)] => {
            let (fewer, more) = match first.handshake.syns <= second.handshake.syns {
                true => (&first.handshake, &second.handshake),
                false => (&second.handshake, &first.handshake),
            };
            let why = match syn::together(more, fewer) {
                Some((Cause::SynLoss, _)) if fewer.syns < more.syns => "some were lost on the path",
                Some((Cause::SynLoss, _)) => "their answers were lost on the path",
                _ => {
                    "all arrived, but the server's host did not accept the connection: a full accept queue, or a \
                     filter"
                }
            };
            format!("{sent}, {} of them at the other end: {why}.", fewer.syns)
        }
        _ if captures == 2 => format!(
            "{sent}, none of them in the other capture: lost or filtered on the path, or outside its time."
        ),
        _ => format!(
            "{sent} without an answer that completed it: lost, filtered, or not accepted by the server's host."
        ),
    }
}

/// The statement about a connection that opened late.
pub(super) fn slowly(episode: &Episode, seen: [Option<Handshake>; 2]) -> String {
    let parts = |of: fn(&Handshake) -> u32, what: &str| {
        let counts: Vec<String> = ["client", "server"]
            .iter()
            .zip(seen)
            .filter_map(|(end, handshake)| Some(format!("{} at the {end}'s end", of(&handshake?))))
            .collect();
        format!("{what}: {}", counts.join(", "))
    };
    format!(
        "It opened {} late ({}; {}; {}): calls that waited for it had not yet begun on the wire.",
        format_ns(episode.to_ns.saturating_sub(episode.from_ns).max(0).unsigned_abs()),
        episode.cause,
        parts(|handshake| handshake.syns, "SYNs"),
        parts(|handshake| handshake.syn_acks, "SYN/ACKs"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(syns: u32) -> ConnectionFacts {
        let end = |port| crate::segment::Endpoint::v4([10, 0, 0, 1], port);
        ConnectionFacts {
            id: 1,
            ends: [end(1), end(2)],
            network: 0,
            sides_known: true,
            handshake: Handshake { syn: Some((0, 1)), syns, ..Handshake::default() },
            protocol: Default::default(),
            packets: u64::from(syns),
            first_ns: 0,
            last_ns: 3_000_000_000,
            closed: false,
            bytes: [0; 2],
            resent_bytes: [0; 2],
            hole_bytes: [0; 2],
            rtt_min_ns: [None; 2],
            windows: [None; 2],
            max_streams: None,
            peak_in_flight: 0,
        }
    }

    fn said(parts: &[(usize, ConnectionFacts)], captures: usize) -> Vec<String> {
        let mut unopened = Unopened::default();
        parts.iter().for_each(|(capture, facts)| unopened.take(*capture, facts.clone()));
        unopened.finish(captures).into_iter().map(|(_, note)| note).collect()
    }

    #[test]
    fn both_ends_show_where_the_syns_were_lost() {
        let both = said(&[(0, facts(3)), (1, facts(1))], 2);
        assert_eq!(both.len(), 1);
        assert!(both[0].contains("3 SYNs in 3.00 s, 1 of them at the other end: some were lost"), "{both:?}");
        let arrived = said(&[(0, facts(3)), (1, facts(3))], 2);
        assert!(arrived[0].contains("all arrived"), "{arrived:?}");
        let one = said(&[(0, facts(3))], 2);
        assert!(one[0].contains("none of them in the other capture"), "{one:?}");
    }

    #[test]
    fn an_opened_or_once_tried_connection_does_not_count() {
        let mut opened = facts(2);
        opened.handshake.ack = Some((5, 3));
        assert_eq!(said(&[(0, opened), (0, facts(1))], 1), Vec::<String>::new());
    }
}
