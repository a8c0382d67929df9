//! SYNs from before the capture, kept by whoever captured it.
//!
//! Their times and sequence numbers are not used, because nobody recorded what lies between them and the capture. Only
//! what a SYN settles for the life of its connection counts: the client's role, window scales, segment sizes.

use super::flows::{Key, Seed};
use crate::segment::{Endpoint, Flags, Segment};
use std::collections::HashMap;

/// Connections remembered, as many as are followed.
const MAX_OPENINGS: usize = super::flows::MAX_CONNECTIONS;

/// What one end announced in its SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Who.
    pub end: Endpoint,
    /// The window scale option, if it had one.
    pub window_scale: Option<u8>,
    /// Largest segment that it takes.
    pub mss: Option<u16>,
}

/// How a connection was opened, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// What both ends announced, in any order.
    pub announced: [Option<Announced>; 2],
    /// Who answered a SYN.
    pub server: Option<Endpoint>,
}

/// Connections that were opened before the capture.
#[derive(Debug, Default)]
pub struct Openings {
    by_key: HashMap<Key, Opened, Seed>,
}

impl Openings {
    /// Takes a SYN.
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

    /// How the connection was opened whose first segment in the capture this is. A SYN opens another one between the same
    /// ports. Either way what was kept is used up.
    pub(super) fn take(&mut self, key: &Key, segment: &Segment<'_>) -> Option<Opened> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.remove(key).filter(|_| !segment.flags.has(Flags::SYN))
    }
}
