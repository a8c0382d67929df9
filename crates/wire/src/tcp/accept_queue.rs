//! The accept queue of a listening end, as far as a tap can see it: open connections that the program has not yet
//! accepted.
//!
//! An HTTP/2 server speaks as soon as it accepts a connection (its SETTINGS: RFC 9113, 3.4). If the client has
//! sent its preface and the server has sent nothing, the connection is still in the queue. Servers of other
//! protocols may be silent for other reasons, so their connections are not counted.

use super::{Handshake, Kind, Step};
use crate::segment::Endpoint;
use rustc_hash::FxHashMap;
use spangap_model::Side;

/// A SYN repeated sooner than this is not a retransmission: the first timeout is 1 s (RFC 6298, 2.1).
const FIRST_TIMEOUT_NS: i64 = 900_000_000;
/// Start of an HTTP/2 client's preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// A listening end: its address, and the virtual network.
pub type Listener = (Endpoint, u32);

/// Number of waiting connections by listening end; ends without any have no entry.
#[derive(Debug, Default)]
pub struct AcceptQueues {
    waiting: FxHashMap<Listener, u32>,
}

impl AcceptQueues {
    fn waiting(&self, listener: &Listener) -> u32 {
        self.waiting.get(listener).copied().unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Opening,
    Waiting,
    /// Accepted, closed, or never counted.
    Out,
}

/// A connection's place in the queue.
#[derive(Debug, Default)]
pub struct Place {
    state: State,
    /// The last SYN, and the number of connections waiting at that time.
    syn: Option<(i64, u32)>,
}

impl Place {
    /// Updates the place with a classified segment.
    #[inline]
    pub fn step(
        &mut self,
        step: &Step<'_>,
        listener: Listener,
        handshake: &mut Handshake,
        queues: &mut AcceptQueues,
    ) {
        if self.state != State::Out {
            self.opening(step, listener, handshake, queues);
        }
    }

    #[cold]
    fn opening(
        &mut self,
        step: &Step<'_>,
        listener: Listener,
        handshake: &mut Handshake,
        queues: &mut AcceptQueues,
    ) {
        let speaks = !step.bytes.is_empty() && step.kind != Kind::KeepAlive;
        match (step.from, step.kind) {
            (Side::Client, Kind::Handshake) => {
                let now_ns = step.segment.time_ns;
                let before = self.syn.filter(|(at, _)| now_ns.saturating_sub(*at) >= FIRST_TIMEOUT_NS);
                if let Some((_, waited)) = before.filter(|_| handshake.syn_ack.is_none()) {
                    let least = handshake.queue_unanswered.unwrap_or(u32::MAX);
                    handshake.queue_unanswered = Some(least.min(waited));
                }
                if before.is_some() || self.syn.is_none() {
                    self.syn = Some((now_ns, queues.waiting(&listener)));
                }
            }
            (Side::Client, _) if speaks && self.state == State::Opening => {
                let opened = handshake.syn.is_some() && step.segment.payload.starts_with(PREFACE);
                self.state = if opened { State::Waiting } else { State::Out };
                if opened {
                    *queues.waiting.entry(listener).or_insert(0) += 1;
                }
            }
            (Side::Server, _) if speaks => self.leave(listener, queues),
            _ => {}
        }
    }

    /// The server accepted the connection, or it ended.
    pub fn leave(&mut self, listener: Listener, queues: &mut AcceptQueues) {
        if std::mem::replace(&mut self.state, State::Out) != State::Waiting {
            return;
        }
        if let Some(waiting) = queues.waiting.get_mut(&listener) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                queues.waiting.remove(&listener);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Flags, Options, Segment};

    const MS: i64 = 1_000_000;

    /// A connection to one server, observed from its first SYN.
    struct Opening<'a> {
        place: Place,
        handshake: Handshake,
        queues: &'a std::cell::RefCell<AcceptQueues>,
    }

    fn listener() -> Listener {
        (Endpoint::v4([10, 0, 0, 2], 50_051), 0)
    }

    impl Opening<'_> {
        fn segment(&mut self, at_ms: i64, kind: Kind, from: Side, payload: &[u8]) {
            let segment = Segment {
                packet: 1,
                time_ns: at_ms * MS,
                source: Endpoint::v4([10, 0, 0, 1], 1),
                destination: listener().0,
                network: 0,
                seq: 1,
                ack: 1,
                flags: Flags(Flags::ACK),
                window: 1,
                ip_id: 0,
                options: Options::default(),
                payload_len: payload.len() as u32,
                payload,
            };
            let bytes = 1..1 + payload.len() as u64;
            let step = Step {
                segment: &segment,
                from,
                kind,
                bytes,
                newly_acked: 0..0,
                in_flight_before: 0,
                earlier: None,
                window_before: None,
            };
            if (kind, from) == (Kind::Handshake, Side::Client) {
                self.handshake.syn.get_or_insert((at_ms * MS, 1));
            }
            self.place.step(&step, listener(), &mut self.handshake, &mut self.queues.borrow_mut());
        }
    }

    #[test]
    fn an_unanswered_syn_records_the_queue_length() {
        let queues = std::cell::RefCell::new(AcceptQueues::default());
        let connection = |at_ms: i64, said: &[u8]| {
            let (place, handshake) = (Place::default(), Handshake::default());
            let mut connection = Opening { place, handshake, queues: &queues };
            connection.segment(at_ms, Kind::Handshake, Side::Client, b"");
            connection.segment(at_ms + 1, Kind::New, Side::Client, said);
            connection
        };
        let waiting = || queues.borrow().waiting(&listener());
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let mut first = connection(0, preface);
        let mut second = connection(5, preface);
        let silent = connection(6, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!((waiting(), silent.handshake.queue_unanswered), (2, None));
        let mut late = Opening { place: Place::default(), handshake: Handshake::default(), queues: &queues };
        late.segment(10, Kind::Handshake, Side::Client, b"");
        // Captured twice, not retransmitted.
        late.segment(11, Kind::Handshake, Side::Client, b"");
        assert_eq!(late.handshake.queue_unanswered, None);
        first.segment(100, Kind::New, Side::Server, b"settings");
        first.segment(101, Kind::New, Side::Client, preface);
        assert_eq!(waiting(), 1);
        late.segment(1_010, Kind::Handshake, Side::Client, b"");
        assert_eq!(late.handshake.queue_unanswered, Some(2));
        second.place.leave(listener(), &mut queues.borrow_mut());
        late.segment(2_010, Kind::Handshake, Side::Client, b"");
        assert_eq!((waiting(), late.handshake.queue_unanswered), (0, Some(1)));
        late.segment(3_010, Kind::Handshake, Side::Client, b"");
        assert_eq!(late.handshake.queue_unanswered, Some(0), "one that met no queue is enough");
        assert!(queues.borrow().waiting.is_empty());
    }
}
