//! Channels and their connections, as the kernel sees them.

use crate::program::{Client, Target, run, settings, with_each_target};
use spangap_bench::contract::{Channels, ClientSettings, Phase, Stack, TargetStack};
use spangap_sockets as sockets;

const WORKERS: u32 = 4;

pub fn connections(stack: Stack) {
    let core = matches!(stack, Stack::CppSync | Stack::CppAsync | Stack::CppCallback);
    let modes = [
        (Channels::Shared, 1, 1),
        // gRPC's core gives channels with equal arguments one connection.
        (Channels::PerWorker, WORKERS, if core { 1 } else { WORKERS }),
        (Channels::Distinct, WORKERS, WORKERS),
        (Channels::LocalPool, WORKERS, WORKERS),
        (Channels::Pool(3), 3, 3),
    ];
    with_each_target(stack, |target_stack| {
        for (mode, channels, connections) in modes {
            if mode == Channels::LocalPool && !core {
                continue;
            }
            let target = Target::start(target_stack, &[]);
            let mut client = Client::start(&ClientSettings {
                channels: mode,
                in_flight: WORKERS,
                calls: 200,
                ..settings(stack, &target.address)
            });
            assert_eq!(client.ready(), channels, "{mode}");
            let seen = sockets::look(client.pid(), &[target.address]).expect("it runs");
            assert_eq!(seen.len(), connections as usize, "{mode}: {seen:#?}");
            client.go();
            let run = client.finish();
            run.is_done(&["measured"]);
            assert_eq!(run.sums(Phase::Measured).ok, 200, "{mode}");
        }
    });
}

pub fn stream_limit(stack: Stack) {
    if stack == Stack::Raw {
        return println!("not run: the stack raw has no streams to limit");
    }
    with_each_target(stack, |target_stack: TargetStack| {
        let target = Target::start(target_stack, &["--max-streams", "3"]);
        let run = run(&ClientSettings {
            in_flight: 9,
            think_ns: Some(2_000_000),
            calls: 90,
            ..settings(stack, &target.address)
        });
        run.is_done(&["measured"]);
        let measured = run.sums(Phase::Measured);
        assert_eq!(
            (measured.ok, measured.failed()),
            (90, 0),
            "those over the limit wait: {:?}",
            measured.errors
        );
        let usage = target.usage();
        assert_eq!(usage.max_streams, 3);
        assert!((1..=3).contains(&usage.peak_in_progress), "{usage:?}");
    });
}
