//! The meter's two clocks: milliseconds since its start, and the wall clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The engine's time is monotonic and never steps; joins and deadlines use it. The wall clock labels minutes,
/// and is read anew every time, because it can be set and because only it advances while the machine is
/// suspended.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    epoch_unix_ms: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock { start: Instant::now(), epoch_unix_ms: wall_ms() }
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// Unix time of the start in milliseconds, by the wall clock at that time.
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
