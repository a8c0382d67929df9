//! Real captures with each packet cut to its first bytes, as by `tcpdump -s`: the same calls, none reported as
//! unfinished or as part of a connection joined late, and the cut ones are counted.

use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::exchange::Ended;
use spangap_wire::source::Capture;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn fixture(name: &str, end: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let stored = ["pcapng", "pcapng.zst"].map(|suffix| folder.join(format!("{name}.{end}.{suffix}")));
    stored.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name}: the {end}'s capture"))
}

/// The same packets with at most `snap` bytes each, as pcap with nanoseconds; with the number of packets that
/// lost bytes, and the number of bytes lost.
fn cut(name: &str, end: &str, snap: usize) -> (Vec<u8>, u64, u64) {
    let mut capture = Capture::open(&fixture(name, end)).expect("a capture");
    let mut out = Vec::new();
    let (mut packets, mut bytes) = (0, 0);
    while let Some(packet) = capture.next() {
        if out.is_empty() {
            for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, snap as u32, u32::from(packet.link.0)] {
                out.extend(word.to_le_bytes());
            }
        }
        let kept = packet.data.len().min(snap);
        let lost = packet.wire_len as usize - kept;
        packets += u64::from(lost > 0);
        bytes += lost as u64;
        let (seconds, nanos) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
        for word in [seconds as u32, nanos as u32, kept as u32, packet.wire_len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&packet.data[..kept]);
    }
    (out, packets, bytes)
}

fn dissected(captures: Vec<Capture>) -> Dissection {
    let settings = Settings { slowest: 100_000, ..Settings::default() };
    dissect(captures, &settings, &mut |_| ControlFlow::Continue(())).expect("the captures can be read")
}

/// Number of calls known to be complete.
fn complete(dissection: &Dissection) -> usize {
    let whole = |half: &spangap_wire::exchange::Exchange| half.ended == Ended::Complete;
    dissection.calls.iter().filter(|call| call.halves.exchanges.iter().flatten().any(whole)).count()
}

#[test]
fn calls_cut_by_the_snap_length_are_reported_as_cut() {
    let names = [
        "go-unary",
        "go-one",
        "cpp-async-unary",
        "cpp-sync-unary",
        "cpp-to-go",
        "many-connections",
        "super-frames",
    ];
    for name in names {
        let ends = ["client", "server"];
        let whole = dissected(ends.map(|end| Capture::open(&fixture(name, end)).expect("a capture")).into());
        for snap in [96, 128, 200, 512] {
            let cuts = ends.map(|end| cut(name, end, snap));
            let open = |(bytes, ..): &(Vec<u8>, u64, u64)| {
                let reader = std::io::Cursor::new(bytes.clone());
                Capture::from_reader("cut".into(), Box::new(reader)).expect("a capture")
            };
            let found = dissected(cuts.iter().map(open).collect());
            for (capture, (_, packets, bytes)) in found.captures.iter().zip(&cuts) {
                assert_eq!(
                    (capture.reading.cut, capture.reading.cut_bytes),
                    (*packets, *bytes),
                    "{name} {snap}"
                );
                assert_eq!(
                    capture.counts.app.header_blocks_unknown, 0,
                    "{name} {snap}: said to be joined late"
                );
            }
            let late = |call: &&spangap_wire::call::Call| {
                call.halves
                    .exchanges
                    .iter()
                    .flatten()
                    .any(|half| half.doubts.headers_unknown || half.doubts.hole)
            };
            assert_eq!(found.calls.iter().filter(late).count(), 0, "{name} {snap}: said to be joined late");
            println!(
                "{name} {snap}: {} of {} calls, {} complete, {} cut, {} unfinished; {} packets cut, {} calls unseen",
                found.sums.calls,
                whole.sums.calls,
                complete(&found),
                found.sums.cut_by_snap,
                found.sums.unfinished,
                cuts[0].1,
                found.captures[0].counts.app.calls_unseen
            );
            assert_eq!(found.sums.unfinished, whole.sums.unfinished, "{name} {snap}: said to go on");
            // Several requests in one segment: the stream numbers reveal those cut off, except for the last ones
            // of a connection.
            for capture in &found.captures {
                let known = found.sums.calls + capture.counts.app.calls_unseen;
                let all = whole.sums.calls;
                assert!(known <= all && 20 * known >= 19 * all, "{name} {snap}: {known} of {all} calls");
            }
            if snap >= 200 && name == "go-one" {
                assert_eq!(found.sums.calls, whole.sums.calls, "{name} {snap}: not found again after a cut");
                assert!(
                    10 * complete(&found) >= 9 * complete(&whole),
                    "{name} {snap}: not found again after a cut"
                );
            }
        }
    }
}

/// A call at one end: the start of its request, and its connection.
fn whose(dissection: &Dissection, call: &spangap_wire::call::Call, side: usize) -> Option<(u64, u16)> {
    let half = call.halves.exchanges[side].as_ref()?;
    let facts = dissection.connection_of(call)?.seen_by(call.halves.captures[side])?;
    Some((half.request.start, facts.ends[0].port))
}

#[test]
fn the_end_of_a_message_is_correct_or_unknown() {
    let alone = ["tail-loss-delayed-ack", "loss-one-in-flight", "large-requests"].map(|name| (name, false));
    let beside_others = ["head-of-line-large", "go-unary"].map(|name| (name, true));
    for (name, may_be_others) in alone.into_iter().chain(beside_others) {
        let ends = ["client", "server"];
        let whole = dissected(ends.map(|end| Capture::open(&fixture(name, end)).expect("a capture")).into());
        for snap in [200, 512] {
            let cuts = ends.map(|end| cut(name, end, snap));
            let open = |(bytes, ..): &(Vec<u8>, u64, u64)| {
                let reader = std::io::Cursor::new(bytes.clone());
                Capture::from_reader("cut".into(), Box::new(reader)).expect("a capture")
            };
            let found = dissected(cuts.iter().map(open).collect());
            for side in [0, 1] {
                let truth: std::collections::HashMap<_, _> =
                    whole.calls.iter().filter_map(|call| Some((whose(&whole, call, side)?, call))).collect();
                for (part, what) in ["request", "response"].into_iter().enumerate() {
                    let of = |call: &spangap_wire::call::Call| {
                        let half = call.halves.exchanges[side].as_ref()?;
                        let message = if part == 0 { Some(half.request) } else { half.response };
                        Some((message?.last.packet, half.doubts.end_cut[part], half.ended == Ended::Complete))
                    };
                    let (mut told, mut wrong) = (0, 0);
                    for call in &found.calls {
                        let true_one = whose(&found, call, side).and_then(|whose| of(truth.get(&whose)?));
                        let Some(((last, is_bound, _), (true_last, _, true))) = of(call).zip(true_one) else {
                            continue;
                        };
                        told += usize::from(!is_bound);
                        wrong += usize::from(!is_bound && last != true_last);
                    }
                    println!("{name} {snap} {what} at tap {side}: {told} told, {wrong} wrong");
                    assert_eq!(wrong, 0, "{name} {snap}: {what} at tap {side}");
                    let most = if may_be_others { 1 } else { 9 };
                    assert!(
                        10 * told >= most * truth.len(),
                        "{name} {snap}: {what} at tap {side}: {told} told"
                    );
                }
            }
        }
    }
}
