//! Ordinary traffic of any kind, at either tap: nothing may be shown, since nothing is wrong.

use super::scene::{CLIENT, SERVER, Scene, part};
use crate::exchange::Exchange;
use crate::tcp::Kind;
use proptest::prelude::*;
use spangap_model::Side;

/// One call: pauses before it and between the parts of both messages, the server's think time, sizes.
#[derive(Clone, Debug)]
struct Call {
    pause_us: i64,
    split_us: Option<i64>,
    think_us: i64,
    answer_split_us: Option<i64>,
    bytes: (u64, u64),
}

fn pause() -> impl Strategy<Value = i64> {
    prop_oneof![5i64..200, 200i64..5000, 5000i64..60_000, 35_000i64..48_000, 100_000i64..400_000]
}

fn call() -> impl Strategy<Value = Call> {
    let size = || prop_oneof![10u64..600, 600u64..1460, 1460u64..20_000];
    (pause(), proptest::option::of(pause()), pause(), proptest::option::of(pause()), (size(), size()))
        .prop_map(|(pause_us, split_us, think_us, answer_split_us, bytes)| Call {
            pause_us,
            split_us,
            think_us,
            answer_split_us,
            bytes,
        })
}

/// Plays the applications' actions with both kernels: acknowledgements immediate or delayed, piggybacked if
/// possible. No segment is ever held back.
fn play(mut scene: Scene, calls: &[Call], delays_us: &[i64], reorder: bool) -> Scene {
    let mut now = 1000;
    let mut delay = delays_us.iter().cycle();
    for call in calls {
        now += call.pause_us;
        let request = message(&mut scene, CLIENT, &mut now, call.bytes.0, call.split_us, &mut delay, reorder);
        now += call.think_us.min(30_000);
        // A server that thinks for long acknowledges before it answers.
        let response =
            message(&mut scene, SERVER, &mut now, call.bytes.1, call.answer_split_us, &mut delay, reorder);
        scene.exchange(&Exchange { request, response: Some(response), in_flight: 1, ..Exchange::default() });
        let after = *delay.next().expect("endless");
        if after > 0 {
            now += after;
            scene.at(now).ack(CLIENT);
        }
    }
    scene.finish();
    scene
}

fn message(
    scene: &mut Scene,
    from: Side,
    now: &mut i64,
    bytes: u64,
    split_us: Option<i64>,
    delay: &mut dyn Iterator<Item = &i64>,
    reorder: bool,
) -> crate::exchange::Part {
    let start = scene.next(from);
    let first_bytes = if split_us.is_some() { bytes / 2 } else { bytes };
    scene.at(*now).data_and_ack(from, first_bytes);
    let first = scene.mark();
    let mut last = first;
    if let Some(own_us) = split_us {
        // The second part leaves when the application writes it, before or after the ACK of the first.
        let ack_us = *delay.next().expect("endless");
        let near = (-1100..=ack_us / 64 + 1100).contains(&(own_us - ack_us));
        if ack_us > 0 && (near || ack_us < own_us) {
            scene.at(*now + ack_us).ack(from.other());
        }
        // A part that is written within a fraction of a millisecond of the ACK, by chance, cannot be
        // distinguished from a held one, so those are excluded here. The rule accounts for that chance.
        *now += if near { ack_us + ack_us / 16 + 1200 } else { own_us };
        let rest = bytes - first_bytes;
        let at = scene.next(from);
        if reorder && rest > 20 {
            scene.at(*now).bytes(Kind::Ahead, from, at + 10..at + rest);
            *now += 300;
            scene.at(*now).bytes(Kind::Fill, from, at..at + 10);
        } else {
            scene.at(*now).data(from, rest);
        }
        last = scene.mark();
    }
    let end = scene.next(from);
    part(start..end, first, last)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_shown_where_nothing_is_wrong(
        calls in proptest::collection::vec(call(), 1..40),
        delays_us in proptest::collection::vec(prop_oneof![Just(0i64), 300i64..2000, 40_000i64..44_300, 200_000i64..204_000], 1..9),
        tap in 0..3,
        reorder in any::<bool>(),
    ) {
        let scene = match tap {
            0 => Scene::at_client(),
            1 => Scene::at_server(),
            _ => Scene::joined(),
        };
        let scene = play(scene, &calls, &delays_us, reorder);
        let shown = scene.shown();
        prop_assert!(shown.is_empty(), "{:?}", scene.found);
    }
}
