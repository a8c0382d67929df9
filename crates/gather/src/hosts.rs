//! Host recordings, joined with the legs of calls that passed on those hosts.

use crate::GatherError;
use crate::tracks::{Track, Tracker};
use spangap_host::event::{Irq, Waker as By};
use spangap_host::overlay::{Connection, Finder, Handovers, Hands, Layer, Read, SplitWindow, Window};
use spangap_host::recording::{Recording, RecordingError};
use spangap_model::evidence::{HostPart, HostTime, ReadBy, Waker};
use spangap_wire::dissect::Dissection;
use spangap_wire::hosts::{HostLeg, host_legs};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Splits what can be split; what cannot is told among the caveats.
///
/// # Errors
/// When a file is no recording.
pub fn lay(dissection: &mut Dissection, files: &[PathBuf]) -> Result<(), GatherError> {
    lay_all(dissection, files, None)
}

/// The same, and what the threads that had these calls in hand did, moment by moment.
///
/// # Errors
/// As [`lay`].
pub fn lay_with_tracks(dissection: &mut Dissection, files: &[PathBuf]) -> Result<Vec<Track>, GatherError> {
    let mut tracks = Vec::new();
    lay_all(dissection, files, Some(&mut tracks))?;
    Ok(tracks)
}

fn lay_all(
    dissection: &mut Dissection,
    files: &[PathBuf],
    mut tracks: Option<&mut Vec<Track>>,
) -> Result<(), GatherError> {
    let mut legs = host_legs(dissection);
    for file in files {
        let mut recording = Recording::open(file)?;
        let laid = lay_one(dissection, &mut recording, file, &mut legs, tracks.as_deref_mut());
        dissection.caveats.extend(about(&recording, file, laid));
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

/// A leg that a recording covers, and whose threads it knows.
pub(crate) struct Covered {
    pub(crate) leg: HostLeg,
    pub(crate) window: Window,
    pub(crate) hands: Hands,
}

/// Which of the legs a recording covers, how calls went from thread to thread meanwhile, and where it ends.
fn cover(
    recording: &mut Recording,
    legs: &[HostLeg],
    on_damage: &mut dyn FnMut(RecordingError),
) -> (Vec<Covered>, Handovers, u64) {
    let began_ns = recording.meta().began_ns;
    let covered: Vec<(HostLeg, Window)> = legs
        .iter()
        .filter_map(|leg| Some((*leg, window(leg, recording)?)))
        .filter(|(_, window)| window.from_ns >= began_ns)
        .collect();
    let windows: Vec<Window> = covered.iter().map(|(_, window)| *window).collect();
    let mut finder = Finder::new(&windows);
    let mut ended_ns = began_ns;
    if !covered.is_empty() {
        // A damaged place ends a recording; what stands before it counts.
        let damage = recording.read(&mut |event| {
            ended_ns = ended_ns.max(event.time_ns);
            finder.on(event);
        });
        damage.unwrap_or_else(on_damage);
    }
    ended_ns = recording.end().map_or(ended_ns, |end| end.ended_ns);
    let names = recording.names();
    let (hands, handovers) = finder.finish(&|tid| names.tgid(tid));
    let all = covered.into_iter().zip(hands).map(|((leg, window), hands)| Covered { leg, window, hands });
    let known = all.filter(|one| one.hands.any() && one.window.to_ns <= ended_ns);
    (known.collect(), handovers, ended_ns)
}

/// Lays one recording over those of the legs that it covers, and takes them from the list. How many there were.
fn lay_one(
    dissection: &mut Dissection,
    recording: &mut Recording,
    file: &Path,
    legs: &mut Vec<HostLeg>,
    tracks: Option<&mut Vec<Track>>,
) -> usize {
    let began_ns = recording.meta().began_ns;
    if !legs.iter().any(|leg| window(leg, recording).is_some_and(|window| window.from_ns >= began_ns)) {
        return 0;
    }
    let caveats = &mut dissection.caveats;
    let (covered, handovers, ended_ns) =
        cover(recording, legs, &mut |error| caveats.push(format!("{error}.")));
    let (windows, held): (Vec<Window>, Vec<Hands>) =
        covered.iter().map(|one| (one.window, one.hands)).unzip();
    let mut tracker = tracks.is_some().then(|| Tracker::new(dissection, &covered, &handovers, began_ns));
    let laid = over(&windows, &held, &handovers, recording, tracker.as_mut(), (began_ns, ended_ns));
    if let (Some(tracker), Some(tracks)) = (tracker, tracks) {
        tracks.extend(tracker.finish(recording, ended_ns));
    }
    for (one, laid) in covered.iter().zip(laid) {
        take(dissection, &one.leg, &laid, recording);
    }
    // Of one call no two are the same leg.
    let id = |leg: &HostLeg| (leg.call, leg.nth, leg.leg);
    let taken: HashSet<(usize, usize, usize)> = covered.iter().map(|one| id(&one.leg)).collect();
    legs.retain(|leg| !taken.contains(&id(leg)));
    if covered.is_empty() {
        dissection.caveats.push(format!(
            "{} covers the time of calls shown, but no reads or writes on their connections: it was recorded for \
             other processes.",
            file.display()
        ));
    }
    covered.len()
}

fn over(
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
    // What is damaged was told after the first reading.
    let _told = recording.read(&mut |event| {
        layer.on(event);
        if let Some(tracker) = &mut tracker {
            tracker.on(event);
        }
    });
    layer.finish(ended_ns)
}

/// The leg in the time of the recording's events.
fn window(leg: &HostLeg, recording: &Recording) -> Option<Window> {
    let (from_ns, _) = recording.mono_ns(leg.from_ns)?;
    let (to_ns, _) = recording.mono_ns(leg.to_ns)?;
    let [.., a, b, c, d] = leg.peer.address;
    Some(Window {
        from_ns,
        to_ns,
        connection: Connection {
            local_port: leg.local.port,
            peer_port: leg.peer.port,
            peer_tail: u32::from_be_bytes([a, b, c, d]),
        },
        read_to: leg.call_read_to,
        read_from: leg.call_read_from,
        reads: leg.read_to.is_some(),
        write_from: leg.call_write_from,
        writes: leg.write_from.is_some(),
    })
    .filter(|window| window.to_ns > window.from_ns)
}

fn take(dissection: &mut Dissection, leg: &HostLeg, laid: &SplitWindow, recording: &Recording) {
    let names = recording.names();
    let threads = laid
        .threads
        .iter()
        .map(|tid| match names.task(*tid) {
            Some(task) => format!("{} (thread {tid})", task.comm),
            None => format!("thread {tid}"),
        })
        .collect();
    let pids: Vec<u32> =
        laid.threads.iter().filter_map(|tid| names.tgid(*tid)).filter(|pid| *pid != 0).collect();
    let mut parts: Vec<HostPart> = Vec::new();
    for part in &laid.parts {
        let wait = part.wait.filter(|_| !part.answered);
        let next = HostPart {
            doing: part.doing,
            behind: part.taker.as_ref().map(|taker| names.named(taker).seen_by(&pids)),
            waited_for: wait.map(|(sleep, _)| names.reason(&sleep).0),
            woken_by: wait.and_then(|(_, by)| names.waker(&by)),
            waker: wait.and_then(|(_, by)| waker(by)),
            ns: part.ns,
        };
        // Sleeps on different stacks may have one reason.
        let same = |one: &&mut HostPart| HostPart { ns: next.ns, ..(**one).clone() } == next;
        match parts.iter_mut().find(same) {
            Some(one) => one.ns += next.ns,
            None => parts.push(next),
        }
    }
    let read = laid.read.map(|Read { tid, after_ns, begun_ns, held_ns }| ReadBy {
        tid,
        after_ns,
        begun_ns,
        held_ns,
    });
    if let Some(call) = dissection.calls.get_mut(leg.call).and_then(|call| call.nth(leg.nth)) {
        call.take_host(leg.leg, leg.side, HostTime { threads, tids: laid.threads.clone(), read, parts });
    }
}

/// Numbers of the softirqs that run timers.
const TIMERS: [u8; 2] = [1, 8];
/// Number of the softirq that delivers packets.
const NET_RX: u8 = 3;

/// Who or what ended a wait; `None` where that was not seen.
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

/// What a recording cannot tell, in sentences.
fn about(recording: &Recording, file: &Path, laid: usize) -> Vec<String> {
    if laid == 0 {
        return Vec::new();
    }
    let name = file.display();
    let mut caveats: Vec<String> = recording
        .meta()
        .lacks
        .iter()
        .map(|lack| format!("{name}: {}.", lack.trim_end_matches('.')))
        .collect();
    if let Some(lost) = recording.end().map(|end| end.lost).filter(|lost| *lost > 0) {
        caveats.push(format!(
            "{name}: {} were lost while recording; what they would have shown is unknown.",
            count(lost as usize, "event")
        ));
    }
    if let Some(cut) = recording.cut() {
        caveats.push(format!("{cut}."));
    }
    caveats
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
