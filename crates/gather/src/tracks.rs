//! Timelines of the threads that handled a call.

use crate::covered::Covered;
use spangap_host::event::{Event, Sleep, Tid, Waker, What, Woken};
use spangap_host::overlay::{Handovers, threads};
use spangap_host::recording::Recording;
use spangap_host::timeline::{Interval, Timeline};
use spangap_model::{Doing, Side, Taker, WaitReason};
use spangap_wire::dissect::Dissection;
use std::collections::{HashMap, HashSet};

/// Maximum number of threads per recording; those of the slowest calls come first.
const MAX_THREADS: usize = 64;
/// Maximum number of pieces per thread; later ones are counted.
const MAX_PIECES: usize = 20_000;
/// Maximum time shown before and after a call, nanoseconds.
const MAX_AROUND_NS: u64 = 1_000_000_000;

/// Activity of one thread around the calls it handled.
#[derive(Clone, Debug, PartialEq)]
pub struct Track {
    /// End of the calls.
    pub side: Side,
    /// Name of the recorded host.
    pub host: String,
    /// The thread.
    pub tid: Tid,
    /// Its name, if known.
    pub thread: Option<String>,
    /// Pieces in order of time.
    pub pieces: Vec<Piece>,
    /// Number of omitted pieces.
    pub left_out: u64,
}

/// An activity of a thread, with times in Unix nanoseconds by its host's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Start.
    pub from_unix_ns: i64,
    /// End.
    pub to_unix_ns: i64,
    /// The activity.
    pub doing: Doing,
    /// Who had the CPU meanwhile.
    pub behind: Option<Taker>,
    /// The CPU that it ran on or waited for.
    pub cpu: Option<u16>,
    /// Why it slept, if it did and the kernel stack told.
    pub waited_for: Option<WaitReason>,
    /// Who or what ended a wait, in words.
    pub woken_by: Option<String>,
}

/// Observes the threads that handled covered legs, while a recording is read.
pub(crate) struct Tracker {
    sides: [OfSide; 2],
    timeline: Timeline<Watched>,
    woken: HashMap<Tid, Woken>,
    /// By side and thread.
    taken: HashMap<(usize, Tid), ThreadPieces>,
}

/// The threads of one side, and the time ranges around their calls.
type OfSide = (Vec<Tid>, Vec<(u64, u64)>);

/// Whether a thread is observed.
type Watched = Box<dyn FnMut(Tid) -> bool>;

impl Tracker {
    /// `began_ns` is the time of the first event.
    pub(crate) fn new(
        dissection: &Dissection,
        covered: &[Covered],
        handovers: &Handovers,
        began_ns: u64,
    ) -> Tracker {
        let sides = Side::ALL.map(|side| {
            let of_side = || covered.iter().filter(|one| one.leg.side == side);
            let (windows, hands): (Vec<_>, Vec<_>) = of_side().map(|one| (one.window, one.hands)).unzip();
            let mut tids = threads(&windows, &hands, handovers);
            tids.truncate(MAX_THREADS);
            (tids, around(dissection, of_side()))
        });
        let watched: HashSet<Tid> = sides.iter().flat_map(|(tids, _)| tids).copied().collect();
        let timeline = Timeline::new(began_ns, Box::new(move |tid| watched.contains(&tid)) as Watched);
        Tracker { sides, timeline, woken: HashMap::new(), taken: HashMap::new() }
    }

    /// Processes one event; events arrive in order of time.
    pub(crate) fn on(&mut self, event: &Event) {
        if let What::Woken(one) = event.what
            && self.sides.iter().any(|(tids, _)| tids.contains(&one.tid))
        {
            self.woken.insert(one.tid, one);
        }
        let (sides, taken, woken) = (&self.sides, &mut self.taken, &self.woken);
        self.timeline.on(event, &mut |tid, interval| take(tid, interval, sides, taken, woken));
    }

    /// The activities; the events end at `ended_ns`.
    pub(crate) fn finish(mut self, recording: &Recording, ended_ns: u64) -> Vec<Track> {
        let (sides, taken, woken) = (&self.sides, &mut self.taken, &self.woken);
        self.timeline.finish(ended_ns, &mut |tid, interval| take(tid, interval, sides, taken, woken));
        let names = recording.names();
        let mut tracks = Vec::new();
        for side in Side::ALL {
            for tid in &self.sides[side.index()].0 {
                let Some(taken) = self.taken.get(&(side.index(), *tid)) else { continue };
                let piece = |raw: &Raw| {
                    Some(Piece {
                        from_unix_ns: recording.unix_ns(raw.interval.from_ns)?.0,
                        to_unix_ns: recording.unix_ns(raw.interval.to_ns)?.0,
                        doing: raw.interval.doing,
                        behind: raw.interval.taker.as_ref().map(|taker| names.named(taker)),
                        cpu: raw.interval.cpu,
                        waited_for: raw.wait.map(|(sleep, _)| names.reason(&sleep).0),
                        woken_by: raw.wait.and_then(|(_, by)| names.waker(&by)),
                    })
                };
                tracks.push(Track {
                    side,
                    host: recording.meta().host.clone(),
                    tid: *tid,
                    thread: names.task(*tid).map(|task| task.comm.clone()),
                    pieces: taken.pieces.iter().filter_map(piece).collect(),
                    left_out: taken.left_out,
                });
            }
        }
        tracks
    }
}

/// Time ranges around calls on the recording's clock, in order and without overlaps.
fn around<'a>(dissection: &Dissection, covered: impl Iterator<Item = &'a Covered>) -> Vec<(u64, u64)> {
    let stretch = |one: &Covered| {
        let around_ns = dissection.calls.get(one.leg.call)?.duration_ns.min(MAX_AROUND_NS);
        let window = &one.window;
        Some((window.from_ns.saturating_sub(around_ns), window.to_ns.saturating_add(around_ns)))
    };
    let mut all: Vec<(u64, u64)> = covered.filter_map(stretch).collect();
    all.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

struct Raw {
    interval: Interval,
    wait: Option<(Sleep, Waker)>,
}

#[derive(Default)]
struct ThreadPieces {
    pieces: Vec<Raw>,
    left_out: u64,
}

/// A sleep begins with the switch away from the thread. Clock adjustments round both.
const SAME_MOMENT_NS: u64 = 1_000;

fn take(
    tid: Tid,
    interval: &Interval,
    sides: &[OfSide; 2],
    taken: &mut HashMap<(usize, Tid), ThreadPieces>,
    woken: &HashMap<Tid, Woken>,
) {
    let sleep = woken.get(&tid).filter(|woken| {
        matches!(interval.doing, Doing::Blocked | Doing::Stopped)
            && woken.since_ns.abs_diff(interval.from_ns) <= SAME_MOMENT_NS
    });
    let wait = sleep.map(|woken| (woken.sleep, woken.by));
    let of_side = sides.iter().enumerate().filter(|(_, (tids, _))| tids.contains(&tid));
    for (side, (_, stretches)) in of_side {
        let first = stretches.partition_point(|(_, to)| *to <= interval.from_ns);
        for (from, to) in stretches[first..].iter().take_while(|(from, _)| *from < interval.to_ns) {
            let taken = taken.entry((side, tid)).or_default();
            if taken.pieces.len() >= MAX_PIECES {
                taken.left_out += 1;
                continue;
            }
            let (from_ns, to_ns) = (interval.from_ns.max(*from), interval.to_ns.min(*to));
            taken.pieces.push(Raw { interval: Interval { from_ns, to_ns, ..*interval }, wait });
        }
    }
}
