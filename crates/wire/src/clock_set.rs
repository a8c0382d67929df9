//! Where the clock of a capture was set: back, which its own times show, or forward.
//!
//! A clock that was set forward looks like silence. The difference is visible in a clock that nobody sets:
//! hosts count time in the timestamps of their segments (RFC 7323, 3), in ticks of their own. If these
//! advance by less than the capture's time, on the segments of either side of a connection, the capture's
//! clock was set; or both hosts slept, which is not part of a call either.

use crate::packet::Packet;
use crate::segment::{Endpoint, Segment};
use crate::tcp::reassembly::SET_BACK_NS;

/// Shorter silences are not examined.
const JUMP_NS: i64 = 2_000_000_000;
/// Maximum number of remembered places where the clock was set; a capture with more has no clock.
const MAX_PLACES: usize = 1024;
/// Number of connection directions whose latest timestamps are remembered; a power of two.
const TICKERS: usize = 64;
/// Number of interfaces whose packets are distinguished: a program that captures on several writes those of
/// one after those of another, some hundred milliseconds apart under load, although no clock was set. The
/// packets of further interfaces count as those of one.
const INTERFACES: usize = 16;
/// Minimum time over which a rate of ticks is measured.
const MEASURED_NS: i64 = 200_000_000;
/// The slowest permitted tick (RFC 7323, 5.4).
const SLOWEST_TICK_NS: i64 = 1_000_000_000;

/// The timestamps of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Ticker {
    /// A hash of its ports and addresses; 0 for none.
    key: u64,
    first: (u32, i64),
    last: (u32, i64),
}

/// A silence that may not be one: who had sent what before it.
#[derive(Debug)]
struct Jump {
    packet: u64,
    gap_ns: i64,
    before: [Ticker; TICKERS],
    /// Whether it was found not to be one, and is recorded.
    noted: bool,
}

/// How often the clock was set, and by how much in total, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Times.
    pub times: u64,
    /// Nanoseconds.
    pub ns: i64,
}

/// The places in a capture where its clock was set.
#[derive(Debug)]
pub struct ClockSets {
    before_ns: Option<i64>,
    /// The latest packet of each of the first [`INTERFACES`] interfaces since the clock was set.
    latest_ns: [Option<i64>; INTERFACES],
    /// The first packets after each change of the clock, in order.
    places: Vec<u64>,
    tickers: [Ticker; TICKERS],
    jump: Option<Box<Jump>>,
    /// Packets that come after later ones, and by how much at most.
    pub unsorted: Moved,
    /// Back.
    pub back: Moved,
    /// Forward.
    pub forward: Moved,
}

impl Default for ClockSets {
    fn default() -> ClockSets {
        ClockSets {
            before_ns: None,
            latest_ns: [None; INTERFACES],
            places: Vec::new(),
            tickers: [Ticker::default(); TICKERS],
            jump: None,
            unsorted: Moved::default(),
            back: Moved::default(),
            forward: Moved::default(),
        }
    }
}

/// A direction: never 0.
#[inline]
fn key(from: &Endpoint, to: &Endpoint) -> u64 {
    let word = |address: &[u8; 16]| {
        let [.., a, b, c, d] = *address;
        u64::from(u32::from_be_bytes([a, b, c, d]))
    };
    let ports = u64::from(from.port) << 16 | u64::from(to.port);
    let both = word(&from.address) << 32 | word(&to.address);
    (both.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ ports).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
}

#[inline]
fn place(key: u64) -> usize {
    (key >> 58) as usize % TICKERS
}

impl Ticker {
    /// Maximum time that has passed on its host until this segment.
    fn passed_ns(&self, ticks: u32) -> Option<i64> {
        let since = |before: u32, after: u32| i64::from(after.wrapping_sub(before) as i32);
        let (measured, over_ns) = (since(self.first.0, self.last.0), self.last.1 - self.first.1);
        let passed = since(self.last.0, ticks);
        // Some hosts, and middleboxes, always send the same timestamp.
        if passed < 0 || passed == 0 && measured <= 0 {
            return None;
        }
        // The ticks in which the first and the last one were sent may have any length.
        let ticks = i128::from(passed) + 1;
        let ns = match over_ns >= MEASURED_NS && measured > 0 {
            true => ticks * i128::from(over_ns) / i128::from(measured),
            false => ticks * i128::from(SLOWEST_TICK_NS),
        };
        Some(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

impl ClockSets {
    /// Whether the clock was ever set.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Places where it was set, as the first packets after it, in order.
    pub fn places(&self) -> &[u64] {
        &self.places
    }

    /// Processes the time of the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let time_ns = packet.time_ns;
        let before_ns = self.before_ns.replace(time_ns).unwrap_or(time_ns);
        let on_ns = time_ns.saturating_sub(before_ns);
        let interface = (packet.interface as usize).min(INTERFACES - 1);
        let own_ns = self.latest_ns[interface].replace(time_ns).unwrap_or(time_ns);
        let own_on_ns = time_ns.saturating_sub(own_ns);
        if !(0..=JUMP_NS).contains(&on_ns) || own_on_ns < -SET_BACK_NS {
            self.moved(on_ns, own_on_ns, packet.number);
        }
    }

    /// The next packet is later than the previous one, and than the previous one of its own interface, by
    /// this much.
    #[cold]
    fn moved(&mut self, on_ns: i64, own_on_ns: i64, packet: u64) {
        if own_on_ns < -SET_BACK_NS {
            self.back.times += 1;
            self.back.ns = self.back.ns.saturating_sub(own_on_ns);
            self.tickers = [Ticker::default(); TICKERS];
            // All interfaces share this clock: their next packets are earlier, too.
            self.latest_ns = [None; INTERFACES];
            self.note(packet);
        } else if on_ns > 0 {
            let before = self.tickers;
            self.jump = Some(Box::new(Jump { packet, gap_ns: on_ns, before, noted: false }));
            // From here on, rates are measured anew.
            self.tickers = [Ticker::default(); TICKERS];
        } else {
            self.unsorted.times += 1;
            self.unsorted.ns = self.unsorted.ns.max(on_ns.saturating_neg());
        }
    }

    fn note(&mut self, packet: u64) {
        if self.places.len() < MAX_PLACES {
            self.places.push(packet);
        }
    }

    /// Processes the segment in the packet.
    #[inline]
    pub fn segment(&mut self, segment: &Segment<'_>) {
        let Some((ticks, _)) = segment.options.timestamps else { return };
        let key = key(&segment.source, &segment.destination);
        if self.jump.is_some() {
            self.after_jump(key, ticks, segment.time_ns);
        }
        let ticker = &mut self.tickers[place(key)];
        if ticker.key != key {
            *ticker = Ticker { key, first: (ticks, segment.time_ns), last: (ticks, segment.time_ns) };
        }
        ticker.last = (ticks, segment.time_ns);
    }

    /// Whether its sender counted the time of the silence.
    #[cold]
    fn after_jump(&mut self, key: u64, ticks: u32, now_ns: i64) {
        let Some(jump) = &mut self.jump else { return };
        let ticker = &mut jump.before[place(key)];
        if ticker.key != key {
            return;
        }
        // Each direction is asked once.
        let Ticker { last, .. } = *ticker;
        let passed_ns = ticker.passed_ns(ticks);
        ticker.key = 0;
        let Some(passed_ns) = passed_ns else { return };
        let shown_ns = now_ns.saturating_sub(last.1);
        let less_ns = shown_ns.saturating_sub(passed_ns);
        let (packet, gap_ns, noted) = (jump.packet, jump.gap_ns, jump.noted);
        if less_ns > gap_ns / 2 && less_ns > JUMP_NS / 2 {
            jump.noted = true;
            if !noted {
                self.forward.times += 1;
                self.forward.ns = self.forward.ns.saturating_add(gap_ns);
                self.note(packet);
            }
        } else if less_ns < gap_ns / 4 && noted {
            // Another host has waited throughout: the first one slept.
            self.forward.times -= 1;
            self.forward.ns = self.forward.ns.saturating_sub(gap_ns);
            self.places.retain(|place| *place != packet);
            self.jump = None;
        } else if less_ns < gap_ns / 4 {
            self.jump = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Flags, Options};

    const SECOND: i64 = 1_000_000_000;

    /// Ten segments of each side over a second, a silence according to the capture, and one more segment of
    /// each side, whose hosts have counted this many milliseconds.
    fn after(silence_ns: i64, client_ms: u32, server_ms: u32) -> ClockSets {
        let mut sets = ClockSets::default();
        let ends = [Endpoint::v4([10, 0, 0, 1], 40_000), Endpoint::v4([10, 0, 0, 2], 80)];
        let mut packet = 0;
        let mut send = |sets: &mut ClockSets, from: usize, time_ns: i64, ticks: u32| {
            packet += 1;
            sets.packet(&seen(time_ns, packet, 0));
            sets.segment(&Segment {
                packet,
                time_ns,
                source: ends[from],
                destination: ends[1 - from],
                network: 0,
                seq: 0,
                ack: 0,
                flags: Flags(Flags::ACK),
                window: 0,
                ip_id: 0,
                options: Options { timestamps: Some((ticks, 0)), ..Options::default() },
                payload_len: 0,
                payload: &[],
            });
        };
        for n in 0..10 {
            // Wrapping ticks, and one host whose ticks last 10 ms.
            send(&mut sets, 0, i64::from(n) * SECOND / 10, u32::MAX.wrapping_sub(500).wrapping_add(n * 100));
            send(&mut sets, 1, i64::from(n) * SECOND / 10 + 1, 7 + n * 10);
        }
        let now = 9 * SECOND / 10 + silence_ns;
        send(&mut sets, 0, now, u32::MAX.wrapping_sub(500).wrapping_add(900 + client_ms));
        send(&mut sets, 1, now + 2, 7 + 90 + server_ms / 10);
        sets
    }

    fn seen(time_ns: i64, number: u64, interface: u32) -> Packet<'static> {
        Packet { number, time_ns, interface, link: crate::packet::LinkType::RAW, wire_len: 0, data: &[] }
    }

    #[test]
    fn one_interface_behind_another_is_no_clock_that_was_set() {
        // Two interfaces in turn, the second one written 150 ms late; then the clock is set back by an hour.
        let mut sets = ClockSets::default();
        for n in 0..20 {
            sets.packet(&seen(i64::from(n) * SECOND, 2 * u64::from(n as u32), 0));
            sets.packet(&seen(i64::from(n) * SECOND - 150_000_000, 2 * u64::from(n as u32) + 1, 1));
        }
        assert!(sets.is_empty(), "{:?}", sets.places());
        assert_eq!(sets.unsorted, Moved { times: 20, ns: 150_000_000 });
        for n in 0..20 {
            let time_ns = (i64::from(n) - 3600) * SECOND;
            sets.packet(&seen(time_ns, 40 + 2 * u64::from(n as u32), 0));
            sets.packet(&seen(time_ns - 150_000_000, 41 + 2 * u64::from(n as u32), 1));
        }
        assert_eq!((sets.places(), sets.back.times), (&[40][..], 1));
        // Only one interface goes back.
        let mut sets = ClockSets::default();
        [5 * SECOND, 4 * SECOND].iter().zip(1..).for_each(|(at, number)| sets.packet(&seen(*at, number, 1)));
        assert_eq!((sets.places(), sets.back.ns), (&[2][..], SECOND));
    }

    #[test]
    fn an_hour_that_no_host_has_counted_is_none() {
        let sets = after(3600 * SECOND, 40, 40);
        assert_eq!((sets.places(), sets.forward.times), (&[21][..], 1));
        assert_eq!(sets.forward.ns / SECOND, 3599);
    }

    #[test]
    fn silence_is_silence_and_a_host_that_slept_is_no_clock_that_was_set() {
        assert!(after(3600 * SECOND, 3_600_000, 3_600_000).is_empty());
        assert!(after(3600 * SECOND, 40, 3_600_000).is_empty());
        assert!(after(3600 * SECOND, 3_600_000, 40).is_empty());
        assert!(after(SECOND, 40, 40).is_empty(), "too short to be looked into");
    }
}
