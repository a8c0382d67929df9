//! Host recordings, joined with the legs of calls that passed on those hosts.

use crate::GatherError;
use crate::covered::{Cover, cover, window};
use crate::tracks::{Track, Tracker};
use spangap_host::event::{Irq, Waker as By};
use spangap_host::overlay::{Handovers, Hands, Layer, Read, SplitWindow, Window};
use spangap_host::recording::{Recording, evidence};
use spangap_model::evidence::{Coverage, HostPart, HostTime, ReadBy, Waker};
use spangap_model::{Cause, Doing, Side, WaitReason};
use spangap_wire::dissect::Dissection;
use spangap_wire::hosts::{HostLeg, host_legs};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Splits legs by what the recordings show; the caveats name what could not be split.
///
/// # Errors
/// A file is not a recording.
pub fn split_legs(dissection: &mut Dissection, files: &[PathBuf]) -> Result<(), GatherError> {
    split_by_all(dissection, files, None)
}

/// The same, and returns the timelines of the threads that handled these calls.
///
/// # Errors
/// As [`split_legs`].
pub fn split_legs_with_tracks(
    dissection: &mut Dissection,
    files: &[PathBuf],
) -> Result<Vec<Track>, GatherError> {
    let mut tracks = Vec::new();
    split_by_all(dissection, files, Some(&mut tracks))?;
    Ok(tracks)
}

fn split_by_all(
    dissection: &mut Dissection,
    files: &[PathBuf],
    mut tracks: Option<&mut Vec<Track>>,
) -> Result<(), GatherError> {
    let mut legs = host_legs(dissection);
    for file in files {
        let mut recording = Recording::open(file)?;
        let split = split_by_one(dissection, &mut recording, file, &mut legs, tracks.as_deref_mut());
        let coverage = evidence(&mut recording)?.coverage.into_iter();
        dissection.recordings.extend(coverage.map(|coverage| split.of(coverage)));
    }
    if !files.is_empty() && !legs.is_empty() {
        dissection.caveats.push(format!(
            "{} of the calls shown that passed on one host are not split: no recording covers both their time and \
             the reads and writes on their connection. `spangap host record --pid`, with the program at that end, \
             records both.",
            count(legs.len(), "leg")
        ));
    }
    Ok(())
}

/// What one recording did for the calls shown.
#[derive(Default)]
struct Split {
    /// The side of the legs that it split; `None` if there are none, or of both sides.
    side: Option<Side>,
    /// Why it split none, as a sentence.
    useless: Option<String>,
    /// Where it could not be read, as a sentence.
    damage: Option<String>,
}

impl Split {
    /// The coverage of the recording, with what it did for these calls. What one that covers none of them could not record
    /// matters to nobody.
    fn of(&self, mut coverage: Coverage) -> Coverage {
        coverage.side = self.side;
        match (&self.useless, &self.damage) {
            (Some(useless), _) => coverage.cannot = vec![useless.clone()],
            (None, Some(damage)) if !coverage.cannot.contains(damage) => coverage.cannot.push(damage.clone()),
            (None, _) => {}
        }
        coverage
    }
}

/// Splits the legs that one recording covers, and removes them from the list.
fn split_by_one(
    dissection: &mut Dissection,
    recording: &mut Recording,
    file: &Path,
    legs: &mut Vec<HostLeg>,
    tracks: Option<&mut Vec<Track>>,
) -> Split {
    let began_ns = recording.meta().began_ns;
    let file = file.display();
    if !legs.iter().any(|leg| window(leg, recording).is_some_and(|window| window.from_ns >= began_ns)) {
        let useless = format!("{file} covers no time that a call shown passed on one host.");
        return Split { useless: Some(useless), ..Split::default() };
    }
    let mut damage = None;
    let Cover { legs: covered, handovers, ended_ns, other_end } =
        cover(recording, legs, &mut |error| damage = Some(format!("{error}.")));
    let (windows, hands): (Vec<Window>, Vec<Hands>) =
        covered.iter().map(|one| (one.window, one.hands)).unzip();
    let mut tracker = tracks.is_some().then(|| Tracker::new(dissection, &covered, &handovers, began_ns));
    let split = split(&windows, &hands, &handovers, recording, tracker.as_mut(), (began_ns, ended_ns));
    if let (Some(tracker), Some(tracks)) = (tracker, tracks) {
        tracks.extend(tracker.finish(recording, ended_ns));
    }
    for (one, split) in covered.iter().zip(split) {
        store(dissection, &one.leg, &split, recording);
    }
    // These three identify a leg.
    let id = |leg: &HostLeg| (leg.call, leg.nth, leg.leg);
    let taken: HashSet<(usize, usize, usize)> = covered.iter().map(|one| id(&one.leg)).collect();
    legs.retain(|leg| !taken.contains(&id(leg)));
    let mut sides = covered.iter().map(|one| one.leg.side);
    let first = sides.next();
    let side = first.filter(|first| sides.all(|side| side == *first));
    let useless = covered.is_empty().then(|| {
        let why = match other_end {
            true => {
                "the program at one end of the calls shown, but none of their legs lies on its host alone: without its \
                 spans, a call is only what packets show of it"
            }
            false => {
                "the time of calls shown, but no reads or writes on their connections: it was recorded for other \
                 processes"
            }
        };
        format!("{file} covers {why}.")
    });
    Split { side, useless, damage }
}

/// Reads the recording again, and splits the windows by what their threads did.
fn split(
    windows: &[Window],
    hands: &[Hands],
    handovers: &Handovers,
    recording: &mut Recording,
    mut tracker: Option<&mut Tracker>,
    (began_ns, ended_ns): (u64, u64),
) -> Vec<SplitWindow> {
    if windows.is_empty() {
        return Vec::new();
    }
    let mut layer = Layer::new(windows, hands, handovers, began_ns);
    // The first reading has reported any damage.
    let _reported = recording.read(&mut |event| {
        layer.on(event);
        if let Some(tracker) = &mut tracker {
            tracker.on(event);
        }
    });
    layer.finish(ended_ns)
}

/// Stores the parts of a leg in its call.
fn store(dissection: &mut Dissection, leg: &HostLeg, split: &SplitWindow, recording: &Recording) {
    let names = recording.names();
    let threads = split
        .threads
        .iter()
        .map(|tid| match names.task(*tid) {
            Some(task) => format!("{} (thread {tid})", task.comm),
            None => format!("thread {tid}"),
        })
        .collect();
    let pids: Vec<u32> =
        split.threads.iter().filter_map(|tid| names.tgid(*tid)).filter(|pid| *pid != 0).collect();
    let mut parts: Vec<HostPart> = Vec::new();
    for part in &split.parts {
        let wait = part.wait.filter(|_| !part.answered);
        let reason = wait.map(|(sleep, _)| names.reason(&sleep).0);
        let runs = part.doing == Doing::Running;
        let ended_by = wait.filter(|_| !runs).map(|(_, by)| by);
        let next = HostPart {
            doing: part.doing,
            behind: part.taker.as_ref().map(|taker| names.named(taker).seen_by(&pids)),
            waited_for: reason.filter(|reason| !runs || is_served_by_kernel(*reason)),
            woken_by: ended_by.and_then(|by| names.waker(&by)),
            waker: ended_by.and_then(waker),
            ns: part.ns,
        };
        // Sleeps on different stacks may have the same reason.
        let same = |one: &&mut HostPart| HostPart { ns: next.ns, ..(**one).clone() } == next;
        match parts.iter_mut().find(same) {
            Some(one) => one.ns += next.ns,
            None => parts.push(next),
        }
    }
    let read = split.read.map(|Read { tid, after_ns, begun_ns, held_ns }| ReadBy {
        tid,
        after_ns,
        begun_ns,
        held_ns,
    });
    if let Some(call) = dissection.calls.get_mut(leg.call).and_then(|call| call.nth(leg.nth)) {
        call.take_host(leg.leg, leg.side, HostTime { threads, tids: split.threads.clone(), read, parts });
    }
}

/// Whether the kernel has work of its own with what a thread sleeps for.
fn is_served_by_kernel(reason: WaitReason) -> bool {
    matches!(reason.cause(), Some(Cause::Memory | Cause::Disk))
}

/// Numbers of the softirqs that run timers.
const TIMERS: [u8; 2] = [1, 8];
/// Number of the softirq that delivers packets.
const NET_RX: u8 = 3;

/// What ended a wait; `None` if it was not observed.
fn waker(by: By) -> Option<Waker> {
    Some(match by {
        By::Task(tid) => Waker::Thread(tid),
        By::Hardirq(Irq::Timer) => Waker::Timer,
        By::Softirq { vector, .. } if TIMERS.contains(&vector) => Waker::Timer,
        By::Softirq { vector: NET_RX, .. } => Waker::Packets,
        By::Softirq { .. } | By::Hardirq(_) | By::Idle => Waker::Other,
        By::Unseen => return None,
    })
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
