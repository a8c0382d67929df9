//! One capture: packets in, exchanges out.

pub mod known;

pub use known::{Harvest, Known};

use crate::app::conversation::Conversation;
use crate::app::{AppCounts, Observer, Texts};
use crate::clock_set::{ClockSets, Moved};
use crate::decode::{Decoder, Unparsed, datagram};
use crate::exchange::Exchange;
use crate::names;
use crate::packet::Packet;
use crate::segment::Segment;
use crate::source::Opening;
use crate::tcp::ConnectionFacts;
use crate::tcp::connection::{Connection, Shared};
use crate::tcp::flows::Flows;
use std::collections::BTreeMap;

/// Counts of one tap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapCounts {
    /// Packets seen.
    pub packets: u64,
    /// TCP segments among them.
    pub segments: u64,
    /// Packets that yield no segment, by reason.
    pub unparsed: BTreeMap<Unparsed, u64>,
    /// Connections followed.
    pub connections: u64,
    /// Connections forgotten before they ended, to make room.
    pub connections_evicted: u64,
    /// Connections forgotten because nothing was seen of them for hours.
    pub connections_expired: u64,
    /// Ended connections dropped before they were taken, to make room.
    pub connections_untaken: u64,
    /// Bytes that arrived after the hole that they fill had been given up, because there was no more room for
    /// the bytes after it, or because they had been acknowledged long before.
    pub reassembly_dropped_bytes: u64,
    /// Segments whose bytes differ from those seen before at the same place; the first ones were kept.
    pub reassembly_conflicts: u64,
    /// What the application parsers did not understand.
    pub app: AppCounts,
    /// Packets that come after later ones in the capture, and by how much at most.
    pub unsorted: Moved,
    /// Times that the capture's clock was set back.
    pub set_back: Moved,
    /// Times that it was set forward, or the hosts slept.
    pub set_forward: Moved,
}

/// Whether one of these packets, in order, is among those of an exchange beyond its first.
fn spans(exchange: &Exchange, packets: &[u64]) -> bool {
    let response = exchange.response.as_ref().map_or(0, |part| part.last.ready_packet);
    let ending = exchange.ending.as_ref().map_or(0, |ending| ending.packet);
    let last = exchange.request.last.ready_packet.max(response).max(ending);
    let next = packets.partition_point(|packet| *packet <= exchange.request.first.packet);
    packets.get(next).is_some_and(|packet| *packet <= last)
}

/// Follows one capture.
///
/// A closed connection lingers for [`crate::tcp::flows::LINGER_NS`] of the capture's time (less, when very
/// many close), then [`Tap::take_ended`] has it; after the next call of that it is forgotten.
#[derive(Default)]
pub struct Tap {
    decoder: Decoder,
    flows: Flows<Conversation>,
    shared: Shared,
    packets: u64,
    segments: u64,
    /// Time and number of the latest packet.
    latest: Option<(i64, u64)>,
    /// How many texts were harvested.
    texts: usize,
    clock: ClockSets,
    unparsed: BTreeMap<Unparsed, u64>,
}

impl Tap {
    /// With an observer of everything that is read.
    pub fn with_observer(observer: Box<dyn Observer>) -> Tap {
        let mut tap = Tap::default();
        tap.shared.sink.observer = Some(observer);
        tap
    }

    /// Adds TLS keys, as lines of a key-log file. Returns invalid lines: their number from 1, and the reason.
    pub fn add_keys(&mut self, lines: &[u8]) -> Vec<(usize, String)> {
        self.shared.sink.keys.add(lines)
    }

    /// Processes a SYN of a connection that was opened before the capture; to be called before the
    /// connection's first packet.
    pub fn opening(&mut self, opening: &Opening) {
        if let Ok(segment) = Decoder::default().decode(&opening.packet()) {
            self.shared.openings.add(&segment);
        }
    }

    /// Processes the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        self.packets += 1;
        self.latest = self.latest.max(Some((packet.time_ns, packet.number)));
        self.clock.packet(packet);
        // Used in place: a segment is too large to be moved for every packet.
        match &self.decoder.decode(packet) {
            Ok(segment) => {
                self.segments += 1;
                self.clock.segment(segment);
                self.flows.segment(segment, &mut self.shared);
            }
            Err(reason) => {
                *self.unparsed.entry(*reason).or_default() += 1;
                self.no_segment(packet);
            }
        }
    }

    /// Processes a packet that is not a segment: it may belong to a name lookup of a client.
    #[cold]
    pub fn no_segment(&mut self, packet: &Packet<'_>) {
        if let Some(datagram) = datagram(packet)
            && (datagram.source.port == names::PORT || datagram.destination.port == names::PORT)
        {
            self.shared.names.datagram(&datagram);
        }
    }

    /// Processes the next packet, decoded elsewhere.
    #[inline]
    pub fn segment(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) {
        self.packets += 1;
        self.segments += 1;
        self.latest = self.latest.max(Some((segment.time_ns, segment.packet)));
        self.clock.packet(packet);
        self.clock.segment(segment);
        self.flows.segment(segment, &mut self.shared);
    }

    /// Moves the exchanges finished since the last call to `into`, in the order in which they finished.
    pub fn take_exchanges(&mut self, into: &mut Vec<Exchange>) {
        let exchanges = &mut self.shared.sink.exchanges;
        if !self.clock.is_empty() {
            exchanges
                .iter_mut()
                .for_each(|exchange| exchange.doubts.clock_set = spans(exchange, self.clock.places()));
        }
        if into.is_empty() {
            std::mem::swap(into, exchanges);
        } else {
            into.append(exchanges);
        }
    }

    /// Moves everything that came since the last call to `into`, which is empty: exchanges, ended connections, and what a
    /// [`Known`] takes.
    pub fn harvest(&mut self, into: &mut Harvest) {
        self.take_exchanges(&mut into.exchanges);
        let news = &mut self.shared.news;
        std::mem::swap(&mut news.episodes, &mut into.episodes);
        std::mem::swap(&mut news.departed, &mut into.departed);
        let facts = |id: u32| self.flows.connection(id).map(Connection::facts);
        into.with_exchanges.extend(news.with_exchanges.drain(..).filter_map(facts));
        news.changed.sort_unstable();
        news.changed.dedup();
        let seen = |id: u32| self.flows.followed(id).map(Connection::seen);
        into.changed.extend(news.changed.drain(..).filter_map(seen));
        let mut ended = Vec::new();
        self.flows.take_ended(&mut ended);
        let with_notes = |facts: ConnectionFacts| {
            let notes = self.flows.connection(facts.id).map(Connection::notes).unwrap_or_default();
            (facts, notes)
        };
        into.ended.extend(ended.into_iter().map(with_notes));
        into.texts.extend_from_slice(self.shared.sink.texts.since(self.texts));
        self.texts += into.texts.len();
    }

    /// The capture lasted until then, although no packet came.
    pub fn went_on_until(&mut self, at_ns: i64) {
        self.latest = self.latest.map(|(latest_ns, packet)| (latest_ns.max(at_ns), packet));
    }

    /// The capture is over: unfinished exchanges are returned as they are. Connections that have not ended
    /// are in [`Tap::connections`], before and after.
    pub fn finish(&mut self) {
        self.shared.end_of_capture = self.latest;
        self.flows.finish(&mut self.shared);
    }

    /// Connections that are no longer followed since the last call, for code that keeps something by
    /// connection: each once, with its final facts. They can still be queried until the next call.
    pub fn take_ended(&mut self, into: &mut Vec<ConnectionFacts>) {
        self.flows.take_ended(into);
    }

    /// What is known of a connection; `None` when it is forgotten.
    pub fn connection(&self, id: u32) -> Option<ConnectionFacts> {
        self.flows.connection(id).map(Connection::facts)
    }

    /// Every connection followed now, those that linger after they were closed included: all but those that
    /// [`Tap::take_ended`] gives or gave.
    pub fn connections(&self) -> Vec<ConnectionFacts> {
        self.flows.live().into_iter().map(Connection::facts).collect()
    }

    /// What the rules have to say of a connection as a whole, in sentences.
    pub fn notes(&self, id: u32) -> Vec<String> {
        self.flows.connection(id).map(Connection::notes).unwrap_or_default()
    }

    /// Methods and authorities.
    pub fn texts(&self) -> &Texts {
        &self.shared.sink.texts
    }

    /// What was seen and what was not.
    pub fn counts(&self) -> TapCounts {
        let flows = self.flows.counts;
        TapCounts {
            packets: self.packets,
            segments: self.segments,
            unparsed: self.unparsed.clone(),
            connections: flows.connections,
            connections_evicted: flows.evicted,
            connections_expired: flows.expired,
            connections_untaken: flows.untaken,
            reassembly_dropped_bytes: self.shared.ledger.late_bytes,
            reassembly_conflicts: self.shared.ledger.conflicts,
            app: self.shared.sink.counts,
            unsorted: self.clock.unsorted,
            set_back: self.clock.back,
            set_forward: self.clock.forward,
        }
    }
}
