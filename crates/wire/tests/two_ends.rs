//! Both ends of real traffic, whose captures share a clock, so that the true legs are known: with one file's
//! times rewritten by an offset and a skew, the same legs result within the stated bound.

use spangap_wire::call::Call;
use spangap_wire::dissect::{Dissection, Settings, dissect};
use spangap_wire::ladder::ladder_of;
use spangap_wire::source::Capture;
use std::ops::ControlFlow;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures")).join(name)
}

/// The packets of a fixture as a pcap file, with times mapped by `shows`.
fn rewritten(name: &str, shows: &dyn Fn(i64) -> i64) -> Capture {
    let mut capture = Capture::open(&fixture(name)).expect("the fixture is there");
    let mut file = Vec::new();
    // The header of a pcap file with nanoseconds: magic, version 2.4, snap length, link type.
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 0x0004_0000, 1] {
        file.extend(word.to_le_bytes());
    }
    while let Some(packet) = capture.next() {
        let time = shows(packet.time_ns);
        let (seconds, nanos) = (time.div_euclid(1_000_000_000) as u32, time.rem_euclid(1_000_000_000) as u32);
        for word in [seconds, nanos, packet.data.len() as u32, packet.wire_len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet.data);
    }
    Capture::from_bytes(name.into(), file).expect("a pcap file")
}

fn run(captures: Vec<Capture>, same_clock: bool) -> Dissection {
    let settings = Settings { slowest: 10_000, same_clock, ..Settings::default() };
    dissect(captures, &settings, &mut |_| ControlFlow::Continue(())).expect("captures in memory")
}

/// Identifies a call in every dissection of the same traffic.
fn identity(call: &Call) -> Option<(u32, u32)> {
    let half = call.halves.exchanges.iter().flatten().next()?;
    Some((half.request.start as u32, half.request.end as u32))
}

const CLIENT: &str = "raw-unary.client.pcapng";
const SERVER: &str = "raw-unary.server.pcapng";

#[test]
fn the_clocks_do_not_change_the_legs() {
    let truth = run(vec![rewritten(CLIENT, &|t| t), rewritten(SERVER, &|t| t)], true);
    assert!(truth.calls.len() > 50, "{} calls", truth.calls.len());
    assert!(truth.calls.iter().all(|call| call.legs.len() == 5), "both ends have every call");
    for (offset_ns, skew_ppm) in [(0, 0.0), (77_000_000, 50.0), (-9_000_000_000_000, -200.0), (3_000, 120.0)]
    {
        for swapped in [false, true] {
            let start = truth.calls.iter().map(|call| call.start_ns).min().unwrap_or(0);
            let shows = |t: i64| t + offset_ns + ((t - start) as f64 * skew_ppm * 1e-6).round() as i64;
            let mut captures = vec![rewritten(CLIENT, &|t| t), rewritten(SERVER, &shows)];
            if swapped {
                captures.reverse();
            }
            let found = run(captures, false);
            assert_eq!(found.calls.len(), truth.calls.len(), "{offset_ns} {skew_ppm} {swapped}");
            for call in &found.calls {
                let sum: i64 = call.legs.iter().map(|leg| leg.ns).sum();
                assert_eq!(sum, call.duration_ns as i64);
                assert_eq!(call.halves.captures[0], u8::from(swapped), "the client's end");
                let real =
                    truth.calls.iter().find(|real| identity(real) == identity(call)).expect("the same calls");
                assert_eq!(real.duration_ns, call.duration_ns);
                for (real, leg) in real.legs.iter().zip(&call.legs) {
                    assert_eq!(real.legs, leg.legs);
                    let off = real.ns.abs_diff(leg.ns);
                    assert!(
                        off <= leg.bound_ns + real.bound_ns,
                        "{offset_ns} {skew_ppm} {swapped} {}: {} and {leg:?} {:?}",
                        leg.legs,
                        real.ns,
                        found.clock
                    );
                }
            }
            for (real, leg) in truth.sums.legs.iter().zip(&found.sums.legs) {
                assert_eq!(real.legs, leg.legs);
                assert!(
                    real.total_ns.abs_diff(leg.total_ns) <= leg.bound_ns + real.bound_ns,
                    "{real:?} {leg:?}"
                );
            }
        }
    }
}

#[test]
fn one_capture_gives_what_it_shows() {
    for (name, side) in [(CLIENT, 0), (SERVER, 1)] {
        let found = run(vec![rewritten(name, &|t| t)], false);
        assert!(found.calls.len() > 50);
        assert_eq!(found.clock, None);
        assert!(found.caveats[0].starts_with("One capture"), "{:?}", found.caveats);
        for call in &found.calls {
            assert!(call.halves.exchanges[1 - side].is_none() || call.halves.exchanges[side].is_none());
            assert_eq!(call.legs.iter().map(|leg| leg.ns).sum::<i64>(), call.duration_ns as i64);
        }
    }
}

#[test]
fn a_ladder_has_the_packets_of_its_call_at_both_ends() {
    let captures = [CLIENT, SERVER].map(|name| Capture::open(&fixture(name)).expect("the fixture is there"));
    let found = run(captures.into(), false);
    let call = &found.calls[0];
    let ladder = ladder_of(&found, call).expect("files can be read twice");
    for capture in 0..2 {
        let rungs = || ladder.rungs.iter().filter(move |rung| rung.capture == capture);
        let has = |what: &str| rungs().any(|rung| rung.notes.iter().any(|note| note.contains(what)));
        assert!(has("request") && has("response"), "{ladder:?}");
        let half = call.halves.exchanges.iter().zip(call.halves.captures).find(|(_, of)| *of == capture);
        let request = half.and_then(|(half, _)| half.as_ref()).expect("both ends").request;
        assert!(rungs().any(|rung| rung.offset == request.start && rung.len > 0), "{ladder:?}");
    }
    assert!(ladder.rungs.len() <= 60);
}
