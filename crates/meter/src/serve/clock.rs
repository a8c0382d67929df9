//! The meter's two clocks: milliseconds since it started, and the wall clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The engine's time is monotonic and never steps; joins and deadlines go by it. The wall clock names minutes, and
/// is read anew every time, because it can be set and because a suspended machine only moves that one.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    epoch_unix_ms: u64,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock { start: Instant::now(), epoch_unix_ms: wall_ms() }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Unix time of the start by the wall clock as it was then, milliseconds.
    pub fn epoch_unix_ms(&self) -> u64 {
        self.epoch_unix_ms
    }

    /// Unix time by the wall clock, milliseconds.
    pub fn unix_ms(&self) -> u64 {
        wall_ms()
    }

    /// Unix time by the wall clock, seconds.
    pub fn unix_s(&self) -> u64 {
        wall_ms() / 1000
    }
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
