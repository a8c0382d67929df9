//! Failing calls and runs: counted, reported and ended.

use crate::program::{Client, Run, Target, client_program, run, settings, with_each_target};
use spangap_bench::contract::{
    Call, ClientMessage, ClientSettings, Interval, Pace, Phase, Stack, TargetStack,
};
use spangap_bench::schedule::Schedule;
use std::net::TcpListener;
use std::time::Duration;

pub fn timeouts(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let target = Target::start(target_stack, &["--think", "1m"]);
        for pace in [Pace::Closed, Pace::Open(Schedule::every(5_000_000).expect("not 0"))] {
            // It also limits connecting, on a machine that may be busy.
            let timeout = Duration::from_millis(300);
            let run = run(&ClientSettings {
                pace,
                in_flight: 8,
                calls: 12,
                timeout,
                ..settings(stack, &target.address)
            });
            run.is_done(&["measured"]);
            let measured = run.sums(Phase::Measured);
            let expected = [("DEADLINE_EXCEEDED".to_owned(), 12 - measured.skipped)];
            assert_eq!((measured.due, measured.errors), (12, expected.into()));
        }
        // A late answer must not be taken for the answer to the next call: that would seem to take 100 ms. Where the
        // client's machine pauses, it may find an answer and the timeout at once, and take the answer.
        let think_ns = 400_000_000;
        let run = run(&ClientSettings {
            think_ns: Some(think_ns),
            timeout: Duration::from_millis(300),
            calls: 3,
            ..settings(stack, &target.address)
        });
        let measured = run.sums(Phase::Measured);
        let late = measured.errors.get("DEADLINE_EXCEEDED").copied().unwrap_or_default();
        assert_eq!((measured.ok + late, measured.failed()), (3, late), "{:?}", measured.errors);
        let answered: Vec<u64> = measured.from_send.buckets().map(|(ns, _)| ns).collect();
        assert!(answered.iter().all(|&ns| ns >= think_ns), "{answered:?}");
        if late == 0 {
            println!("not run: the machine paused the client beyond each of three timeouts");
        }
        target.kill();
    });
}

pub fn dead_target(stack: Stack) {
    with_each_target(stack, |target_stack| {
        for call in [Call::Unary, Call::Stream] {
            dies_and_comes_back(stack, target_stack, call);
        }
    });
}

fn dies_and_comes_back(stack: Stack, target_stack: TargetStack, call: Call) {
    let interval = |of: fn(&Interval) -> bool| move |message: &ClientMessage| matches!(message, ClientMessage::Interval(interval) if of(interval));
    let target = Target::start(target_stack, &[]);
    let address = target.address.to_string();
    let mut client = Client::start(&ClientSettings {
        call,
        in_flight: 3,
        duration_ns: 0,
        timeout: Duration::from_secs(5),
        ..settings(stack, &target.address)
    });
    client.ready();
    client.go();
    client.hear("calls", interval(|seen| seen.ok > 0));
    target.kill();
    client.hear(
        "a second of failures",
        interval(|seen| seen.ok == 0 && seen.errors.contains_key("UNAVAILABLE")),
    );
    let again = Target::start_on(target_stack, &address, &[]);
    client.hear("calls again", interval(|seen| seen.ok > 0));
    client.let_go();
    let run = client.finish();
    assert_eq!((run.code, run.order().last().map(String::as_str)), (Some(0), Some("stopped")));
    let measured = run.sums(Phase::Measured);
    // The three calls in flight when it died may end with a status of the stack's own.
    let expected = ["UNAVAILABLE", "CANCELLED"];
    let other = measured.errors.iter().filter(|(name, _)| !expected.contains(&name.as_str()));
    assert!(other.map(|(_, count)| count).sum::<u64>() <= 3, "{:?}", measured.errors);
    drop(again);
}

pub fn unreachable(stack: Stack) {
    if client_program(stack).is_none() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let free = listener.local_addr().expect("bound");
    drop(listener);
    let timeout = Duration::from_secs(3);
    let run = Client::start(&ClientSettings { timeout, ..settings(stack, &free) }).finish();
    assert_eq!((run.code, run.order()), (Some(1), vec!["failed".to_owned()]));
    let Some(ClientMessage::Failed { error }) = run.said.first() else { panic!("{:?}", run.said) };
    assert!(error.contains(&free.to_string()), "{error}");
}

pub fn life_line(stack: Stack) {
    with_each_target(stack, |target_stack| {
        let target = Target::start(target_stack, &[]);
        let stopped =
            |run: &Run| (run.code, run.order().last().cloned()) == (Some(0), Some("stopped".to_owned()));

        let mut early = Client::start(&settings(stack, &target.address));
        early.ready();
        early.let_go();
        let early = early.finish();
        assert!(stopped(&early), "{:?}", early.said);

        // Calls in flight are cancelled after a second, however long they would take.
        let mut client = Client::start(&ClientSettings {
            in_flight: 2,
            think_ns: Some(50_000_000_000),
            ..settings(stack, &target.address)
        });
        client.ready();
        client.go();
        client.hear("measured", |message| {
            matches!(message, ClientMessage::Phase { phase: Phase::Measured, .. })
        });
        let begun = std::time::Instant::now();
        while target.usage().peak_in_progress < 2 {
            assert!(begun.elapsed() < crate::program::PATIENCE, "no two calls are under way");
        }
        client.let_go();
        let run = client.finish();
        assert!(stopped(&run), "{:?}", run.said);
        let measured = run.sums(Phase::Measured);
        assert_eq!((measured.due, measured.errors), (2, [("CANCELLED".to_owned(), 2)].into()));
        target.kill();
    });
}
