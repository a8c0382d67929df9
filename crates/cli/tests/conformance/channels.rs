//! Channels and their connections, as the kernel sees them.

use crate::program::{Client, PATIENCE, Run, Target, run, settings, with_each_target};
use spangap_bench::contract::message::Connection;
use spangap_bench::contract::{Call, Channels, ClientMessage, ClientSettings, Phase, Stack, TargetStack};
use spangap_sockets as sockets;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Instant;

const WORKERS: u32 = 4;

pub fn connections(stack: Stack) {
    let core = matches!(stack, Stack::CppSync | Stack::CppAsync | Stack::CppCallback);
    let modes = [
        (Channels::Shared, 1, 1),
        // gRPC's core gives channels with equal arguments the same connection.
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

pub fn per_call(stack: Stack) {
    if stack != Stack::Rust {
        return println!("not run: the stack {stack} keeps its connections");
    }
    with_each_target(stack, |target_stack| {
        for call in [Call::Unary, Call::Stream] {
            let target = Target::start(target_stack, &[]);
            let settings = ClientSettings {
                call,
                channels: Channels::PerCall,
                in_flight: WORKERS,
                calls: 50,
                ..settings(stack, &target.address)
            };
            let mut client = Client::start(&settings);
            assert_eq!(client.ready(), 0);
            nothing_is_open(client.pid(), target.address);
            client.go();
            let run = client.finish();
            run.is_done(&["measured"]);
            assert_eq!(run.sums(Phase::Measured).ok, 50);
            let opened = opened(&run);
            let ids: Vec<u16> = opened.iter().map(|connection| connection.id).collect();
            assert_eq!(ids, Vec::from_iter(0..50), "a connection for each call");
            let ports: HashSet<_> = opened.iter().map(|connection| connection.local).collect();
            assert_eq!(ports.len(), 50, "each another one");
            assert!(opened.iter().all(|connection| connection.channel < Some(WORKERS)), "{opened:?}");

            // A single call at a time: the call ends when its connection is closed.
            let mut alone = Client::start(&ClientSettings {
                in_flight: 1,
                calls: 0,
                think_ns: Some(20_000_000),
                ..settings
            });
            alone.ready();
            alone.go();
            alone.hear("a call under way", |message| matches!(message, ClientMessage::Connection(_)));
            for _ in 0..20 {
                let open = sockets::look(alone.pid(), &[target.address]).expect("it runs");
                assert!(open.len() <= 1, "{open:#?}");
            }
            alone.let_go();
            alone.finish();
        }
    });
}

/// Waits until the kernel shows no open connection.
fn nothing_is_open(pid: u32, target: SocketAddr) {
    let begun = Instant::now();
    while !sockets::look(pid, &[target]).expect("it runs").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "a connection stays open before the first call");
    }
}

fn opened(run: &Run) -> Vec<Connection> {
    let mut opened: Vec<_> = run
        .said
        .iter()
        .filter_map(|message| match message {
            ClientMessage::Connection(connection) => Some(*connection),
            _ => None,
        })
        .collect();
    opened.sort_unstable_by_key(|connection| connection.id);
    opened
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
