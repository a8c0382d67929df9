//! Events as bytes. Numbers are varints: seven bits a byte, the lowest first. Of each event:
//!
//! - a byte: kind in the low four bits, bit 4 set if the CPU differs from the previous event's, bits 5-7 by kind;
//! - the CPU, if it differs;
//! - the time since the previous event (since 0 for the first one), zigzag;
//! - the rest by kind. *Switch*: the task that the CPU leaves, if it is not the one it last switched to (which is a
//!   separate kind); the task that it switches to; how long that one waited; bits 5-7 are how the other left.
//!   *Interrupts*: their duration, then their numbers. *Transfers*: index of the connection in a list, to which a new
//!   one is appended; distance of the sequence number from the last one of this connection and kind, zigzag; the
//!   thread, if any. *Wake-ups*: the thread, how long it slept, its stack's number if bit 7 is set, what woke it
//!   (0 thread, 1 interrupt with a line, 2 timer, 3 call, 4 not seen, 5 idle, 6 + vector a softirq) and which one;
//!   bit 5 is state D, bit 6 a lock.
//!
//! Each record of events can be decoded without the earlier ones.

use crate::event::{Event, Irq, Left, Sleep, Tid, Transfer, Waker, What, Woken};
use rustc_hash::FxHashMap;

const SWITCH: u8 = 0;
const SWITCH_ON: u8 = 1;
const SWITCH_THROTTLED: u8 = 2;
const SOFTIRQ: u8 = 3;
const HARDIRQ: u8 = 4;
const ARRIVED: u8 = 5;
const READ: u8 = 6;
const WROTE: u8 = 7;
const LOST: u8 = 8;
const STEAL: u8 = 9;
const WOKEN: u8 = 10;
const OTHER_CPU: u8 = 1 << 4;

const LEFT: [Left; 5] = [Left::Runnable, Left::Throttled, Left::Blocked, Left::Stopped, Left::Ended];

type Connection = (u16, u16, u32);

/// What encoder and decoder both know from the events so far.
#[derive(Debug, Default)]
struct CodecState {
    time_ns: u64,
    cpu: u16,
    /// The running task, by CPU.
    runs: Vec<Option<Tid>>,
    /// With the last sequence number of each kind of transfer.
    connections: Vec<(Connection, [u32; 3])>,
}

impl CodecState {
    fn task_of(&self, cpu: u16) -> Option<Tid> {
        self.runs.get(usize::from(cpu)).copied().flatten()
    }

    fn switch(&mut self, cpu: u16, next: Tid) {
        let cpu = usize::from(cpu);
        if cpu >= self.runs.len() {
            self.runs.resize(cpu + 1, None);
        }
        self.runs[cpu] = Some(next);
    }
}

/// The place of a kind of transfer in lists.
fn place_of(transfer: u8) -> usize {
    usize::from(transfer - ARRIVED)
}

/// Encodes events.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    seen: CodecState,
    /// Peers choose their ports, but a record has too few events for them to make this slow.
    places: FxHashMap<Connection, u32>,
    bytes: Vec<u8>,
    events: u64,
}

impl Encoder {
    /// Adds an event.
    pub fn push(&mut self, event: &Event) {
        self.events += 1;
        let (kind, bits) = self.kind(event);
        let other = event.cpu != self.seen.cpu;
        self.bytes.push(kind | if other { OTHER_CPU } else { 0 } | bits << 5);
        if other {
            self.number(event.cpu.into());
            self.seen.cpu = event.cpu;
        }
        self.signed(event.time_ns.wrapping_sub(self.seen.time_ns) as i64);
        self.seen.time_ns = event.time_ns;
        let since = |began_ns: u64| event.time_ns.wrapping_sub(began_ns);
        match event.what {
            What::Switch { prev, next, waited_ns, .. } => {
                if kind != SWITCH_ON {
                    self.number(prev.into());
                }
                self.number(next.into());
                self.number(waited_ns);
                self.seen.switch(event.cpu, next);
            }
            What::Softirq { vector, device, packets, own, began_ns } => {
                self.number(since(began_ns));
                self.number(vector.into());
                self.number(device.into());
                self.number(packets.into());
                if own > 0 {
                    self.number(own.into());
                }
            }
            What::Hardirq { irq, began_ns } => {
                self.number(since(began_ns));
                if let Irq::Line(line) = irq {
                    self.number(line.into());
                }
            }
            What::Arrived(at) => self.transfer(ARRIVED, at),
            What::Read { tid, at } => {
                self.transfer(READ, at);
                self.number(tid.into());
            }
            What::Wrote { tid, at } => {
                self.transfer(WROTE, at);
                self.number(tid.into());
            }
            What::Woken(Woken { tid, since_ns, sleep, by }) => {
                self.number(tid.into());
                self.number(since(since_ns));
                if let Some(stack) = sleep.stack {
                    self.number(stack.into());
                }
                let (how, who) = match by {
                    Waker::Task(tid) => (0, tid),
                    Waker::Hardirq(Irq::Line(line)) => (1, line),
                    Waker::Hardirq(Irq::Timer) => (2, 0),
                    Waker::Hardirq(Irq::Call) => (3, 0),
                    Waker::Unseen => (4, 0),
                    Waker::Idle => (5, 0),
                    Waker::Softirq { vector, during } => (6 + u64::from(vector), during),
                };
                self.number(how);
                self.number(who.into());
            }
            What::Lost { count, since_ns } => {
                self.number(since(since_ns));
                self.number(count);
            }
            What::Steal { ns, since_ns } => {
                self.number(since(since_ns));
                self.number(ns);
            }
        }
    }

    fn kind(&self, event: &Event) -> (u8, u8) {
        match event.what {
            What::Switch { prev, left, throttled, .. } => {
                let left = LEFT.iter().position(|&one| one == left).expect("all are listed") as u8;
                let kind = match throttled {
                    true => SWITCH_THROTTLED,
                    false if self.seen.task_of(event.cpu) == Some(prev) => SWITCH_ON,
                    false => SWITCH,
                };
                (kind, left)
            }
            What::Softirq { own, .. } => (SOFTIRQ, u8::from(own > 0)),
            What::Hardirq { irq: Irq::Line(_), .. } => (HARDIRQ, 0),
            What::Hardirq { irq: Irq::Timer, .. } => (HARDIRQ, 1),
            What::Hardirq { irq: Irq::Call, .. } => (HARDIRQ, 2),
            What::Arrived(_) => (ARRIVED, 0),
            What::Read { .. } => (READ, 0),
            What::Wrote { .. } => (WROTE, 0),
            What::Woken(Woken { sleep, .. }) => {
                let stack = u8::from(sleep.stack.is_some());
                let bits = u8::from(sleep.uninterruptible) | u8::from(sleep.as_for_a_lock) << 1 | stack << 2;
                (WOKEN, bits)
            }
            What::Lost { .. } => (LOST, 0),
            What::Steal { .. } => (STEAL, 0),
        }
    }

    fn transfer(&mut self, kind: u8, at: Transfer) {
        let connection = (at.local_port, at.peer_port, at.peer_tail);
        let fresh = self.places.len() as u32;
        let place = *self.places.entry(connection).or_insert(fresh);
        self.number(place.into());
        if place == fresh {
            self.seen.connections.push((connection, [0; 3]));
            self.number(at.local_port.into());
            self.number(at.peer_port.into());
            self.number(at.peer_tail.into());
        }
        let last = &mut self.seen.connections[place as usize].1[place_of(kind)];
        let last = std::mem::replace(last, at.seq);
        self.signed(i64::from(at.seq.wrapping_sub(last) as i32));
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn signed(&mut self, number: i64) {
        self.number((number << 1 ^ number >> 63) as u64);
    }

    /// Number of events since the last [`take`](Self::take).
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The bytes of all events since the last call; later events do not need them.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }
}

/// Bytes that are not events: what was expected, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Undecodable {
    pub at: usize,
    pub expected: &'static str,
}

/// Decodes events.
pub(super) struct Decoder<'a> {
    seen: CodecState,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { seen: CodecState::default(), bytes, at: 0 }
    }

    fn event(&mut self) -> Result<Event, Undecodable> {
        let head = self.byte("an event")?;
        if head & OTHER_CPU != 0 {
            self.seen.cpu = self.small("a CPU's number")?;
        }
        let time_ns = self.seen.time_ns.wrapping_add(self.signed()? as u64);
        self.seen.time_ns = time_ns;
        let cpu = self.seen.cpu;
        let what = match (head & 0xf, head >> 5) {
            (kind @ (SWITCH | SWITCH_ON | SWITCH_THROTTLED), left) => {
                let left = *LEFT.get(usize::from(left)).ok_or(self.wrong("how a thread left its CPU"))?;
                let prev = match kind {
                    SWITCH_ON => self.seen.task_of(cpu).ok_or(self.wrong("who runs on this CPU"))?,
                    _ => self.small("a thread's number")?,
                };
                let next = self.small("a thread's number")?;
                self.seen.switch(cpu, next);
                What::Switch {
                    prev,
                    left,
                    next,
                    waited_ns: self.number()?,
                    throttled: kind == SWITCH_THROTTLED,
                }
            }
            (SOFTIRQ, has_own @ 0..=1) => {
                let began_ns = time_ns.wrapping_sub(self.number()?);
                let vector = self.small("a softirq's number")?;
                let device = self.small("an interface's number")?;
                let packets = self.small("a number of packets")?;
                let own = if has_own > 0 { self.small("a number of packets")? } else { 0 };
                What::Softirq { vector, device, packets, own, began_ns }
            }
            (HARDIRQ, kind @ 0..=2) => {
                let began_ns = time_ns.wrapping_sub(self.number()?);
                let irq = match kind {
                    0 => Irq::Line(self.small("an interrupt's number")?),
                    1 => Irq::Timer,
                    _ => Irq::Call,
                };
                What::Hardirq { irq, began_ns }
            }
            (ARRIVED, 0) => What::Arrived(self.transfer(ARRIVED)?),
            (READ, 0) => {
                let at = self.transfer(READ)?;
                What::Read { tid: self.small("a thread's number")?, at }
            }
            (WROTE, 0) => {
                let at = self.transfer(WROTE)?;
                What::Wrote { tid: self.small("a thread's number")?, at }
            }
            (WOKEN, bits) => {
                let tid = self.small("a thread's number")?;
                let since_ns = time_ns.wrapping_sub(self.number()?);
                let stack = if bits & 4 != 0 { Some(self.small("a stack's number")?) } else { None };
                let (how, who) = (self.number()?, self.small("who woke a thread")?);
                let by = match how {
                    0 => Waker::Task(who),
                    1 => Waker::Hardirq(Irq::Line(who)),
                    2 => Waker::Hardirq(Irq::Timer),
                    3 => Waker::Hardirq(Irq::Call),
                    4 => Waker::Unseen,
                    5 => Waker::Idle,
                    softirq => match u8::try_from(softirq - 6) {
                        Ok(vector) => Waker::Softirq { vector, during: who },
                        Err(_) => return Err(self.wrong("a softirq's number")),
                    },
                };
                let sleep = Sleep { stack, uninterruptible: bits & 1 != 0, as_for_a_lock: bits & 2 != 0 };
                What::Woken(Woken { tid, since_ns, sleep, by })
            }
            (LOST, 0) => {
                let since_ns = time_ns.wrapping_sub(self.number()?);
                What::Lost { count: self.number()?, since_ns }
            }
            (STEAL, 0) => {
                let since_ns = time_ns.wrapping_sub(self.number()?);
                What::Steal { ns: self.number()?, since_ns }
            }
            _ => return Err(self.wrong("a kind of event")),
        };
        Ok(Event { time_ns, cpu, what })
    }

    fn transfer(&mut self, kind: u8) -> Result<Transfer, Undecodable> {
        let place: u32 = self.small("a connection's place")?;
        if place as usize == self.seen.connections.len() {
            let local_port = self.small("a port")?;
            let peer_port = self.small("a port")?;
            let peer_tail = self.small("an address")?;
            self.seen.connections.push(((local_port, peer_port, peer_tail), [0; 3]));
        }
        if place as usize >= self.seen.connections.len() {
            return Err(self.wrong("a connection that was told of"));
        }
        let distance = self.signed()? as u32;
        let (connection, last) = &mut self.seen.connections[place as usize];
        let last = &mut last[place_of(kind)];
        *last = last.wrapping_add(distance);
        let (local_port, peer_port, peer_tail) = *connection;
        Ok(Transfer { local_port, peer_port, peer_tail, seq: *last })
    }

    fn wrong(&self, expected: &'static str) -> Undecodable {
        Undecodable { at: self.at, expected }
    }

    fn byte(&mut self, expected: &'static str) -> Result<u8, Undecodable> {
        let byte = *self.bytes.get(self.at).ok_or(self.wrong(expected))?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    fn number(&mut self) -> Result<u64, Undecodable> {
        // Most numbers have one byte or two.
        match self.bytes.get(self.at..) {
            Some(&[low, ..]) if low < 0x80 => {
                self.at += 1;
                Ok(low.into())
            }
            Some(&[low, high, ..]) if high < 0x80 => {
                self.at += 2;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, Undecodable> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte("a number")?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number of at most ten bytes"))
    }

    fn small<T: TryFrom<u64>>(&mut self, expected: &'static str) -> Result<T, Undecodable> {
        let number = self.number()?;
        T::try_from(number).map_err(|_| self.wrong(expected))
    }

    fn signed(&mut self) -> Result<i64, Undecodable> {
        let number = self.number()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }
}

impl Iterator for Decoder<'_> {
    type Item = Result<Event, Undecodable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let event = self.event();
        if event.is_err() {
            self.bytes = &[];
        }
        Some(event)
    }
}
