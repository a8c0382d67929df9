//! Loss of every kind on scripted connections, and what only looks like it.

use super::*;
use crate::causes::scene::{CLIENT, SERVER, Scene};

const MILLI: i64 = 1000;

/// A connection whose ends are 10 ms apart and back, seen at the client's end.
fn far() -> Scene {
    Scene::connected(20, 10 * MILLI)
}

#[test]
fn the_timer_sends_the_first_of_several_again() {
    let mut scene = far();
    let first = scene.data(CLIENT, 1000);
    scene.data(CLIENT, 1000);
    scene.at(212 * MILLI).bytes(Kind::Resent, CLIENT, first.clone());
    assert_eq!(scene.found, [], "not before the peer has said what it had");
    scene.at(223 * MILLI).ack(SERVER);
    assert_eq!(scene.shown(), [Cause::Rto]);
    let episode = &scene.found[0];
    assert_eq!((episode.from_ns, episode.to_ns), (0, 212_000_000));
    assert_eq!((episode.start, episode.end), (first.start, first.end));
}

#[test]
fn a_timer_that_expires_twice_is_one_episode() {
    let mut scene = far();
    let lost = scene.data(CLIENT, 100);
    for at in [215, 425, 850] {
        scene.at(at * MILLI).bytes(Kind::Resent, CLIENT, lost.clone());
    }
    scene.at(861 * MILLI).ack(SERVER);
    // The first could be a probe; those after it are the timer's.
    assert_eq!(scene.shown(), [Cause::Rto]);
    assert_eq!(scene.found[0].to_ns, 850_000_000);
}

#[test]
fn a_single_segment_after_200_ms_is_the_timers_whoever_was_first() {
    let mut scene = far();
    let lost = scene.data(CLIENT, 100);
    scene.at(222 * MILLI).bytes(Kind::Resent, CLIENT, lost);
    scene.at(233 * MILLI).ack(SERVER);
    assert_eq!(scene.shown(), [Cause::Rto]);
    // The end of a flight that otherwise arrived is a probe's.
    let mut scene = far();
    let before = scene.data(CLIENT, 1460);
    let lost = scene.at(100).data(CLIENT, 100);
    scene.at(10 * MILLI).ack_to(SERVER, before.end, &[]);
    scene.at(226 * MILLI).bytes(Kind::Resent, CLIENT, lost);
    scene.at(237 * MILLI).ack(SERVER);
    assert_eq!(scene.shown(), [Cause::TailLoss]);
    // Over a long path two round trips are sooner than the timer.
    for (sack, cause) in [(true, Cause::TailLoss), (false, Cause::Rto)] {
        let mut scene = Scene::connected(20, 150 * MILLI);
        if !sack {
            scene.syn(CLIENT);
        }
        scene.data(CLIENT, 1460);
        let last = scene.at(100).data(CLIENT, 100);
        let again = if sack { last } else { last.start - 1460..last.start };
        scene.at(320 * MILLI).bytes(Kind::Resent, CLIENT, again);
        scene.at(471 * MILLI).ack(SERVER);
        assert_eq!(scene.shown(), [cause]);
    }
}

#[test]
fn the_last_of_several_after_two_round_trips_is_a_probe() {
    let mut scene = far();
    scene.data(CLIENT, 1460);
    scene.at(100).data(CLIENT, 1460);
    let last = scene.at(200).data(CLIENT, 300);
    scene.at(23 * MILLI).bytes(Kind::Resent, CLIENT, last);
    scene.at(34 * MILLI).ack(SERVER);
    assert_eq!(scene.shown(), [Cause::TailLoss]);
}

#[test]
fn what_a_probe_brings_to_light_belongs_to_it() {
    let mut scene = far();
    let lost = scene.data(CLIENT, 1460);
    let last = scene.at(100).data(CLIENT, 300);
    scene.at(23 * MILLI).bytes(Kind::Resent, CLIENT, last.clone());
    scene.at(33 * MILLI).ack_to(SERVER, lost.start, &[(last.start, last.end)]);
    scene.at(33 * MILLI + 50).bytes(Kind::Resent, CLIENT, lost);
    scene.at(44 * MILLI).ack(SERVER);
    assert_eq!(scene.shown(), [Cause::TailLoss]);
    assert_eq!(scene.found[0].to_ns, 33_050_000);
}

#[test]
fn later_bytes_acknowledged_bring_the_lost_ones_again() {
    for sack in [true, false] {
        let mut scene = far();
        let lost = scene.data(CLIENT, 1460);
        let later = scene.at(100).data(CLIENT, 4380);
        let blocks = [(later.start, later.end)];
        for at in [100, 110, 120] {
            scene.at(10 * MILLI + at).ack_to(SERVER, lost.start, if sack { &blocks } else { &[] });
        }
        scene.at(10 * MILLI + 150).bytes(Kind::Resent, CLIENT, lost);
        scene.at(20 * MILLI + 200).ack(SERVER);
        assert_eq!(scene.shown(), [Cause::FastRetransmit]);
        assert_eq!(scene.found[0].to_ns, 10_150_000);
        assert_eq!(scene.found[0].evidence.iter().count(), 4);
    }
}

#[test]
fn what_the_peer_had_already_is_not_loss() {
    // It says so.
    let mut scene = far();
    let sent = scene.data(CLIENT, 100);
    scene.at(222 * MILLI).bytes(Kind::Resent, CLIENT, sent.clone());
    scene.at(233 * MILLI).ack_to(SERVER, sent.end, &[(sent.start, sent.end)]);
    scene.finish();
    assert_eq!(scene.found, []);
    assert!(scene.notes()[0].starts_with("The client retransmitted 1 segments that the server already had"));
    // Its acknowledgement is faster than the path.
    let mut scene = far();
    let sent = scene.data(CLIENT, 100);
    scene.at(222 * MILLI).bytes(Kind::Resent, CLIENT, sent);
    scene.at(223 * MILLI).ack(SERVER);
    scene.finish();
    assert_eq!((scene.found.len(), scene.notes().len()), (0, 1));
    // Its acknowledgement echoes the timestamp of the first copy.
    let mut scene = far();
    scene.timestamps = Some((1000, 0));
    let sent = scene.data(CLIENT, 100);
    scene.timestamps = Some((1222, 0));
    scene.at(222 * MILLI).bytes(Kind::Resent, CLIENT, sent);
    scene.timestamps = Some((5000, 1000));
    scene.at(240 * MILLI).ack(SERVER);
    scene.finish();
    assert_eq!((scene.found.len(), scene.notes().len()), (0, 1));
    // Its acknowledgement had been here.
    let mut scene = far();
    let sent = scene.data(CLIENT, 100);
    scene.at(11 * MILLI).ack(SERVER);
    scene.at(222 * MILLI).bytes(Kind::Resent, CLIENT, sent);
    scene.finish();
    assert_eq!((scene.found.len(), scene.notes().len()), (0, 1));
}

#[test]
fn a_delayed_acknowledgement_echoes_the_segment_before_the_lost_one() {
    // As Linux sends them: two segments, of which the second is lost; the acknowledgement of the first waits for it, and
    // the probe's copy gets both acknowledged, with the timestamp of the first.
    let probed = |again: bool| {
        let mut scene = far();
        // SACK is in use.
        let at = scene.next(CLIENT);
        scene.ack_to(SERVER, at, &[(at + 10, at + 20)]);
        scene.timestamps = Some((1000, 1));
        scene.data(CLIENT, 1448);
        let lost = scene.data(CLIENT, 1225);
        scene.timestamps = Some((1021, 1));
        scene.at(21 * MILLI).bytes(Kind::Resent, CLIENT, lost.clone());
        scene.timestamps = Some((5, 1000));
        scene.at(31 * MILLI + 20).ack_to(SERVER, lost.end, &[]);
        if again {
            scene.at(31 * MILLI + 40).ack_to(SERVER, lost.end, &[(lost.start, lost.end)]);
        }
        scene.at(60 * MILLI).data(CLIENT, 100);
        scene
    };
    let scene = probed(false);
    assert_eq!((scene.shown(), scene.notes().len()), (vec![Cause::TailLoss], 0));
    assert_eq!((scene.found[0].from_ns, scene.found[0].to_ns), (0, 21_000_000));
    // A receiver that had the second one, too, says so.
    assert_eq!(probed(true).found, []);
}

#[test]
fn an_early_acknowledgement_is_of_the_second_copy_when_no_dsack_follows() {
    // At the receiver's own tap its acknowledgements take 20 us, unless a hole is filled: then 5.
    let lossy = |dsack: bool| {
        let mut scene = Scene::connected(20, 10 * MILLI);
        let lost = scene.data(SERVER, 1000);
        let later = scene.data(SERVER, 1000);
        scene.at(5).ack_to(CLIENT, lost.start, &[(later.start, later.end)]);
        scene.at(12 * MILLI).bytes(Kind::Resent, SERVER, lost.clone());
        scene.at(12 * MILLI + 5).ack(CLIENT);
        if dsack {
            scene.at(12 * MILLI + 9).ack_to(CLIENT, later.end, &[(lost.start, lost.end)]);
        }
        scene.at(30 * MILLI).data(SERVER, 100);
        scene
    };
    let scene = lossy(false);
    assert_eq!((scene.shown(), scene.notes().len()), (vec![Cause::FastRetransmit], 0));
    assert_eq!(scene.found[0].copies, Copies::Both { told: true });
    let scene = lossy(true);
    assert_eq!((scene.found.len(), scene.notes().len()), (0, 1));
}

#[test]
fn the_next_loss_does_not_make_the_one_before_needless() {
    // A flight with one lost segment, mended by a copy whose acknowledgement seems too early, and the next one before
    // a DSACK of the first would be late.
    let lossy = |dsack: bool| {
        let mut scene = Scene::connected(20, 10 * MILLI);
        let mut lost = Vec::new();
        for (at, again) in [(0, 12 * MILLI), (12 * MILLI + 500, 14 * MILLI)] {
            let (missing, later) = (scene.at(at).data(SERVER, 1000), scene.data(SERVER, 1000));
            scene.at(at + 5).ack_to(CLIENT, missing.start, &[(later.start, later.end)]);
            scene.at(again).bytes(Kind::Resent, SERVER, missing.clone());
            scene.at(again + 5).ack(CLIENT);
            lost.push(missing);
        }
        if dsack {
            let next = scene.next(SERVER);
            scene.at(14 * MILLI + 9).ack_to(CLIENT, next, &[(lost[0].start, lost[0].end)]);
        }
        scene.at(90 * MILLI).data(SERVER, 100);
        scene
    };
    let scene = lossy(false);
    assert_eq!((scene.shown(), scene.notes().len()), (vec![Cause::FastRetransmit; 2], 0));
    // The DSACK is of the first one.
    let scene = lossy(true);
    assert_eq!((scene.shown(), scene.notes().len()), (vec![Cause::FastRetransmit], 1));
    assert_eq!(scene.found[0].from_ns, 12_500_000);
}

#[test]
fn sooner_than_the_timer_without_a_reason_is_only_possible() {
    let mut scene = far();
    let first = scene.data(CLIENT, 1460);
    scene.data(CLIENT, 1460);
    scene.at(60 * MILLI).bytes(Kind::Resent, CLIENT, first);
    scene.at(71 * MILLI).ack(SERVER);
    assert_eq!((scene.shown(), scene.possible()), (vec![], vec![Cause::Rto]));
}

#[test]
fn silence_without_a_segment_sent_again_is_nothing() {
    let mut scene = far();
    scene.data(CLIENT, 100);
    scene.at(200 * MILLI).ack(SERVER);
    scene.at(200 * MILLI + 20).data(CLIENT, 2000);
    scene.at(450 * MILLI).data_and_ack(SERVER, 100);
    scene.finish();
    assert!(!scene.shown().iter().any(|cause| [Cause::Rto, Cause::TailLoss].contains(cause)));
}

/// At the server's end: 500 bytes are missing, others arrive, and the missing ones this many ms later.
fn late(way_us: i64, late_us: i64, headers: Option<(u16, u32)>) -> Scene {
    let mut scene = Scene::connected(way_us, 20);
    scene.data_and_ack(CLIENT, 100);
    let next = scene.next(CLIENT);
    if headers.is_some() {
        (scene.ip_id, scene.timestamps) = (1000, Some((500, 0)));
    }
    scene.at(MILLI).bytes(Kind::Ahead, CLIENT, next + 500..next + 900);
    if let Some((ip_id, timestamp)) = headers {
        (scene.ip_id, scene.timestamps) = (ip_id, Some((timestamp, 0)));
    }
    scene.at(MILLI + late_us).bytes(Kind::Fill, CLIENT, next..next + 500);
    scene.at(MILLI + late_us + 10).ack(SERVER);
    scene
}

#[test]
fn behind_the_loss_it_shows_as_bytes_that_come_late() {
    let scene = late(10 * MILLI, 11 * MILLI, None);
    assert_eq!(scene.shown(), [Cause::FastRetransmit]);
    assert_eq!(scene.found[0].to_ns - scene.found[0].from_ns, 11_000_000);
    assert_eq!(late(10 * MILLI, 215 * MILLI, None).shown(), [Cause::Rto]);
}

#[test]
fn overtaken_on_the_way_is_not_loss() {
    // Less than the way there and back; less than a few milliseconds.
    assert_eq!(late(10 * MILLI, 5 * MILLI, None).found, []);
    assert_eq!(late(50, 2 * MILLI, None).found, []);
    // Sent before the others, as its headers say.
    assert_eq!(late(50, 20 * MILLI, Some((999, 500))).found, []);
    assert_eq!(late(50, 20 * MILLI, Some((1001, 499))).found, []);
    // Sent after them, as its headers say.
    assert_eq!(late(50, 2 * MILLI, Some((1001, 500))).shown(), [Cause::FastRetransmit]);
    assert_eq!(late(50, 2 * MILLI, Some((0, 502))).shown(), [Cause::FastRetransmit]);
}

#[test]
fn several_lost_segments_of_a_flight_are_one_episode() {
    let mut scene = far();
    let lost: Vec<_> = (0..20).map(|_| scene.data(CLIENT, 1460)).collect();
    let later = scene.data(CLIENT, 1460);
    scene.at(10 * MILLI).ack_to(SERVER, lost[0].start, &[(later.start, later.end)]);
    for (n, range) in (0..).zip(&lost) {
        scene.at(10 * MILLI + 100 + n * 10).bytes(Kind::Resent, CLIENT, range.clone());
    }
    scene.at(21 * MILLI).ack(SERVER);
    assert_eq!(scene.shown(), [Cause::FastRetransmit]);
    assert_eq!((scene.found[0].start, scene.found[0].end), (lost[0].start, lost[19].end));
}

#[test]
fn missing_bytes_that_come_in_smaller_segments_may_have_been_too_large_for_the_path() {
    // A server sends several full segments and a short one, of which only the short one arrives.
    let copies = |missing: u64, again: u64| {
        let mut scene = far();
        let start = scene.next(SERVER);
        scene.bytes(Kind::Ahead, SERVER, start + missing..start + missing + 200);
        scene.at(450 * MILLI).bytes(Kind::Fill, SERVER, start..start + again);
        assert_eq!(scene.shown(), [Cause::Rto]);
        scene.found[0].copies
    };
    assert_eq!(copies(4380, 1000), Copies::Pieces);
    // A full segment is what a timer sends again; a short one may be all that was missing.
    assert_eq!(copies(4380, 1460), Copies::One);
    assert_eq!(copies(1000, 1000), Copies::One);
}
