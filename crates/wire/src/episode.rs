//! An episode: a cause held up bytes of a connection for a while, as seen at one tap.

use spangap_model::duration::format_ns;
use spangap_model::evidence::{Certainty, Missing};
use spangap_model::{Cause, Side};

/// A packet that proves something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketProof {
    /// Number of the packet in its capture, from 1.
    pub packet: u64,
    /// When the tap saw it, Unix nanoseconds.
    pub time_ns: i64,
    /// What it proves, in words that end a sentence: `43 bytes held back while 9 are unacknowledged`.
    pub what: What,
}

/// Text about a packet with up to two numbers: each `{}` stands for the next one, and `{us}` for the next one as a time in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// The text.
    pub text: &'static str,
    /// The numbers.
    pub numbers: [u64; 2],
}

impl What {
    /// Text without numbers.
    pub const fn text(text: &'static str) -> What {
        What { text, numbers: [0; 2] }
    }

    /// Text with numbers.
    pub const fn with(text: &'static str, first: u64, second: u64) -> What {
        What { text, numbers: [first, second] }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut numbers = self.numbers.iter().copied();
        let mut pieces = self.text.split('{');
        f.write_str(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            let (unit, rest) = piece.split_once('}').unwrap_or(("", piece));
            match (unit, numbers.next().unwrap_or_default()) {
                // Whole microseconds: below a millisecond, decimals would be made up.
                ("us", us @ 1_000..) => f.write_str(&format_ns(us.saturating_mul(1_000)))?,
                ("us", us) => write!(f, "{us} us")?,
                (_, number) => write!(f, "{number}")?,
            }
            f.write_str(rest)?;
        }
        Ok(())
    }
}

/// How often a tap saw the bytes of an episode, which can show on which side of the tap they were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// Once, or the count proves nothing.
    #[default]
    One,
    /// The original and the retransmission: the loss occurred beyond this tap.
    Both {
        /// Whether a receiver of the original would have reported the duplicate, by DSACK (RFC 2883) or by the
        /// timestamp that it echoes.
        told: bool,
    },
    /// These bytes once; earlier ones, whose loss slowed the sender down, as in [`Copies::Both`].
    Earlier,
    /// Once, in smaller segments than full ones, although more was missing: as after a loss, or as where the path carries no
    /// full ones.
    Pieces,
}

impl Copies {
    /// Whether the tap has both copies of the bytes.
    pub fn are_both(self) -> bool {
        matches!(self, Copies::Both { .. })
    }

    /// What this tap alone leaves open about a loss of bytes from this sender. Bytes that were lost beyond it may have been lost on
    /// the path, or dropped in the receiver's host: that of the other end, or, at the receiver's own tap, the same.
    pub fn leave_open(self, sender: Side) -> Option<Missing> {
        match (self, sender) {
            (Copies::One, _) => None,
            (Copies::Both { .. } | Copies::Earlier, Side::Client) => Some(Missing::DroppedByServer),
            (Copies::Both { .. } | Copies::Earlier, Side::Server) => Some(Missing::DroppedByClient),
            (Copies::Pieces, _) => Some(Missing::FirstSize),
        }
    }
}

/// An interval during which bytes of one direction were held up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// The cause.
    pub cause: Cause,
    /// Certainty of the cause.
    pub certainty: Certainty,
    /// The end responsible, if the cause has one.
    pub side: Option<Side>,
    /// The sender of the delayed bytes.
    pub sender: Side,
    /// Start, Unix nanoseconds at this tap.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// The delayed bytes, as stream offsets (see [`crate::tcp`]); later bytes may have had to wait, too.
    pub start: u64,
    /// Offset after the last of them.
    pub end: u64,
    /// The delayed HTTP/2 stream; `None` when the whole connection is delayed.
    pub stream_id: Option<u32>,
    /// How often the tap saw these bytes.
    pub copies: Copies,
    /// Proofs in order, at most four packets.
    pub evidence: PacketProofs,
}

/// A few packets, without an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketProofs {
    items: [Option<PacketProof>; 4],
}

impl PacketProofs {
    /// Takes the first four of these packets.
    pub fn of(evidence: &[PacketProof]) -> PacketProofs {
        let mut items = [None; 4];
        items.iter_mut().zip(evidence).for_each(|(item, evidence)| *item = Some(*evidence));
        PacketProofs { items }
    }

    /// Adds a packet if there is room.
    pub fn push(&mut self, evidence: PacketProof) {
        if let Some(item) = self.items.iter_mut().find(|item| item.is_none()) {
            *item = Some(evidence);
        }
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &PacketProof> {
        self.items.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_replace_the_braces() {
        assert_eq!(What::with("{} of {} bytes", 3, 9).to_string(), "3 of 9 bytes");
        assert_eq!(What::text("a bare ACK").to_string(), "a bare ACK");
        let what = What::with("acknowledged after {us}, and {us} later", 46_104, 17);
        assert_eq!(what.to_string(), "acknowledged after 46.1 ms, and 17 us later");
    }
}
