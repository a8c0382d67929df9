//! TCP connections as one tap saw them: who sent which bytes when, and what was acknowledged when.
//!
//! *Stream offsets.* A byte is named by its sequence number unwrapped to 64 bits: the low 32 bits of an offset are
//! the raw sequence number on the wire, and offsets of one direction only grow. The first number of a direction that
//! is seen, in a segment of its own or acknowledged by the peer, has the high half 1, so that bytes before it have an
//! offset, too. SYN and FIN take one offset each.

pub mod accept_queue;
pub mod classify;
mod closing;
pub mod connection;
pub mod episodes;
pub mod flows;
pub mod in_flight;
pub mod openings;
pub mod pools;
pub mod reassembly;
pub mod repeated;
pub mod roles;

use crate::segment::Segment;
use spangap_model::Side;
use std::collections::VecDeque;
use std::ops::Range;

/// A piece of a stream, in order: what the application of the receiver could read.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Who sent it.
    pub from: Side,
    /// Stream offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// When they were seen, and when they could be read.
    pub at: crate::exchange::Mark,
}

/// Bytes that were on the wire and are not in the capture.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// Who sent them.
    pub from: Side,
    /// Stream offset of the first.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// When it became certain that they are missing (for a cut packet: when that packet was seen).
    pub at: crate::exchange::Mark,
    /// Whether only the snap length cut them: time and order are known then, only the content is not.
    pub cut: bool,
}

/// What a segment is to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYN or SYN/ACK.
    Handshake,
    /// Bytes (or a FIN) never seen before, right after the last ones.
    New,
    /// Bytes never seen before, with others missing before them.
    Ahead,
    /// Bytes seen before: sent again.
    Resent,
    /// Bytes never seen before that fill a hole: sent again, or overtaken on the way.
    Fill,
    /// The same packet once more (captured twice, or duplicated on the way), or an acknowledgement that a later one
    /// has overtaken; it means nothing.
    Duplicate,
    /// One byte before the window, or none, to see whether the peer is there.
    KeepAlive,
    /// One byte, or none, sent into a closed window.
    WindowProbe,
    /// Only an acknowledgement that acknowledges something new.
    BareAck,
    /// Only an acknowledgement, with nothing new but the window.
    WindowUpdate,
    /// Only an acknowledgement that repeats the last one (with SACK blocks or without).
    RepeatedAck,
    /// RST.
    Reset,
}

/// A run of bytes that was sent together and is not yet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// First byte.
    pub start: u64,
    /// After the last byte.
    pub end: u64,
    /// When it was first seen.
    pub time_ns: i64,
    /// Number of that packet.
    pub packet: u64,
    /// When it was last seen.
    pub last_time_ns: i64,
    /// Number of that packet.
    pub last_packet: u64,
    /// How often it was seen.
    pub sends: u8,
}

/// One direction of a connection: what `Side` sent.
#[derive(Debug, Default)]
pub struct SideState {
    /// Offset after the last byte sent; zero before the first segment.
    pub next: u64,
    /// Offset up to which the peer has acknowledged.
    pub acked: u64,
    /// Sent and not acknowledged, oldest first; bounded, the oldest are forgotten first.
    pub in_flight: VecDeque<Sent>,
    /// Maximum segment size that the peer announced, options not subtracted. When its SYN was not seen, a lower
    /// bound: the largest segment seen, but no more than what every path carries, since with segmentation offload
    /// one segment of the capture may be many packets.
    pub mss: u32,
    /// Whether `mss` was announced.
    pub mss_announced: bool,
    /// Window scale that this side announced, 0 when one of the SYNs has none. `None` when they were not seen:
    /// windows other than zero are then unknown.
    pub window_scale: Option<u8>,
    /// Window this side last advertised, bytes; `None` while it cannot be known.
    pub window: Option<u64>,
    /// Whether the peer acknowledged bytes of this side that the capture does not have.
    pub missing: bool,
    /// The last segment with bytes not seen before, and when they were last seen.
    pub last_data: Option<Sent>,
    /// The last segment of any kind: when, and its packet number.
    pub last: Option<(i64, u64)>,
    /// Smallest time from a segment (sent once) to its acknowledgement at this tap, nanoseconds.
    pub rtt_min_ns: Option<u64>,
    /// Segments with payload.
    pub data_segments: u64,
    /// Payload bytes, each once.
    pub bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Bytes missing from the capture, cut ones not included.
    pub hole_bytes: u64,
}

/// What one segment did: computed once, read by every rule under `causes/`.
#[derive(Debug)]
pub struct Step<'a> {
    /// The segment.
    pub segment: &'a Segment<'a>,
    /// Who sent it.
    pub from: Side,
    /// What it is.
    pub kind: Kind,
    /// Its payload, as offsets; empty when it has none.
    pub bytes: Range<u64>,
    /// Bytes of the other side that it acknowledged for the first time.
    pub newly_acked: Range<u64>,
    /// Bytes of its own side sent before it and not acknowledged.
    pub in_flight_before: u64,
    /// For bytes sent again: the earliest of them as it was sent before. `None` when that was not seen, or is
    /// forgotten: of acknowledged bytes only the last few runs are known.
    pub earlier: Option<Sent>,
    /// The window of its sender before it.
    pub window_before: Option<u64>,
}

/// The handshake as the tap saw it: time and packet number of each part, of the first and of the last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// First SYN.
    pub syn: Option<(i64, u64)>,
    /// SYNs seen.
    pub syns: u32,
    /// First SYN/ACK.
    pub syn_ack: Option<(i64, u64)>,
    /// SYN/ACKs seen.
    pub syn_acks: u32,
    /// The ACK that completes it.
    pub ack: Option<(i64, u64)>,
    /// Connections that waited in the server's accept queue when a SYN came that got no answer (see [`accept_queue`]): the
    /// fewest of all such SYNs.
    pub queue_unanswered: Option<u32>,
}

/// What is known of a connection, for reports and for joining.
#[derive(Clone, Debug)]
pub struct ConnectionFacts {
    /// The tap's number of it.
    pub id: u32,
    /// Client and server, by [`Side::index`].
    pub ends: [crate::segment::Endpoint; 2],
    /// See [`Segment::network`].
    pub network: u32,
    /// Whether who is the client was seen (a SYN, a request) or only guessed from the ports.
    pub sides_known: bool,
    /// The handshake, as far as it was seen.
    pub handshake: Handshake,
    /// What is spoken.
    pub protocol: crate::exchange::Protocol,
    /// Packets.
    pub packets: u64,
    /// Time of the first and the last packet, Unix nanoseconds.
    pub first_ns: i64,
    /// See `first_ns`.
    pub last_ns: i64,
    /// How it ended, if it did: FINs of both sides, or RST.
    pub closed: bool,
    /// Payload bytes, each once, by side.
    pub bytes: [u64; 2],
    /// Bytes sent again, by side.
    pub resent_bytes: [u64; 2],
    /// Bytes missing from the capture, by side.
    pub hole_bytes: [u64; 2],
    /// Smallest time from a segment of that side to its acknowledgement, at this tap, nanoseconds.
    pub rtt_min_ns: [Option<u64>; 2],
    /// SETTINGS_MAX_CONCURRENT_STREAMS of the server, where it was seen.
    pub max_streams: Option<u32>,
    /// Most exchanges under way at once.
    pub peak_in_flight: u32,
}
