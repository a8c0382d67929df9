//! Calls as a Perfetto trace: both hosts on one timeline, for ui.perfetto.dev or a copy of it.
//!
//! Protobuf rather than Chrome's JSON: JSON times are microseconds in floating point, which at Unix time
//! cannot distinguish moments 200 ns apart, and JSON tracks are threads of processes, which legs and taps are
//! not.
//!
//! All times are by the client's clock, which is not corrected. The server's times are mapped to it by the
//! midpoint of the offsets that the packets allow; each event moved in this way carries the bound
//! (`bound_ns`), and the track `clocks` shows it over time.

mod draw;
mod format;

use crate::whole::Gathered;
use draw::{Args, Drawing, TrackId};
use prost::Message;
use spangap_model::Side;
use spangap_wire::call::Call;
use spangap_wire::dissect::Dissection;
use spangap_wire::report::{Axis, CallReport};

/// The trace; `None` if no call can be drawn.
pub fn trace(gathered: &Gathered) -> Option<Vec<u8>> {
    let calls = gathered.dissection.calls.iter().zip(&gathered.reports);
    let mut calls: Vec<Shown<'_>> = calls
        .filter_map(|(call, report)| {
            Some(Shown { call, report, axis: Axis::of(call, &gathered.dissection)? })
        })
        .collect();
    // Calls seen only by the server's end have no place on the client's timeline.
    let base = match calls.iter().any(|call| call.axis.base() == Side::Client) {
        true => Side::Client,
        false => Side::Server,
    };
    let all = calls.len();
    calls.retain(|call| call.axis.base() == base);
    calls.sort_by_key(|call| call.axis.start_unix_ns());
    // The relation of two clocks is known from a call that both ends saw.
    let both = |call: &&Shown<'_>| call.axis.correction(base.other(), call.axis.start_unix_ns()).is_some();
    let axis = calls.iter().find(both).or(calls.first())?.axis;
    let mut drawing = Drawing::new(axis.start_unix_ns());
    let top = drawing.track(None, "calls", &about(base, all - calls.len(), &gathered.dissection));
    let lanes = drawing.track(Some(top), "legs and spans", "");
    drawing.clock_bounds(top, &calls, base);
    let mut free: Vec<(i64, Lane)> = Vec::new();
    for (number, shown) in calls.iter().enumerate() {
        let lane = lane(&mut drawing, &mut free, lanes, shown);
        one_call(&mut drawing, lane, shown, number as u64 + 1, gathered);
    }
    for side in Side::ALL {
        host(&mut drawing, side, &calls, &axis, gathered);
    }
    Some(drawing.finish().encode_to_vec())
}

struct Shown<'a> {
    call: &'a Call,
    report: &'a CallReport,
    axis: Axis<'a>,
}

impl Shown<'_> {
    fn start_ns(&self) -> i64 {
        self.axis.start_unix_ns()
    }

    fn end_ns(&self) -> i64 {
        self.start_ns().saturating_add_unsigned(self.call.duration_ns)
    }
}

fn about(base: Side, left_out: usize, dissection: &Dissection) -> String {
    let mut words = vec![format!("All times are by the clock of the {}.", base.name())];
    if left_out > 0 {
        words.push(format!(
            "{left_out} calls that only the other end saw are left out: only its clock places them."
        ));
    }
    words.extend(dissection.limits().cloned());
    words.join(" ")
}

/// Tracks of calls that do not overlap.
#[derive(Clone, Copy)]
struct Lane {
    call: TrackId,
    legs: TrackId,
    findings: TrackId,
    spans: [TrackId; 2],
}

/// The first free lane, or a new one.
fn lane(drawing: &mut Drawing, free: &mut Vec<(i64, Lane)>, parent: TrackId, shown: &Shown<'_>) -> Lane {
    let until = shown.end_ns().saturating_add(1);
    if let Some((busy_until, lane)) = free.iter_mut().find(|(until, _)| *until <= shown.start_ns()) {
        *busy_until = until;
        return *lane;
    }
    let group = drawing.track(Some(parent), &format!("lane {}", free.len() + 1), "");
    let lane = Lane {
        call: drawing.track(Some(group), "call", ""),
        spans: [drawing.track(Some(group), "CLIENT span", ""), drawing.track(Some(group), "SERVER span", "")],
        legs: drawing.track(Some(group), "legs", ""),
        findings: drawing.track(Some(group), "findings", ""),
    };
    free.push((until, lane));
    lane
}

fn one_call(drawing: &mut Drawing, lane: Lane, shown: &Shown<'_>, flow: u64, gathered: &Gathered) {
    let Shown { report, axis, .. } = shown;
    let (start_ns, end_ns) = (shown.start_ns(), shown.end_ns());
    let mut args = Args::default();
    for (name, value) in [
        ("trace_id", &report.trace_id),
        ("span_id", &report.span_id),
        ("client", &report.client),
        ("server", &report.server),
    ] {
        if let Some(value) = value {
            args.text(name, value);
        }
    }
    if let Some(status) = report.status {
        args.text("status", status);
    }
    args.number("request_bytes", report.request_bytes as i64);
    let name = report.method.as_deref().unwrap_or("call");
    drawing.slice_with_flow(lane.call, name, (start_ns, end_ns), args, flow);
    for (side, span) in Side::ALL.into_iter().zip(gathered.spans(shown.call, axis)) {
        let Some(span) = span else { continue };
        let mut args = Args::default();
        args.bound(span.bound_ns);
        let stretch = (start_ns.saturating_add(span.from_ns), start_ns.saturating_add(span.to_ns));
        let name = format!("{} span", side.name().to_uppercase());
        drawing.slice(lane.spans[side.index()], &name, stretch, args);
    }
    // A leg below zero means that two things happen at once: it takes no room, and the following legs begin
    // earlier by it. Without the client's packets, the start of the call is on another clock than the rest,
    // so that legs cannot be placed.
    let mut at_ns = start_ns;
    let mut told_ns = start_ns;
    for leg in report.legs.iter().filter(|_| axis.base() == Side::Client) {
        let to_ns = at_ns.saturating_add(leg.ns);
        if to_ns > told_ns {
            let mut args = Args::default();
            args.number("ns", leg.ns);
            args.bound(Some(leg.bound_ns));
            for part in leg.host.iter().flat_map(|host| &host.parts) {
                let behind = part.behind.as_ref().map_or(String::new(), |taker| format!(", {taker} ran"));
                args.text("host", &format!("{} {} ns{behind}", part.doing.name(), part.ns));
            }
            drawing.slice(lane.legs, &leg.legs.to_string(), (told_ns.max(at_ns), to_ns), args);
            told_ns = to_ns;
        }
        at_ns = to_ns;
    }
    for finding in &report.findings {
        let mut args = Args::default();
        args.text("certainty", if finding.is_shown() { "shown" } else { "possible" });
        args.text("instrument", &finding.instrument.to_string());
        if let Some(cost_ns) = finding.cost_ns {
            args.number("cost_ns", cost_ns as i64);
        }
        if !finding.note.is_empty() {
            args.text("note", &finding.note);
        }
        for packet in finding.packets() {
            args.text("packet", &format!("capture {} #{}: {}", packet.capture, packet.packet, packet.what));
        }
        let name = finding.culprit.to_string();
        match finding.when.filter(|when| when.from_unix_ns < when.to_unix_ns) {
            // Findings may overlap, which slices of one track must not.
            Some(when) => drawing.free_slice(
                lane.findings,
                &name,
                (when.from_unix_ns.max(start_ns), when.to_unix_ns.min(end_ns.max(start_ns + 1))),
                args,
            ),
            None => drawing.instant(lane.findings, &name, start_ns, args),
        }
    }
}

/// The packets at one host's tap, and the activity of its threads.
fn host(drawing: &mut Drawing, side: Side, calls: &[Shown<'_>], axis: &Axis<'_>, gathered: &Gathered) {
    let tracks: Vec<_> = gathered.tracks.iter().filter(|track| track.side == side).collect();
    let ladders = || calls.iter().filter_map(|shown| Some((shown, shown.report.ladder.as_ref()?)));
    let has_packets = ladders().any(|(_, ladder)| ladder.packets.iter().any(|rung| rung.seen_at == side));
    if tracks.is_empty() && !has_packets {
        return;
    }
    let host_name = tracks.first().map_or(String::new(), |track| format!(" ({})", track.host));
    let words = match (side == axis.base(), axis.correction(side, axis.start_unix_ns())) {
        (true, _) => String::new(),
        (false, Some((correction, bound))) => {
            format!(
                "moved by {correction} ns to the other end's clock, with a bound of {bound} ns either way"
            )
        }
        (false, None) => "by its own clock: nothing bounds the offset between the two".into(),
    };
    let group = drawing.track(None, &format!("{}{host_name}", side.name()), &words);
    if has_packets {
        let tap = drawing.track(Some(group), "packets at its tap", "");
        let mut seen = std::collections::HashSet::new();
        for (shown, ladder) in ladders() {
            let of_side = ladder.packets.iter().filter(|rung| rung.seen_at == side);
            for rung in of_side {
                // Calls on one connection share packets.
                if !seen.insert((rung.capture, rung.packet)) {
                    continue;
                }
                let mut args = Args::default();
                args.number("capture", i64::from(rung.capture));
                args.number("packet", rung.packet as i64);
                args.number("seq", i64::from(rung.seq));
                args.number("bytes", i64::from(rung.bytes));
                if let Some(ack) = rung.ack {
                    args.number("ack", i64::from(ack));
                }
                for note in &rung.notes {
                    args.text("note", note);
                }
                if side != shown.axis.base() {
                    args.bound(ladder.correction_bound_ns);
                }
                let what = if rung.bytes > 0 { format!("{} B", rung.bytes) } else { "ACK".into() };
                let flags = if rung.flags.is_empty() { what } else { format!("{} {what}", rung.flags) };
                let name = format!("{} {flags}", if rung.from == side { "out" } else { "in" });
                drawing.instant(tap, &name, shown.start_ns() + rung.since_start_ns, args);
            }
        }
    }
    for track in tracks {
        let name = track.thread.as_deref().unwrap_or("thread");
        let line = drawing.track(Some(group), &format!("{name} {}", track.tid), "");
        for piece in &track.pieces {
            let at = |unix_ns: i64| axis.start_unix_ns() + axis.since_start_ns(side, unix_ns);
            let mut args = Args::default();
            if let Some(taker) = &piece.behind {
                args.text("cpu_had", &taker.to_string());
            }
            if let Some(cpu) = piece.cpu {
                args.number("cpu", i64::from(cpu));
            }
            if let Some(reason) = piece.waited_for {
                args.text("waited_for", reason.name());
            }
            if let Some(by) = &piece.woken_by {
                args.text("woken_by", by);
            }
            if side != axis.base() {
                args.bound(axis.correction(side, piece.from_unix_ns).map(|(_, bound)| bound));
            }
            drawing.slice(line, piece.doing.name(), (at(piece.from_unix_ns), at(piece.to_unix_ns)), args);
        }
    }
}
