//! Calls with all that a folder contains about them: legs, findings, packets at both taps, the threads at
//! both ends, and both spans, on one axis with the uncertainty of the clocks.

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

/// Selection of calls, and their level of detail.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Calls of these traces; empty for all.
    pub trace_ids: Vec<[u8; 16]>,
    /// Maximum number of calls, the slowest.
    pub calls: usize,
    /// Number of calls with individual packets.
    pub ladders: usize,
}

impl Selection {
    /// The calls of one trace: several if there were retries or nested calls.
    pub fn of_trace(trace_id: [u8; 16]) -> Selection {
        Selection { trace_ids: vec![trace_id], calls: 16, ladders: 16 }
    }

    /// A useful selection of a folder, small enough to draw.
    pub const SLOWEST: Selection = Selection { trace_ids: Vec::new(), calls: 200, ladders: 50 };
}

/// Gathered calls, and the means to convert their parts to one axis.
#[derive(Debug)]
pub struct Gathered {
    /// The calls, their clocks, caveats.
    pub dissection: Dissection,
    /// In the order of [`Dissection::calls`], with ladders.
    pub reports: Vec<CallReport>,
    /// Activity of threads.
    pub tracks: Vec<Track>,
    settings: Settings,
}

/// Calls for display on a page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WholeCalls {
    /// Slowest first.
    pub calls: Vec<WholeCall>,
    /// Limitations of these figures, in sentences.
    pub caveats: Vec<String>,
}

/// A call on one axis. Keys that end in `_ns`, except the call's own, are nanoseconds since the start of its
/// `axis`.
#[derive(Clone, Debug, Serialize)]
pub struct WholeCall {
    /// As in `spangap dissect --json`.
    #[serde(flatten)]
    pub call: CallReport,
    /// Definition of the axis.
    pub axis: AxisReport,
    /// The CLIENT span on the axis; absent without one. Without a bound, its host's clock is uncorrected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_span: Option<Stretch>,
    /// The SERVER span, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_span: Option<Stretch>,
    /// Activity of threads at both ends, the client's first.
    pub tracks: Vec<TrackReport>,
}

/// The axis of a call.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AxisReport {
    /// The end whose clock it uses: `client`, or `server` if the client's packets are missing.
    pub base: Side,
    /// Its origin by that clock, Unix nanoseconds.
    pub start_unix_ns: i64,
    /// Correction added to times of the other end. `null` if nothing bounds the clocks: its times are then
    /// uncorrected.
    pub correction_ns: Option<i64>,
    /// Maximum error of the correction in either direction.
    pub correction_bound_ns: Option<u64>,
}

/// A time interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stretch {
    /// Start.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// Maximum error of both in either direction; `null` if unbounded.
    pub bound_ns: Option<u64>,
}

/// Activity of a thread.
#[derive(Clone, Debug, Serialize)]
pub struct TrackReport {
    /// End of the call.
    pub side: Side,
    /// Name of the recorded host.
    pub host: String,
    /// Thread id on that host.
    pub tid: u32,
    /// Name of the thread, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Maximum error of all its times in either direction; `null` if unbounded.
    pub bound_ns: Option<u64>,
    /// Pieces in order of time.
    pub pieces: Vec<PieceReport>,
    /// Number of omitted pieces.
    pub left_out: u64,
}

/// An activity of a thread.
#[derive(Clone, Debug, Serialize)]
pub struct PieceReport {
    /// Start.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// The activity.
    pub doing: Doing,
    /// Who had the CPU meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// The CPU, if it was a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u16>,
    /// Number of merged pieces; the result is named after the longest.
    #[serde(skip_serializing_if = "is_one")]
    pub of: u32,
    /// Why it slept, if it did and the kernel stack told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<WaitReason>,
    /// Who or what ended a wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<String>,
}

/// Maximum number of pieces per thread in the answer about one call: more than the columns of a screen.
const MOST_PIECES: usize = 1_000;
/// Adjacent pieces with the same activity that are shorter than this fraction of the call are merged.
const GRAINS: u64 = 2_000;

/// Reads the evidence of a folder about some calls.
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
    let tracks = hosts::split_legs_with_tracks(&mut dissection, &sources.recordings)?;
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
            caveats: self.dissection.limits().cloned().collect(),
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

/// A thread during a call and a tenth of it before and after; `None` if it was not observed then.
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

/// Merges adjacent short pieces, so that none is omitted: first those with the same activity, then, while
/// there are too many, any.
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
    // Duration of the longest part of the last piece, and whether it may grow.
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
                // A run of short pieces grows into a long one, after which the next begins.
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
    fn a_very_active_thread_is_shown_completely() {
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
