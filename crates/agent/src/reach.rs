//! Bytes kept of each packet, chosen so that the ring reaches back far enough under any traffic. The
//! beginning of a message answers most questions about it; without this limit, a copy of large files would
//! displace all other calls from the ring.

use std::time::Duration;

/// Minimum time range of the ring. Spans arrive five seconds after their calls, and some more time passes
/// until a case requests packets.
const FAR: Duration = Duration::from_secs(30);
/// Below this, headers of messages would be missing.
pub(crate) const LEAST_BYTES: u32 = 512;
/// Interval between checks.
pub(crate) const EVERY: Duration = Duration::from_millis(500);
/// Weight of a check relative to earlier ones: a burst of one second is no reason, four are.
const WEIGHT: f64 = 0.25;
/// Number of consecutive checks at which the ring has to reach twice as far before the limit is raised again.
const CALM: u32 = 40;

/// Chooses the limit.
#[derive(Debug)]
pub(crate) struct Reach {
    most: u32,
    now: u32,
    /// Bytes per second.
    pace: f64,
    calm: u32,
}

impl Reach {
    /// A limit of at most `most` bytes, which may be below the minimum; 0 is unlimited.
    pub fn new(most: u32) -> Reach {
        let most = if most == 0 { u32::MAX } else { most };
        Reach { most, now: most, pace: 0.0, calm: 0 }
    }

    /// Records the bytes that entered a ring of `room` bytes since the last check. Returns the new limit per
    /// packet, if it changes.
    pub fn look(&mut self, came_bytes: u64, passed: Duration, room: u64) -> Option<u32> {
        let pace = came_bytes as f64 / passed.as_secs_f64().max(1e-3);
        self.pace += (pace - self.pace) * WEIGHT;
        let reaches = room as f64 / self.pace.max(1.0);
        let before = self.now;
        self.calm = if reaches > 2.0 * FAR.as_secs_f64() { self.calm + 1 } else { 0 };
        if reaches < FAR.as_secs_f64() && self.now > LEAST_BYTES {
            self.now = (self.now.min(64 << 10) / 2).max(LEAST_BYTES);
            // The effect of a lower limit is known only from later traffic.
            self.pace /= 2.0;
        } else if self.calm >= CALM && self.now < self.most {
            self.now = self.now.saturating_mul(2).min(self.most);
            if self.now > 64 << 10 {
                self.now = self.most;
            }
            self.calm = 0;
        }
        (self.now != before).then_some(self.now)
    }

    /// The limit per packet, if lower than configured.
    pub fn reduced_to(&self) -> Option<u32> {
        (self.now < self.most).then_some(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: u64 = 80 << 20;

    /// Simulates packets of a length at a rate for a time; returns the final limit, and the time range of the
    /// ring.
    fn pass(reach: &mut Reach, length: u64, per_s: u64, seconds: u64) -> (u32, f64) {
        let mut kept = reach.now;
        for _ in 0..2 * seconds {
            let came = per_s / 2 * (length.min(kept.into()) + 100);
            kept = reach.look(came, EVERY, ROOM).unwrap_or(kept);
        }
        (kept, ROOM as f64 / (per_s * (length.min(kept.into()) + 100)) as f64)
    }

    #[test]
    fn small_packets_and_few_large_ones_are_not_truncated() {
        let mut reach = Reach::new(16 << 10);
        assert_eq!(pass(&mut reach, 200, 5_000, 600).0, 16 << 10);
        assert_eq!(pass(&mut reach, 16 << 10, 100, 600).0, 16 << 10);
        assert_eq!(reach.reduced_to(), None);
    }

    #[test]
    fn heavy_traffic_is_truncated_until_it_ends() {
        let mut reach = Reach::new(16 << 10);
        let (kept, reaches) = pass(&mut reach, 64 << 10, 2_000, 20);
        assert!(reaches >= 30.0 && kept >= LEAST_BYTES, "{kept} bytes, {reaches} s");
        assert_eq!(reach.reduced_to(), Some(kept));
        // Under constant traffic nothing oscillates.
        assert_eq!(pass(&mut reach, 64 << 10, 2_000, 600).0, kept);
        assert_eq!(pass(&mut reach, 200, 1_000, 200).0, 16 << 10);
        assert_eq!(reach.reduced_to(), None);
    }

    #[test]
    fn excessive_traffic_is_truncated_to_the_minimum() {
        let mut reach = Reach::new(0);
        assert_eq!(pass(&mut reach, 64 << 10, 100_000, 60).0, LEAST_BYTES);
        assert_eq!(pass(&mut reach, 100, 10, 600).0, u32::MAX);
        // A lower configured limit is respected.
        let mut reach = Reach::new(256);
        assert_eq!(pass(&mut reach, 64 << 10, 100_000, 60).0, 256);
        assert_eq!(reach.reduced_to(), None);
    }

    #[test]
    fn a_burst_of_half_a_second_changes_nothing_for_long() {
        let mut reach = Reach::new(16 << 10);
        pass(&mut reach, 200, 1_000, 60);
        reach.look(8 << 20, EVERY, ROOM);
        assert_eq!(pass(&mut reach, 200, 1_000, 60).0, 16 << 10);
    }
}
