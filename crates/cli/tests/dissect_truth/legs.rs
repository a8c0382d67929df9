//! Legs and clocks, compared with the taps: first with one clock for both captures, then with another one for
//! one of them.

use crate::hosts::{Hosts, SERVER};
use crate::rewritten::{self, Clock};
use crate::{calls, capture, dissect, has, hosts, truth};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Clocks of the server's tap: seconds ahead and faster, an hour behind and slower, and barely off.
const CLOCKS: [(i64, i64); 3] = [(3_700_000_000, 80), (-3_600_000_000_000, -80), (40_000, 0)];

/// Checks dissect's report on two captures with one clock against their times, then the same with other
/// clocks at the server's end. Returns the widest bound of a leg between the ends.
fn hold(files: &[PathBuf; 2], folder: &Path, server_port: u16, least_calls: usize) -> u64 {
    let taps = [truth::tap(&files[0], server_port), truth::tap(&files[1], server_port)];
    let report = dissect(&[&files[0], &files[1]], &[]);
    truth::consistent(&report);
    let (low, high, at) = truth::clock(&report).expect("bytes at both ends");
    assert!(low <= 0 && high >= 0, "one clock, taken to be off by {low}..{high} ns");
    let (compared, widest) = truth::hold(&report, &taps[0], &taps[1]);
    assert!(compared >= 2 * least_calls, "{compared} legs between the ends, {} calls", calls(&report).len());
    for (offset_ns, skew_ppm) in CLOCKS {
        let clock = Clock { from_ns: at, offset_ns, skew_ppm };
        let rewritten = folder.join("rewritten.pcapng");
        rewritten::write(&files[1], &rewritten, clock);
        let report = dissect(&[&files[0], &rewritten], &[]);
        truth::consistent(&report);
        let (low, high, at) = truth::clock(&report).expect("bytes at both ends");
        let off = clock.off_ns(at);
        assert!(low <= off && off <= high, "{clock:?}: off by {off} ns, taken to be {low}..{high}");
        let (compared_again, _) = truth::hold(&report, &taps[0], &taps[1]);
        assert_eq!(compared_again, compared, "{clock:?}");
        // The user decides the order of the captures on the command line.
        let report = dissect(&[&rewritten, &files[0]], &[]);
        let (low, high, at) = truth::clock(&report).expect("bytes at both ends");
        // Here the first capture is the one that is off, so its own time has to be corrected first.
        let off = -clock.off_ns(at - clock.offset_ns);
        let slack = 1
            + (i128::from(offset_ns) * i128::from(skew_ppm) * i128::from(skew_ppm) / 1_000_000_000_000)
                .unsigned_abs() as i64
            + (high - low) / 1000;
        assert!(low - slack <= off && off <= high + slack, "{clock:?}, exchanged: {off} ns, {low}..{high}");
        let (compared_again, _) = truth::hold(&report, &taps[0], &taps[1]);
        assert_eq!(compared_again, compared, "{clock:?}, exchanged");
    }
    widest
}

#[test]
fn legs_of_the_fixtures_match_the_taps() {
    if !has("tshark") {
        println!("not run: no program tshark");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, least_calls) in [
        ("rust-unary", 100),
        ("go-unary", 100),
        ("cpp-async-unary", 100),
        ("python-unary", 90),
        ("network-delay", 40),
        ("network-asymmetric", 40),
        ("network-spikes", 80),
        ("batched-arrival", 200),
        ("stream-limit-go", 800),
        ("connection-per-call", 10),
    ] {
        println!("{name}");
        hold(&["client", "server"].map(|end| capture(name, end)), folder.path(), 50051, least_calls);
    }
}

#[test]
fn legs_over_the_delay_line_match_the_taps() {
    if let Some(why) = hosts::missing() {
        println!("not run: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (there_ns, back_ns) in [(0, 0), (500_000, 500_000), (8_000_000, 2_000_000), (1_000_000, 15_000_000)] {
        println!("{there_ns} ns there, {back_ns} ns back");
        let hosts = Hosts::new(there_ns, back_ns);
        let mut port = 0;
        let files = hosts.captured(folder.path(), &["--think", "1ms"], |hosts, address| {
            port = address.strip_prefix(SERVER).expect("its address")[1..].parse().expect("a port");
            for in_flight in [1, 8] {
                call(hosts, address, in_flight, 100);
            }
        });
        let widest = hold(&files, folder.path(), port, 200);
        // The offset is known only from the round trip: half of it, plus what noise adds.
        let limit = (there_ns + back_ns) / 2 + 5_000_000;
        assert!(widest <= limit, "a bound of {widest} ns");
        hosts.end();
    }
}

/// Calls in a closed loop over one connection, until this many are done.
pub fn call(hosts: &Hosts, address: &str, in_flight: u32, calls: u32) {
    let mut client = hosts
        .on_client(env!("CARGO_BIN_EXE_spangap"))
        .args([
            "client",
            "--stack=rust",
            "--call=unary",
            "--channels=shared",
            "--schedule=closed",
            "--threads=1",
        ])
        .args(["--request-bytes=0", "--response-bytes=target", "--think-ns=target", "--nodelay=on"])
        .args(["--split-writes=off", "--timeout-ns=10000000000", "--warmup-ns=0", "--duration-ns=0"])
        .args(["--trace=on", "--records=none", "--slow-ns=0", "--record-file="])
        .args([format!("--target={address}"), format!("--in-flight={in_flight}"), format!("--calls={calls}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a client starts");
    // Standard input is the client's life line: it stays open until the client has ended.
    let mut life = client.stdin.take().expect("it is piped");
    std::io::Write::write_all(&mut life, b"go\n").expect("it listens");
    assert!(client.wait().expect("it ends").success());
}
