//! The loop of a line: forwards packets between two devices when they are due.

use super::direction::{Direction, Packet};
use super::log::{Direct, Entry, Log, Side, Summary};
use crate::LabError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, write};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

/// Maximum size of an IP packet.
const PACKET_BYTES: usize = 65_536;
/// Packets read from one device before the other gets its turn.
const TURN: usize = 64;
const LATE_NS: u64 = 1_000_000;

/// Both directions between two devices.
pub struct Forwarder {
    ends: [OwnedFd; 2],
    directions: [Direction; 2],
    lateness: [Lateness; 2],
    log: Log,
    room: Box<[u8]>,
}

#[derive(Clone, Copy, Default)]
struct Lateness {
    packets: u64,
    refused: u64,
    sum_ns: u64,
    most_ns: u64,
    over: u64,
}

impl Forwarder {
    /// Forwards from the first end to the second, and back.
    pub fn new(ends: [OwnedFd; 2], directions: [Direction; 2]) -> Forwarder {
        let (log, room) = (Log::default(), vec![0; PACKET_BYTES].into());
        Forwarder { ends, directions, lateness: Default::default(), log, room }
    }

    /// Runs until standard input ends.
    ///
    /// # Errors
    /// A device is gone.
    pub fn run(&mut self) -> Result<(), LabError> {
        let failed = |what: &str, error: Errno| LabError::program("line", format!("{what}: {error}"));
        // The default is 50 us: the kernel may wake us up that much late.
        set_current_timer_slack(NonZeroU64::new(1)).map_err(|error| failed("timer slack", error))?;
        let stdin = std::io::stdin();
        loop {
            self.release().map_err(|error| failed("writing to the device", error))?;
            let due_ns = self.directions.iter().filter_map(Direction::next_due_ns).min();
            let wait = due_ns.map(|due_ns| timespec(due_ns.saturating_sub(monotonic_ns())));
            let [a, b] = &self.ends;
            let mut files = [
                PollFd::new(a, PollFlags::IN),
                PollFd::new(b, PollFlags::IN),
                PollFd::new(&stdin, PollFlags::IN),
            ];
            match poll(&mut files, wait.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(failed("waiting", error)),
            }
            let ready = files.map(|file| !file.revents().is_empty());
            if ready[2] && read(&stdin, &mut [0; 64]).is_ok_and(|bytes| bytes == 0) {
                return Ok(());
            }
            for way in [Direct::A, Direct::B] {
                if ready[way as usize] {
                    self.receive(way).map_err(|error| failed("reading the device", error))?;
                }
            }
        }
    }

    /// Log of packet fates.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The counts so far.
    pub fn summary(&self) -> Summary {
        let side = |way: Direct| {
            let late = self.lateness[way as usize];
            Side {
                counts: self.directions[way as usize].counts(),
                refused: late.refused,
                late_mean_ns: late.sum_ns / late.packets.max(1),
                late_1ms: late.over,
                late_most_ns: late.most_ns,
            }
        };
        let (logged, not_logged) = self.log.counts();
        Summary { a: side(Direct::A), b: side(Direct::B), logged, not_logged }
    }

    fn receive(&mut self, way: Direct) -> Result<(), Errno> {
        let at = way as usize;
        for _ in 0..TURN {
            let bytes = match read(&self.ends[at], &mut self.room[..]) {
                Err(Errno::AGAIN | Errno::INTR) | Ok(0) => return Ok(()),
                Err(error) => return Err(error),
                Ok(bytes) => bytes,
            };
            let log = &mut self.log;
            self.directions[at].arrived(monotonic_ns(), &self.room[..bytes], |tcp, fate| {
                log.push(Entry { unix_ns: clock_ns(ClockId::Realtime), way, fate, tcp });
            });
        }
        Ok(())
    }

    /// Sends packets that are due.
    fn release(&mut self) -> Result<(), Errno> {
        for (at, direction) in self.directions.iter_mut().enumerate() {
            let late = &mut self.lateness[at];
            let mut now_ns = monotonic_ns();
            while let Some(Packet { due_ns, bytes, .. }) = direction.release(now_ns) {
                match write(&self.ends[1 - at], &bytes) {
                    Err(Errno::BADFD) => return Err(Errno::BADFD),
                    // As on any link: packets that the other end refuses are lost.
                    Err(_) => late.refused += 1,
                    Ok(_) => {}
                }
                let late_ns = now_ns - due_ns;
                late.packets += 1;
                late.sum_ns += late_ns;
                late.most_ns = late.most_ns.max(late_ns);
                late.over += u64::from(late_ns > LATE_NS);
                now_ns = monotonic_ns();
            }
        }
        Ok(())
    }
}

fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ }
}
