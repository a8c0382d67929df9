//! A recording matched to a leg of a call: what the thread that had the call in hand did, to the nanosecond.
//!
//! Two passes over the events. The first finds, by connection and sequence number, when the call's bytes
//! reached their socket, which thread read them and which one wrote the answer; and, by wake-ups, the threads
//! between the two (see [`handovers`]). The second collects what these threads did.

mod between;
mod births;
mod finder;
mod handovers;

pub use finder::Finder;
pub use handovers::{Handovers, Hold};

use crate::event::{Event, Sleep, Tid, Transfer, Waker, What, Woken};
use crate::timeline::{Interval, Taker, Timeline};
use between::SinceSleep;
use rustc_hash::{FxHashMap, FxHashSet};
use spangap_model::Doing;
use std::collections::BTreeMap;

/// A connection, as events identify it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// This host's port.
    pub local_port: u16,
    /// The other end's.
    pub peer_port: u16,
    /// The last four bytes of the other end's address, in network order.
    pub peer_tail: u32,
}

impl Connection {
    fn of(at: &Transfer) -> Connection {
        Connection { local_port: at.local_port, peer_port: at.peer_port, peer_tail: at.peer_tail }
    }

    /// All of it as one number.
    fn key(self) -> u64 {
        u64::from(self.local_port) << 48 | u64::from(self.peer_port) << 32 | u64::from(self.peer_tail)
    }
}

/// A leg to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// The call's connection.
    pub connection: Connection,
    /// The call begins here with received bytes: all before this sequence number.
    pub read_to: Option<u32>,
    /// Sequence number of the first of them.
    pub read_from: Option<u32>,
    /// Whether they arrive at the start of the window rather than before it.
    pub reads: bool,
    /// Sequence number of the first byte that the host itself sends for the call.
    pub write_from: Option<u32>,
    /// Whether these leave at the end of the window rather than after it.
    pub writes: bool,
}

/// A part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What its thread was doing.
    pub doing: Doing,
    /// The taker of the CPU meanwhile.
    pub taker: Option<Taker>,
    /// If it is a sleep whose end was seen: how the thread slept, and what woke it. Of what it ran between two such sleeps, in
    /// less time than they took: these sleeps.
    pub wait: Option<(Sleep, Waker)>,
    /// Whether the thread had begun to write the answer: later waits do not belong to the call.
    pub answered: bool,
    pub ns: u64,
}

/// A window, split into parts that sum to it exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitWindow {
    /// Parts, one per activity and taker.
    pub parts: Vec<Part>,
    /// Threads that had the call in hand, in order.
    pub threads: Vec<Tid>,
    /// The read of what arrives at the start of the window.
    pub read: Option<Read>,
}

/// A thread's read of a call's last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Which.
    pub tid: Tid,
    /// Time since the start of the window, nanoseconds.
    pub after_ns: u64,
    /// How long before that it had read the call's first byte, nanoseconds.
    pub begun_ns: u64,
    /// How long it had the call in hand from then on, nanoseconds.
    pub held_ns: u64,
}

impl Read {
    fn of(window: &Window, hands: &Hands, stretches: &[Stretch]) -> Option<Read> {
        let (tid, at) = hands.read.filter(|(_, at)| window.reads && *at <= window.to_ns)?;
        let read_ns = at.max(window.from_ns);
        let mut until_ns = read_ns;
        for stretch in stretches.iter().filter(|stretch| stretch.tid == Some(tid) && !stretch.written) {
            if stretch.from_ns <= until_ns {
                until_ns = until_ns.max(stretch.to_ns);
            }
        }
        let begun_ns = hands.begun_ns.map_or(0, |begun| read_ns.saturating_sub(begun));
        Some(Read { tid, after_ns: read_ns - window.from_ns, begun_ns, held_ns: until_ns - read_ns })
    }
}

/// The threads that had a call in hand, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hands {
    /// When the last byte reached its socket.
    pub arrived_ns: Option<u64>,
    /// The thread that read it, and when.
    pub read: Option<(Tid, u64)>,
    /// When that thread had read the first byte.
    pub begun_ns: Option<u64>,
    /// The creator of that thread and the time of its creation, if that was during the recording: until then
    /// the creator had the call.
    pub created: Option<(Tid, u64)>,
    /// The thread that wrote the host's own first byte, and when it began to.
    pub wrote: Option<(Tid, u64)>,
}

impl Hands {
    /// Whether any thread is known.
    pub fn any(&self) -> bool {
        self.read.is_some() || self.wrote.is_some()
    }
}

/// An interval of a window that one thread is responsible for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from_ns: u64,
    to_ns: u64,
    tid: Option<Tid>,
    /// Until then, a blocked thread waits for data that is already at the tap.
    late_until_ns: u64,
    /// The thread has written: its later waits do not belong to the call.
    written: bool,
}

/// The thread responsible for each interval of a window: first the reader, until it has read; then those that
/// handled the call, as far as wake-ups show them; then the writer. If wake-ups show nothing, a reader that
/// also writes had it all along, and between two different threads it is unknown.
fn stretches(window: &Window, hands: &Hands, handovers: &Handovers) -> Vec<Stretch> {
    let within = |ns: u64| ns.clamp(window.from_ns, window.to_ns);
    let mut all = Vec::new();
    let mut add = |from_ns: u64, to_ns: u64, tid: Option<Tid>, late_until_ns: u64, written: bool| {
        if to_ns > from_ns {
            all.push(Stretch { from_ns, to_ns, tid, late_until_ns, written });
        }
    };
    // Bytes after the first one belong to their writer, and its sleeps meanwhile do not belong to the call.
    if let Some((tid, at)) = hands.wrote
        && !window.reads
        && !window.writes
        && at <= window.from_ns
    {
        add(window.from_ns, window.to_ns, Some(tid), 0, true);
        return all;
    }
    let (reader, writer) = (hands.read.map(|(tid, _)| tid), hands.wrote.map(|(tid, _)| tid));
    let read_ns = match (window.reads, hands.read) {
        (true, Some((_, at))) => within(at),
        (true, None) if !window.writes => window.to_ns,
        _ => window.from_ns,
    };
    let holds = holds(window, hands, handovers);
    // A span may begin before its request was read.
    let read_ns = match (hands.read, hands.wrote) {
        (Some((_, at)), Some((_, wrote))) if at < wrote && !holds.is_empty() => within(at),
        _ => read_ns,
    };
    let late_until_ns = hands.arrived_ns.map_or(window.from_ns, within).min(read_ns);
    match hands.created.filter(|(_, at)| window.reads && (window.from_ns..read_ns).contains(at)) {
        Some((creator, at)) => {
            add(window.from_ns, at, Some(creator), late_until_ns, false);
            add(at, read_ns, reader, 0, false);
        }
        None => add(window.from_ns, read_ns, reader, late_until_ns, false),
    }
    let wrote_ns = match (window.writes, hands.wrote) {
        // If nothing is read on the way, the writer prepares what it writes.
        (true, Some(_)) if !window.reads => window.from_ns,
        (true, Some((_, at))) => within(at).max(read_ns),
        _ => window.to_ns,
    };
    let between = match (reader, writer) {
        (Some(reader), Some(writer)) => (reader == writer).then_some(reader),
        // The reader continues with what it has read until the application has it.
        (reader, None) => reader,
        (None, Some(_)) => None,
    };
    let between = if window.reads && !window.writes { reader } else { between };
    if holds.is_empty() {
        add(read_ns, wrote_ns, between, 0, false);
        let began_ns = hands.wrote.map_or(wrote_ns, |(_, at)| within(at)).max(wrote_ns);
        add(wrote_ns, began_ns, writer, 0, false);
        add(began_ns, window.to_ns, writer, 0, true);
        return all;
    }
    let mut at_ns = read_ns;
    let wrote = hands.wrote.filter(|(_, wrote)| holds.last().is_some_and(|last| last.to_ns == *wrote));
    for hold in holds {
        let (from_ns, to_ns) = (within(hold.from_ns).max(at_ns), within(hold.to_ns));
        add(at_ns, from_ns, None, 0, false);
        add(from_ns, to_ns, Some(hold.tid), 0, false);
        at_ns = at_ns.max(to_ns);
    }
    let written = wrote.is_some_and(|(_, wrote)| wrote <= at_ns);
    add(at_ns, window.to_ns, writer.filter(|_| written), 0, written);
    all
}

/// The threads that handled the call of a window, as far as wake-ups show them.
fn holds(window: &Window, hands: &Hands, handovers: &Handovers) -> Vec<Hold> {
    match (hands.read, hands.wrote) {
        (Some((_, read)), Some((_, wrote))) if read < wrote => handovers.served(window.connection, hands),
        _ if window.writes && !window.reads => handovers.made(window.from_ns, hands),
        _ if window.reads && !window.writes => handovers.received(window.to_ns, hands),
        _ => Vec::new(),
    }
}

/// The threads that had the calls of these windows in hand, each once.
pub fn threads(windows: &[Window], hands: &[Hands], handovers: &Handovers) -> Vec<Tid> {
    let of_one = |(window, hands)| stretches(window, hands, handovers);
    let all = windows.iter().zip(hands).flat_map(of_one).filter_map(|stretch| stretch.tid);
    let mut seen = FxHashSet::default();
    all.filter(|tid| seen.insert(*tid)).collect()
}

/// What distinguishes parts of a window: the activity, the taker of the CPU, a sleep's reason and waker, and
/// whether the answer was being written.
type Key = (Doing, Option<Taker>, Option<(Sleep, Waker)>, bool);

/// What nobody saw.
const UNKNOWN: Key = (Doing::Unknown, None, None, false);

/// A sleep begins with the switch away from the thread. Clock adjustments round both.
const SAME_MOMENT_NS: u64 = 1_000;

/// Whether a thread is one of those.
type Watched = Box<dyn FnMut(Tid) -> bool>;

/// The intervals of one thread, visited in order of time.
struct OfThread {
    /// With the index of their window, by their start.
    all: Vec<(usize, Stretch)>,
    /// How many of them have begun.
    begun: usize,
    /// Indices of those that have begun and not ended.
    open: Vec<usize>,
    /// The thread's last completed sleep.
    woken: Option<Woken>,
    since: SinceSleep,
}

impl OfThread {
    fn new(mut all: Vec<(usize, Stretch)>) -> OfThread {
        all.sort_by_key(|(_, stretch)| stretch.from_ns);
        OfThread { all, begun: 0, open: Vec::new(), woken: None, since: SinceSleep::default() }
    }

    /// Opens those that overlap an interval, and no others; intervals come in order.
    fn go_to(&mut self, interval: &Interval) {
        let all = &self.all;
        while all.get(self.begun).is_some_and(|(_, stretch)| stretch.from_ns < interval.to_ns) {
            self.open.push(self.begun);
            self.begun += 1;
        }
        self.open.retain(|place| all[*place].1.to_ns > interval.from_ns);
    }
}

/// Splits windows by what their threads did.
pub struct Layer {
    timeline: Timeline<Watched>,
    /// The kernel numbers threads, so that nobody can choose numbers that collide.
    threads: FxHashMap<Tid, OfThread>,
    parts: Vec<BTreeMap<Key, u64>>,
    laid: Vec<SplitWindow>,
}

impl Layer {
    /// For windows and the threads that had them in hand; the events begin at `began_ns`.
    pub fn new(windows: &[Window], hands: &[Hands], handovers: &Handovers, began_ns: u64) -> Layer {
        let mut by_tid: FxHashMap<Tid, Vec<(usize, Stretch)>> = FxHashMap::default();
        let mut parts = vec![BTreeMap::new(); windows.len()];
        let mut laid = vec![SplitWindow::default(); windows.len()];
        for (place, (window, hands)) in windows.iter().zip(hands).enumerate() {
            let stretches = stretches(window, hands, handovers);
            laid[place].read = Read::of(window, hands, &stretches);
            for stretch in stretches {
                // Time without an interval stays unknown.
                *parts[place].entry(UNKNOWN).or_insert(0) += stretch.to_ns - stretch.from_ns;
                if let Some(tid) = stretch.tid {
                    by_tid.entry(tid).or_default().push((place, stretch));
                    if !laid[place].threads.contains(&tid) {
                        laid[place].threads.push(tid);
                    }
                }
            }
        }
        let watched: FxHashSet<Tid> = by_tid.keys().copied().collect();
        let timeline = Timeline::new(began_ns, Box::new(move |tid| watched.contains(&tid)) as Watched);
        let threads = by_tid.into_iter().map(|(tid, all)| (tid, OfThread::new(all))).collect();
        Layer { timeline, threads, parts, laid }
    }

    /// Processes one event; events come in order of time.
    pub fn on(&mut self, event: &Event) {
        if let What::Woken(woken) = event.what
            && let Some(thread) = self.threads.get_mut(&woken.tid)
        {
            thread.woken = Some(woken);
        }
        let (threads, parts) = (&mut self.threads, &mut self.parts);
        self.timeline.on(event, &mut |tid, interval| {
            if let Some(thread) = threads.get_mut(&tid) {
                lay(interval, thread, parts);
            }
        });
    }

    /// The windows, in the given order. The events end at `end_ns`.
    pub fn finish(mut self, end_ns: u64) -> Vec<SplitWindow> {
        let (threads, parts) = (&mut self.threads, &mut self.parts);
        self.timeline.finish(end_ns, &mut |tid, interval| {
            if let Some(thread) = threads.get_mut(&tid) {
                lay(interval, thread, parts);
            }
        });
        for (laid, parts) in self.laid.iter_mut().zip(self.parts) {
            laid.parts = parts
                .into_iter()
                .filter(|(_, ns)| *ns > 0)
                .map(|((doing, taker, wait, answered), ns)| Part { doing, taker, wait, answered, ns })
                .collect();
        }
        self.laid
    }
}

fn lay(interval: &Interval, thread: &mut OfThread, parts: &mut [BTreeMap<Key, u64>]) {
    let sleep = thread.woken.filter(|woken| {
        matches!(interval.doing, Doing::Blocked | Doing::Stopped)
            && woken.since_ns.abs_diff(interval.from_ns) <= SAME_MOMENT_NS
    });
    let wait = sleep.map(|woken| (woken.sleep, woken.by));
    let length_ns = interval.to_ns - interval.from_ns;
    match interval.doing {
        Doing::Running => thread.since.runs(length_ns),
        Doing::Blocked => thread.since.sleeps(wait, length_ns, parts),
        _ => {}
    }
    thread.go_to(interval);
    for place in &thread.open {
        let (place, stretch) = &thread.all[*place];
        let (from, to) = (interval.from_ns.max(stretch.from_ns), interval.to_ns.min(stretch.to_ns));
        if to <= from {
            continue;
        }
        let late = match interval.doing {
            Doing::Blocked => stretch.late_until_ns.clamp(from, to) - from,
            _ => 0,
        };
        let parts = &mut parts[*place];
        let mut add = |doing: Doing, taker: Option<Taker>, wait: Option<(Sleep, Waker)>, ns: u64| {
            let answered = wait.is_some() && stretch.written;
            *parts.entry((doing, taker, wait, answered)).or_insert(0) += ns;
        };
        add(Doing::SoftirqLate, None, None, late);
        add(interval.doing, interval.taker, wait, to - from - late);
        if interval.doing == Doing::Running {
            thread.since.runs_in(*place, interval.taker, to - from);
        }
        // So far, the whole interval was unknown.
        if let Some(unknown) = parts.get_mut(&UNKNOWN) {
            *unknown = unknown.saturating_sub(to - from);
        }
    }
}

#[cfg(test)]
mod tests;
