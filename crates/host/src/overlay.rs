//! A recording laid over a leg of a call: what the thread that had it in hand did, to the nanosecond.
//!
//! Two passes over the events. The first finds, by connection and sequence number, when the call's bytes reached their
//! socket, which thread read them and which one wrote the answer. The second takes what these threads did.

use crate::event::{Event, Sleep, Tid, Transfer, Waker, What, Woken};
use crate::timeline::{Interval, Taker, Timeline};
use spangap_model::Doing;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A connection, as events name it.
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
}

/// A leg to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Begin, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
    /// The call's connection.
    pub connection: Connection,
    /// The call begins here with bytes: all before this sequence number.
    pub read_to: Option<u32>,
    /// Whether they come at the window's begin, and not before it.
    pub reads: bool,
    /// The host's own bytes of the call begin with this sequence number.
    pub write_from: Option<u32>,
    /// Whether they leave at the window's end, and not after it.
    pub writes: bool,
}

/// A part of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What its thread did.
    pub doing: Doing,
    /// Who had the CPU meanwhile.
    pub taker: Option<Taker>,
    /// Of a sleep whose end was seen: how it slept, and who woke it.
    pub wait: Option<(Sleep, Waker)>,
    /// Nanoseconds.
    pub ns: u64,
}

/// A window, split. The parts sum to it exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Laid {
    /// Parts, one for each thing done and taker.
    pub parts: Vec<Part>,
    /// Threads that had the call in hand, in order.
    pub threads: Vec<Tid>,
}

/// Who had a call in hand, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hands {
    /// When the last byte reached its socket.
    pub arrived_ns: Option<u64>,
    /// Who had read it, and when.
    pub read: Option<(Tid, u64)>,
    /// Who wrote the first byte of the host's own, and when it began to.
    pub wrote: Option<(Tid, u64)>,
}

impl Hands {
    /// Whether any thread is known.
    pub fn any(&self) -> bool {
        self.read.is_some() || self.wrote.is_some()
    }
}

/// How far outside of a window the events that belong to it may lie: a window is one leg of a call.
const AROUND_NS: u64 = 60_000_000_000;

/// Finds the [`Hands`] of windows.
#[derive(Debug)]
pub struct Finder<'a> {
    windows: &'a [Window],
    by_connection: HashMap<Connection, Vec<usize>>,
    hands: Vec<Hands>,
}

impl<'a> Finder<'a> {
    /// Of these.
    pub fn new(windows: &'a [Window]) -> Finder<'a> {
        let mut by_connection: HashMap<Connection, Vec<usize>> = HashMap::new();
        for (place, window) in windows.iter().enumerate() {
            by_connection.entry(window.connection).or_default().push(place);
        }
        Finder { windows, by_connection, hands: vec![Hands::default(); windows.len()] }
    }

    /// Takes in one event; they come in order of time.
    pub fn on(&mut self, event: &Event) {
        let at = match &event.what {
            What::Arrived(at) | What::Read { at, .. } | What::Wrote { at, .. } => at,
            _ => return,
        };
        let Some(places) = self.by_connection.get(&Connection::of(at)) else { return };
        for &place in places {
            let (window, hands) = (&self.windows[place], &mut self.hands[place]);
            if event.time_ns.saturating_add(AROUND_NS) < window.from_ns
                || event.time_ns > window.to_ns.saturating_add(AROUND_NS)
            {
                continue;
            }
            match event.what {
                What::Arrived(at) if hands.arrived_ns.is_none() && reaches(at.seq, window.read_to) => {
                    hands.arrived_ns = Some(event.time_ns);
                }
                What::Read { tid, at } if hands.read.is_none() && reaches(at.seq, window.read_to) => {
                    hands.read = Some((tid, event.time_ns));
                }
                What::Wrote { tid, at } if begins_at_or_before(at.seq, window.write_from) => {
                    hands.wrote = Some((tid, event.time_ns));
                }
                _ => {}
            }
        }
    }

    /// What was found.
    pub fn finish(self) -> Vec<Hands> {
        self.hands
    }
}

/// Half of the sequence space: numbers further apart are not compared.
const HALF: u32 = 1 << 31;

fn reaches(before: u32, end: Option<u32>) -> bool {
    end.is_some_and(|end| before.wrapping_sub(end) < HALF)
}

fn begins_at_or_before(seq: u32, first: Option<u32>) -> bool {
    first.is_some_and(|first| first.wrapping_sub(seq) < HALF)
}

/// A stretch of a window that one thread answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from_ns: u64,
    to_ns: u64,
    tid: Option<Tid>,
    /// Until then a thread that is blocked waits for data that is at the tap already.
    late_until_ns: u64,
}

/// Which thread answers for which stretch of a window: who reads, until it has read; then it, if it also writes, else
/// nobody who is known; who writes, from then on.
fn stretches(window: &Window, hands: &Hands) -> Vec<Stretch> {
    let within = |ns: u64| ns.clamp(window.from_ns, window.to_ns);
    let mut all = Vec::new();
    let mut add = |from_ns: u64, to_ns: u64, tid: Option<Tid>, late_until_ns: u64| {
        if to_ns > from_ns {
            all.push(Stretch { from_ns, to_ns, tid, late_until_ns });
        }
    };
    let (reader, writer) = (hands.read.map(|(tid, _)| tid), hands.wrote.map(|(tid, _)| tid));
    let read_ns = match (window.reads, hands.read) {
        (true, Some((_, at))) => within(at),
        (true, None) if !window.writes => window.to_ns,
        _ => window.from_ns,
    };
    let late_until_ns = hands.arrived_ns.map_or(window.from_ns, within).min(read_ns);
    add(window.from_ns, read_ns, reader, late_until_ns);
    let wrote_ns = match (window.writes, hands.wrote) {
        // Without anything read on the way the writer prepares what it writes.
        (true, Some(_)) if !window.reads => window.from_ns,
        (true, Some((_, at))) => within(at).max(read_ns),
        _ => window.to_ns,
    };
    let between = match (reader, writer) {
        (Some(reader), Some(writer)) => (reader == writer).then_some(reader),
        // The reader goes on with what it has read until the application has it.
        (reader, None) => reader,
        (None, Some(_)) => None,
    };
    let between = if window.reads && !window.writes { reader } else { between };
    add(read_ns, wrote_ns, between, 0);
    add(wrote_ns, window.to_ns, writer, 0);
    all
}

/// What is told apart in a window: what was done, who had the CPU, and of a sleep what for and who ended it.
type Key = (Doing, Option<Taker>, Option<(Sleep, Waker)>);

/// A sleep begins with the switch away from the thread. Clocks that were set anew round both.
const SAME_MOMENT_NS: u64 = 1_000;

/// Whether a thread is one of those.
type Watched = Box<dyn FnMut(Tid) -> bool>;

/// Lays windows over what their threads did.
pub struct Layer {
    timeline: Timeline<Watched>,
    /// Stretches with the number of their window, by thread.
    stretches: HashMap<Tid, Vec<(usize, Stretch)>>,
    parts: Vec<BTreeMap<Key, u64>>,
    /// The last sleep of each of these threads that ended.
    woken: HashMap<Tid, Woken>,
    laid: Vec<Laid>,
}

impl Layer {
    /// For windows and those who had them in hand; the events begin at `began_ns`.
    pub fn new(windows: &[Window], hands: &[Hands], began_ns: u64) -> Layer {
        let mut by_tid: HashMap<Tid, Vec<(usize, Stretch)>> = HashMap::new();
        let mut parts = vec![BTreeMap::new(); windows.len()];
        let mut laid = vec![Laid::default(); windows.len()];
        for (place, (window, hands)) in windows.iter().zip(hands).enumerate() {
            for stretch in stretches(window, hands) {
                // What no interval covers stays unknown.
                *parts[place].entry((Doing::Unknown, None, None)).or_insert(0) +=
                    stretch.to_ns - stretch.from_ns;
                if let Some(tid) = stretch.tid {
                    by_tid.entry(tid).or_default().push((place, stretch));
                    if !laid[place].threads.contains(&tid) {
                        laid[place].threads.push(tid);
                    }
                }
            }
        }
        let watched: HashSet<Tid> = by_tid.keys().copied().collect();
        let timeline = Timeline::new(began_ns, Box::new(move |tid| watched.contains(&tid)) as Watched);
        Layer { timeline, stretches: by_tid, parts, woken: HashMap::new(), laid }
    }

    /// Takes in one event; they come in order of time.
    pub fn on(&mut self, event: &Event) {
        if let What::Woken(woken) = event.what
            && self.stretches.contains_key(&woken.tid)
        {
            self.woken.insert(woken.tid, woken);
        }
        let (stretches, parts, woken) = (&self.stretches, &mut self.parts, &self.woken);
        self.timeline.on(event, &mut |tid, interval| lay(tid, interval, stretches, woken, parts));
    }

    /// The windows, in the order given. The events end at `end_ns`.
    pub fn finish(mut self, end_ns: u64) -> Vec<Laid> {
        let (stretches, parts, woken) = (&self.stretches, &mut self.parts, &self.woken);
        self.timeline.finish(end_ns, &mut |tid, interval| lay(tid, interval, stretches, woken, parts));
        for (laid, parts) in self.laid.iter_mut().zip(self.parts) {
            laid.parts = parts
                .into_iter()
                .filter(|(_, ns)| *ns > 0)
                .map(|((doing, taker, wait), ns)| Part { doing, taker, wait, ns })
                .collect();
        }
        self.laid
    }
}

fn lay(
    tid: Tid,
    interval: &Interval,
    stretches: &HashMap<Tid, Vec<(usize, Stretch)>>,
    woken: &HashMap<Tid, Woken>,
    parts: &mut [BTreeMap<Key, u64>],
) {
    let sleep = woken.get(&tid).filter(|woken| {
        matches!(interval.doing, Doing::Blocked | Doing::Stopped)
            && woken.since_ns.abs_diff(interval.from_ns) <= SAME_MOMENT_NS
    });
    let wait = sleep.map(|woken| (woken.sleep, woken.by));
    for (place, stretch) in stretches.get(&tid).into_iter().flatten() {
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
            *parts.entry((doing, taker, wait)).or_insert(0) += ns;
        };
        add(Doing::SoftirqLate, None, None, late);
        add(interval.doing, interval.taker, wait, to - from - late);
        // All of the stretch was unknown until now.
        if let Some(unknown) = parts.get_mut(&(Doing::Unknown, None, None)) {
            *unknown = unknown.saturating_sub(to - from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Left;
    use proptest::prelude::*;

    const CONNECTION: Connection = Connection { local_port: 50051, peer_port: 40_000, peer_tail: 7 };
    const HOG: Tid = 20;

    fn transfer(seq: u32) -> Transfer {
        Transfer { local_port: 50051, peer_port: 40_000, peer_tail: 7, seq }
    }

    fn switch(time_ns: u64, prev: Tid, left: Left, next: Tid, waited_ns: u64) -> Event {
        Event { time_ns, cpu: 0, what: What::Switch { prev, left, next, waited_ns, throttled: false } }
    }

    fn event(time_ns: u64, what: What) -> Event {
        Event { time_ns, cpu: 0, what }
    }

    fn window(from_ns: u64, to_ns: u64, reads: bool, writes: bool) -> Window {
        let (read_to, write_from) = (Some(150), Some(900));
        Window { from_ns, to_ns, connection: CONNECTION, read_to, reads, write_from, writes }
    }

    /// A request arrives at 1200, thread 10 is woken at 1300, gets the CPU at 3000, reads at 3100; `writer` writes at
    /// 3500.
    fn events(writer: Tid) -> Vec<Event> {
        vec![
            switch(50, 10, Left::Blocked, 0, 0),
            switch(100, 0, Left::Runnable, HOG, 0),
            event(900, What::Arrived(transfer(100))),
            event(1200, What::Arrived(transfer(150))),
            switch(3000, HOG, Left::Runnable, 10, 1700),
            event(3050, What::Read { tid: 10, at: transfer(100) }),
            event(3100, What::Read { tid: 10, at: transfer(150) }),
            event(3500, What::Wrote { tid: writer, at: transfer(900) }),
            event(3600, What::Wrote { tid: writer, at: transfer(950) }),
            switch(4000, 10, Left::Blocked, HOG, 0),
            switch(6000, HOG, Left::Runnable, 10, 0),
        ]
    }

    fn laid(windows: &[Window], events: &[Event]) -> Vec<Laid> {
        let mut finder = Finder::new(windows);
        events.iter().for_each(|event| finder.on(event));
        let hands = finder.finish();
        let mut layer = Layer::new(windows, &hands, 0);
        events.iter().for_each(|event| layer.on(event));
        layer.finish(10_000)
    }

    fn sums(laid: &Laid) -> Vec<(Doing, Option<Taker>, u64)> {
        laid.parts.iter().map(|part| (part.doing, part.taker, part.ns)).collect()
    }

    #[test]
    fn a_call_is_split_by_what_its_thread_did() {
        let windows = [
            window(1000, 5000, true, true),
            window(1000, 3050, true, false),
            window(3500, 3800, false, true),
        ];
        let [whole, before, after] = <[Laid; 3]>::try_from(laid(&windows, &events(10))).expect("as many");
        let hog = Some(Taker::Task(HOG));
        assert_eq!(
            sums(&whole),
            [
                (Doing::Running, None, 1000),
                (Doing::Runnable, hog, 1700),
                (Doing::Blocked, None, 1100),
                (Doing::SoftirqLate, None, 200),
            ]
        );
        assert_eq!(whole.threads, [10]);
        assert_eq!(sums(&before)[1], (Doing::Runnable, hog, 1700));
        assert_eq!(sums(&after), [(Doing::Running, None, 300)]);
    }

    #[test]
    fn a_sleep_is_told_with_its_reason_and_its_waker() {
        let mut events = events(10);
        let sleep = Sleep { stack: Some(7), uninterruptible: true, as_for_a_lock: false };
        let by = Waker::Task(HOG);
        events.push(event(5900, What::Woken(Woken { tid: 10, since_ns: 4000, sleep, by })));
        // Of another sleep, and of another thread.
        events.push(event(5950, What::Woken(Woken { tid: 11, since_ns: 4000, sleep, by: Waker::Idle })));
        events.sort_by_key(|event| event.time_ns);
        let [whole] = <[Laid; 1]>::try_from(laid(&[window(1000, 5000, true, true)], &events)).expect("one");
        let blocked: Vec<_> = whole.parts.iter().filter(|part| part.doing == Doing::Blocked).collect();
        assert_eq!(blocked.iter().map(|part| part.ns).sum::<u64>(), 1100);
        assert!(blocked.iter().any(|part| part.wait == Some((sleep, by)) && part.ns == 1000), "{blocked:?}");
        assert!(blocked.iter().any(|part| part.wait.is_none() && part.ns == 100), "{blocked:?}");
    }

    #[test]
    fn what_another_thread_had_in_hand_is_not_known() {
        let [whole] =
            <[Laid; 1]>::try_from(laid(&[window(1000, 5000, true, true)], &events(11))).expect("one");
        let unknown: u64 =
            whole.parts.iter().filter(|part| part.doing == Doing::Unknown).map(|part| part.ns).sum();
        // From the read at 3100 to the write at 3500, and of the writer nothing is known after it.
        assert_eq!(unknown, 400 + 1500);
        assert_eq!(whole.threads, [10, 11]);
    }

    #[test]
    fn a_connection_without_events_leaves_all_unknown() {
        let other = Window {
            connection: Connection { peer_port: 1, ..CONNECTION },
            ..window(1000, 5000, true, true)
        };
        let [whole] = <[Laid; 1]>::try_from(laid(&[other], &events(10))).expect("one");
        assert_eq!(sums(&whole), [(Doing::Unknown, None, 4000)]);
        assert!(whole.threads.is_empty());
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(reaches(5, Some(5)) && reaches(3, Some(u32::MAX)) && !reaches(4, Some(5)));
        assert!(begins_at_or_before(5, Some(5)) && !begins_at_or_before(6, Some(5)));
        assert!(begins_at_or_before(u32::MAX - 3, Some(2)) && !begins_at_or_before(0, None));
    }

    proptest! {
        #[test]
        fn parts_sum_to_the_window(
            (from, length, reads, writes) in (0_u64..6000, 1_u64..4000, any::<bool>(), any::<bool>()),
            writer in prop::sample::select(vec![10, 11, HOG]),
        ) {
            let laid = laid(&[window(from, from + length, reads, writes)], &events(writer));
            let sum: u64 = laid[0].parts.iter().map(|part| part.ns).sum();
            prop_assert_eq!(sum, length);
        }
    }
}
