//! One capture: packets in, exchanges out.

use crate::app::{AppCounts, Texts};
use crate::decode::Unparsed;
use crate::episode::Episode;
use crate::exchange::Exchange;
use crate::packet::Packet;
use crate::tcp::ConnectionFacts;
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
    /// Bytes buffered out of order that were given up for room.
    pub reassembly_dropped_bytes: u64,
    /// What the application parsers did not understand.
    pub app: AppCounts,
}

/// Follows one capture.
#[derive(Default)]
pub struct Tap {
    counts: TapCounts,
    texts: Texts,
}

impl Tap {
    /// Takes the next packet.
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let _ = packet;
        self.counts.packets += 1;
    }

    /// Moves the exchanges finished since the last call to `into`, in the order in which they finished.
    pub fn take_exchanges(&mut self, into: &mut Vec<Exchange>) {
        let _ = into;
    }

    /// The capture is over: exchanges under way are handed out as they are.
    pub fn finish(&mut self) {}

    /// Connections that were closed or forgotten since the last call, for whoever keeps something by connection.
    pub fn take_ended(&mut self, into: &mut Vec<ConnectionFacts>) {
        let _ = into;
    }

    /// What is known of a connection; `None` when it is forgotten.
    pub fn connection(&self, id: u32) -> Option<ConnectionFacts> {
        let _ = id;
        None
    }

    /// Every connection followed now.
    pub fn connections(&self) -> Vec<ConnectionFacts> {
        Vec::new()
    }

    /// Recent episodes of a connection that held up bytes of `exchange`, oldest first. Kept for a while after the
    /// exchange has finished, since loss of a response shows only later.
    pub fn episodes_of(&self, exchange: &Exchange) -> Vec<Episode> {
        let _ = exchange;
        Vec::new()
    }

    /// Methods and authorities.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// What was seen and what was not.
    pub fn counts(&self) -> TapCounts {
        self.counts.clone()
    }
}
