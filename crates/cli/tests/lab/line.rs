//! The actor `line` between two hosts (unnamed namespaces), with real connections through it.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that is killed when this value is dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process in a network namespace of its own, with a device `line`; `None`, with a printed reason, where
/// none can be made.
fn host(address: &str) -> Option<Ending> {
    let host =
        Command::new("unshare").args(["-n", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut host = Ending(host.ok()?);
    // Once cat answers, the process is in its namespace.
    host.0.stdin.as_mut()?.write_all(b"there?\n").ok()?;
    let mut answer = String::new();
    BufReader::new(host.0.stdout.take()?).read_line(&mut answer).ok().filter(|bytes| *bytes > 0)?;
    for words in [
        "link set lo up",
        "tuntap add dev line mode tun",
        &format!("address add {address}/24 dev line"),
        "link set dev line up",
    ] {
        let done = on(&host, "ip").args(words.split(' ')).output().ok()?;
        if !done.status.success() {
            return None;
        }
    }
    Some(host)
}

fn on(host: &Ending, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &host.0.id().to_string(), "-n", program]);
    command
}

/// A line with these options, through which `client` sends something to a listener that answers; returns the
/// line's counts and its log.
fn through(options: &[&str], say: &str) -> Option<(Value, Vec<Value>)> {
    let python = Command::new("python3").arg("-V").stdout(Stdio::null()).status().is_ok();
    let (Some(client), Some(server), true) = (host("10.78.9.1"), host("10.78.9.2"), python) else {
        println!("not run: it takes root, TUN devices and the programs ip, unshare, nsenter and python3");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let space = |host: &Ending| format!("/proc/{}/ns/net", host.0.id());
    let line = Command::new(env!("CARGO_BIN_EXE_spangap"))
        .args(["lab", "actor", "line", "--log"])
        .arg(&log)
        .args(options)
        .args([&space(&client), "line", &space(&server), "line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut line = Ending(line.expect("the line starts"));
    let mut said = BufReader::new(line.0.stdout.take().expect("it is piped"));
    let mut ready = String::new();
    said.read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");

    let serve = "import socket\ns = socket.create_server(('10.78.9.2', 7000))\nprint('ready', flush=True)\n\
                 c, _ = s.accept()\nd = b''\nwhile (m := c.recv(65536)): d += m\nc.sendall(d)\nc.close()";
    let serving = on(&server, "python3").args(["-c", serve]).stdout(Stdio::piped()).spawn();
    let mut serving = Ending(serving.expect("python3 starts"));
    let mut listening = String::new();
    let stdout = serving.0.stdout.take().expect("it is piped");
    BufReader::new(stdout).read_line(&mut listening).expect("a line");
    let call = "import socket, sys\nc = socket.create_connection(('10.78.9.2', 7000))\nd = eval(sys.argv[1])\n\
                c.sendall(d)\nc.shutdown(1)\na = b''\nwhile (m := c.recv(65536)): a += m\nassert a == d, len(a)";
    let called = on(&client, "python3").args(["-c", call, say]).status().expect("python3 starts");
    assert!(called.success(), "what came back is not what was sent");

    drop(line.0.stdin.take());
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("text");
    assert!(line.0.wait().expect("it ends").success());
    Some((serde_json::from_str(&rest).expect("its counts"), entries(&log)))
}

fn entries(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("an entry")).collect()
}

#[test]
fn lost_packets_are_retransmitted_and_logged() {
    let lost = ["--count-a", "syn", "--drop-a", "1", "--drop-b", "1", "--least-b", "100"];
    let Some((counts, entries)) = through(&lost, "b'x' * 500") else { return };
    for (way, syn) in [("a", true), ("b", false)] {
        assert_eq!(counts[way]["dropped_named"], 1, "{counts}");
        assert_eq!(counts[way]["again"], 1, "{counts}");
        let of: Vec<_> = entries.iter().filter(|entry| entry["way"] == way).collect();
        assert_eq!(of.len(), 2, "{entries:?}");
        assert_eq!((&of[0]["what"], &of[1]["what"]), (&"dropped".into(), &"again".into()));
        assert_eq!((&of[0]["because"], &of[0]["number"]), (&"named".into(), &1.into()));
        assert_eq!(of[0]["tcp"]["sequence"], of[1]["tcp"]["sequence"]);
        assert_eq!(of[0]["tcp"]["syn"], syn);
        // It was seen earlier than the other, by the reported time.
        let ns = |entry: &Value, name: &str| entry[name].as_u64().expect("a number");
        assert!(ns(of[1], "after_ns") > 0 && ns(of[1], "unix_ns") > ns(of[0], "unix_ns"));
    }
    assert_eq!((&counts["logged"], &counts["not_logged"]), (&4.into(), &0.into()));
}

#[test]
fn data_survives_every_kind_of_fault() {
    let everything = [
        ["--seed", "7"],
        ["--delay-a", "1000000"],
        ["--jitter-a", "2000000"],
        ["--overtake-a", "yes"],
        ["--loss-a", "0.02"],
        ["--twice-a", "3,9-12"],
        ["--swap-a", "5,20"],
        ["--late-a", "15"],
        ["--late-by-a", "5000000"],
        ["--jitter-b", "500000"],
        ["--shape-b", "exponential"],
        ["--rate-b", "20000000"],
        ["--queue-b", "20000"],
        ["--spike-b", "40,3000000"],
        ["--clump-b", "700000"],
    ];
    let Some((counts, entries)) = through(&everything.concat(), "bytes(range(256)) * 2000") else { return };
    let of = |way: &str, name: &str| counts[way][name].as_u64().expect("a number");
    for way in ["a", "b"] {
        let lost = ["dropped_named", "dropped_chance", "dropped_queue", "dropped_full"];
        let lost: u64 = lost.iter().map(|name| of(way, name)).sum();
        assert_eq!(
            of(way, "received") + of(way, "twice"),
            of(way, "passed") + lost + of(way, "left"),
            "{counts}"
        );
        assert_eq!(of(way, "refused"), 0, "{counts}");
        assert!(of(way, "delayed") > 0, "{counts}");
    }
    assert_eq!((of("a", "swapped"), of("a", "twice")), (2, 5), "{counts}");
    assert!(of("a", "dropped_chance") > 0, "{counts}");
    assert_eq!(entries.len() as u64, counts["logged"].as_u64().expect("a number"));
}

#[test]
fn unsupported_options_are_refused() {
    for (arguments, word) in [
        (vec!["--delay-a", "1"], "two namespaces"),
        (vec!["--loss-a", "2", "a", "b", "c", "d"], "a share from 0 to 1"),
        (vec!["nowhere", "b", "c", "d"], "nowhere"),
    ] {
        let line = Command::new(env!("CARGO_BIN_EXE_spangap"))
            .args(["lab", "actor", "line"])
            .args(&arguments)
            .stdin(Stdio::null())
            .output()
            .expect("it starts");
        let said = String::from_utf8_lossy(&line.stderr);
        assert!(!line.status.success() && said.contains(word), "{arguments:?}: {said}");
    }
}
