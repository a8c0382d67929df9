//! Calls with everything a folder has about them: legs, findings, packets at both taps, the threads at both ends, and
//! both spans, on one axis with the uncertainty of the clocks.

use crate::tracks::Track;
use crate::{GatherError, Sources, hosts, spans};
use serde::Serialize;
use spangap_model::{Doing, Side, WaitReason};
use spangap_wire::call::Call;
use spangap_wire::dissect::{Dissection, OnProgress, Settings, dissect};
use spangap_wire::ladder::ladder_of;
use spangap_wire::report::{Axis, CallReport, DissectReport, Extras};
use spangap_wire::source::Capture;
use std::sync::atomic::AtomicBool;

/// Which calls, and how much of them.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Calls of these traces; empty for any.
    pub trace_ids: Vec<[u8; 16]>,
    /// At most so many, the slowest.
    pub calls: usize,
    /// So many of them packet by packet.
    pub ladders: usize,
}

impl Selection {
    /// The calls of one trace: more than one where it was tried again, or calls on.
    pub fn of_trace(trace_id: [u8; 16]) -> Selection {
        Selection { trace_ids: vec![trace_id], calls: 16, ladders: 16 }
    }

    /// What is worth a look in a folder, and is not too much for whoever draws it.
    pub const SLOWEST: Selection = Selection { trace_ids: Vec::new(), calls: 200, ladders: 50 };
}

/// What was gathered: the calls, and what brings their parts to one axis.
#[derive(Debug)]
pub struct Gathered {
    /// The calls, their clocks, caveats.
    pub dissection: Dissection,
    /// In the order of [`Dissection::calls`], with ladders.
    pub reports: Vec<CallReport>,
    /// What threads did.
    pub tracks: Vec<Track>,
    settings: Settings,
}

/// What a page shows of calls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WholeCalls {
    /// Slowest first.
    pub calls: Vec<WholeCall>,
    /// What these figures cannot tell, in sentences.
    pub caveats: Vec<String>,
}

/// A call on one axis. Keys that end in `_ns` and are of no call's own are nanoseconds since its `axis` began.
#[derive(Clone, Debug, Serialize)]
pub struct WholeCall {
    /// As in `spangap dissect --json`.
    #[serde(flatten)]
    pub call: CallReport,
    /// What the axis is.
    pub axis: AxisReport,
    /// The CLIENT span.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_span: Option<Stretch>,
    /// The SERVER span.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_span: Option<Stretch>,
    /// What threads did at both ends, the client's first.
    pub tracks: Vec<TrackReport>,
}

/// The axis of a call.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AxisReport {
    /// The end whose clock it goes by: `client`, or `server` where the client's packets are missing.
    pub base: Side,
    /// Its zero by that clock, Unix nanoseconds.
    pub start_unix_ns: i64,
    /// What was added to times of the other end. `null` where nothing bounds the clocks: then its times are uncorrected.
    pub correction_ns: Option<i64>,
    /// How far off that may be either way.
    pub correction_bound_ns: Option<u64>,
}

/// From one moment to another.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stretch {
    /// Begin.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// How far off both may be, either way; `null` where nothing bounds that.
    pub bound_ns: Option<u64>,
}

/// What a thread did.
#[derive(Clone, Debug, Serialize)]
pub struct TrackReport {
    /// At which end.
    pub side: Side,
    /// Name of the recorded host.
    pub host: String,
    /// Thread id.
    pub tid: u32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// How far off all its times may be either way; `null` where nothing bounds that.
    pub bound_ns: Option<u64>,
    /// In order of time.
    pub pieces: Vec<PieceReport>,
    /// Pieces beyond those kept.
    pub left_out: u64,
}

/// What a thread did from one moment to another.
#[derive(Clone, Debug, Serialize)]
pub struct PieceReport {
    /// Begin.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// What.
    pub doing: Doing,
    /// Who had the CPU meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// The CPU, where it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
    /// Of several that are told as one, how many: it has the name of what took longest of it.
    #[serde(skip_serializing_if = "is_one")]
    pub of: u32,
    /// Of a wait: what for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<WaitReason>,
    /// Of a wait: who or what ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<String>,
}

/// Pieces of a thread in the answer about one call: more than a screen has columns to tell apart.
const MOST_PIECES: usize = 1_000;
/// Neighbours that do the same and are shorter than this part of the call are told as one.
const GRAINS: u64 = 2_000;

/// Reads what a folder has of some calls.
///
/// # Errors
/// When a source cannot be read, or there is no capture among them.
pub fn gather(
    sources: &Sources,
    selection: &Selection,
    on_progress: &mut OnProgress<'_>,
    stop: &AtomicBool,
) -> Result<Gathered, GatherError> {
    if sources.captures.is_empty() {
        return Err(GatherError::NoCapture(sources.folder.clone()));
    }
    let read = spans::read_all(&sources.spans, &selection.trace_ids, false, stop)?;
    let captures = sources.captures.iter().map(|path| Capture::open(path)).collect::<Result<_, _>>()?;
    let settings = Settings {
        slowest: selection.calls,
        trace_ids: selection.trace_ids.clone(),
        spans: read.spans,
        ..Settings::default()
    };
    let mut dissection = dissect(captures, &settings, on_progress)?;
    dissection.caveats.extend(read.caveats);
    let tracks = hosts::lay_with_tracks(&mut dissection, &sources.recordings)?;
    let mut extras = Extras::default();
    for (place, call) in dissection.calls.iter().take(selection.ladders).enumerate() {
        match ladder_of(&dissection, call) {
            Ok(ladder) => drop(extras.ladders.insert(place, ladder)),
            Err(error) => {
                dissection.caveats.push(format!("No calls are shown packet by packet: {error}."));
                break;
            }
        }
    }
    let reports = DissectReport::new(&dissection, &settings, &extras).calls;
    Ok(Gathered { dissection, reports, tracks, settings })
}

impl Gathered {
    /// Each call on its own axis.
    pub fn calls(&self) -> WholeCalls {
        let calls = self.dissection.calls.iter().zip(&self.reports);
        WholeCalls {
            calls: calls.filter_map(|(call, report)| self.whole(call, report)).collect(),
            caveats: self.dissection.caveats.clone(),
        }
    }

    fn whole(&self, call: &Call, report: &CallReport) -> Option<WholeCall> {
        let axis = Axis::of(call, &self.dissection)?;
        let correction = axis.correction(axis.base().other(), axis.start_unix_ns());
        let [client_span, server_span] = self.spans(call, &axis);
        let mut tracks: Vec<TrackReport> =
            self.tracks.iter().filter_map(|track| on_axis(track, &axis, call.duration_ns)).collect();
        tracks.sort_by_key(|track| track.side);
        Some(WholeCall {
            call: report.clone(),
            axis: AxisReport {
                base: axis.base(),
                start_unix_ns: axis.start_unix_ns(),
                correction_ns: correction.map(|(ns, _)| ns),
                correction_bound_ns: correction.map(|(_, bound)| bound),
            },
            client_span,
            server_span,
            tracks,
        })
    }

    /// The spans of a call on its axis, the client's first.
    pub(crate) fn spans(&self, call: &Call, axis: &Axis<'_>) -> [Option<Stretch>; 2] {
        let trace = call.halves.exchanges.iter().flatten().find_map(|half| half.trace);
        let times = trace.and_then(|trace| self.settings.spans.times.get(&(trace.trace_id, trace.span_id)));
        Side::ALL.map(|side| {
            let (from, to) = match side {
                Side::Client => times?.client?,
                Side::Server => times?.server?,
            };
            Some(Stretch {
                from_ns: axis.since_start_ns(side, from),
                to_ns: axis.since_start_ns(side, to),
                bound_ns: axis.correction(side, from).map(|(_, bound)| bound),
            })
        })
    }
}

/// A thread during a call and a tenth of it before and after; `None` for one that was not seen then.
fn on_axis(track: &Track, axis: &Axis<'_>, duration_ns: u64) -> Option<TrackReport> {
    let around = i64::try_from(duration_ns / 10).unwrap_or(i64::MAX);
    let end = i64::try_from(duration_ns).unwrap_or(i64::MAX).saturating_add(around);
    let mut pieces = Vec::new();
    for piece in &track.pieces {
        let from_ns = axis.since_start_ns(track.side, piece.from_unix_ns).max(-around);
        let to_ns = axis.since_start_ns(track.side, piece.to_unix_ns).min(end);
        if to_ns <= from_ns {
            continue;
        }
        pieces.push(PieceReport {
            from_ns,
            to_ns,
            doing: piece.doing,
            behind: piece.behind.as_ref().map(ToString::to_string),
            cpu: piece.cpu,
            of: 1,
            waited_for: piece.waited_for,
            woken_by: piece.woken_by.clone(),
        });
    }
    let first = track.pieces.first()?;
    (!pieces.is_empty()).then(|| TrackReport {
        side: track.side,
        host: track.host.clone(),
        tid: track.tid,
        thread: track.thread.clone(),
        bound_ns: axis.correction(track.side, first.from_unix_ns).map(|(_, bound)| bound),
        pieces: merged(pieces, duration_ns),
        left_out: track.left_out,
    })
}

fn is_one(of: &u32) -> bool {
    *of == 1
}

/// Short pieces beside one another as one, so that none is left out: first those that do the same, and as long as there are
/// too many, any.
fn merged(pieces: Vec<PieceReport>, duration_ns: u64) -> Vec<PieceReport> {
    let mut grain_ns = i64::try_from(duration_ns / GRAINS).unwrap_or(i64::MAX).max(1);
    let mut pieces = merged_below(pieces, grain_ns, false);
    while pieces.len() > MOST_PIECES {
        grain_ns = grain_ns.saturating_mul(2);
        pieces = merged_below(pieces, grain_ns, true);
    }
    pieces
}

fn merged_below(pieces: Vec<PieceReport>, grain_ns: i64, any: bool) -> Vec<PieceReport> {
    let mut all: Vec<PieceReport> = Vec::new();
    // How long the longest part of the last one is, and whether it may grow.
    let (mut longest_ns, mut is_short) = (0, false);
    for piece in pieces {
        let ns = piece.to_ns - piece.from_ns;
        let short = ns < grain_ns;
        match all.last_mut() {
            Some(last) if short && is_short && (any || last.doing == piece.doing) => {
                last.to_ns = piece.to_ns;
                let of = last.of + piece.of;
                let cpu = last.cpu.filter(|cpu| Some(*cpu) == piece.cpu);
                if ns > longest_ns {
                    longest_ns = ns;
                    let from_ns = last.from_ns;
                    *last = PieceReport { from_ns, ..piece };
                }
                (last.of, last.cpu) = (of, cpu);
                // A run of short ones becomes a long one, so that the next one begins.
                is_short = !any || last.to_ns - last.from_ns < grain_ns;
            }
            _ => {
                all.push(piece);
                (longest_ns, is_short) = (ns, short);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_out_of_a_thread_that_did_very_much() {
        let piece = |at: i64| PieceReport {
            from_ns: at * 10,
            to_ns: at * 10 + 10,
            doing: [Doing::Running, Doing::Runnable, Doing::Runnable, Doing::Blocked][at as usize % 4],
            behind: (at % 4 == 2).then(|| "other (pid 1)".to_owned()),
            cpu: Some((at % 2) as u16),
            of: 1,
            waited_for: None,
            woken_by: None,
        };
        for number in [1, 5, 999, 4_000, 50_000] {
            let told = merged((0..number).map(piece).collect(), number as u64 * 10);
            assert!(told.len() <= MOST_PIECES, "{number}: {}", told.len());
            assert_eq!(told.iter().map(|one| i64::from(one.of)).sum::<i64>(), number);
            assert_eq!((told[0].from_ns, told.last().unwrap().to_ns), (0, number * 10));
            assert!(told.windows(2).all(|two| two[0].to_ns == two[1].from_ns), "{number}");
        }
        let long = PieceReport { to_ns: 100_000, doing: Doing::Stopped, ..piece(0) };
        let told =
            merged(vec![long.clone(), PieceReport { from_ns: 100_000, to_ns: 100_010, ..piece(1) }], 100_000);
        assert_eq!(
            (told.len(), told[0].of, told[0].doing),
            (2, 1, Doing::Stopped),
            "what is long stays as it is"
        );
    }
}
