//! Connections that took a second or more to open: a SYN or SYN/ACK was lost, or the server did not accept it.
//!
//! An unanswered SYN is retransmitted after 1, 3 and 7 s (RFC 6298, 2.1; newer Linux kernels initially every
//! second). A server with a full accept queue silently drops SYNs, or ignores the ACK that completes the
//! handshake and retransmits its SYN/ACK (Linux `tcp_conn_request`, `tcp_v4_syn_recv_sock`). The capture of one
//! end cannot decide everything: only the server's end shows whether the SYN arrived, so that both ends together
//! prove more ([`together`]).

use super::{Rule, View, nanos};
use crate::episode::{Copies, Episode, PacketProof, PacketProofs, What};
use crate::segment::Flags;
use crate::tcp::{Handshake, Kind, Step};
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// A handshake part repeated sooner is not a retransmission: the first timeout is 1 s (RFC 6298, 2.1).
const FIRST_TIMEOUT_NS: u64 = 900_000_000;

/// Parts of one kind: the first, the last, and the number of timeouts between them.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    first: Option<(i64, u64)>,
    last: (i64, u64),
    again: u32,
}

impl Parts {
    fn seen(&mut self, at: (i64, u64)) {
        if self.first.is_none() {
            self.first = Some(at);
        } else if nanos(self.last.0, at.0) < FIRST_TIMEOUT_NS {
            return;
        } else {
            self.again += 1;
        }
        self.last = at;
    }

    /// The last one as a proof; `words` take the milliseconds since the first, and how many there were.
    fn proof_of_last(&self, words: &'static str, first: (i64, u64)) -> PacketProof {
        let after_ms = nanos(first.0, self.last.0) / 1_000_000;
        proof(self.last, What::with(words, after_ms, u64::from(self.again) + 1))
    }
}

/// State of the rule for one connection.
#[derive(Debug, Default)]
pub struct Memory {
    syn: Parts,
    syn_ack: Parts,
    /// The client's first segment after the SYN.
    ack: Option<(i64, u64)>,
    /// Retransmitted SYNs without an answer so far.
    unanswered: u32,
    offset: u64,
    open: bool,
}

impl Rule for Memory {
    #[inline]
    fn step(&mut self, step: &Step<'_>, _view: View<'_>, found: &mut Vec<Episode>) {
        if step.kind == Kind::Handshake {
            self.handshake(step);
        } else if self.open {
            self.after(step, found);
        }
    }

    fn finish(&mut self, _view: View<'_>, found: &mut Vec<Episode>) {
        self.conclude(found);
    }
}

impl Memory {
    #[cold]
    fn handshake(&mut self, step: &Step<'_>) {
        let at = (step.segment.time_ns, step.segment.packet);
        self.open = true;
        if step.segment.flags.has(Flags::ACK) {
            self.syn_ack.seen(at);
        } else {
            let before = self.syn.again;
            self.syn.seen(at);
            self.offset = step.bytes.start;
            if self.syn.again > before && self.syn_ack.first.is_none() {
                self.unanswered += 1;
            }
        }
    }

    #[cold]
    fn after(&mut self, step: &Step<'_>, found: &mut Vec<Episode>) {
        if step.kind == Kind::Reset {
            self.conclude(found);
        } else if step.from == Side::Client {
            self.ack.get_or_insert((step.segment.time_ns, step.segment.packet));
        }
        // The server sends or acknowledges data: it accepted the connection.
        if step.from == Side::Server {
            self.conclude(found);
        }
    }

    fn conclude(&mut self, found: &mut Vec<Episode>) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        if let Some(first) = self.syn.first.filter(|_| self.syn.again > 0) {
            found.extend(self.syn_again(first));
        } else if let Some(first) = self.syn_ack.first.filter(|_| self.syn_ack.again > 0) {
            found.push(self.syn_ack_again(first));
        }
    }

    /// The client sent its SYN again: none was answered, or the answer did not reach it. `None` if neither is known.
    fn syn_again(&self, first: (i64, u64)) -> Option<Episode> {
        let sent = proof(first, What::text("the first SYN"));
        let last = self.syn.last;
        if self.unanswered > 0 {
            let again = self
                .syn
                .proof_of_last("sent again after {} ms, without any answer so far; {} SYNs in all", first);
            let certainty = Certainty::Possible(Missing::SynArrived);
            let between = [first, last];
            return Some(self.episode(
                (Cause::SynLoss, None),
                certainty,
                Side::Client,
                between,
                &[sent, again],
            ));
        }
        // This tap saw the answer, but the client did not.
        let answer = self.syn_ack.first?;
        let lost = proof(answer, What::text("the first SYN/ACK: it did not reach the client"));
        let again =
            self.syn.proof_of_last("the client sends its SYN again after {} ms; {} SYNs in all", first);
        let items = [sent, lost, again];
        Some(self.episode((Cause::SynLoss, None), Certainty::Shown, Side::Server, [first, last], &items))
    }

    /// The server sent its SYN/ACK again: it got no ACK, or did not take it because its accept queue was full.
    fn syn_ack_again(&self, first: (i64, u64)) -> Episode {
        let sent = proof(first, What::text("the first SYN/ACK"));
        let again = self.syn_ack.proof_of_last("the SYN/ACK again after {} ms; {} in all", first);
        let between = [first, self.syn_ack.last];
        match self.ack.filter(|ack| ack.0 < self.syn_ack.last.0) {
            Some(ack) => {
                let items = [sent, proof(ack, What::text("the client's ACK of it")), again];
                let certainty = Certainty::Possible(Missing::ListenCounters);
                let culprit = (Cause::AcceptOverflow, Some(Side::Server));
                self.episode(culprit, certainty, Side::Server, between, &items)
            }
            None => {
                self.episode((Cause::SynLoss, None), Certainty::Shown, Side::Server, between, &[sent, again])
            }
        }
    }

    fn episode(
        &self,
        (cause, side): (Cause, Option<Side>),
        certainty: Certainty,
        sender: Side,
        [from, to]: [(i64, u64); 2],
        items: &[PacketProof],
    ) -> Episode {
        Episode {
            cause,
            certainty,
            side,
            sender,
            from_ns: from.0,
            to_ns: to.0,
            start: self.offset,
            end: self.offset,
            stream_id: None,
            copies: Copies::One,
            evidence: PacketProofs::of(items),
        }
    }
}

fn proof((time_ns, packet): (i64, u64), what: What) -> PacketProof {
    PacketProof { packet, time_ns, what }
}

/// Combines both ends' captures of a connection whose SYN was sent more than once: it was lost on the way if
/// fewer arrived, otherwise the server's host did not accept it. A full accept queue is shown if connections were
/// in it whenever a SYN arrived; otherwise only the counters of that host can tell (a filter may also be the
/// reason).
pub fn together(client: &Handshake, server: &Handshake) -> Option<(Cause, Certainty)> {
    if client.syns < 2 || server.syns == 0 {
        return None;
    }
    // Every SYN without an answer at the client's end: it was lost before the server, or its answer was lost
    // after it.
    let answers_lost = server.syn_acks > client.syn_acks;
    if server.syns < client.syns || answers_lost {
        return Some((Cause::SynLoss, Certainty::Shown));
    }
    let certainty = match server.queue_unanswered {
        Some(1..) => Certainty::Shown,
        _ => Certainty::Possible(Missing::ListenCounters),
    };
    Some((Cause::AcceptOverflow, certainty))
}

/// Adds the minimum number of connections in the accept queue to an episode of the server's tap.
pub fn queued(episode: &mut Episode, waiting: u32) {
    let Some(last) = episode.evidence.iter().last().copied() else { return };
    let what = What::with(
        "whenever a SYN came, {} connections or more to the same server were open and not taken by it",
        u64::from(waiting),
        0,
    );
    episode.evidence.push(PacketProof { what, ..last });
}

#[cfg(test)]
mod tests {
    use super::super::scene::{CLIENT, SERVER, Scene};
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn an_unanswered_syn_is_possibly_lost_without_the_other_end() {
        let mut scene = Scene::joined();
        scene.syn(CLIENT);
        scene.at(SECOND).syn(CLIENT);
        scene.at(3 * SECOND).syn(CLIENT);
        scene.at(3 * SECOND + 1000).syn(SERVER);
        scene.syn_done();
        scene.data(CLIENT, 100);
        scene.at(3 * SECOND + 2000).ack(SERVER);
        assert_eq!(scene.possible(), [Cause::SynLoss]);
        assert_eq!(scene.shown(), []);
        assert_eq!(scene.found[0].to_ns - scene.found[0].from_ns, 3_000_000_000);
    }

    #[test]
    fn an_answer_that_missed_the_client_is_loss() {
        let mut scene = Scene::joined();
        scene.syn(CLIENT);
        scene.at(50).syn(SERVER);
        scene.at(SECOND).syn(CLIENT);
        scene.at(SECOND + 50).syn(SERVER);
        scene.at(SECOND + 1000).syn_done();
        scene.data(CLIENT, 100);
        scene.at(SECOND + 2000).ack(SERVER);
        assert_eq!(scene.shown(), [Cause::SynLoss]);
    }

    #[test]
    fn a_repeated_syn_ack_is_loss_without_an_ack_and_maybe_overflow_with_one() {
        for acknowledged in [false, true] {
            let mut scene = Scene::joined();
            scene.syn(CLIENT);
            scene.at(50).syn(SERVER);
            if acknowledged {
                scene.at(1000).syn_done();
            }
            scene.at(SECOND).syn(SERVER);
            scene.at(SECOND + 1000).syn_done();
            scene.data(CLIENT, 100);
            scene.at(SECOND + 2000).ack(SERVER);
            if acknowledged {
                assert_eq!((scene.shown(), scene.possible()), (vec![], vec![Cause::AcceptOverflow]));
            } else {
                assert_eq!((scene.shown(), scene.possible()), (vec![Cause::SynLoss], vec![]));
            }
        }
    }

    #[test]
    fn a_slow_or_duplicated_handshake_is_not_loss() {
        let mut scene = Scene::joined();
        scene.syn(CLIENT);
        scene.at(10).syn(CLIENT);
        scene.at(800_000).syn(SERVER);
        scene.at(800_010).syn(SERVER);
        scene.syn_done();
        scene.data(CLIENT, 100);
        scene.at(1_600_000).ack(SERVER);
        scene.finish();
        assert_eq!(scene.found, []);
    }

    #[test]
    fn a_connection_that_never_opened_is_reported_at_the_end() {
        let mut scene = Scene::joined();
        scene.syn(CLIENT);
        scene.at(SECOND).syn(CLIENT);
        scene.finish();
        scene.finish();
        assert_eq!(scene.possible(), [Cause::SynLoss]);
    }

    #[test]
    fn both_ends_together_distinguish_loss_from_a_refusing_server() {
        let seen = |syns, syn_acks| Handshake { syns, syn_acks, ..Handshake::default() };
        let shown = Some((Cause::SynLoss, Certainty::Shown));
        assert_eq!(together(&seen(2, 1), &seen(1, 1)), shown);
        assert_eq!(together(&seen(2, 1), &seen(2, 2)), shown);
        let overflow = together(&seen(2, 1), &seen(2, 1));
        assert_eq!(overflow.map(|(cause, _)| cause), Some(Cause::AcceptOverflow));
        assert_ne!(overflow, Some((Cause::AcceptOverflow, Certainty::Shown)));
        let queued = |waiting| Handshake { queue_unanswered: Some(waiting), ..seen(2, 1) };
        assert_eq!(together(&seen(2, 1), &queued(1)), Some((Cause::AcceptOverflow, Certainty::Shown)));
        assert_eq!(together(&seen(2, 1), &queued(0)), overflow, "one met no queue");
        assert_eq!(together(&seen(3, 1), &queued(1)), shown);
        assert_eq!(together(&seen(1, 1), &seen(1, 1)), None);
        assert_eq!(together(&seen(2, 1), &seen(0, 0)), None, "that end was not captured from the start");
    }
}
