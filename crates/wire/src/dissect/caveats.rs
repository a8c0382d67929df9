//! Caveats: the limits of the figures.

use super::{Dissection, SectionTotals};
use crate::clock_set::Moved;
use crate::exchange::Protocol;
use spangap_model::duration::format_ns;
use spangap_report::figures::counted;
use spangap_report::times::span;

/// Packets that stand this far behind later ones are reported if their share is at least one in this many: CPUs
/// that write to one ring cause less.
const UNSORTED_NS: i64 = 1_000_000;
const UNSORTED_SHARE: u64 = 1000;

/// Facts that the result itself does not contain.
pub(super) struct CaveatFacts {
    pub same_clock: bool,
    pub pairs_left_out: u64,
    pub no_calls: bool,
}

/// The sentences, most important first.
pub(super) fn caveats(dissection: &Dissection, known: &CaveatFacts) -> Vec<String> {
    let mut out = Vec::new();
    if dissection.interrupted {
        out.push("It was stopped early: only part of the captures was read.".into());
    }
    if dissection.captures.len() == 1 {
        out.push("One capture: the path and the other end are one figure. Where the capture was taken is inferred \
        from which side answers at once; where that does not show, the client's end is assumed, or that of a program \
        recorded beside it.".into());
    }
    for section in &dissection.sections {
        clocks(dissection, section, known, &mut out);
    }
    if dissection.contradictions > 0 {
        out.push(format!(
            "{} calls took longer at the server's end than at the client's: their times do not bound the clocks.",
            dissection.contradictions
        ));
    }
    hops(dissection, &mut out);
    for capture in &dissection.captures {
        of_capture(capture, &mut out);
    }
    let holes = |side: usize| -> u64 {
        dissection
            .connections
            .iter()
            .flat_map(|c| c.seen.iter().flatten())
            .map(|facts| facts.hole_bytes[side])
            .sum()
    };
    let (from_client, from_server) = (holes(0), holes(1));
    if from_client + from_server > 0 {
        out.push(format!(
            "{from_client} bytes from clients and {from_server} from servers were acknowledged but are in no packet \
             of the capture at that end: it missed packets. Calls with such bytes do not bound the clocks, and \
             their legs may be off."
        ));
    }
    if dissection.copies > 0 {
        let copies = dissection.copies;
        out.push(format!(
            "{copies} calls appear twice in one capture (on two interfaces, or before and after \
        address translation): each counts once."
        ));
    }
    let tls = dissection
        .connections
        .iter()
        .filter(|c| c.seen.iter().flatten().any(|facts| facts.protocol == Protocol::Tls));
    let tls = tls.count();
    if tls > 0 {
        out.push(format!(
            "{tls} connections are TLS without keys: their calls are turns of encrypted bytes, without \
        method, status and trace id. A key-log file decrypts them."
        ));
    }
    if known.pairs_left_out > 0 {
        out.push(format!(
            "{} connections belong to pairs of hosts beyond those listed; the overall sums include them.",
            known.pairs_left_out
        ));
    }
    if known.no_calls {
        out.push("No calls were found.".into());
    }
    out
}

fn hops(dissection: &Dissection, out: &mut Vec<String>) {
    if dissection.between > 0 {
        out.push(format!(
            "{} connections are in three captures or more: the captures at their ends count, those in between do \
             not.",
            dissection.between
        ));
    }
    let Some(hops) = dissection.hops.as_ref().filter(|hops| hops.calls > 0 || hops.ambiguous > 0) else {
        return;
    };
    if hops.ambiguous > 0 {
        out.push(format!(
            "{} calls may be the hop of more than one other call, and nothing in them tells which: each counts by \
             itself.",
            hops.ambiguous
        ));
    }
    if hops.unknown_outer > 0 {
        out.push(format!(
            "{} calls to a proxy are linked to no call that it made: it answered them itself, their other side is \
             not in the captures, or nothing shows which one it is.",
            hops.unknown_outer
        ));
    }
    if hops.unknown_inner > 0 {
        out.push(format!(
            "{} calls of a proxy are linked to no call to it (a health check, or one whose other side is unknown): each counts \
             by itself.",
            hops.unknown_inner
        ));
    }
}

fn clocks(dissection: &Dissection, section: &SectionTotals, known: &CaveatFacts, out: &mut Vec<String>) {
    let [first, second] = section.captures[..] else { return };
    let (Some(first), Some(second)) =
        (dissection.captures.get(usize::from(first)), dissection.captures.get(usize::from(second)))
    else {
        return;
    };
    if section.matched == 0 {
        out.push(format!(
            "No call of {} is in {}: they may be of different traffic or times.",
            first.reading.file, second.reading.file
        ));
    }
    // A proxy's capture has calls of two kinds, and belongs to two sections.
    let alone = dissection.sections.len() == 1;
    let unmatched = first.unmatched + second.unmatched;
    if unmatched > 0 && section.matched > 0 && alone {
        out.push(format!(
            "{} calls are only in {}, {} only in {}: legs at the other end are unknown for them.",
            first.unmatched, first.reading.file, second.unmatched, second.reading.file
        ));
    }
    let evicted = first.halves_evicted + second.halves_evicted;
    if evicted > 0 && alone {
        out.push(format!(
            "{evicted} of these were given up for lack of room; their other half may have come later."
        ));
    }
    if known.same_clock {
        return;
    }
    let Some(clock) = &section.clock else { return };
    if clock.contradictions > 0 {
        out.push(format!(
            "{} packets contradict the clocks of all others and were ignored.",
            clock.contradictions
        ));
    }
    match clock.stretches.len() {
        0 => out.push(
            "The packets contradict each other about the clocks: no offset fits for any length of time, \
        so each direction is half of the sum of both, with that as its bound."
                .into(),
        ),
        1 => {}
        n => out.push(format!(
            "No single rate of the clocks fits: a clock was set, or its rate changed. {n} \
        stretches of time are treated separately; around their borders, bounds are wide."
        )),
    }
    if clock.stretches.iter().any(|stretch| stretch.corners.is_empty()) {
        out.push("At times nothing bounds the clocks' offset from both sides: there, each direction is half of the \
        sum of both, with that as its bound.".into());
    }
}

fn of_capture(capture: &super::CaptureTotals, out: &mut Vec<String>) {
    let (reading, counts) = (&capture.reading, &capture.counts);
    let file = &reading.file;
    if let Some(dropped) = reading.dropped.filter(|dropped| *dropped > 0) {
        out.push(format!("{file}: the capturing host dropped {dropped} packets."));
    }
    let Moved { times, ns } = counts.unsorted;
    if ns >= UNSORTED_NS && times.saturating_mul(UNSORTED_SHARE) >= counts.packets {
        out.push(format!(
            "{file}: {times} packets stand behind later ones, by up to {}: connections are read in the order of the file, which is not that of the wire. `reordercap` of Wireshark sorts them.",
            format_ns(ns.unsigned_abs())
        ));
    }
    for (how, moved) in [("back", counts.set_back), ("forward (or its host slept)", counts.set_forward)] {
        if moved.times > 0 {
            out.push(format!(
                "{file}: its clock was set {how} {}, by {} in all: the durations of calls in flight at that time are unknown. They are counted, and no sum of times includes them.",
                counted(moved.times, "time"),
                span(moved.ns.unsigned_abs())
            ));
        }
    }
    if reading.damaged_places > 0 {
        let first = reading.damage.first();
        let first = first.map_or(String::new(), |damage| format!(", first at offset {}", damage.offset));
        out.push(format!(
            "{file}: {} could not be read{first}; {} bytes were skipped.",
            counted(reading.damaged_places, "place"),
            reading.damaged_bytes
        ));
    }
    if reading.cut > 0 {
        out.push(format!(
            "{file}: {} packets were cut by the snap length, {} bytes are missing: their times count, but headers \
             and messages in the missing part are unknown.",
            reading.cut, reading.cut_bytes
        ));
    }
    if reading.without_time > 0 {
        out.push(format!("{file}: {} packets have no time and were left out.", reading.without_time));
    }
    if counts.connections_evicted > 0 {
        out.push(format!(
            "{file}: {} connections were forgotten for lack of room.",
            counts.connections_evicted
        ));
    }
    if counts.app.header_blocks_unknown > 0 {
        out.push(format!(
            "{file}: {} header blocks could not be fully decoded, because the capture does not have their \
             connection from the start: methods, statuses and trace ids of some calls are unknown.",
            counts.app.header_blocks_unknown
        ));
    }
    if counts.app.header_blocks_cut > 0 {
        out.push(format!(
            "{file}: {} header blocks were cut by the snap length, or need one that was: methods, statuses and trace ids of some calls are unknown.",
            counts.app.header_blocks_cut
        ));
    }
    if counts.app.calls_unseen > 0 {
        out.push(format!(
            "{file}: stream numbers show {} more calls, whose requests the capture does not have: they are not \
             among the calls.",
            counts.app.calls_unseen
        ));
    }
    if counts.app.resyncs > 0 {
        out.push(format!(
            "{file}: the position in a connection was lost {} times; {} bytes were skipped until it was found again.",
            counts.app.resyncs, counts.app.bytes_skipped
        ));
    }
    if counts.app.further_paths > 0 {
        out.push(format!(
            "{file}: {} joined others (Multipath TCP): the bytes of a call are spread over several connections, which are \
             not put together. Calls that may have bytes elsewhere are marked, and some are missing.",
            counted(counts.app.further_paths, "connection")
        ));
    }
    if counts.app.records_undecrypted > 0 {
        out.push(format!(
            "{file}: {} TLS records could not be decrypted with the keys given.",
            counts.app.records_undecrypted
        ));
    }
}
