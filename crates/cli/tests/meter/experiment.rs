//! `spangap hunt 'A->B' --meter URL --experiment MODE` on real hosts. The meter, the agents and the fault are
//! those of a `spangap demo` that waits for Enter meanwhile; sockets of its tanks are changed and restored.

use super::demo_faults::{alone, is_possible};
use super::process::{Ended, FREE_PORTS, Program, until};
use serde_json::Value;
use std::io::Write;
use std::process::{ChildStdin, Command};

/// A demonstration that has its verdict and waits for Enter, which nobody presses.
struct Demo {
    program: Program,
    _enter: ChildStdin,
    url: String,
}

impl Demo {
    fn begin() -> Demo {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        command.args(["demo", "--fault", "nagle"]).args(FREE_PORTS);
        let (program, enter) = Program::spawn_with_input(command);
        let mut url = None;
        loop {
            let line = program.line().expect("it goes on until it is told to end");
            println!("{line}");
            if let Some(address) = line.strip_prefix("The page: ") {
                url = Some(address.trim_end_matches('/').to_owned());
            }
            assert!(!line.contains("REMEDY: not tried"), "{line}");
            if line.contains("Enter applies it") {
                return Demo { program, _enter: enter, url: url.expect("it comes first") };
            }
        }
    }

    fn hunt(&self, flags: &[&str]) -> (Program, ChildStdin) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        command.args(["hunt", "tank->target", "--meter", &self.url]).args(flags);
        Program::spawn_with_input(command)
    }

    /// How many connections of its tanks have TCP_NODELAY, and how many there are, according to the kernel.
    fn with_nodelay(&self) -> (usize, usize) {
        let children = |flags: &[&str]| -> Vec<String> {
            let found = Command::new("pgrep").args(flags).output().expect("pgrep is there");
            String::from_utf8(found.stdout).expect("text").lines().map(str::to_owned).collect()
        };
        let tanks = children(&["-P", &self.program.id().to_string(), "-f", " tank "]);
        let space = format!("--net=/proc/{}/ns/net", tanks.first().expect("a tank"));
        // Each tank has a program that makes the calls.
        let clients: Vec<String> = tanks.iter().flat_map(|tank| children(&["-P", tank])).collect();
        let states = clients.iter().chain(&tanks).flat_map(|pid| {
            let flags = ["sockets", "list", "--json", "--pid", pid];
            let listed =
                Command::new("nsenter").args([&space, env!("CARGO_BIN_EXE_spangap")]).args(flags).output();
            let listed = listed.expect("nsenter is there");
            let report: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
            let sockets = report["sockets"].as_array().cloned().unwrap_or_default().into_iter();
            sockets.filter(is_call).map(|one| one["nodelay"] == true).collect::<Vec<bool>>()
        });
        let states: Vec<bool> = states.collect();
        (states.iter().filter(|is_on| **is_on).count(), states.len())
    }
}

/// Whether a socket carries calls rather than spans.
fn is_call(socket: &Value) -> bool {
    let peer = socket["peer"].as_str();
    socket["state"] == "established" && peer.is_some_and(|peer| peer.ends_with(":50051"))
}

/// As one line, however it is wrapped.
fn flat(lines: &[String]) -> String {
    lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_experiment_is_announced_tried_interrupted_and_undone() {
    let _alone = alone();
    if !is_possible() {
        return;
    }
    let demo = Demo::begin();
    assert_eq!(demo.with_nodelay(), (0, 4));

    // Asked, and answered with no.
    let (asked, mut answer) = demo.hunt(&["--experiment", "ask", "--json"]);
    answer.write_all(b"n\n").expect("it listens");
    let asked = asked.wait();
    let document = documented(&asked);
    assert_eq!((asked.code, &document["culprits"][0]["cause"]), (Some(0), &"nagle-delayed-ack".into()));
    assert_eq!(document["experiments"], Value::Array(Vec::new()), "{document:#}");
    let said = flat(&asked.err);
    for words in [
        "TCP_NODELAY is set on a random half of the 4 connections",
        "each change is undone",
        "Do it? [y/N]",
        "nothing was changed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }

    // Ctrl-C while connections are changed.
    let (tried, _input) = demo.hunt(&["--experiment", "auto"]);
    until("connections that are changed", || (demo.with_nodelay().0 > 0).then_some(()));
    tried.signal("INT");
    let tried = tried.wait();
    assert_eq!(demo.with_nodelay(), (0, 4), "{tried:?}");
    let (told, said) = (flat(&tried.out), flat(&tried.err));
    assert!(told.starts_with("One culprit: nagle-delayed-ack (client)"), "{told}");
    assert!(said.contains("waiting for the host to report that the change is undone"), "{said}");
    assert!(
        told.contains("stopped early") && told.ends_with("The host reports that every change is undone."),
        "{told}"
    );
    assert_eq!(tried.code, Some(0), "{tried:?}");

    // To its end. Hosts are asked for a limited number of slices a minute.
    let tried = until("slices of another minute", || {
        let (tried, _input) = demo.hunt(&["--experiment", "auto", "--json"]);
        let tried = tried.wait();
        (!flat(&tried.err).contains("try again later")).then_some(tried)
    });
    assert_eq!((tried.code, demo.with_nodelay()), (Some(0), (0, 4)), "{tried:?}");
    let experiment = &documented(&tried)["experiments"][0];
    assert_eq!(
        (&experiment["lever"], &experiment["undone"]),
        (&"tcp-nodelay".into(), &true.into()),
        "{experiment:#}"
    );
    let said = flat(&tried.err);
    // All ten blocks, or the six of the first look if that is clear; a block that began meanwhile may be told as well.
    let is_early = experiment["words"].as_str().is_some_and(|words| words.contains("first look"));
    for number in 1..=if is_early { 6 } else { 10 } {
        assert!(
            said.contains(&format!("block {number} of 10: 2 connections with the remedy ")),
            "{number}: {said}"
        );
    }
    match experiment["outcome"].as_str() {
        Some("proven") => {
            assert!(experiment["effect_ns"]["low"].as_i64() > Some(0), "{experiment:#}");
            // 2 in 64, times what the two looks cost, where all six blocks agree.
            assert!(experiment["probability"].as_f64().is_some_and(|p| p < 0.05 + 1e-9), "{experiment:#}");
        }
        // On a busy machine the proof may not succeed; the experiment then says so.
        outcome => assert_eq!(outcome, Some("undecided"), "{experiment:#}"),
    }
    demo.program.signal("INT");
    let ended = demo.program.wait();
    assert!(ended.out.iter().any(|line| line.contains("All is undone.")), "{ended:?}");
}

fn documented(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out.join("\n")).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}
