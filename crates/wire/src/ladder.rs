//! One call, packet by packet, at both ends: read from the captures a second time, since the first pass keeps no
//! packets.

use crate::call::Call;
use crate::segment::Flags;
use spangap_model::Side;

/// One packet of the ladder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Which capture (0 or 1).
    pub capture: u8,
    /// Number of the packet.
    pub packet: u64,
    /// When its tap saw it, by its own clock, Unix nanoseconds.
    pub time_ns: i64,
    /// Who sent it.
    pub from: Side,
    /// Flags.
    pub flags: Flags,
    /// Stream offset of its payload.
    pub offset: u64,
    /// Payload bytes.
    pub len: u32,
    /// Acknowledgement, as an offset of the other side.
    pub ack: Option<u64>,
    /// Window as it stands in the header.
    pub window: u16,
    /// What it is to the call, in words, from the marks of the exchange and the evidence of the findings:
    /// `first request byte`, `sent again`, ...
    pub notes: Vec<String>,
}

/// A call's packets at both ends, in order of time by the first capture's clock as far as the offset allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// The packets.
    pub rungs: Vec<Rung>,
    /// Packets left out in the middle, to keep it readable.
    pub left_out: u64,
}

/// What a ladder needs of a call: the packets between the first and the last of the call and of its evidence.
pub fn ladder_of(call: &Call) -> Ladder {
    let _ = call;
    Ladder::default()
}
