//! Pauses that Nagle's algorithm explains, and their look-alikes.

use super::*;
use crate::causes::scene::{CLIENT, SERVER, Scene, part};

/// A request in two small parts, the second `after_us` after the ACK of the first, which arrives after
/// `delay_us` at this tap; then the response.
fn call(scene: &mut Scene, start_us: i64, delay_us: i64, after_us: i64) {
    call_over(scene, 1000, start_us, delay_us, after_us);
}

/// The same, with a response that takes time.
fn call_over(scene: &mut Scene, way_us: i64, start_us: i64, delay_us: i64, after_us: i64) {
    let first = scene.at(start_us).data_and_ack(CLIENT, 70);
    let began = scene.mark();
    scene.at(start_us + delay_us).ack(SERVER);
    let second = scene.at(start_us + delay_us + after_us).data(CLIENT, 30);
    let sent = scene.mark();
    let response = scene.at(start_us + delay_us + after_us + way_us).data_and_ack(SERVER, 90);
    let answered = scene.mark();
    scene.exchange(&Exchange {
        request: part(first.start..second.end, began, sent),
        response: Some(part(response, answered, answered)),
        ..Exchange::default()
    });
}

#[test]
fn a_request_whose_second_part_leaves_with_the_delayed_ack() {
    // At the client's tap, the release follows the ACK immediately; at the server's, by one round trip.
    for (mut scene, after_us) in [(Scene::at_client(), 30), (Scene::at_server(), 1030)] {
        for n in 0..5 {
            call(&mut scene, n * 100_000, 41_000, after_us);
        }
        assert_eq!(scene.shown(), [Cause::NagleDelayedAck; 5]);
        assert_eq!(scene.possible(), []);
        let episode = &scene.found[0];
        assert_eq!(episode.to_ns - episode.from_ns, (41_000 + after_us) * 1000);
        assert_eq!((episode.side, episode.end - episode.start), (Some(CLIENT), 30));
        assert_eq!(episode.evidence.iter().count(), 3);
    }
}

#[test]
fn the_hold_may_last_as_long_as_the_peer_likes() {
    for delay_us in [10_000, 25_000, 40_000, 200_000] {
        let mut scene = Scene::at_client();
        call(&mut scene, 0, delay_us, 20);
        call(&mut scene, 500_000, delay_us, 20);
        assert!(scene.shown().contains(&Cause::NagleDelayedAck), "{delay_us}");
    }
}

#[test]
fn joined_in_the_middle_it_shows_as_soon_as_the_path_is_known() {
    let mut scene = Scene::joined();
    for n in 0..4 {
        call(&mut scene, n * 100_000, 41_000, 30);
    }
    // Before the first one, the server's window had not been seen.
    assert_eq!((scene.shown().len(), scene.possible().len()), (3, 1), "{:?}", scene.found);
}

#[test]
fn an_application_that_pauses_between_two_parts_is_not_blamed() {
    // Never held: the second part leaves before the ACK, or some time after it.
    for own_us in [38_000, 40_500, 44_000, 47_000] {
        let mut scene = Scene::at_client();
        for n in 0..8 {
            let delay_us = 40_000 + n * 1371 % 4000;
            if own_us > delay_us {
                call(&mut scene, n * 100_000, delay_us, own_us - delay_us);
            } else {
                let first = scene.at(n * 100_000).data_and_ack(CLIENT, 70);
                let second = scene.at(n * 100_000 + own_us).data(CLIENT, 30);
                scene.at(n * 100_000 + delay_us + 200).ack(SERVER);
                let mark = scene.mark();
                let request = part(first.start..second.end, mark, mark);
                scene.exchange(&Exchange { request, ..Exchange::default() });
            }
        }
        scene.finish();
        assert_eq!(scene.shown(), [], "{own_us}");
    }
}

#[test]
fn a_peer_that_acknowledges_at_once_delays_nothing() {
    // Neither immediately nor after the long round trip.
    for (way_us, ack_us) in [(1000, 1000), (50_000, 50_300)] {
        let mut scene = Scene::connected(20, way_us);
        for n in 0..8 {
            call_over(&mut scene, way_us, n * 200_000, ack_us, 20);
        }
        scene.finish();
        assert_eq!(scene.found, []);
    }
}

#[test]
fn a_pause_that_ends_without_an_ack_is_not_a_hold() {
    let mut scene = Scene::at_client();
    for n in 0..8 {
        scene.at(n * 100_000).data_and_ack(CLIENT, 70);
        scene.at(n * 100_000 + 40_000).data(CLIENT, 30);
        scene.at(n * 100_000 + 41_000).data_and_ack(SERVER, 90);
    }
    scene.finish();
    assert_eq!(scene.found, []);
}

#[test]
fn a_full_window_is_another_cause() {
    let mut scene = Scene::at_client();
    for n in 0..8 {
        scene.windows[1] = 90;
        scene.at(n * 100_000).data_and_ack(SERVER, 90);
        scene.at(n * 100_000 + 10).data_and_ack(CLIENT, 70);
        scene.at(n * 100_000 + 41_000).window(SERVER, 30_000);
        scene.at(n * 100_000 + 41_020).data(CLIENT, 30);
        scene.at(n * 100_000 + 42_000).ack(SERVER);
    }
    scene.finish();
    assert!(!scene.shown().contains(&Cause::NagleDelayedAck));
    assert!(!scene.possible().contains(&Cause::NagleDelayedAck));
}

#[test]
fn a_window_as_large_as_ever_needs_no_scale() {
    for (open, shown) in [(true, true), (false, false)] {
        let mut scene = Scene::joined();
        for n in 0..40 {
            // The scale multiplies the 63 in the header; a window that closes and opens is obstructed by its
            // reader.
            scene.windows[1] = 63;
            scene.at(n * 100_000).data_and_ack(SERVER, 90);
            scene.windows[1] = if open { 63 } else { 40 };
            scene.at(n * 100_000 + 100).data_and_ack(CLIENT, 70);
            scene.at(n * 100_000 + 41_000).ack(SERVER);
            scene.at(n * 100_000 + 41_020).data(CLIENT, 30);
            scene.at(n * 100_000 + 42_000).ack(SERVER);
        }
        scene.finish();
        assert_eq!(scene.shown().contains(&Cause::NagleDelayedAck), shown, "{open}: {:?}", scene.found);
    }
}

#[test]
fn after_loss_the_congestion_window_may_be_the_reason() {
    let mut scene = Scene::at_client();
    let lost = scene.data(CLIENT, 70);
    scene.at(5000).bytes(Kind::Resent, CLIENT, lost);
    scene.at(6000).ack(SERVER);
    scene.found.clear();
    call(&mut scene, 10_000, 41_000, 20);
    call(&mut scene, 110_000, 41_000, 20);
    assert!(!scene.shown().contains(&Cause::NagleDelayedAck));
}

#[test]
fn an_answer_to_data_after_the_ack_is_not_a_release() {
    let mut scene = Scene::at_server();
    for n in 0..8 {
        scene.at(n * 100_000).data_and_ack(SERVER, 70);
        scene.at(n * 100_000 + 41_000).ack(CLIENT);
        scene.at(n * 100_000 + 41_005).data(CLIENT, 100);
        scene.at(n * 100_000 + 41_015).data_and_ack(SERVER, 30);
        scene.at(n * 100_000 + 42_015).ack(CLIENT);
    }
    scene.finish();
    assert_eq!(scene.found, []);
}

#[test]
fn a_full_segment_is_never_held() {
    let mut scene = Scene::at_client();
    for n in 0..8 {
        scene.at(n * 100_000).data_and_ack(CLIENT, 70);
        scene.at(n * 100_000 + 41_000).ack(SERVER);
        scene.at(n * 100_000 + 41_020).data(CLIENT, 1460);
        scene.at(n * 100_000 + 42_000).data_and_ack(SERVER, 90);
    }
    scene.finish();
    assert_eq!(scene.found, []);
}

#[test]
fn a_hold_outside_of_any_message_shows_when_it_recurs() {
    // A lone control frame is held up, and the call behind it.
    let mut scene = Scene::at_client();
    for n in 0..4 {
        scene.at(n * 100_000).data(CLIENT, 17);
        scene.at(n * 100_000 + 41_000).ack(SERVER);
        scene.at(n * 100_000 + 41_025).data(CLIENT, 80);
        scene.at(n * 100_000 + 42_000).data_and_ack(SERVER, 90);
        scene.at(n * 100_000 + 43_000).ack(CLIENT);
    }
    scene.finish();
    assert_eq!(scene.shown().len(), 3);
    assert_eq!(scene.possible().len(), 1, "the first alone could be chance");
}

/// A response in two parts, the second right after the next request.
fn one_behind(scene: &mut Scene, intervals_us: &[i64]) {
    let mut now = 0;
    let mut open: Option<(Range<u64>, Range<u64>, crate::exchange::Mark, crate::exchange::Mark)> = None;
    for interval_us in intervals_us {
        let request = scene.at(now).data_and_ack(CLIENT, 100);
        let asked = scene.mark();
        if let Some((before, headers, asked_before, began)) = open.take() {
            let rest = scene.at(now + 20).data(SERVER, 40);
            let ended = scene.mark();
            scene.exchange(&Exchange {
                request: part(before, asked_before, asked_before),
                response: Some(part(headers.start..rest.end, began, ended)),
                ..Exchange::default()
            });
            // The rest of the last response leaves alone; the client acknowledges it.
            scene.at(now + 100).ack(CLIENT);
        }
        let headers = scene.at(now + 200).data_and_ack(SERVER, 60);
        open = Some((request, headers, asked, scene.mark()));
        now += interval_us;
    }
    scene.finish();
}

#[test]
fn a_response_released_by_the_next_request() {
    let mut scene = Scene::at_server();
    one_behind(&mut scene, &[10_000, 14_000, 22_000, 9000, 17_000, 12_000]);
    assert_eq!(scene.shown(), [Cause::NagleDelayedAck; 2], "{:?}", scene.found);
    assert_eq!(scene.possible(), [Cause::NagleDelayedAck; 3]);
    assert_eq!(scene.found[0].side, Some(SERVER));
    // At an even rate, the server itself may take that long.
    let mut even = Scene::at_server();
    one_behind(&mut even, &[10_000; 12]);
    assert_eq!(even.shown(), []);
    assert_eq!(even.possible(), [Cause::NagleDelayedAck; 11]);
}

#[test]
fn a_response_to_the_request_that_brings_the_ack_is_ordinary() {
    let mut scene = Scene::at_server();
    for n in 0..20 {
        let request = scene.at(n * 10_000).data_and_ack(CLIENT, 100);
        let asked = scene.mark();
        let response = scene.at(n * 10_000 + 20).data_and_ack(SERVER, 90);
        let answered = scene.mark();
        scene.exchange(&Exchange {
            request: part(request, asked, asked),
            response: Some(part(response, answered, answered)),
            ..Exchange::default()
        });
    }
    scene.finish();
    assert_eq!(scene.found, []);
}

/// Its requests carry the ACK of the previous answer, and leave microseconds after it, however long that
/// took.
#[test]
fn a_client_that_calls_again_immediately_is_not_held() {
    let (mut scene, mut now) = (Scene::at_client(), 1000);
    for think_us in [8512, 5, 20_032, 5, 2010, 5, 8768, 5, 13_000, 5, 4000, 5] {
        now += 5;
        let request = scene.at(now).data_and_ack(CLIENT, 10);
        let asked = scene.mark();
        now += think_us;
        let response = scene.at(now).data_and_ack(SERVER, 14);
        let answered = scene.mark();
        scene.exchange(&Exchange {
            request: part(request, asked, asked),
            response: Some(part(response, answered, answered)),
            in_flight: 1,
            ..Exchange::default()
        });
    }
    scene.finish();
    assert!(scene.shown().is_empty(), "{:?}", scene.found);
}
