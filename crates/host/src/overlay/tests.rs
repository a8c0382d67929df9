//! Hand-made recordings, matched with windows.

use super::finder::{begins_at_or_before, reaches};
use super::*;
use crate::event::Left;
use proptest::prelude::*;

const CONNECTION: Connection = Connection { local_port: 50051, peer_port: 40_000, peer_tail: 7 };
const HOG: Tid = 20;

fn transfer(seq: u32) -> Transfer {
    Transfer { local_port: 50051, peer_port: 40_000, peer_tail: 7, seq }
}

fn switch(time_ns: u64, prev: Tid, left: Left, next: Tid, waited_ns: u64) -> Event {
    Event { time_ns, cpu: 0, what: What::Switch { prev, left, next, waited_ns, throttled: false } }
}

fn event(time_ns: u64, what: What) -> Event {
    Event { time_ns, cpu: 0, what }
}

fn window(from_ns: u64, to_ns: u64, reads: bool, writes: bool) -> Window {
    let (read_to, write_from) = (Some(150), Some(900));
    Window { from_ns, to_ns, connection: CONNECTION, read_to, read_from: None, reads, write_from, writes }
}

/// A request arrives at 1200, thread 10 is woken at 1300, gets the CPU at 3000, reads at 3100; `writer`
/// writes at 3500.
fn events(writer: Tid) -> Vec<Event> {
    vec![
        switch(50, 10, Left::Blocked, 0, 0),
        switch(100, 0, Left::Runnable, HOG, 0),
        event(900, What::Arrived(transfer(100))),
        event(1200, What::Arrived(transfer(150))),
        switch(3000, HOG, Left::Runnable, 10, 1700),
        event(3050, What::Read { tid: 10, at: transfer(100) }),
        event(3100, What::Read { tid: 10, at: transfer(150) }),
        event(3500, What::Wrote { tid: writer, at: transfer(900) }),
        event(3600, What::Wrote { tid: writer, at: transfer(950) }),
        switch(4000, 10, Left::Blocked, HOG, 0),
        switch(6000, HOG, Left::Runnable, 10, 0),
    ]
}

fn laid(windows: &[Window], events: &[Event]) -> Vec<SplitWindow> {
    let mut finder = Finder::new(windows);
    events.iter().for_each(|event| finder.on(event));
    let (hands, handovers) = finder.finish(&|_| Some(1));
    let mut layer = Layer::new(windows, &hands, &handovers, 0);
    events.iter().for_each(|event| layer.on(event));
    layer.finish(10_000)
}

fn sums(laid: &SplitWindow) -> Vec<(Doing, Option<Taker>, u64)> {
    laid.parts.iter().map(|part| (part.doing, part.taker, part.ns)).collect()
}

#[test]
fn who_read_a_response_had_it_from_its_first_byte_until_another_went_on() {
    let response = Window { read_from: Some(60), write_from: None, ..window(1200, 8000, true, false) };
    let read = |window: Window, events: &[Event]| laid(&[window], events)[0].read;
    // The first read reaches 100, and so has the first bytes; the second one has the last.
    let mine = Read { tid: 10, after_ns: 1900, begun_ns: 50, held_ns: 4900 };
    assert_eq!(read(response, &events(10)), Some(mine));
    // Whether both arrive in one read, or the beginning is unknown.
    for read_from in [Some(100), None] {
        assert_eq!(read(Window { read_from, ..response }, &events(10)), Some(Read { begun_ns: 0, ..mine }));
    }
    // Thread 11 is woken at 3800, and has it from then on.
    let mut handed_on = events(10);
    let sleep = crate::event::Sleep { stack: None, uninterruptible: false, as_for_a_lock: false };
    let woken = crate::event::Woken { tid: 11, by: crate::event::Waker::Task(10), since_ns: 200, sleep };
    handed_on.insert(9, event(3800, What::Woken(woken)));
    assert_eq!(read(response, &handed_on), Some(Read { held_ns: 700, ..mine }));
    // What was read before the leg began is not a read of this leg.
    assert_eq!(read(Window { reads: false, ..response }, &events(10)), None);
}

#[test]
fn a_call_is_split_by_what_its_thread_did() {
    let windows =
        [window(1000, 5000, true, true), window(1000, 3050, true, false), window(3500, 3800, false, true)];
    let [whole, before, after] = <[SplitWindow; 3]>::try_from(laid(&windows, &events(10))).expect("as many");
    let hog = Some(Taker::Task(HOG));
    assert_eq!(
        sums(&whole),
        [
            (Doing::Running, None, 1000),
            (Doing::Runnable, hog, 1700),
            (Doing::Blocked, None, 1100),
            (Doing::SoftirqLate, None, 200),
        ]
    );
    assert_eq!(whole.threads, [10]);
    assert_eq!(sums(&before)[1], (Doing::Runnable, hog, 1700));
    assert_eq!(sums(&after), [(Doing::Running, None, 300)]);
}

#[test]
fn a_sleep_is_told_with_its_reason_and_its_waker() {
    let mut events = events(10);
    let sleep = Sleep { stack: Some(7), uninterruptible: true, as_for_a_lock: false };
    let by = Waker::Task(HOG);
    events.push(event(5900, What::Woken(Woken { tid: 10, since_ns: 4000, sleep, by })));
    // Of another sleep, and of another thread.
    events.push(event(5950, What::Woken(Woken { tid: 11, since_ns: 4000, sleep, by: Waker::Idle })));
    events.sort_by_key(|event| event.time_ns);
    let [whole] =
        <[SplitWindow; 1]>::try_from(laid(&[window(1000, 5000, true, true)], &events)).expect("one");
    let blocked: Vec<_> = whole.parts.iter().filter(|part| part.doing == Doing::Blocked).collect();
    assert_eq!(blocked.iter().map(|part| part.ns).sum::<u64>(), 1100);
    assert!(blocked.iter().any(|part| part.wait == Some((sleep, by)) && part.ns == 1000), "{blocked:?}");
    assert!(blocked.iter().any(|part| part.wait.is_none() && part.ns == 100), "{blocked:?}");
}

#[test]
fn a_time_split_into_more_legs_has_the_same_parts() {
    // The span begins before the request is read, or after it.
    for middle in [2000, 3300] {
        let windows = [
            window(1000, 5000, true, true),
            window(1000, middle, true, false),
            window(middle, 3400, false, false),
            window(3400, 5000, false, true),
        ];
        let laid = laid(&windows, &events(10));
        let by_doing = |laid: &[SplitWindow]| {
            let mut sums = BTreeMap::new();
            for part in laid.iter().flat_map(|laid| &laid.parts) {
                *sums.entry((part.doing, part.taker)).or_insert(0) += part.ns;
            }
            sums
        };
        assert_eq!(by_doing(&laid[..1]), by_doing(&laid[1..]), "{middle}");
    }
}

#[test]
fn what_another_thread_had_in_hand_is_not_known() {
    let [whole] =
        <[SplitWindow; 1]>::try_from(laid(&[window(1000, 5000, true, true)], &events(11))).expect("one");
    let unknown: u64 =
        whole.parts.iter().filter(|part| part.doing == Doing::Unknown).map(|part| part.ns).sum();
    // From the read at 3100 to the write at 3500; nothing is known about the writer after that.
    assert_eq!(unknown, 400 + 1500);
    assert_eq!(whole.threads, [10, 11]);
}

const LOOP: Tid = 10;
const WORKER: Tid = 11;
const HELPER: Tid = 12;

fn woken(time_ns: u64, tid: Tid, since_ns: u64, by: Waker) -> Event {
    let sleep = Sleep { stack: Some(1), uninterruptible: false, as_for_a_lock: false };
    event(time_ns, What::Woken(Woken { tid, since_ns, sleep, by }))
}

fn wrote(time_ns: u64, tid: Tid, seq: u32) -> Event {
    event(time_ns, What::Wrote { tid, at: transfer(seq) })
}

/// The answer to another call, of 500 bytes on another connection.
fn answered_another(time_ns: u64, tid: Tid) -> [Event; 2] {
    let other = |seq| Transfer { peer_port: 40_001, ..transfer(seq) };
    [
        event(time_ns, What::Wrote { tid, at: other(100) }),
        event(6_500, What::Wrote { tid: HOG, at: other(600) }),
    ]
}

/// The loop reads at 3100, then `others` happen, and `writer` writes the answer at 3500. What each thread did
/// is not recorded, so the parts are unknown; only who had the call in hand is checked.
fn hands_of(writer: Tid, others: &[Event]) -> Vec<(Tid, u64, u64)> {
    let windows = [window(1000, 5000, true, true)];
    let mut events = events(writer);
    events.extend_from_slice(others);
    events.sort_by_key(|event| event.time_ns);
    let mut finder = Finder::new(&windows);
    events.iter().for_each(|event| finder.on(event));
    let (hands, handovers) = finder.finish(&|_| Some(1));
    let holds = handovers.served(CONNECTION, &hands[0]);
    holds.iter().map(|hold| (hold.tid, hold.from_ns, hold.to_ns)).collect()
}

#[test]
fn a_call_is_followed_to_the_worker_that_answers_it() {
    let given = woken(3200, WORKER, 500, Waker::Task(LOOP));
    assert_eq!(hands_of(WORKER, &[given]), [(LOOP, 3100, 3200), (WORKER, 3200, 3500)]);
    // Its own waits on the way belong to it: for a packet, for a lock, for a thread that has nothing to do
    // with the call.
    let lock = Sleep { stack: Some(2), uninterruptible: false, as_for_a_lock: true };
    let by = Waker::Task(LOOP);
    let lock = event(3400, What::Woken(Woken { tid: WORKER, since_ns: 3350, sleep: lock, by }));
    let packet = woken(3300, WORKER, 3250, Waker::Softirq { vector: 3, during: 0 });
    let stranger = woken(3450, WORKER, 3420, Waker::Task(HOG));
    assert_eq!(
        hands_of(WORKER, &[given, packet, lock, stranger]),
        [(LOOP, 3100, 3200), (WORKER, 3200, 3500)]
    );
    // Another thread does a part of the work.
    let to_helper = woken(3250, HELPER, 500, Waker::Task(WORKER));
    let back = woken(3400, WORKER, 3260, Waker::Task(HELPER));
    assert_eq!(
        hands_of(WORKER, &[given, to_helper, back]),
        [(LOOP, 3100, 3200), (WORKER, 3200, 3250), (HELPER, 3250, 3400), (WORKER, 3400, 3500)]
    );
}

#[test]
fn a_call_is_followed_to_the_worker_that_gives_it_back() {
    let given = woken(3200, WORKER, 500, Waker::Task(LOOP));
    let back = woken(3450, LOOP, 3210, Waker::Task(WORKER));
    let through = [(LOOP, 3100, 3200), (WORKER, 3200, 3450), (LOOP, 3450, 3500)];
    assert_eq!(hands_of(LOOP, &[given, back]), through);
    // A PING that the loop answers is not another call.
    let ping = [wrote(3460, LOOP, 883), wrote(3470, LOOP, 900)];
    assert_eq!(hands_of(LOOP, &[given, back, ping[0]]), through);
    // It was not woken by the worker, or it answered another call afterwards: perhaps it never gave the call
    // away.
    let alone = [(LOOP, 3100, 3500)];
    let packet = woken(3480, LOOP, 3470, Waker::Softirq { vector: 3, during: 0 });
    assert_eq!(hands_of(LOOP, &[given, back, packet]), alone);
    let another = answered_another(3470, LOOP);
    assert_eq!(
        hands_of(LOOP, &[given, back, another[0], another[1]]),
        [(LOOP, 3100, 3470), (LOOP, 3470, 3500)]
    );
    let timer = woken(3480, LOOP, 3470, Waker::Hardirq(crate::event::Irq::Timer));
    assert_eq!(
        hands_of(LOOP, &[given, back, timer]),
        [(LOOP, 3100, 3200), (WORKER, 3200, 3450), (LOOP, 3450, 3500)]
    );
    let not_given = woken(3450, LOOP, 3210, Waker::Task(HOG));
    assert_eq!(hands_of(LOOP, &[given, not_given]), alone);
}

#[test]
fn what_a_worker_did_before_it_had_the_call_is_not_the_calls() {
    // Awake all the time, it took the call when it had answered the previous one, or later.
    let another = answered_another(3300, WORKER);
    assert_eq!(hands_of(WORKER, &another), [(WORKER, 3300, 3500)]);
    let given = woken(3200, WORKER, 500, Waker::Task(LOOP));
    assert_eq!(hands_of(WORKER, &[given, another[0], another[1]]), [(WORKER, 3300, 3500)]);
    // Woken before the call was read, or by no thread, it may have got it from anywhere.
    assert_eq!(hands_of(WORKER, &[woken(3050, WORKER, 500, Waker::Task(LOOP))]), []);
    let timer = Waker::Hardirq(crate::event::Irq::Timer);
    assert_eq!(hands_of(WORKER, &[woken(3200, WORKER, 500, timer)]), []);
    // Before that, it gave the loop another call's answer.
    let back = |at| woken(at, LOOP, at - 10, Waker::Task(WORKER));
    let another = answered_another(3350, LOOP);
    assert_eq!(
        hands_of(LOOP, &[given, back(3300), another[0], another[1], back(3450)]),
        [(WORKER, 3300, 3450), (LOOP, 3450, 3500)]
    );
    // Woken twice before it did anything, as when it has to wait for the interpreter's lock, it was given one
    // answer.
    assert_eq!(
        hands_of(LOOP, &[given, back(3300), back(3450)]),
        [(LOOP, 3100, 3200), (WORKER, 3200, 3450), (LOOP, 3450, 3500)]
    );
}

/// Such as a queue's thread that was awake when the reader put the call there: nobody had to wake it. The worker sleeps again
/// while it has the call, and its last wake-up hands it nothing.
#[test]
fn a_worker_that_slept_when_the_call_was_read_had_it_from_its_first_wake_up_on() {
    let by_queue = woken(3200, WORKER, 500, Waker::Task(HOG));
    let slept = woken(3400, WORKER, 3250, Waker::Hardirq(crate::event::Irq::Timer));
    let for_interpreter = woken(3450, WORKER, 3410, Waker::Task(HOG));
    assert_eq!(hands_of(WORKER, &[by_queue, slept, for_interpreter]), [(WORKER, 3200, 3500)]);
    // It slept only later, and may have had the call before; or it answered another call meanwhile.
    let later = woken(3200, WORKER, 3150, Waker::Task(HOG));
    assert_eq!(hands_of(WORKER, &[later, slept]), []);
    let another = answered_another(3300, WORKER);
    assert_eq!(hands_of(WORKER, &[by_queue, another[0], another[1]]), [(WORKER, 3300, 3500)]);
}

#[test]
fn a_clients_call_is_followed_from_who_made_it_and_to_who_gets_it() {
    let windows = [window(1000, 3600, false, true), window(2900, 5000, true, false)];
    let hands = |events: &[Event]| {
        let mut finder = Finder::new(&windows);
        events.iter().for_each(|event| finder.on(event));
        let (mut hands, handovers) = finder.finish(&|_| Some(1));
        hands[0] = Hands { wrote: Some((LOOP, 3500)), ..Hands::default() };
        hands[1] = Hands { read: Some((LOOP, 3100)), ..Hands::default() };
        let told = |holds: Vec<Hold>| -> Vec<(Tid, u64, u64)> {
            holds.iter().map(|hold| (hold.tid, hold.from_ns, hold.to_ns)).collect()
        };
        (told(handovers.made(1000, &hands[0])), told(handovers.received(5000, &hands[1])))
    };
    let to_app = woken(3200, WORKER, 3000, Waker::Task(LOOP));
    let by_app = woken(3400, LOOP, 3300, Waker::Task(WORKER));
    let (made, received) = hands(&[to_app, by_app]);
    // The thread that got something from the loop at 3200 made the call afterwards; who had it before is
    // unknown.
    assert_eq!(made, [(WORKER, 3200, 3400), (LOOP, 3400, 3500)]);
    assert_eq!(received, [(LOOP, 3100, 3200), (WORKER, 3200, 5000)]);
    // Nobody handed it over, and two threads may have got it.
    let also = woken(3450, HELPER, 3000, Waker::Task(LOOP));
    let packet = woken(3480, LOOP, 3470, Waker::Softirq { vector: 3, during: 0 });
    let (made, received) = hands(&[to_app, by_app, also, packet]);
    assert_eq!(made, []);
    assert_eq!(received, [(LOOP, 3100, 3200)]);
}

/// After a read at 3100, three sleeps of 100 ns each on the kernel stack `stack`, with so many nanoseconds of running before each.
fn between_sleeps(ran_ns: u64, stack: Option<u16>) -> Vec<(Doing, bool, u64)> {
    let mut events: Vec<Event> = events(10).into_iter().filter(|event| event.time_ns <= 3100).collect();
    let mut at = 3100;
    for _ in 0..3 {
        at += ran_ns;
        let since_ns = at;
        events.push(switch(at, 10, Left::Blocked, HOG, 0));
        at += 100;
        let sleep = Sleep { stack, uninterruptible: true, as_for_a_lock: false };
        events.push(event(at, What::Woken(Woken { tid: 10, since_ns, sleep, by: Waker::Idle })));
        events.push(switch(at, HOG, Left::Runnable, 10, 0));
    }
    events.push(event(at + ran_ns, What::Wrote { tid: 10, at: transfer(900) }));
    events.push(switch(9_000, 10, Left::Blocked, HOG, 0));
    let [whole] =
        <[SplitWindow; 1]>::try_from(laid(&[window(3100, at + ran_ns, true, true)], &events)).expect("one");
    let slept = |part: &Part| (part.doing, part.wait.is_some(), part.ns);
    whole.parts.iter().map(slept).filter(|(doing, ..)| *doing != Doing::SoftirqLate).collect()
}

#[test]
fn what_a_thread_runs_between_short_sleeps_on_one_stack_belongs_to_them() {
    // Before the first sleep and after the last one it works for the call.
    let faults = between_sleeps(80, Some(7));
    assert_eq!(
        faults,
        [(Doing::Running, false, 160), (Doing::Running, true, 160), (Doing::Blocked, true, 300)]
    );
    // Who works for longer than it sleeps works for the call, and on unknown stacks nothing tells that these are of one kind.
    for of in [between_sleeps(101, Some(7)), between_sleeps(80, None)] {
        let running: Vec<_> = of.iter().filter(|(doing, ..)| *doing == Doing::Running).collect();
        assert!(matches!(running[..], [(_, false, _)]), "{of:?}");
    }
}

#[test]
fn what_a_thread_waits_for_after_its_answer_is_not_the_calls() {
    let mut events = events(10);
    let sleep = Sleep { stack: Some(7), uninterruptible: true, as_for_a_lock: false };
    events.push(event(5900, What::Woken(Woken { tid: 10, since_ns: 4000, sleep, by: Waker::Idle })));
    events.sort_by_key(|event| event.time_ns);
    let answered = Window { write_from: Some(900), ..window(1000, 5000, true, true) };
    let [whole] = <[SplitWindow; 1]>::try_from(laid(&[answered], &events)).expect("one");
    let slept: Vec<_> = whole.parts.iter().filter(|part| part.wait.is_some()).collect();
    assert!(slept.len() == 1 && slept[0].answered && slept[0].ns == 1000, "{slept:?}");
    let [whole] =
        <[SplitWindow; 1]>::try_from(laid(&[Window { write_from: None, ..answered }], &events)).expect("one");
    assert!(whole.parts.iter().all(|part| !part.answered), "{:?}", whole.parts);
}

#[test]
fn what_follows_the_first_bytes_is_in_the_hands_of_who_wrote_them() {
    // Another thread read: while bytes are being sent, only the writer counts, and its sleeps do not belong
    // to the call.
    let [sending] =
        <[SplitWindow; 1]>::try_from(laid(&[window(3600, 7000, false, false)], &events(HOG))).expect("one");
    assert_eq!(sending.threads, [HOG]);
    let known: u64 =
        sums(&sending).iter().filter(|(doing, ..)| *doing != Doing::Unknown).map(|(.., ns)| ns).sum();
    assert_eq!(known, 3400, "{:?}", sending.parts);
    // Before anything is written, it is unknown which thread has the call.
    let [before] =
        <[SplitWindow; 1]>::try_from(laid(&[window(3200, 3450, false, false)], &events(HOG))).expect("one");
    assert!(before.threads.is_empty(), "{:?}", before.threads);
}

#[test]
fn a_connection_without_events_leaves_all_unknown() {
    let other =
        Window { connection: Connection { peer_port: 1, ..CONNECTION }, ..window(1000, 5000, true, true) };
    let [whole] = <[SplitWindow; 1]>::try_from(laid(&[other], &events(10))).expect("one");
    assert_eq!(sums(&whole), [(Doing::Unknown, None, 4000)]);
    assert!(whole.threads.is_empty());
}

#[test]
fn sequence_numbers_wrap() {
    assert!(reaches(5, Some(5)) && reaches(3, Some(u32::MAX)) && !reaches(4, Some(5)));
    assert!(begins_at_or_before(5, Some(5)) && !begins_at_or_before(6, Some(5)));
    assert!(begins_at_or_before(u32::MAX - 3, Some(2)) && !begins_at_or_before(0, None));
}

proptest! {
    #[test]
    fn parts_sum_to_the_window(
        (from, length, reads, writes) in (0_u64..6000, 1_u64..4000, any::<bool>(), any::<bool>()),
        writer in prop::sample::select(vec![10, 11, HOG]),
    ) {
        let laid = laid(&[window(from, from + length, reads, writes)], &events(writer));
        let sum: u64 = laid[0].parts.iter().map(|part| part.ns).sum();
        prop_assert_eq!(sum, length);
    }
}

/// Compared one by one, these windows and events would take minutes.
#[test]
fn many_calls_of_one_connection_and_thread_are_laid_at_once() {
    const CALLS: u32 = 30_000;
    const EACH_NS: u64 = 1_000;
    let begin = |call: u32| u64::from(call) * EACH_NS;
    let windows: Vec<Window> = (0..CALLS)
        .map(|call| Window {
            read_to: Some(call * 100 + 100),
            write_from: Some(call * 10),
            ..window(begin(call) + 100, begin(call) + 900, true, true)
        })
        .collect();
    let mut events = vec![switch(50, 10, Left::Blocked, 0, 0)];
    for call in 0..CALLS {
        let at = |ns: u64, what: What| event(begin(call) + ns, what);
        events.push(at(100, What::Arrived(transfer(call * 100 + 100))));
        events.push(switch(begin(call) + 300, 0, Left::Runnable, 10, 50));
        events.push(at(400, What::Read { tid: 10, at: transfer(call * 100 + 100) }));
        events.push(at(900, What::Wrote { tid: 10, at: transfer(call * 10) }));
        events.push(switch(begin(call) + 950, 10, Left::Blocked, 0, 0));
    }
    let mut finder = Finder::new(&windows);
    events.iter().for_each(|event| finder.on(event));
    let (hands, handovers) = finder.finish(&|_| Some(1));
    for (call, hands) in hands.iter().enumerate() {
        let begin = begin(call as u32);
        let expected = Hands {
            arrived_ns: Some(begin + 100),
            read: Some((10, begin + 400)),
            begun_ns: None,
            created: None,
            wrote: Some((10, begin + 900)),
        };
        assert_eq!(*hands, expected, "{call}");
    }
    let mut layer = Layer::new(&windows, &hands, &handovers, 0);
    events.iter().for_each(|event| layer.on(event));
    for (call, laid) in layer.finish(begin(CALLS)).iter().enumerate() {
        assert_eq!(laid.threads, [10], "{call}");
        let of =
            |doing: Doing| sums(laid).iter().filter(|part| part.0 == doing).map(|part| part.2).sum::<u64>();
        assert_eq!(of(Doing::Running), 600, "{call}: {:?}", laid.parts);
        assert_eq!(laid.parts.iter().map(|part| part.ns).sum::<u64>(), 800, "{call}");
    }
}

#[test]
fn a_call_is_its_creators_until_the_thread_exists_that_reads_it() {
    // Thread 30 accepts connections and starts a thread for each. It is stopped from 1100 to 2600, when the
    // request arrives.
    let events = [
        switch(800, 0, Left::Runnable, 30, 0),
        event(900, What::Arrived(transfer(100))),
        switch(1100, 30, Left::Stopped, 0, 0),
        event(1200, What::Arrived(transfer(150))),
        switch(2600, 0, Left::Runnable, 30, 100),
        switch(3000, 30, Left::Blocked, 31, 200),
        event(3050, What::Read { tid: 31, at: transfer(100) }),
        event(3100, What::Read { tid: 31, at: transfer(150) }),
        event(3500, What::Wrote { tid: 31, at: transfer(900) }),
    ];
    let [before] =
        <[SplitWindow; 1]>::try_from(laid(&[window(1200, 3100, true, false)], &events)).expect("one");
    let ns = |doing| before.parts.iter().filter(|part| part.doing == doing).map(|part| part.ns).sum::<u64>();
    // Stopped from the request's arrival until the creator was runnable again at 2500; the new thread is
    // runnable from 2800 on.
    assert_eq!((ns(Doing::Stopped), ns(Doing::Unknown)), (1300, 0), "{before:?}");
    assert_eq!((ns(Doing::Runnable), ns(Doing::Running)), (300, 300));
    assert_eq!(before.threads, [30, 31]);
}
