use super::*;
use crate::client::reporter::report;
use crate::contract::Interval;
use std::io::{BufReader, PipeReader, PipeWriter, pipe};
use tonic::Code;

const MILLISECOND: u64 = 1_000_000;

/// A session with both ends of its pipes.
struct Ends {
    session: Arc<Session>,
    life_line: Option<PipeWriter>,
    output: io::Lines<BufReader<PipeReader>>,
}

impl Ends {
    fn open(change: impl FnOnce(&mut ClientSettings)) -> Ends {
        let flags = "--stack=raw --target=here:1 --call=unary --channels=shared --schedule=closed --in-flight=1 \
            --threads=1 --request-bytes=0 --response-bytes=target --think-ns=target --nodelay=on \
            --split-writes=off --timeout-ns=1000000000 --warmup-ns=0 --duration-ns=0 --calls=0 --trace=off \
            --records=none --slow-ns=1000000 --record-file=";
        let flags: Vec<_> = flags.split(' ').filter(|flag| !flag.is_empty()).map(String::from).collect();
        let mut settings = ClientSettings::from_flags(&flags).unwrap();
        change(&mut settings);
        let ((life_line_end, life_line), (output, output_end)) = (pipe().unwrap(), pipe().unwrap());
        let session = Session::open(&settings, life_line_end, output_end).unwrap();
        Ends { session, life_line: Some(life_line), output: BufReader::new(output).lines() }
    }

    fn go(&mut self) -> u64 {
        self.life_line.as_mut().unwrap().write_all(b"go\n").unwrap();
        self.session.wait_for_go(report).unwrap().expect("the life line is there")
    }

    fn message(&mut self) -> ClientMessage {
        serde_json::from_str(&self.output.next().expect("one more message").unwrap()).unwrap()
    }

    /// All messages up to the end, whose reason comes last.
    fn rest(&mut self) -> (Vec<Phase>, Vec<Interval>, String) {
        self.rest_after(Vec::new(), Vec::new())
    }

    /// The same, appended to earlier messages.
    fn rest_after(
        &mut self,
        mut phases: Vec<Phase>,
        mut intervals: Vec<Interval>,
    ) -> (Vec<Phase>, Vec<Interval>, String) {
        loop {
            match self.message() {
                ClientMessage::Phase { phase, .. } => phases.push(phase),
                ClientMessage::Interval(interval) => intervals.push(*interval),
                ClientMessage::End { reason } => return (phases, intervals, reason),
                other => panic!("{other:?}"),
            }
        }
    }

    /// All messages until a phase begins, which is the last phase in the list.
    fn until(&mut self, begins: Phase) -> (Vec<Phase>, Vec<Interval>) {
        let (mut phases, mut intervals) = (Vec::new(), Vec::new());
        while phases.last() != Some(&begins) {
            match self.message() {
                ClientMessage::Phase { phase, .. } => phases.push(phase),
                ClientMessage::Interval(interval) => intervals.push(*interval),
                other => panic!("{other:?}"),
            }
        }
        (phases, intervals)
    }
}

/// Calls above this are slow.
const SLOW_NS: u64 = MILLISECOND;

/// Makes immediate calls until no more may start. Returns their number, and how many were slow nevertheless: a
/// thread may lose its CPU in the middle of one.
fn call_on(session: &Session) -> (u64, u64) {
    let tally = session.tally();
    let (mut calls, mut slow) = (0, 0);
    loop {
        let sent_ns = clock::monotonic_ns();
        let Some(phase) = session.admit(sent_ns) else { return (calls, slow) };
        tally.lock().sent(phase, None);
        let done_ns = clock::monotonic_ns();
        tally.lock().ended(&Ended { phase, due_ns: None, sent_ns, done_ns, failure: None });
        calls += 1;
        slow += u64::from(done_ns - sent_ns >= SLOW_NS);
    }
}

#[test]
fn intervals_add_up_to_the_calls_and_to_the_time() {
    let mut ends = Ends::open(|settings| {
        // Long enough for the threads to begin on a busy machine.
        settings.warmup_ns = 300 * MILLISECOND;
        settings.duration_ns = 1_200 * MILLISECOND;
    });
    ends.session.ready("a library", 3);
    let ready = ClientMessage::Ready { stack: "raw".into(), library: "a library".into(), channels: 3 };
    assert_eq!(ends.message(), ready);
    ends.go();
    // The pipe accepts less than all of it.
    let session = ends.session.clone();
    let calling = std::thread::spawn(move || {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn({
                    let session = session.clone();
                    move || call_on(&session).0
                })
            })
            .collect();
        let calls: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        session.finish();
        calls
    });
    let (phases, intervals, reason) = ends.rest();
    assert_eq!(reason, "done");
    assert_eq!(phases, [Phase::Warmup, Phase::Measured, Phase::Drain, Phase::Drained]);
    assert_eq!(intervals.iter().map(|one| one.due).sum::<u64>(), calling.join().unwrap());
    for (phase, length_ns) in [(Phase::Warmup, 300 * MILLISECOND), (Phase::Measured, 1_200 * MILLISECOND)] {
        let of: Vec<_> = intervals.iter().filter(|one| one.phase == phase).collect();
        assert_eq!(of.iter().map(|one| one.duration_ns).sum::<u64>(), length_ns, "{phase:?}");
        let (due, ok) = of.iter().fold((0, 0), |(due, ok), one| (due + one.due, ok + one.ok));
        let timed: u64 = of.iter().flat_map(|one| &one.from_send.buckets).map(|bucket| bucket.1).sum();
        assert!(due > 0);
        assert_eq!((due, ok, timed), (due, due, due));
        assert!(of.iter().all(|one| one.latency.buckets.is_empty() && one.lateness.buckets.is_empty()));
        assert!(of.iter().any(|one| one.cpu_ns > 0));
    }
    assert_eq!(intervals.last().unwrap().in_flight, 0);
}

#[test]
fn as_many_calls_as_allowed_and_no_more() {
    let mut ends = Ends::open(|settings| settings.calls = 1_000);
    ends.go();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn({
                let session = ends.session.clone();
                move || call_on(&session).0
            })
        })
        .collect();
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), 1_000);
    ends.session.finish();
    let (phases, intervals, reason) = ends.rest();
    assert_eq!((phases, reason.as_str()), (vec![Phase::Measured, Phase::Drain, Phase::Drained], "done"));
    assert_eq!(intervals.iter().map(|one| one.due).sum::<u64>(), 1_000);
    assert!(intervals.iter().map(|one| one.duration_ns).sum::<u64>() > 0);
}

#[test]
fn the_end_of_the_life_line_stops_in_the_warm_up() {
    let mut ends = Ends::open(|settings| settings.warmup_ns = 3_600_000 * MILLISECOND);
    let start_ns = ends.go();
    assert_eq!(ends.session.give_up_ns(), u64::MAX);
    let (session, life_line) = (ends.session.clone(), ends.life_line.take());
    let tally = session.tally();
    let calling = std::thread::spawn(move || call_on(&session));
    drop(life_line);
    let (calls, slow) = calling.join().unwrap();
    // A call that outlives the stop ends as cancelled when told to.
    tally.lock().sent(Phase::Warmup, Some(7));
    assert!(ends.session.wait_to_give_up());
    // A reporter that got no CPU during the whole grace period still has to report the warm-up: the call ends
    // after that.
    let (phases, intervals) = ends.until(Phase::Drain);
    let done_ns = clock::monotonic_ns();
    assert!(done_ns >= ends.session.end_ns() + STOP_GRACE_NS);
    let failure = Some((Code::Cancelled, "stopped"));
    let ended =
        Ended { phase: Phase::Warmup, due_ns: Some(start_ns), sent_ns: start_ns + 7, done_ns, failure };
    tally.lock().ended(&ended);
    ends.session.finish();
    assert!(!ends.session.wait_to_give_up());
    let (phases, intervals, reason) = ends.rest_after(phases, intervals);
    assert_eq!((phases, reason.as_str()), (vec![Phase::Warmup, Phase::Drain, Phase::Drained], "stopped"));
    assert!(intervals.iter().all(|one| one.phase == Phase::Warmup));
    assert_eq!(intervals.iter().map(|one| one.due).sum::<u64>(), calls + 1);
    assert_eq!(intervals.iter().map(|one| one.ok).sum::<u64>(), calls);
    let late = intervals.last().unwrap();
    assert_eq!((late.duration_ns, late.cpu_ns, late.in_flight), (0, 0, 0), "it ended after its phase");
    assert_eq!(late.errors["CANCELLED"].count, 1);
    assert!(late.slow >= 1);
    assert_eq!(intervals.iter().map(|one| one.slow).sum::<u64>(), slow + 1);
    let lateness: Vec<_> = intervals.iter().flat_map(|one| one.lateness.buckets.clone()).collect();
    assert_eq!(lateness, [(7, 1)]);
}

#[test]
fn no_go_no_run() {
    let mut ends = Ends::open(|_| ());
    ends.life_line = None;
    assert_eq!(ends.session.wait_for_go(report).unwrap(), None);
    assert_eq!(ends.session.admit(1), None);
    ends.session.finish();
    assert_eq!(ends.rest(), (vec![], vec![], "stopped".into()));
}

#[test]
fn connection_ids_run_out() {
    let mut ends = Ends::open(|_| ());
    let here = "127.0.0.1:1".parse().unwrap();
    ends.session.connections.store(65_534, Ordering::Relaxed);
    assert_eq!(ends.session.connection(5, here, here), 65_534);
    assert_eq!(ends.session.connection(5, here, here), NO_CONNECTION);
    assert_eq!(ends.session.connection(5, here, here), NO_CONNECTION);
    let told = message::Connection { id: 65_534, channel: Some(5), local: here, peer: here };
    assert_eq!(ends.message(), ClientMessage::Connection(told));
    ends.session.failed("enough");
    assert_eq!(ends.message(), ClientMessage::Failed { error: "enough".into() });
}
