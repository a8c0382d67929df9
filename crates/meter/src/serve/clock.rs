//! The meter's clock: milliseconds since it started, and what Unix time that is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Monotonic, anchored once to Unix time; a later step of the system clock does not move it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    epoch_unix_ms: u64,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { start: Instant::now(), epoch_unix_ms: since_1970.as_millis() as u64 }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Unix time of the start, milliseconds.
    pub fn epoch_unix_ms(&self) -> u64 {
        self.epoch_unix_ms
    }

    /// Unix time, seconds.
    pub fn unix_s(&self) -> u64 {
        (self.epoch_unix_ms + self.now_ms()) / 1000
    }
}
