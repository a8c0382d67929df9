//! Invalid flags: exit code 2, a message on standard error, nothing on standard output.

use crate::program::{client_program, settings};
use spangap_bench::contract::{Channels, ClientSettings, Pace, Stack};
use spangap_bench::schedule::Schedule;
use std::process::{Command, Stdio};

fn refused(stack: Stack, flags: &[String], word: &str) {
    let Some(program) = client_program(stack) else { return };
    let output = Command::new(program).arg("client").args(flags).stdin(Stdio::null()).output();
    let output = output.expect("the program starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{word}: {flags:?}: {stderr}");
    assert!(stderr.contains(word), "{word} is not in {stderr:?}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// `--name=value` of each flag.
fn name(flag: &str) -> &str {
    flag.trim_start_matches("--").split('=').next().unwrap_or(flag)
}

pub fn wrong_flags(stack: Stack) {
    let good = settings(stack, &"127.0.0.1:1").to_flags();
    for at in 0..good.len() {
        let mut flags = good.clone();
        let missing = flags.remove(at);
        refused(stack, &flags, name(&missing));
    }
    refused(stack, &[good.clone(), vec!["--colour=red".into()]].concat(), "colour");
    refused(stack, &[good.clone(), vec!["colour".into()]].concat(), "colour");
    refused(stack, &[good.clone(), vec![good[0].clone()]].concat(), "stack");
    for bad in [
        "--stack=cobol",
        "--call=oneway",
        "--channels=pool:0",
        "--schedule=often",
        "--schedule=0/5",
        "--in-flight=0",
        "--threads=x",
        "--request-bytes=-1",
        "--response-bytes=some",
        "--think-ns=1ms",
        "--nodelay=maybe",
        "--split-writes=yes",
        "--timeout-ns=",
        "--duration-ns=1.5",
        "--calls=99999999999999999999",
        "--trace=1",
        "--records=few",
    ] {
        let flags = good.iter().map(|flag| if name(flag) == name(bad) { bad.into() } else { flag.clone() });
        refused(stack, &flags.collect::<Vec<_>>(), name(bad));
    }
}

pub fn impossible(stack: Stack) {
    let good = settings(stack, &"127.0.0.1:1");
    let local_pool = ClientSettings { channels: Channels::LocalPool, ..good.clone() };
    if matches!(stack, Stack::Raw | Stack::Rust | Stack::Go) {
        refused(stack, &local_pool.to_flags(), "channels");
    }
    if stack != Stack::Rust {
        refused(
            stack,
            &ClientSettings { channels: Channels::PerCall, ..good.clone() }.to_flags(),
            "channels",
        );
    }
    if stack != Stack::Rust {
        refused(stack, &ClientSettings { attempts: 2, ..good.clone() }.to_flags(), "attempts");
    }
    if stack != Stack::Raw {
        refused(stack, &ClientSettings { split_writes: true, ..good.clone() }.to_flags(), "split-writes");
    }
    let pace = Pace::Open(Schedule::every(1).expect("not 0"));
    let many = ClientSettings { pace, in_flight: 1_000_000, channels: Channels::PerWorker, ..good };
    refused(stack, &many.to_flags(), "1024");
}
