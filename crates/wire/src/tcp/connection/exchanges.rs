//! A connection's finished exchanges: how those ended that have no whole response, and what the rules are shown.

use super::{Connection, Shared};
use crate::app::Parser;
use crate::causes::View;
use crate::exchange::{Ended, Exchange};
use spangap_model::Side;

impl<P: Parser + Default> Connection<P> {
    /// Shows finished exchanges to the rules, with how those ended that have no whole response.
    #[cold]
    pub(super) fn exchanges(&mut self, from: usize, shared: &mut Shared) {
        if self.is_further_path {
            return shared.sink.exchanges.truncate(from);
        }
        shared.multipath.doubt(self.id, shared.sink.exchanges.get_mut(from..).unwrap_or_default());
        self.endings(from, shared);
        if !self.has_exchanges && shared.sink.exchanges.len() > from {
            self.has_exchanges = true;
            shared.news.with_exchanges.push(self.id);
        }
        let Shared { sink, found, .. } = shared;
        for exchange in sink.exchanges.get(from..).unwrap_or_default() {
            let view = View {
                id: self.id,
                sides: &self.tracker.sides,
                handshake: &self.tracker.handshake,
                under_way: 0,
            };
            self.causes.exchange(exchange, view, found);
        }
    }

    /// How the latest exchanges ended, as far as their parser cannot know. Those answered after the client's
    /// FIN are held back: only when the client's kernel refuses the answer is it known whether anybody was
    /// there to read it.
    fn endings(&mut self, from: usize, shared: &mut Shared) {
        let acked = self.tracker.sides[Side::Client.index()].acked;
        let last = shared.end_of_capture.or(self.tracker.sides.iter().filter_map(|side| side.last).max());
        let last = last.unwrap_or((self.last_ns, 0));
        // At either tap one of the two is a whole round trip.
        let round_trip_ns = self.tracker.sides.iter().filter_map(|side| side.rtt_min_ns).max().unwrap_or(0);
        for exchange in shared.sink.exchanges.get_mut(from..).unwrap_or_default() {
            if let Some(left) = self.closings.server_left(exchange, acked) {
                exchange.ended = Ended::ConnectionClosed;
                exchange.ending = Some(left);
            }
            match &mut exchange.ending {
                Some(ending) => ending.request_acked = acked >= exchange.request.end,
                None if exchange.ended != Ended::Complete && !exchange.doubts.end_unknown => {
                    self.closings.end(exchange, round_trip_ns, last, acked);
                }
                None => {}
            }
        }
        if self.closings.may_be_late() {
            let from = from.min(shared.sink.exchanges.len());
            let closings = &mut self.closings;
            let held: Vec<Exchange> = (shared.sink.exchanges)
                .extract_if(from.., |exchange| closings.is_undecided(exchange, round_trip_ns, acked))
                .collect();
            self.closings.hold(held);
        }
    }

    /// Hands out what was held back.
    pub(super) fn release(&mut self, shared: &mut Shared) {
        self.closings.release(&mut shared.sink.exchanges);
    }
}
