//! Events that find no room are counted, and their place is reported.

use super::{lost, own_tid, unobserved, while_streaming};
use spangap_host::event::{Event, What};
use spangap_host::probes::intervals::Settings;
use std::io::{Read, Write};
use std::thread;

/// Two threads that hand a byte to and fro.
fn hand_over(rounds: usize) -> [u32; 2] {
    let (mut from_b, mut to_a) = std::io::pipe().unwrap();
    let (mut from_a, mut to_b) = std::io::pipe().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            for _ in 0..rounds {
                from_a.read_exact(&mut [0]).unwrap();
                to_a.write_all(&[0]).unwrap();
            }
            own_tid()
        });
        for _ in 0..rounds {
            to_b.write_all(&[0]).unwrap();
            from_b.read_exact(&mut [0]).unwrap();
        }
        [own_tid(), other.join().unwrap()]
    })
}

#[test]
fn a_tiny_ring_counts_its_losses_next_to_a_complete_stream() {
    let tiny = Settings { ring_events: 128, ..Settings::default() };
    // Two concurrent streams: the inner one is the outer one's work.
    let work = || unobserved(&tiny, || hand_over(20_000));
    let Some((all, whole, inner)) = while_streaming(&Settings::default(), work) else { return };
    let (some, part, tids) = inner.expect("what the outer one may, the inner one may, too");
    assert_eq!(whole.counts.lost, 0);
    assert!(part.counts.lost > 1000, "{:?}", part.counts);
    for event in &some {
        if let What::Lost { since_ns, .. } = event.what {
            assert!(since_ns <= event.time_ns);
        }
    }
    // Received and lost events add up to all events: the outer stream has every event of the inner one's
    // time.
    let (first, last) = (some[0].time_ns, part.ended_ns);
    let within = all.iter().filter(|event| (first..=last).contains(&event.time_ns));
    let there_was = within.filter(|event| lost(event).is_none()).count() as u64;
    let came = some.iter().filter(|event| lost(event).is_none()).count() as u64;
    let accounted = came + part.counts.lost;
    assert!(accounted.abs_diff(there_was) <= there_was / 100 + 200, "{accounted} of {there_was}");
    let switches = |events: &[Event]| {
        events
            .iter()
            .filter(|event| matches!(event.what, What::Switch { prev, .. } if tids.contains(&prev)))
            .count()
    };
    assert!(switches(&all) >= 20_000, "{}", switches(&all));
    assert!(switches(&some) < switches(&all));
}
