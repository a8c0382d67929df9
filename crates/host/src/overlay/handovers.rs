//! Hand-overs of a call between the thread that read it and the one that wrote the response, by wake-ups.
//!
//! A server with a pool reads on one thread, works on another, and often writes on the first one again. The
//! hand-over itself happens in the program's memory, invisibly; the kernel only sees the thread that hands
//! over wake the one that takes over. So the path is followed backwards from the writer, from each sleep to
//! the thread that ended it, and only through threads that wake-ups reach from the reader: a thread woken by
//! something else did not get this call.
//!
//! What is not shown stays open. A thread that is awake takes its next call without a wake-up; it had the
//! call, at the latest, once it had answered the previous one, and earlier time is unknown. A sleep on a lock
//! or inside the kernel is not a hand-over: the sleeper still holds the call.
//!
//! A thread between the reader and the writer may have been awake as well, so that no wake-up leads from the reader
//! to the writer. A writer that slept when the call was read, and answered nothing else since, still began no sooner
//! than another thread woke it; who had the call before that is unknown.

use super::{Connection, Hands};
use crate::event::{Event, Tid, Waker, What};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of sleeps kept, about 80 MB; later calls are not followed from thread to thread.
const MOST_SLEEPS: usize = 2_000_000;
/// Maximum number of sleeps examined for one call; a call with more is not followed.
const MOST_OF_ONE: usize = 10_000;
/// Maximum number of hand-overs of one call.
const MOST_HOLDS: usize = 64;
/// A PING, a WINDOW_UPDATE, an acknowledgement of SETTINGS, or two of them in one write.
const CONTROL_BYTES: u32 = 34;
/// Number of the softirq that delivers packets.
const NET_RX: u8 = 3;
/// How far outside its windows a call's events may lie.
const AROUND_NS: u64 = 1_000_000;

/// An interval in which one thread had the call in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Who.
    pub tid: Tid,
    /// Start, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Another thread, which may have handed something over.
    By(Tid),
    /// A packet, perhaps with another call.
    Packet,
    /// A timer or a device.
    Otherwise,
    /// Irrelevant, because the sleep was not for work: it was on a lock, or uninterruptible.
    Held,
}

#[derive(Clone, Copy, Debug)]
struct Wake {
    at_ns: u64,
    /// When the sleep began.
    since_ns: u64,
    tid: Tid,
    end: End,
}

#[derive(Clone, Copy, Debug)]
struct Write {
    at_ns: u64,
    connection: Connection,
    seq: u32,
    /// Number of bytes; `None` if nothing was written after it.
    bytes: Option<u32>,
}

impl Write {
    /// HTTP/2 frames that only acknowledge or grant are not an answer.
    fn is_a_message(&self) -> bool {
        self.bytes.is_none_or(|bytes| bytes > CONTROL_BYTES)
    }
}

/// Sleeps that ended, and writes that began, during some calls.
#[derive(Debug, Default)]
pub struct Handovers {
    /// Times of the calls, in order and without overlaps.
    times: Vec<(u64, u64)>,
    /// The first of them that is not over.
    next: usize,
    wakes: Vec<Wake>,
    /// Indices of each thread's. The kernel numbers threads, so that nobody can choose numbers that collide.
    of_thread: FxHashMap<Tid, Vec<u32>>,
    writes: FxHashMap<Tid, Vec<Write>>,
    /// The last write of each connection: its thread and index. Peers choose their ports, hence the hasher with a seed.
    last_of: HashMap<u64, (Tid, usize)>,
    /// Nothing was kept from this time on.
    full_ns: Option<u64>,
}

impl Handovers {
    /// For calls in these time ranges.
    pub fn within(times: impl Iterator<Item = (u64, u64)>) -> Handovers {
        let around = |(from, to): (u64, u64)| (from.saturating_sub(AROUND_NS), to.saturating_add(AROUND_NS));
        let mut all: Vec<(u64, u64)> = times.map(around).collect();
        all.sort_unstable();
        let mut times: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all {
            match times.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => times.push((from, to)),
            }
        }
        Handovers { times, ..Handovers::default() }
    }

    /// Processes one event; events come in order of time.
    pub fn on(&mut self, event: &Event) {
        let at_ns = event.time_ns;
        match event.what {
            What::Woken(woken) if self.wanted(at_ns) => {
                let end = match woken.by {
                    _ if woken.sleep.as_for_a_lock || woken.sleep.uninterruptible => End::Held,
                    Waker::Task(by) if by != woken.tid && by != 0 => End::By(by),
                    Waker::Softirq { vector: NET_RX, .. } => End::Packet,
                    _ => End::Otherwise,
                };
                let wake = Wake { at_ns, since_ns: woken.since_ns, tid: woken.tid, end };
                self.of_thread.entry(woken.tid).or_default().push(self.wakes.len() as u32);
                self.wakes.push(wake);
            }
            What::Wrote { tid, at } if self.wanted(at_ns) => {
                let connection = Connection::of(&at);
                let all = self.writes.entry(tid).or_default();
                let last = self.last_of.insert(connection.key(), (tid, all.len()));
                all.push(Write { at_ns, connection, seq: at.seq, bytes: None });
                if let Some((last, place)) = last
                    && let Some(last) = self.writes.get_mut(&last).and_then(|all| all.get_mut(place))
                {
                    last.bytes = Some(at.seq.wrapping_sub(last.seq));
                }
            }
            _ => {}
        }
    }

    fn wanted(&mut self, at_ns: u64) -> bool {
        if self.full_ns.is_some() {
            return false;
        }
        if self.wakes.len() >= MOST_SLEEPS {
            self.full_ns = Some(at_ns);
            return false;
        }
        while self.times.get(self.next).is_some_and(|(_, to)| *to < at_ns) {
            self.next += 1;
        }
        self.times.get(self.next).is_some_and(|(from, _)| *from <= at_ns)
    }

    /// The threads that handled a call served by this host, from the read to the write, in order, perhaps
    /// with gaps. Empty if they are not shown.
    pub fn served(&self, connection: Connection, hands: &Hands) -> Vec<Hold> {
        let (Some((reader, read_ns)), Some((writer, wrote_ns))) = (hands.read, hands.wrote) else {
            return Vec::new();
        };
        if read_ns >= wrote_ns || self.full_ns.is_some_and(|full| full < wrote_ns) {
            return Vec::new();
        }
        let Some(given) = self.given(reader, read_ns, wrote_ns) else { return Vec::new() };
        let may_have = |by: Tid, at_ns: u64| given.get(&by).is_some_and(|since| *since < at_ns);
        let mut holds = Vec::new();
        let (mut tid, mut to_ns, mut receiver) = (writer, wrote_ns, None);
        while holds.len() < MOST_HOLDS {
            let answer =
                |write: &Write| write.connection.local_port == connection.local_port && write.is_a_message();
            let mut sleeps = self.sleeps(tid, read_ns, to_ns).filter(|wake| wake.end != End::Held);
            let mut handed = |wake: &Wake| match wake.end {
                End::By(by) if by != tid && may_have(by, wake.at_ns) => Some((by, wake.at_ns)),
                _ => None,
            };
            // The reader keeps what it has read, unless it slept until another thread gave something back. A
            // timer's wake-up in between brings nothing new (such as while waiting for an interpreter's lock,
            // which threads take in turns).
            let found = match tid == reader {
                true => sleeps.find(|wake| wake.end != End::Otherwise).as_ref().and_then(&mut handed),
                false => sleeps.find_map(|wake| handed(&wake)),
            };
            let since_ns = found.map_or(read_ns, |(_, at_ns)| at_ns);
            // Anything that it answered or forwarded meanwhile was another call; it had this one afterwards
            // at the latest.
            let answered = self.last_write(tid, since_ns, to_ns, answer);
            let passed_on = receiver.and_then(|receiver| {
                let given_ns = self.last_given(receiver, tid, since_ns, to_ns)?;
                self.last_write(receiver, given_ns, to_ns, answer).map(|_| given_ns)
            });
            let busy_until_ns = answered.max(passed_on);
            match (busy_until_ns, found) {
                (Some(at_ns), _) if tid == reader => {
                    holds.push(Hold { tid, from_ns: at_ns, to_ns });
                    holds.push(Hold { tid, from_ns: read_ns, to_ns: at_ns });
                    break;
                }
                (Some(at_ns), _) => {
                    holds.push(Hold { tid, from_ns: at_ns, to_ns });
                    break;
                }
                (None, Some((by, at_ns))) => {
                    holds.push(Hold { tid, from_ns: at_ns, to_ns });
                    (receiver, tid, to_ns) = (Some(tid), by, at_ns);
                }
                (None, None) if tid == reader => {
                    holds.push(Hold { tid, from_ns: read_ns, to_ns });
                    break;
                }
                (None, None) => {
                    if holds.is_empty() {
                        let woken_ns = self.roused(tid, read_ns, to_ns);
                        holds.extend(woken_ns.map(|from_ns| Hold { tid, from_ns, to_ns }));
                    }
                    break;
                }
            }
        }
        holds.reverse();
        holds.retain(|hold| hold.to_ns > hold.from_ns);
        holds
    }

    /// When another thread woke this one from what it slept at since before some moment.
    fn roused(&self, tid: Tid, slept_ns: u64, until_ns: u64) -> Option<u64> {
        let first = self.sleeps(tid, slept_ns, until_ns).last()?;
        let by_another = matches!(first.end, End::By(by) if by != tid);
        (by_another && first.since_ns <= slept_ns).then_some(first.at_ns)
    }

    /// The threads that handled a call made by this host, from `from_ns` to the write, as far back as
    /// wake-ups lead. Empty if the writer was not woken by another thread.
    pub fn made(&self, from_ns: u64, hands: &Hands) -> Vec<Hold> {
        let Some((writer, wrote_ns)) = hands.wrote.filter(|(_, at)| *at > from_ns) else { return Vec::new() };
        if self.full_ns.is_some_and(|full| full < wrote_ns) {
            return Vec::new();
        }
        let mut holds = Vec::new();
        let (mut tid, mut to_ns) = (writer, wrote_ns);
        while holds.len() < MOST_HOLDS {
            let mut sleeps = self.sleeps(tid, from_ns, to_ns).filter(|wake| wake.end != End::Held);
            let by = |wake: &Wake| match wake.end {
                End::By(by) if by != tid => Some((by, wake.at_ns)),
                _ => None,
            };
            let found = match tid == writer {
                true => sleeps.next().as_ref().and_then(by),
                false => sleeps.find_map(|wake| by(&wake)),
            };
            let since_ns = found.map_or(from_ns, |(_, at_ns)| at_ns);
            let others = self.last_write(tid, since_ns, to_ns, Write::is_a_message);
            match (others, found) {
                // A thread that nobody handed anything may have had it all along, whatever it wrote
                // meanwhile.
                (_, None) if tid == writer => break,
                (Some(at_ns), _) => {
                    holds.push(Hold { tid, from_ns: at_ns, to_ns });
                    break;
                }
                (None, Some((by, at_ns))) => {
                    holds.push(Hold { tid, from_ns: at_ns, to_ns });
                    (tid, to_ns) = (by, at_ns);
                }
                // A thread that never slept for work during this time had it all along.
                (None, None) => {
                    holds.push(Hold { tid, from_ns, to_ns });
                    break;
                }
            }
        }
        holds.reverse();
        holds.retain(|hold| hold.to_ns > hold.from_ns);
        holds
    }

    /// The thread that has a call in hand until `to_ns`, after its last byte has reached this host: the
    /// reader, or the one thread that it then woke. If it woke several, nobody knows which.
    pub fn received(&self, to_ns: u64, hands: &Hands) -> Vec<Hold> {
        let Some((reader, read_ns)) = hands.read.filter(|(_, at)| *at < to_ns) else { return Vec::new() };
        if self.full_ns.is_some_and(|full| full < to_ns) {
            return Vec::new();
        }
        let mut woken = self.between(read_ns, to_ns).iter().filter(|wake| wake.end == End::By(reader));
        let Some(first) = woken.next() else {
            return vec![Hold { tid: reader, from_ns: read_ns, to_ns }];
        };
        let mut holds = vec![Hold { tid: reader, from_ns: read_ns, to_ns: first.at_ns }];
        if woken.all(|wake| wake.tid == first.tid) {
            holds.push(Hold { tid: first.tid, from_ns: first.at_ns, to_ns });
        }
        holds
    }

    /// The threads that wake-ups lead to from the reader of the call, and since when; `None` if there are too
    /// many.
    fn given(&self, reader: Tid, read_ns: u64, wrote_ns: u64) -> Option<BTreeMap<Tid, u64>> {
        let mut given = BTreeMap::from([(reader, read_ns)]);
        let wakes = self.between(read_ns, wrote_ns);
        if wakes.len() > MOST_OF_ONE {
            return None;
        }
        for wake in wakes {
            if let End::By(by) = wake.end
                && given.get(&by).is_some_and(|since| *since < wake.at_ns)
            {
                given.entry(wake.tid).or_insert(wake.at_ns);
            }
        }
        Some(given)
    }

    /// Ends of sleeps after one moment, up to another.
    fn between(&self, after_ns: u64, until_ns: u64) -> &[Wake] {
        let from = self.wakes.partition_point(|wake| wake.at_ns <= after_ns);
        let to = self.wakes.partition_point(|wake| wake.at_ns <= until_ns);
        self.wakes.get(from..to).unwrap_or_default()
    }

    /// The same for one thread, latest first.
    fn sleeps(&self, tid: Tid, after_ns: u64, until_ns: u64) -> impl Iterator<Item = Wake> + '_ {
        let all = self.of_thread.get(&tid).map_or(&[][..], Vec::as_slice);
        let wake = |place: &u32| self.wakes[*place as usize];
        let to = all.partition_point(|place| wake(place).at_ns <= until_ns);
        let within = all[..to].iter().rev().map(wake);
        within.take_while(move |wake| wake.at_ns > after_ns)
    }

    /// When a thread last ended a sleep of another one between two moments.
    fn last_given(&self, to: Tid, by: Tid, after_ns: u64, before_ns: u64) -> Option<u64> {
        let mut sleeps = self.sleeps(to, after_ns, before_ns);
        let found = sleeps.find(|wake| wake.at_ns < before_ns && wake.end == End::By(by));
        found.map(|wake| wake.at_ns)
    }

    /// When a thread last began such a write between two moments.
    fn last_write(
        &self,
        tid: Tid,
        after_ns: u64,
        before_ns: u64,
        such: impl Fn(&Write) -> bool,
    ) -> Option<u64> {
        let all = self.writes.get(&tid)?;
        let to = all.partition_point(|write| write.at_ns < before_ns);
        let mut within = all.get(..to)?.iter().rev().take_while(|write| write.at_ns > after_ns);
        within.find(|write| such(write)).map(|write| write.at_ns)
    }
}
