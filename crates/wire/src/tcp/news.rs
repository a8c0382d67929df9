//! What changes in the connections of a capture, for whoever keeps a record of them: see [`crate::tap::known`].
//!
//! A call is concluded long after its packets were read, so that the reader of packets may already be far ahead. What is
//! asked of a connection then is kept apart from what its packets need, and follows by news.

use super::flows::Key;
use crate::episode::Episode;
use crate::segment::Endpoint;
use spangap_model::Side;

/// News of a connection's episodes.
// Nearly all are episodes, which a box would each cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug)]
pub enum EpisodeNews {
    /// One more.
    Found(u32, Episode),
    /// Its sides had been guessed wrong: those so far have them the wrong way around.
    TurnedAround(u32),
}

/// News of a capture's connections since it was last taken.
#[derive(Debug, Default)]
pub struct News {
    /// In the order in which they were found.
    pub episodes: Vec<EpisodeNews>,
    /// Numbers of connections whose [`Seen`] changed; some more than once.
    pub changed: Vec<u32>,
    /// Numbers of connections with their first exchange.
    pub with_exchanges: Vec<u32>,
    /// Connections that are no longer followed.
    pub(crate) departed: Vec<(u32, Key)>,
}

/// What is asked of a connection while it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The tap's number for it.
    pub id: u32,
    /// Client and server.
    pub ends: [Endpoint; 2],
    /// Virtual network.
    pub network: u32,
    /// Time of its first packet.
    pub first_ns: i64,
    /// Time of its last packet; while it is not open only.
    pub last_ns: i64,
    /// Times of its SYN, and of the ACK that opened it.
    pub syn_ns: Option<i64>,
    /// See there.
    pub ack_ns: Option<i64>,
    /// Whether bytes of a side are missing, by [`Side::index`].
    pub holes: [bool; 2],
}

impl Seen {
    /// Whether its client asked for it, and it is not open yet.
    pub fn is_opening(&self) -> bool {
        self.syn_ns.is_some() && self.ack_ns.is_none()
    }

    /// Whether bytes of the client are missing.
    pub fn misses_requests(&self) -> bool {
        self.holes[Side::Client.index()]
    }
}
