use super::*;
use crate::event::{Event, Irq, Left, Sleep, Transfer, Waker, What, Woken};
use crate::names::{Names, TaskName};
use proptest::prelude::*;
use spangap_model::evidence::{Coverage, Instrument, Interval};
use std::io::Cursor;

fn left() -> impl Strategy<Value = Left> {
    prop_oneof![
        Just(Left::Runnable),
        Just(Left::Throttled),
        Just(Left::Blocked),
        Just(Left::Stopped),
        Just(Left::Ended)
    ]
}

fn transfer() -> impl Strategy<Value = Transfer> {
    // Few connections, so that they come again.
    (0..3u16, any::<u32>(), any::<bool>()).prop_map(|(port, seq, far)| Transfer {
        local_port: port,
        peer_port: u16::MAX - port,
        peer_tail: if far { u32::MAX } else { 0x7f00_0001 },
        seq,
    })
}

fn sleep() -> impl Strategy<Value = Sleep> {
    (any::<Option<u16>>(), any::<bool>(), any::<bool>())
        .prop_map(|(stack, uninterruptible, as_for_a_lock)| Sleep { stack, uninterruptible, as_for_a_lock })
}

fn waker() -> impl Strategy<Value = Waker> {
    prop_oneof![
        any::<u32>().prop_map(Waker::Task),
        (any::<u8>(), any::<u32>()).prop_map(|(vector, during)| Waker::Softirq { vector, during }),
        any::<u32>().prop_map(|line| Waker::Hardirq(Irq::Line(line))),
        Just(Waker::Hardirq(Irq::Timer)),
        Just(Waker::Hardirq(Irq::Call)),
        Just(Waker::Idle),
        Just(Waker::Unseen),
    ]
}

fn what() -> impl Strategy<Value = What> {
    let ns = || prop_oneof![0..1_000_000u64, any::<u64>()];
    let tid = || prop_oneof![0..4u32, any::<u32>()];
    prop_oneof![
        (tid(), left(), tid(), ns(), any::<bool>()).prop_map(|(prev, left, next, waited_ns, throttled)| {
            What::Switch { prev, left, next, waited_ns, throttled }
        }),
        (any::<u8>(), any::<u32>(), any::<u32>(), 0..3u32, ns()).prop_map(
            |(vector, device, packets, own, began_ns)| {
                What::Softirq { vector, device, packets, own, began_ns }
            }
        ),
        (any::<u32>().prop_map(Irq::Line), ns()).prop_map(|(irq, began_ns)| What::Hardirq { irq, began_ns }),
        (prop_oneof![Just(Irq::Timer), Just(Irq::Call)], ns())
            .prop_map(|(irq, began_ns)| What::Hardirq { irq, began_ns }),
        transfer().prop_map(What::Arrived),
        (tid(), transfer()).prop_map(|(tid, at)| What::Read { tid, at }),
        (tid(), transfer()).prop_map(|(tid, at)| What::Wrote { tid, at }),
        (tid(), ns(), sleep(), waker())
            .prop_map(|(tid, since_ns, sleep, by)| { What::Woken(Woken { tid, since_ns, sleep, by }) }),
        (any::<u64>(), ns()).prop_map(|(count, since_ns)| What::Lost { count, since_ns }),
        (any::<u64>(), ns()).prop_map(|(ns, since_ns)| What::Steal { ns, since_ns }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let time = prop_oneof![8 => 0..1_000_000_000u64, 1 => any::<u64>()];
    let cpu = prop_oneof![8 => 0..3u16, 1 => any::<u16>()];
    (time, cpu, what()).prop_map(|(time_ns, cpu, what)| Event { time_ns, cpu, what })
}

/// What a recorder does beside adding events.
#[derive(Clone, Debug)]
enum Step {
    Event(Event),
    Flush,
    Name(u32),
    Clocks(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => event().prop_map(Step::Event),
        1 => Just(Step::Flush),
        1 => any::<u32>().prop_map(Step::Name),
        1 => (-1000..1000i64).prop_map(Step::Clocks),
    ]
}

fn meta() -> Meta {
    Meta {
        host: "tank".into(),
        kernel: "6.18.0".into(),
        cpus: 2,
        pids: vec![812],
        command: vec!["spangap".into(), "host".into()],
        began_ns: 5,
        lacks: vec!["writes to sockets are not told".into()],
        halted: Vec::new(),
        spangap: "0.1.0".into(),
    }
}

/// Writes, and returns the file with what is expected to be read from it.
fn written(steps: &[Step]) -> (Vec<u8>, Vec<Event>, Names, Relation) {
    let mut writer = Writer::new(Vec::new(), &meta()).unwrap();
    let (mut events, mut names, mut relation) = (Vec::new(), Names::default(), Relation::default());
    for (place, step) in steps.iter().enumerate() {
        match step {
            Step::Event(event) => {
                events.push(*event);
                writer.event(event).unwrap();
            }
            Step::Flush => writer.flush().unwrap(),
            Step::Name(tid) => {
                names.told_task(place as u64, *tid, TaskName::new(b"worker\0", place as u32, 0));
                writer.names(&names.take_fresh()).unwrap();
            }
            Step::Clocks(offset) => {
                let (low_ns, high_ns) = (*offset, *offset + 700);
                let reading = Reading { mono_ns: place as u64, low_ns, high_ns, stepped: offset % 7 == 0 };
                relation.add(reading);
                writer.clocks(&reading).unwrap();
            }
        }
    }
    let end = End { ended_ns: 99, events: 0, lost: 3 };
    let (file, written) = writer.finish(end).unwrap();
    assert_eq!(written.bytes, file.len() as u64);
    assert_eq!(written.events, events.len() as u64);
    (file, events, names, relation)
}

type InMemory = Recording<Cursor<Vec<u8>>>;

fn read(file: Vec<u8>) -> (InMemory, Vec<Event>, Result<(), RecordingError>) {
    let mut recording = Recording::from_reader("it".into(), Cursor::new(file)).unwrap();
    let mut events = Vec::new();
    let result = recording.read(&mut |event| events.push(*event));
    (recording, events, result)
}

proptest! {
    #[test]
    fn what_is_written_is_read(steps in prop::collection::vec(step(), 0..200)) {
        let (file, events, names, relation) = written(&steps);
        let bytes = file.len() as u64;
        let (mut recording, found, result) = read(file);
        result.unwrap();
        prop_assert_eq!(&found, &events);
        prop_assert_eq!(recording.meta(), &meta());
        prop_assert_eq!(recording.end(), Some(&End { ended_ns: 99, events: events.len() as u64, lost: 3 }));
        prop_assert!(recording.cut().is_none());
        prop_assert_eq!(recording.relation(), &relation);
        prop_assert_eq!(recording.bytes(), bytes);
        // As far as a file has them: when they were told is not in it.
        let plain = |names: Names| {
            let mut plain = Names::default();
            plain.absorb(names);
            plain
        };
        prop_assert_eq!(plain(recording.names().clone()), plain(names));
        // A second time, too.
        let mut again = Vec::new();
        recording.read(&mut |event| again.push(*event)).unwrap();
        prop_assert_eq!(again, events);
    }

    #[test]
    fn a_cut_file_is_read_up_to_the_cut(steps in prop::collection::vec(step(), 0..100), cut in 0.0..1.0f64) {
        let (file, events, ..) = written(&steps);
        let at = (file.len() as f64 * cut) as usize;
        let opened = Recording::from_reader("it".into(), Cursor::new(file[..at].to_vec()));
        let Ok(mut recording) = opened else { return Ok(()) };
        let mut found = Vec::new();
        recording.read(&mut |event| found.push(*event)).unwrap();
        prop_assert!(events.starts_with(&found));
        let cut = recording.cut().expect("it was cut").to_string();
        prop_assert!(cut.contains("ends at byte") && cut.contains("expected"), "{}", cut);
    }

    #[test]
    fn a_damaged_file_gives_only_what_was_written(
        steps in prop::collection::vec(step(), 0..100),
        at in 0.0..1.0f64,
        flip in 1..=255u8,
    ) {
        let (mut file, events, ..) = written(&steps);
        let at = (file.len() as f64 * at) as usize;
        file[at] ^= flip;
        let Ok(mut recording) = Recording::from_reader("it".into(), Cursor::new(file)) else { return Ok(()) };
        let mut found = Vec::new();
        let result = recording.read(&mut |event| found.push(*event));
        // A kind that is damaged is one that is not known, and skipped: it may leave out events, never make up any.
        let mut left = events.iter();
        prop_assert!(found.iter().all(|event| left.any(|one| one == event)), "made up an event");
        if let Err(error) = result {
            prop_assert!(error.to_string().contains("expected"), "{}", error);
        }
    }
}

#[test]
fn errors_name_the_place_and_what_was_expected() {
    let error = |file: &[u8]| {
        Recording::from_reader("x.rec".into(), Cursor::new(file.to_vec())).unwrap_err().to_string()
    };
    assert_eq!(
        error(b"spangap"),
        "x.rec: not a recording of `spangap host record`: expected it to begin with \"spangap host\""
    );
    assert_eq!(error(b"spangap host\x09\0\0\0"), "x.rec: is a recording of format 9, expected 1 to 2");
    assert_eq!(error(b"spangap host\x01\0\0\0"), "x.rec: ends at byte 16, expected what was recorded");
    let (file, events, ..) = written(&[
        Step::Event(Event { time_ns: 1, cpu: 0, what: What::Hardirq { irq: Irq::Timer, began_ns: 0 } }),
        Step::Flush,
        Step::Event(Event { time_ns: 2, cpu: 1, what: What::Hardirq { irq: Irq::Call, began_ns: 1 } }),
        Step::Flush,
    ]);
    // Damage to the second record of events: the byte before the checksum of the frame that comes before the end.
    let starts = records(&file);
    let (second, end) = (starts[2], starts[3]);
    let mut damaged = file.clone();
    damaged[end - 1] ^= 1;
    let (_, found, result) = read(damaged);
    assert_eq!(found, events[..1]);
    let message = result.unwrap_err().to_string();
    assert!(message.starts_with(&format!("it: damaged at byte {second}: found ")), "{message}");
    // Nothing after the events: the recorder was killed.
    let (recording, found, result) = read(file[..end].to_vec());
    result.unwrap();
    assert_eq!(found, events);
    let message = recording.cut().unwrap().to_string();
    assert_eq!(message, format!("it: ends at byte {end}, expected another record: the recorder was killed"));
}

/// Where the records of a file begin.
fn records(file: &[u8]) -> Vec<usize> {
    let mut starts = vec![MAGIC.len() + 4];
    while let Some(header) = file.get(starts[starts.len() - 1]..).and_then(|rest| rest.get(..HEADER)) {
        let length = u32::from_le_bytes(header[5..9].try_into().unwrap()) as usize;
        starts.push(starts[starts.len() - 1] + HEADER + length);
    }
    starts
}

#[test]
fn switches_take_few_bytes() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut writer = Writer::new(Vec::new(), &Meta::default()).unwrap();
    let (mut time_ns, mut runs) = (1_000_000_000_000, [0u32; 4]);
    for _ in 0..50_000 {
        time_ns += random.u64(200..8000);
        let cpu = random.u16(0..4);
        let next = if random.bool() { 0 } else { random.u32(1000..1040) };
        let prev = std::mem::replace(&mut runs[usize::from(cpu)], next);
        let waited_ns = if next == 0 { 0 } else { random.u64(500..60_000) };
        let what = What::Switch { prev, left: Left::Blocked, next, waited_ns, throttled: false };
        writer.event(&Event { time_ns, cpu, what }).unwrap();
    }
    writer.flush().unwrap();
    let written = writer.written();
    assert!(written.event_bytes <= written.events * 10, "{written:?}");
    assert!(written.bytes < written.event_bytes, "{written:?}");
}

/// Times as they are on a host that has been up for a while.
fn recorded_times() -> impl Strategy<Value = Vec<Event>> {
    let one = (1..9_000_000_u64, 0..3u16, what(), 0..900_000_u64);
    prop::collection::vec(one, 0..60).prop_map(|steps| {
        let mut time_ns = 50_000_000_000_000;
        let mut events = Vec::new();
        for (after_ns, cpu, what, ago) in steps {
            time_ns += after_ns;
            let what = match what {
                What::Switch { prev, left, next, throttled, .. } => {
                    What::Switch { prev, left, next, waited_ns: ago, throttled }
                }
                What::Softirq { vector, device, packets, own, .. } => {
                    What::Softirq { vector, device, packets, own, began_ns: time_ns - ago }
                }
                What::Hardirq { irq, .. } => What::Hardirq { irq, began_ns: time_ns - ago },
                What::Woken(woken) => What::Woken(Woken { since_ns: time_ns - ago, ..woken }),
                What::Lost { count, .. } => What::Lost { count, since_ns: time_ns - ago },
                What::Steal { .. } => What::Steal { ns: ago, since_ns: time_ns - ago },
                what => what,
            };
            events.push(Event { time_ns, cpu, what });
        }
        events
    })
}

/// A recording whose clocks differ by an hour.
fn recorded(events: &[Event]) -> InMemory {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let meta = Meta { began_ns: 50_000_000_000_000, ..meta() };
    let mut writer = Writer::new(Vec::new(), &meta).unwrap();
    let reading = |mono_ns| Reading { mono_ns, low_ns: HOUR_NS - 20, high_ns: HOUR_NS + 20, stepped: false };
    writer.clocks(&reading(meta.began_ns)).unwrap();
    for (place, event) in events.iter().enumerate() {
        writer.event(event).unwrap();
        if place % 20 == 19 {
            writer.flush().unwrap();
            writer.clocks(&reading(event.time_ns)).unwrap();
        }
    }
    let ended_ns = events.last().map_or(meta.began_ns, |event| event.time_ns);
    let (file, _) = writer.finish(End { ended_ns, events: 0, lost: 3 }).unwrap();
    Recording::from_reader("it".into(), Cursor::new(file)).unwrap()
}

proptest! {
    #[test]
    fn by_another_clock_events_are_when_that_one_says(
        events in recorded_times(),
        offset_ns in -(1_i64 << 50)..1 << 50,
        skew_ppm in prop_oneof![Just(0.0), -900.0..900.0],
    ) {
        let mut before = recorded(&events);
        let began = before.unix_ns(before.meta().began_ns).unwrap().0;
        let clock = spangap_model::Clock { offset_ns, skew_ppm, since_unix_ns: began };
        let (file, _) = before.retime(&clock, Vec::new()).unwrap();
        let (after, found, result) = read(file);
        result.unwrap();
        prop_assert!(after.cut().is_none());
        prop_assert_eq!(after.relation().steps(), 0);
        let end = before.end().unwrap();
        prop_assert_eq!(after.end().map(|end| (end.events, end.lost)), Some((end.events, end.lost)));
        // Each to the nanosecond that rounding takes, and all of them a relation of clocks that holds both.
        let same = |mono_before: u64, mono_after: u64| {
            let expected = clock.at(before.unix_ns(mono_before).unwrap().0).unwrap();
            (after.unix_ns(mono_after).unwrap().0 - expected).abs() <= 1
        };
        prop_assert!(same(before.meta().began_ns, after.meta().began_ns));
        prop_assert!(same(end.ended_ns, after.end().unwrap().ended_ns));
        prop_assert_eq!(found.len(), events.len());
        for (event, moved) in events.iter().zip(&found) {
            prop_assert_eq!(event.cpu, moved.cpu);
            prop_assert!(same(event.time_ns, moved.time_ns));
            match (event.what, moved.what) {
                (What::Switch { waited_ns: ns, .. }, What::Switch { waited_ns: moved_ns, .. }) => {
                    prop_assert!(same(event.time_ns - ns, moved.time_ns - moved_ns));
                }
                (
                    What::Softirq { began_ns, .. } | What::Hardirq { began_ns, .. },
                    What::Softirq { began_ns: moved_ns, .. } | What::Hardirq { began_ns: moved_ns, .. },
                )
                | (What::Lost { since_ns: began_ns, .. }, What::Lost { since_ns: moved_ns, .. })
                | (What::Steal { since_ns: began_ns, .. }, What::Steal { since_ns: moved_ns, .. }) => {
                    prop_assert!(same(began_ns, moved_ns));
                }
                (What::Woken(woken), What::Woken(moved)) => {
                    prop_assert!(same(woken.since_ns, moved.since_ns));
                    prop_assert_eq!(Woken { since_ns: 0, ..woken }, Woken { since_ns: 0, ..moved });
                }
                (what, other) => prop_assert_eq!(what, other),
            }
        }
        if skew_ppm == 0.0 {
            prop_assert_eq!(found, events, "only the relation of the clocks is another");
        }
    }
}

/// The bytes of version 1 are those of version 2 without what came with that.
#[test]
fn a_recording_of_version_1_is_read_and_one_of_a_later_version_is_refused() {
    let what = What::Softirq { vector: 3, device: 2, packets: 7, own: 0, began_ns: 5 };
    let events = [Event { time_ns: 9, cpu: 1, what }];
    let file = |version: u32| {
        let mut writer = Writer::new(Vec::new(), &Meta::default()).unwrap();
        events.iter().for_each(|event| writer.event(event).unwrap());
        let (mut bytes, _) = writer.finish(End::default()).unwrap();
        bytes[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&version.to_le_bytes());
        Recording::from_reader("old.rec".into(), Cursor::new(bytes))
    };
    let mut found = Vec::new();
    file(1).unwrap().read(&mut |event| found.push(*event)).unwrap();
    assert_eq!(found, events);
    let error = file(VERSION + 1).unwrap_err().to_string();
    assert!(error.contains("is a recording of format 3, expected 1 to 2"), "{error}");
}

#[test]
fn only_a_whole_recording_gets_another_clock() {
    let clock = spangap_model::Clock { offset_ns: 1, skew_ppm: 0.0, since_unix_ns: 5 };
    let error = |file: Vec<u8>| {
        let mut recording = Recording::from_reader("it".into(), Cursor::new(file)).unwrap();
        recording.retime(&clock, Vec::new()).expect_err("it is refused").to_string()
    };
    let (file, ..) = written(&[Step::Clocks(0)]);
    assert!(error(file[..file.len() - 1].to_vec()).contains("expected a whole record"));
    let (file, ..) = written(&[Step::Clocks(0), Step::Clocks(700_000)]);
    assert!(error(file).contains("the time was set 1 times"));
    let (file, ..) = written(&[]);
    assert!(error(file).contains("expected one relation of its clocks"));
}

/// What a recording says that it covers.
fn coverage(file: Vec<u8>) -> Coverage {
    let mut recording = Recording::from_reader("it".into(), Cursor::new(file)).unwrap();
    let testimony = evidence(&mut recording).unwrap();
    let [coverage] = testimony.coverage.as_slice() else { panic!("{testimony:?}") };
    assert_eq!((coverage.instrument, coverage.side), (Instrument::HostRecording, None));
    coverage.clone()
}

#[test]
fn a_recording_says_what_it_covers_whether_it_was_ended_or_cut() {
    let event = |time_ns| Step::Event(Event { time_ns, cpu: 0, what: What::Steal { ns: 1, since_ns: 0 } });
    let loss = Event { time_ns: 80, cpu: 1, what: What::Lost { count: 4, since_ns: 60 } };
    let clocks = Step::Clocks(1_000);
    let steps = [clocks, event(20), Step::Event(loss), event(90), Step::Flush];
    let (whole, ..) = written(&steps);
    let found = coverage(whole.clone());
    // The recorder counted three lost events, which the end of the file says.
    assert_eq!((found.seen, found.lost), (3, 3));
    let when = found.when.expect("its clocks are known");
    assert_eq!(when.length_ns(), 99 - 5);
    assert_eq!(
        found.cannot,
        [
            "it: writes to sockets are not told.",
            "it: 3 events were lost while recording; what they would have shown is unknown."
        ]
    );

    // Without its end, the events themselves say so.
    let starts = records(&whole);
    let found = coverage(whole[..starts[starts.len() - 2]].to_vec());
    assert_eq!((found.seen, found.lost), (3, 4));
    assert_eq!(found.when.map(Interval::length_ns), Some(90 - 5));
    assert!(found.cannot.iter().any(|limit| limit.contains("the recorder was killed")), "{found:?}");
}
