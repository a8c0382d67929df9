//! While the programs rest, nothing is recorded, everybody is told so, and nothing that began before is taken for known after.

use super::own_tid;
use spangap_host::event::{Event, What};
use spangap_host::kernel::ProbeError;
use spangap_host::probes::intervals::{Intervals, Settings, Waits, monotonic_ns};
use spangap_host::timeline::{Interval, Timeline};
use spangap_model::Doing;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// Two threads that hand a byte to and fro until `done`, and count; the first says the ids of both.
fn hand_over(done: &AtomicBool, count: &AtomicU64, ids: &AtomicU64) {
    let (mut from_b, mut to_a) = std::io::pipe().unwrap();
    let (mut from_a, mut to_b) = std::io::pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            to_a.write_all(&own_tid().to_le_bytes()).unwrap();
            while from_a.read_exact(&mut [0]).is_ok() {
                to_a.write_all(&[0]).unwrap();
            }
        });
        let mut other = [0; 4];
        from_b.read_exact(&mut other).unwrap();
        ids.store(u64::from(own_tid()) << 32 | u64::from(u32::from_le_bytes(other)), Ordering::SeqCst);
        while !done.load(Ordering::Relaxed) {
            to_b.write_all(&[0]).unwrap();
            from_b.read_exact(&mut [0]).unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        }
        drop(to_b);
    });
}

#[test]
fn a_rest_is_unknown_time_and_nothing_else() {
    let settings = Settings { tgids: vec![std::process::id()], waits: Waits::Also, ..Settings::default() };
    let mut intervals = match Intervals::start(&settings) {
        Ok(intervals) => intervals,
        Err(error @ (ProbeError::NotRoot { .. } | ProbeError::NoBtf { .. } | ProbeError::Lacks { .. })) => {
            eprintln!("not run: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let began_ns = intervals.began_ns();
    let (done, count, ids) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut events: Vec<Event> = Vec::new();
    let mut rests = Vec::new();
    let ended = thread::scope(|scope| {
        scope.spawn(|| hand_over(&done, &count, &ids));
        let go_on = |intervals: &mut Intervals, events: &mut Vec<Event>, at_least_ns: u64| {
            let (from, began, deadline) =
                (count.load(Ordering::Relaxed), monotonic_ns(), Instant::now() + PATIENCE);
            while count.load(Ordering::Relaxed) < from + 500 || monotonic_ns() < began + at_least_ns {
                assert!(Instant::now() < deadline, "the threads do not go on");
                intervals.poll(Duration::from_millis(5), &mut |event| events.push(*event)).unwrap();
            }
        };
        go_on(&mut intervals, &mut events, 0);
        // The second one is told of in pieces.
        for at_least_ns in [0, 1_200_000_000] {
            intervals.rest(true).unwrap();
            let from_ns = monotonic_ns();
            go_on(&mut intervals, &mut events, at_least_ns);
            assert!(intervals.settled_ns() <= monotonic_ns());
            let to_ns = monotonic_ns();
            intervals.rest(false).unwrap();
            rests.push((from_ns, to_ns, monotonic_ns()));
            go_on(&mut intervals, &mut events, 0);
        }
        let cpus = intervals.cpus();
        done.store(true, Ordering::Relaxed);
        (intervals.stop(&mut |event| events.push(*event)).unwrap(), cpus)
    });
    let (ended, cpus) = ended;
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    assert_eq!((ended.counts.late, ended.counts.unknown), (0, 0));
    let ids = ids.load(Ordering::SeqCst);
    let tids = [(ids >> 32) as u32, ids as u32];
    let switches = |from_ns: u64, to_ns: u64| {
        let within = events.iter().filter(|event| (from_ns..=to_ns).contains(&event.time_ns));
        within.filter(|event| matches!(event.what, What::Switch { prev, .. } if tids.contains(&prev))).count()
    };
    assert!(switches(began_ns, rests[0].0) > 100 && switches(rests[1].2, ended.ended_ns) > 100);
    for &(from_ns, to_ns, _) in &rests {
        let within = events.iter().filter(|event| event.time_ns > from_ns && event.time_ns <= to_ns);
        let recorded = within.filter(|event| !matches!(event.what, What::Lost { .. } | What::Steal { .. }));
        assert_eq!(recorded.count(), 0);
        for cpu in 0..cpus {
            let mut known_until = from_ns;
            for event in events.iter().filter(|event| usize::from(event.cpu) == cpu) {
                match event.what {
                    What::Lost { count: 0, since_ns } if since_ns <= known_until => {
                        known_until = known_until.max(event.time_ns);
                    }
                    _ => {}
                }
            }
            assert!(
                known_until >= to_ns,
                "CPU {cpu}: the rest is told up to {known_until}, and lasted to {to_ns}"
            );
        }
    }
    // Sleeps from before a rest may have been several.
    for event in &events {
        if let What::Woken(woken) = event.what {
            for &(from_ns, _, over_ns) in &rests {
                assert!(!(woken.since_ns < from_ns && event.time_ns > over_ns), "{event:?}");
            }
        }
    }
    let mut timeline = Timeline::new(began_ns, |tid| tids.contains(&tid));
    let mut known: Vec<Interval> = Vec::new();
    let mut keep = |_: u32, interval: &Interval| {
        if interval.doing != Doing::Unknown {
            known.push(*interval);
        }
    };
    events.iter().for_each(|event| timeline.on(event, &mut keep));
    timeline.finish(ended.ended_ns, &mut keep);
    assert!(known.len() > 200);
    for &(from_ns, to_ns, _) in &rests {
        let within = known.iter().filter(|one| one.from_ns.max(from_ns) < one.to_ns.min(to_ns));
        // A thread that gets its CPU after a rest has been queued since a time that the scheduler knows.
        let claims = within.filter(|one| !(one.doing == Doing::Runnable && one.to_ns > to_ns));
        assert_eq!(claims.collect::<Vec<_>>(), Vec::<&Interval>::new());
    }
}
