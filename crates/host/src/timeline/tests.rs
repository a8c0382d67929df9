use super::simulated::{BEGAN, Machine};
use super::*;

/// An interval, and the time of the event that made it certain.
type Told = (Interval, u64);

/// The timeline's report on each thread of a machine.
fn told(machine: &Machine) -> FxHashMap<Tid, Vec<Told>> {
    let mut told: FxHashMap<Tid, Vec<Told>> = FxHashMap::default();
    let mut timeline = Timeline::new(BEGAN, |_| true);
    for event in &machine.events {
        timeline.on(event, &mut |tid, interval| {
            told.entry(tid).or_default().push((*interval, event.time_ns));
        });
    }
    timeline.finish(machine.end, &mut |tid, interval| {
        told.entry(tid).or_default().push((*interval, u64::MAX));
    });
    told
}

fn without_holes(tid: Tid, told: &[Told], end: u64) {
    let mut at = BEGAN;
    for (interval, _) in told {
        assert_eq!(interval.from_ns, at, "thread {tid}: a hole before {interval:?}");
        assert!(interval.to_ns > interval.from_ns, "thread {tid}: {interval:?}");
        at = interval.to_ns;
    }
    assert_eq!(at, end, "thread {tid}");
}

/// Whether a report about a nanosecond is true.
fn is_true(machine: &Machine, tid: Tid, interval: &Interval, at: u64) -> bool {
    let truth = machine.truth[tid as usize - 1][at as usize];
    let had = |cpu: u16| machine.had[usize::from(cpu)][at as usize];
    truth == interval.doing
        && match (interval.doing, interval.taker, interval.cpu) {
            (Doing::Running, None, Some(cpu)) => had(cpu) == Taker::Task(tid),
            (Doing::Interrupted, Some(taker), Some(cpu)) => had(cpu) == taker,
            (Doing::Runnable, Some(taker), Some(cpu)) => had(cpu) == taker,
            // Nothing is claimed about the CPU; tested where that is permitted.
            (Doing::Runnable, None, _) => true,
            (Doing::Throttled, None, _) => true,
            (Doing::Blocked | Doing::Stopped, None, None) => true,
            _ => false,
        }
}

#[test]
fn every_nanosecond_of_a_simulated_machine() {
    let (mut known, mut all) = (0, 0);
    for seed in 0..1500 {
        let machine = Machine::run(seed, false);
        for (tid, told) in told(&machine) {
            without_holes(tid, &told, machine.end);
            let truth = &machine.truth[tid as usize - 1];
            for (interval, _) in &told {
                all += interval.ns();
                if interval.doing == Doing::Unknown {
                    // At the start, before it was first on a run queue; or at the end, asleep.
                    let first = interval.from_ns == BEGAN;
                    assert!(first || interval.to_ns == machine.end, "seed {seed}: {tid}: {interval:?}");
                    let before = truth[interval.from_ns as usize..interval.to_ns as usize].iter();
                    let asleep = |doing: &Doing| matches!(doing, Doing::Blocked | Doing::Stopped);
                    if first && interval.to_ns < machine.end {
                        assert!(before.clone().all(asleep), "seed {seed}: {tid}: {interval:?}");
                    } else {
                        assert!(asleep(&truth[interval.from_ns as usize]), "seed {seed}: {tid}");
                    }
                    continue;
                }
                known += interval.ns();
                if interval.doing == Doing::Runnable && interval.to_ns < machine.end {
                    assert!(interval.taker.is_some(), "seed {seed}: {tid}: {interval:?}");
                }
                for at in interval.from_ns..interval.to_ns {
                    assert!(
                        is_true(&machine, tid, interval, at),
                        "seed {seed}: thread {tid} at {at}: {interval:?}, but {:?}, and the CPUs had {:?}",
                        truth[at as usize],
                        machine.had.iter().map(|had| had[at as usize]).collect::<Vec<_>>()
                    );
                }
            }
        }
    }
    assert!(known > 1_000_000 && known * 10 > all * 7, "{known} ns known of {all}");
}

#[test]
fn what_is_lost_makes_unknown_and_nothing_wrong() {
    let (mut known, mut all, mut lost, mut early) = (0, 0, 0, 0);
    for seed in 0..3000 {
        let machine = Machine::run(seed, true);
        lost += machine.losses.len();
        for (tid, told) in told(&machine) {
            without_holes(tid, &told, machine.end);
            for (interval, known_at) in &told {
                all += interval.ns();
                if interval.doing == Doing::Unknown {
                    continue;
                }
                known += interval.ns();
                for at in interval.from_ns..interval.to_ns {
                    if is_true(&machine, tid, interval, at) {
                        continue;
                    }
                    let truth = machine.truth[tid as usize - 1][at as usize];
                    // An interrupt within an interrupt was lost.
                    let nested = (Doing::Interrupted, Doing::Interrupted) == (truth, interval.doing)
                        || (Doing::Runnable, Doing::Runnable) == (truth, interval.doing);
                    let is_lost = |cpu: u16| {
                        machine.losses.iter().any(|loss| loss.0 == cpu && (loss.1..loss.2).contains(&at))
                    };
                    let outer = matches!(interval.taker, Some(Taker::Softirq { .. } | Taker::Hardirq(_)));
                    if nested && outer && interval.cpu.is_some_and(is_lost) {
                        continue;
                    }
                    // Reported before the loss was known.
                    let behind = |loss: &&(u16, u64, u64)| loss.1 <= interval.to_ns && loss.2 >= *known_at;
                    assert!(
                        machine.losses.iter().any(|loss| behind(&loss)),
                        "seed {seed}: thread {tid} at {at}: {interval:?}, but {truth:?}; lost {:?}",
                        machine.losses
                    );
                    early += 1;
                }
            }
        }
    }
    assert!(lost > 1000 && known * 10 > all * 3, "{lost} losses; {known} ns known of {all}");
    assert!(early * 20 < known, "{early} of {known} ns told before a loss was known were wrong");
}

/// Times in the tests below are small; events need not begin at the machine's start.
fn switch(time_ns: u64, cpu: u16, prev: Tid, left: Left, next: Tid, waited_ns: u64) -> Event {
    Event { time_ns, cpu, what: What::Switch { prev, left, next, waited_ns, throttled: false } }
}

fn hardirq(cpu: u16, began_ns: u64, time_ns: u64) -> Event {
    Event { time_ns, cpu, what: What::Hardirq { irq: Irq::Timer, began_ns } }
}

fn softirq(cpu: u16, began_ns: u64, time_ns: u64) -> Event {
    Event { time_ns, cpu, what: What::Softirq { vector: 3, device: 2, packets: 1, own: 0, began_ns } }
}

fn lost(cpu: u16, since_ns: u64, time_ns: u64) -> Event {
    Event { time_ns, cpu, what: What::Lost { count: 7, since_ns } }
}

/// The intervals of thread 1, from 0 to 100, in short form.
fn of_thread_1(events: &[Event]) -> Vec<(u64, Doing, Option<Taker>)> {
    let mut told = Vec::new();
    let mut timeline = Timeline::new(0, |tid| tid == 1);
    let mut each = |tid: Tid, interval: &Interval| {
        assert_eq!(tid, 1);
        told.push((interval.to_ns, interval.doing, interval.taker));
    };
    for event in events {
        timeline.on(event, &mut each);
    }
    timeline.finish(100, &mut each);
    told
}

const NET_RX: Taker = Taker::Softirq { vector: 3, device: 2, own: false };
const TIMER: Taker = Taker::Hardirq(Irq::Timer);

#[test]
fn the_time_off_a_cpu_is_split_and_its_takers_named() {
    let told = of_thread_1(&[
        switch(10, 0, 1, Left::Blocked, 2, 0),
        hardirq(0, 24, 25),
        softirq(0, 23, 28),
        switch(30, 0, 2, Left::Runnable, 1, 8),
        switch(40, 0, 1, Left::Runnable, 2, 10),
        switch(45, 0, 2, Left::Blocked, 1, 5),
    ]);
    assert_eq!(
        told,
        [
            (10, Doing::Running, None),
            (22, Doing::Blocked, None),
            (23, Doing::Runnable, Some(Taker::Task(2))),
            (24, Doing::Runnable, Some(NET_RX)),
            (25, Doing::Runnable, Some(TIMER)),
            (28, Doing::Runnable, Some(NET_RX)),
            (30, Doing::Runnable, Some(Taker::Task(2))),
            (40, Doing::Running, None),
            (45, Doing::Runnable, Some(Taker::Task(2))),
            (100, Doing::Running, None),
        ]
    );
}

#[test]
fn a_loss_hides_the_running_until_the_next_switch_there() {
    let told = of_thread_1(&[
        switch(10, 0, 0, Left::Runnable, 1, 0),
        softirq(0, 15, 16),
        hardirq(0, 18, 20),
        lost(0, 20, 50),
        switch(70, 0, 1, Left::Stopped, 0, 0),
        switch(90, 0, 0, Left::Runnable, 1, 5),
    ]);
    assert_eq!(
        told,
        [
            (10, Doing::Unknown, None),
            (15, Doing::Running, None),
            (16, Doing::Interrupted, Some(NET_RX)),
            // A softirq may have begun here, and its end may have been lost.
            (18, Doing::Unknown, None),
            (20, Doing::Interrupted, Some(TIMER)),
            (50, Doing::Unknown, None),
            (70, Doing::Running, None),
            (85, Doing::Stopped, None),
            (90, Doing::Runnable, Some(Taker::Task(0))),
            (100, Doing::Running, None),
        ]
    );
}

#[test]
fn a_softirq_that_outlasts_a_loss_tells_who_has_the_cpu() {
    let told = of_thread_1(&[
        switch(10, 0, 0, Left::Runnable, 1, 0),
        lost(0, 10, 50),
        softirq(0, 40, 50),
        switch(60, 0, 1, Left::Blocked, 0, 0),
    ]);
    let end = [
        (40, Doing::Unknown, None),
        (50, Doing::Interrupted, Some(NET_RX)),
        (60, Doing::Running, None),
        (100, Doing::Unknown, None),
    ];
    assert_eq!(told[1..], end);
}

#[test]
fn a_thread_that_was_only_preempted_is_known_through_a_loss_elsewhere() {
    let events = [
        switch(10, 0, 1, Left::Runnable, 2, 0),
        lost(1, 12, 20),
        switch(30, 0, 2, Left::Blocked, 1, 20),
        switch(40, 0, 1, Left::Blocked, 0, 0),
        lost(1, 42, 45),
        switch(60, 0, 0, Left::Runnable, 1, 5),
    ];
    let told = of_thread_1(&events);
    assert_eq!(
        told[..5],
        [
            (10, Doing::Running, None),
            (30, Doing::Runnable, Some(Taker::Task(2))),
            (40, Doing::Running, None),
            // It may have run on the other CPU.
            (55, Doing::Unknown, None),
            (60, Doing::Runnable, Some(Taker::Task(0))),
        ]
    );
}

#[test]
fn a_thread_seen_on_two_cpus_left_the_first_when_that_was_last_heard_of() {
    let told = of_thread_1(&[
        switch(10, 0, 0, Left::Runnable, 1, 0),
        hardirq(0, 20, 25),
        switch(50, 1, 0, Left::Runnable, 1, 3),
        switch(60, 0, 5, Left::Blocked, 0, 0),
        switch(80, 1, 1, Left::Ended, 0, 0),
    ]);
    assert_eq!(
        told[2..],
        [
            (25, Doing::Interrupted, Some(TIMER)),
            (47, Doing::Unknown, None),
            (50, Doing::Runnable, Some(Taker::Task(0))),
            // It has ended, and so do its intervals.
            (80, Doing::Running, None),
        ]
    );
}

#[test]
fn memory_is_bounded_and_long_stays_are_told_meanwhile() {
    let mut timeline = Timeline::new(0, |tid| tid == 1);
    let (mut running, mut interrupted) = (0, 0);
    let mut each = |_: Tid, interval: &Interval| match interval.doing {
        Doing::Running => running += interval.ns(),
        Doing::Interrupted => interrupted += interval.ns(),
        doing => panic!("{doing}"),
    };
    timeline.on(&switch(0, 0, 0, Left::Runnable, 1, 0), &mut each);
    for tick in 1..=1_000_000 {
        timeline.on(&hardirq(0, tick * 10 - 3, tick * 10), &mut each);
    }
    assert!(timeline.cpus[0].stretches() <= 1 << 15);
    timeline.finish(10_000_000, &mut each);
    assert_eq!((running, interrupted), (7_000_000, 3_000_000));
}
