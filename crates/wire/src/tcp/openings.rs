//! SYNs from before the capture, saved by the tool that captured it.
//!
//! Their times and sequence numbers are ignored, because nobody recorded what lies between them and the capture.
//! Only properties that a SYN fixes for the life of its connection count: the client's role, window scales,
//! segment sizes.

use super::flows::{Key, Seed};
use crate::segment::{Endpoint, Flags, Segment};
use std::collections::HashMap;

/// Maximum connections remembered: as many as are followed.
const MAX_OPENINGS: usize = super::flows::MAX_CONNECTIONS;

/// Options that one end announced in its SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The end.
    pub end: Endpoint,
    /// The window scale option, if present.
    pub window_scale: Option<u8>,
    /// Maximum segment size that it accepts.
    pub mss: Option<u16>,
}

/// How a connection was opened, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Announcements of both ends, in any order.
    pub announced: [Option<Announced>; 2],
    /// The end that answered a SYN.
    pub server: Option<Endpoint>,
}

/// Connections that were opened before the capture.
#[derive(Debug, Default)]
pub struct Openings {
    by_key: HashMap<Key, Opened, Seed>,
}

impl Openings {
    /// Records a SYN.
    pub fn add(&mut self, segment: &Segment<'_>) {
        let key = Key::of(&segment.source, &segment.destination, segment.network);
        if !segment.flags.has(Flags::SYN)
            || self.by_key.len() >= MAX_OPENINGS && !self.by_key.contains_key(&key)
        {
            return;
        }
        let opened = self.by_key.entry(key).or_default();
        let announced = Announced {
            end: segment.source,
            window_scale: segment.options.window_scale,
            mss: segment.options.mss,
        };
        let [first, second] = &mut opened.announced;
        match first {
            Some(other) if other.end != announced.end => *second = Some(announced),
            _ => *first = Some(announced),
        }
        if segment.flags.has(Flags::ACK) {
            opened.server = Some(segment.source);
        }
    }

    /// How a connection was opened, given its first segment in the capture. A SYN opens a new connection between
    /// the same ports. Either way, the saved opening is consumed.
    pub(super) fn take(&mut self, key: &Key, segment: &Segment<'_>) -> Option<Opened> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.remove(key).filter(|_| !segment.flags.has(Flags::SYN))
    }
}
