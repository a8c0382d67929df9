//! TCP connections as seen at one tap: who sent which bytes when, and when they were acknowledged.
//!
//! *Stream offsets.* An offset identifies a byte: its sequence number, unwrapped to 64 bits. The low 32 bits of
//! an offset are the raw sequence number on the wire, and the offsets of a direction only grow. The first number
//! seen of a direction, in one of its own segments or in the peer's acknowledgement, has the high half 1, so that
//! earlier bytes have an offset, too. SYN and FIN take one offset each.

pub mod accept_queue;
pub mod classify;
mod closing;
pub mod connection;
pub mod episodes;
pub mod flows;
pub mod in_flight;
pub mod multipath;
pub mod news;
pub mod openings;
pub mod pools;
pub mod reassembly;
pub mod repeated;
pub mod roles;

use crate::segment::Segment;
use spangap_model::Side;
use std::collections::VecDeque;
use std::ops::Range;

/// A piece of a stream, in order, as the receiving application could read it.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The sender.
    pub from: Side,
    /// Stream offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: &'a [u8],
    /// When they were seen, and when they became readable.
    pub at: crate::exchange::Mark,
}

/// Bytes that were on the wire but are not in the capture.
#[derive(Clone, Copy, Debug)]
pub struct Hole {
    /// The sender.
    pub from: Side,
    /// Stream offset of the first.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// When it became certain that they are missing (for a cut packet: when the tap saw that packet).
    pub at: crate::exchange::Mark,
    /// Whether only the snap length cut them: then their time and order are known, and only their content is not.
    pub cut: bool,
}

/// The role of a segment in its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYN or SYN/ACK.
    Handshake,
    /// Bytes (or a FIN) never seen before, right after the last ones.
    New,
    /// Bytes never seen before, with others missing before them.
    Ahead,
    /// Retransmission of bytes seen before.
    Resent,
    /// Bytes never seen before that fill a hole: retransmitted, or reordered on the way.
    Fill,
    /// The same packet again (captured twice, or duplicated on the way), or an acknowledgement that a later one
    /// overtook; it carries no information.
    Duplicate,
    /// One byte before the window, or none, to check whether the peer is alive.
    KeepAlive,
    /// One byte, or none, sent into a closed window.
    WindowProbe,
    /// An acknowledgement of new bytes, without payload.
    BareAck,
    /// An acknowledgement without payload that changes only the window.
    WindowUpdate,
    /// An acknowledgement without payload that repeats the last one (with or without SACK blocks).
    RepeatedAck,
    /// RST.
    Reset,
}

/// A run of bytes that was sent together and is not yet acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// First byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// When it was first seen.
    pub time_ns: i64,
    /// Number of the packet that first carried it.
    pub packet: u64,
    /// When it was last seen.
    pub last_time_ns: i64,
    /// Number of the packet that last carried it.
    pub last_packet: u64,
    /// How often the tap saw it.
    pub sends: u8,
}

/// One direction of a connection: the state of what `Side` sent.
#[derive(Debug, Default)]
pub struct SideState {
    /// Offset after the last byte sent; zero before the first segment.
    pub next: u64,
    /// Offset up to which the peer acknowledged.
    pub acked: u64,
    /// Sent and unacknowledged runs, oldest first; bounded, and the oldest are forgotten first.
    pub in_flight: VecDeque<Sent>,
    /// Maximum segment size announced by the peer, options not subtracted. If its SYN was not seen, a lower
    /// bound: the largest segment seen, but no more than what every path carries, since with segmentation offload
    /// one captured segment may be many packets.
    pub mss: u32,
    /// Whether the peer announced `mss`.
    pub mss_announced: bool,
    /// Window scale announced by this side; 0 when one of the SYNs lacks the option. `None` when they were not
    /// seen: then windows other than zero are unknown.
    pub window_scale: Option<u8>,
    /// Window last advertised by this side, bytes; `None` while it is unknown.
    pub window: Option<u64>,
    /// The largest such window after the SYN.
    pub largest_window: Option<u64>,
    /// The most bytes that it had sent and that were not yet acknowledged; zero before the first acknowledgement.
    pub most_in_flight: u64,
    /// Whether the peer acknowledged bytes of this side that are not in the capture.
    pub missing: bool,
    /// The last segment with new bytes, and when these were last seen.
    pub last_data: Option<Sent>,
    /// The last segment of any kind: time and packet number.
    pub last: Option<(i64, u64)>,
    /// Minimum time from a segment (sent once) to its acknowledgement at this tap, nanoseconds.
    pub rtt_min_ns: Option<u64>,
    /// Segments with payload.
    pub data_segments: u64,
    /// Payload bytes, each counted once.
    pub bytes: u64,
    /// Bytes retransmitted.
    pub resent_bytes: u64,
    /// Bytes missing from the capture, not counting cut ones.
    pub hole_bytes: u64,
}

/// The effect of one segment: computed once, read by every rule under `causes/`.
#[derive(Debug)]
pub struct Step<'a> {
    /// The segment.
    pub segment: &'a Segment<'a>,
    /// The sender.
    pub from: Side,
    /// Its role.
    pub kind: Kind,
    /// Its payload, as offsets; empty without payload.
    pub bytes: Range<u64>,
    /// Bytes of the other side that it acknowledges for the first time.
    pub newly_acked: Range<u64>,
    /// Bytes of its own side that were sent earlier and are unacknowledged.
    pub in_flight_before: u64,
    /// For retransmitted bytes: the earliest of them as first sent. `None` if that was not seen, or is forgotten:
    /// of acknowledged bytes, only the last few runs are remembered.
    pub earlier: Option<Sent>,
    /// The sender's window before this segment.
    pub window_before: Option<u64>,
}

/// The handshake as seen at the tap: time and packet number of each part, of the first and of the last attempt.
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
    /// Number of connections in the server's accept queue at the time of an unanswered SYN (see
    /// [`accept_queue`]): the minimum over all such SYNs.
    pub queue_unanswered: Option<u32>,
}

/// Facts of a connection, for reports and for joining.
#[derive(Clone, Debug)]
pub struct ConnectionFacts {
    /// The tap's number for it.
    pub id: u32,
    /// Client and server, by [`Side::index`].
    pub ends: [crate::segment::Endpoint; 2],
    /// See [`Segment::network`].
    pub network: u32,
    /// Whether the client is known from a SYN or a request, or only guessed from the ports.
    pub sides_known: bool,
    /// The handshake, as far as the tap saw it.
    pub handshake: Handshake,
    /// Application protocol.
    pub protocol: crate::exchange::Protocol,
    /// Packets.
    pub packets: u64,
    /// Time of the first packet, Unix nanoseconds.
    pub first_ns: i64,
    /// Time of the last packet, Unix nanoseconds.
    pub last_ns: i64,
    /// Whether it ended: by FINs of both sides, or by RST.
    pub closed: bool,
    /// Payload bytes, each counted once, by side.
    pub bytes: [u64; 2],
    /// Bytes retransmitted, by side.
    pub resent_bytes: [u64; 2],
    /// Bytes missing from the capture, by side.
    pub hole_bytes: [u64; 2],
    /// Minimum time from a segment of that side to its acknowledgement, at this tap, nanoseconds.
    pub rtt_min_ns: [Option<u64>; 2],
    /// The largest window that each side advertised after its SYN, bytes. While its scale, which is announced with the SYN, is
    /// unknown, as many bytes as its peer had sent and it had not acknowledged yet: it let in at least these.
    pub windows: [Option<u64>; 2],
    /// SETTINGS_MAX_CONCURRENT_STREAMS of the server, if the tap saw it.
    pub max_streams: Option<u32>,
    /// Maximum number of simultaneous exchanges.
    pub peak_in_flight: u32,
}
