//! The close of a connection, and its effect on calls in flight.

use crate::exchange::{Ended, Ending, Exchange, Stop};
use crate::segment::Segment;
use spangap_model::Side;

/// A FIN or RST: when, in which packet, and whose.
#[derive(Clone, Copy, Debug)]
struct Closing {
    at_ns: i64,
    packet: u64,
    by: Side,
    stop: Stop,
}

/// The first FIN of each side, and the first RST.
#[derive(Debug, Default)]
pub(super) struct Closings {
    fins: [Option<Closing>; 2],
    rst: Option<Closing>,
    /// Exchanges answered after the client's FIN.
    held: Vec<Exchange>,
    /// Nothing more is held.
    settled: bool,
}

impl Closings {
    /// A segment with FIN.
    pub fn fin(&mut self, segment: &Segment<'_>, by: Side) {
        self.fins[by.index()].get_or_insert(Closing::of(segment, by, Stop::Fin));
    }

    /// A segment with RST.
    pub fn reset(&mut self, segment: &Segment<'_>, by: Side) {
        self.rst.get_or_insert(Closing::of(segment, by, Stop::Rst));
    }

    /// The sides turned out to be the other way around.
    pub fn swap(&mut self) {
        self.fins.swap(0, 1);
        for closing in self.fins.iter_mut().chain([&mut self.rst]).flatten() {
            closing.by = closing.by.other();
        }
    }

    /// The client's FIN, unless it is a half-close: a client that merely has nothing more to send closes with
    /// its request, or right after it. One that has waited for at least a round trip has given up.
    fn client_left(&self, exchange: &Exchange, round_trip_ns: u64) -> Option<Closing> {
        let asked_ns = exchange.request.last.seen_ns;
        self.fins[Side::Client.index()]
            .filter(|fin| fin.at_ns > asked_ns.saturating_add_unsigned(round_trip_ns))
    }

    /// Notes what ended an exchange without a whole response: what came first of FIN and RST after its request, or else
    /// nothing until the `last` packet.
    pub fn end(&self, exchange: &mut Exchange, round_trip_ns: u64, last: (i64, u64), acked: u64) {
        let asked_ns = exchange.request.last.seen_ns;
        let server = self.fins[Side::Server.index()];
        let after = [server, self.rst].into_iter().flatten().filter(|closing| closing.at_ns >= asked_ns);
        let first =
            after.chain(self.client_left(exchange, round_trip_ns)).min_by_key(|closing| closing.at_ns);
        exchange.ending = Some(match first {
            Some(closing) => {
                exchange.ended = Ended::ConnectionClosed;
                closing.ending(exchange, acked)
            }
            None => Ending {
                at_ns: last.0.max(asked_ns),
                packet: last.1,
                by: None,
                stop: Stop::StillOpen,
                request_acked: acked >= exchange.request.end,
            },
        });
    }

    /// The server's FIN, if the client gave the exchange up only after it: no answer could come any more. Libraries reset
    /// the streams of such a connection with whatever code they have for that, `REFUSED_STREAM` among others.
    pub fn server_left(&self, exchange: &Exchange, acked: u64) -> Option<Ending> {
        let by_client =
            |ending: &&Ending| ending.by == Some(Side::Client) && matches!(ending.stop, Stop::RstStream(_));
        let given_up = exchange.ending.as_ref().filter(by_client)?;
        let asked_ns = exchange.request.last.seen_ns;
        let left = self.fins[Side::Server.index()]?;
        (asked_ns..=given_up.at_ns).contains(&left.at_ns).then(|| left.ending(exchange, acked))
    }

    /// Whether an answer may come after the client has left.
    pub fn may_be_late(&self) -> bool {
        self.fins[Side::Client.index()].is_some()
    }

    /// Whether an exchange was answered after the client's FIN, and it is not known yet whether anybody was
    /// there to read the answer. If nobody was, the FIN has ended it.
    pub fn is_undecided(&self, exchange: &mut Exchange, round_trip_ns: u64, acked: u64) -> bool {
        let Some(left) = self.client_left(exchange, round_trip_ns) else { return false };
        // The end of an answer whose head was cut off is unknown, but not that it came too late.
        let is_cut = exchange.doubts.end_unknown && !exchange.doubts.hole;
        let answered = exchange.response.filter(|_| exchange.ended == Ended::Complete || is_cut);
        if answered.is_none_or(|answer| answer.first.seen_ns <= left.at_ns) {
            return false;
        }
        if self.gone() {
            exchange.ended = Ended::ConnectionClosed;
            exchange.ending = Some(left.ending(exchange, acked));
            exchange.doubts.end_unknown = false;
        }
        !self.gone() && !self.settled
    }

    /// A client whose kernel answers with RST has gone; any other may have closed only its own direction.
    fn gone(&self) -> bool {
        self.rst.is_some_and(|rst| rst.by == Side::Client)
    }

    /// Keeps those of which [`Closings::is_undecided`] is true.
    pub fn hold(&mut self, late: Vec<Exchange>) {
        self.held.extend(late);
    }

    /// Nothing more will show what became of the client: gives back what was held.
    pub fn release(&mut self, into: &mut Vec<Exchange>) {
        self.settled = true;
        into.append(&mut self.held);
    }
}

impl Closing {
    fn of(segment: &Segment<'_>, by: Side, stop: Stop) -> Closing {
        Closing { at_ns: segment.time_ns, packet: segment.packet, by, stop }
    }

    fn ending(&self, exchange: &Exchange, acked: u64) -> Ending {
        let Closing { at_ns, packet, by, stop } = *self;
        Ending { at_ns, packet, by: Some(by), stop, request_acked: acked >= exchange.request.end }
    }
}
