//! An episode: something that held up bytes of a connection for a while, as seen at one tap.

use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

/// A packet that shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketProof {
    /// Number of the packet in its capture, from 1.
    pub packet: u64,
    /// When the tap saw it, Unix nanoseconds.
    pub time_ns: i64,
    /// What it shows, in words that end a sentence: `43 bytes held back while 9 are unacknowledged`.
    pub what: What,
}

/// Words about a packet, with up to two numbers in them: `{}` stands for each in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct What {
    /// The words.
    pub text: &'static str,
    /// The numbers.
    pub numbers: [u64; 2],
}

impl What {
    /// Words without numbers.
    pub const fn text(text: &'static str) -> What {
        What { text, numbers: [0; 2] }
    }

    /// Words with numbers in them.
    pub const fn with(text: &'static str, first: u64, second: u64) -> What {
        What { text, numbers: [first, second] }
    }
}

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut numbers = self.numbers.iter();
        let mut pieces = self.text.split("{}");
        f.write_str(pieces.next().unwrap_or_default())?;
        for piece in pieces {
            if let Some(number) = numbers.next() {
                write!(f, "{number}")?;
            }
            f.write_str(piece)?;
        }
        Ok(())
    }
}

/// How often a tap saw the bytes of an episode, where that tells on which side of the tap they were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// Once, or it says nothing.
    #[default]
    One,
    /// The first copy, too: what was lost was lost behind this tap.
    Both {
        /// Whether a receiver that had the first copy would have said so when the second came, by DSACK (RFC 2883) or
        /// the timestamp that it echoes.
        told: bool,
    },
}

/// Bytes of one direction were held up from one moment to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Episode {
    /// Why.
    pub cause: Cause,
    /// How sure that is.
    pub certainty: Certainty,
    /// The end at which the cause sits, where it has one.
    pub side: Option<Side>,
    /// The end that sent the bytes held up.
    pub sender: Side,
    /// From when, Unix nanoseconds at this tap.
    pub from_ns: i64,
    /// Until when.
    pub to_ns: i64,
    /// The bytes held up, as stream offsets (see [`crate::tcp`]); bytes after them may have had to wait, too.
    pub start: u64,
    /// End of them.
    pub end: u64,
    /// HTTP/2 stream that alone is held up; `None` when it is the connection.
    pub stream_id: Option<u32>,
    /// How often the tap saw the bytes.
    pub copies: Copies,
    /// What shows it, in order, four packets at most.
    pub evidence: PacketProofs,
}

/// A few packets, without an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketProofs {
    items: [Option<PacketProof>; 4],
}

impl PacketProofs {
    /// Of these packets; beyond the fourth they are left out.
    pub fn of(evidence: &[PacketProof]) -> PacketProofs {
        let mut items = [None; 4];
        items.iter_mut().zip(evidence).for_each(|(item, evidence)| *item = Some(*evidence));
        PacketProofs { items }
    }

    /// And this one, if there is room.
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
    fn numbers_stand_where_the_braces_are() {
        assert_eq!(What::with("{} of {} bytes", 3, 9).to_string(), "3 of 9 bytes");
        assert_eq!(What::text("a bare ACK").to_string(), "a bare ACK");
    }
}
