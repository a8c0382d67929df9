//! `spangap host stacks` as users run it.

use serde_json::Value;
use spangap_host::kernel::Kernel;
use std::process::{Command, Output};

fn stacks(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.args(["host", "stacks", "--duration", "300ms"]).args(arguments).output().unwrap()
}

fn said(ended: &Output) -> (Option<i32>, String) {
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn samples_are_printed_in_every_format() {
    if !Kernel::look().may_sample_cpus() {
        println!("not run: sampling CPUs needs CAP_PERFMON");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let (folded, svg, html) = (path("folded"), path("svg"), path("html"));
    let ended = stacks(&["--json", "--folded", &folded, "--svg", &svg, "--html", &html, "--hz", "997"]);
    assert_eq!(said(&ended), (Some(0), String::new()));
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(report["hz"], 997);
    let samples = &report["samples"];
    assert!(samples["received"].as_u64() > Some(0), "{samples}");
    assert!(report["duration_ns"].as_u64() >= Some(300_000_000), "{report}");
    let lines = std::fs::read_to_string(folded).unwrap();
    let counts = lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(Some(counts.sum()), samples["kept"].as_u64());
    assert!(std::fs::read_to_string(svg).unwrap().contains("<svg"));
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!doctype html>"));
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    let document: Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(
        (&document["kind"], &document["report"]["samples"]),
        (&Value::from("stacks"), &samples["received"])
    );
    let drawn: Vec<&str> =
        document["report"]["folded"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    assert_eq!(drawn, lines.lines().collect::<Vec<_>>());

    let ended = stacks(&["--cpus", "0"]);
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(text.starts_with("Kernel stacks on CPU 0\n") && text.contains("\nOverhead: "), "{text}");
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, expected) in [
        (&["--cpus", "0-1023"][..], "is not online: expected some of"),
        (&["--cpus", "all"], "is not a list of CPUs"),
        (&["--not-pid", "4194305"], "--not-pid 4194305: there is no such process"),
        (&["--hz", "0"], "0 is not in 1..=20000"),
        (&["--folded", "-", "--json"], "both want standard output"),
    ] {
        let (code, error) = said(&stacks(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn missing_rights_to_sample_are_named() {
    let kernel = Kernel::look();
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root || kernel.perf_event_paranoid.is_some_and(|level| level <= 0) {
        println!("not run: becoming another user needs root, and kernel.perf_event_paranoid above 0");
        return;
    }
    let spangap = env!("CARGO_BIN_EXE_spangap");
    let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", spangap, "host", "stacks"];
    let ended = Command::new("setpriv").args(as_nobody).output().unwrap();
    let (code, error) = said(&ended);
    if error.starts_with("setpriv:") {
        println!("not run: nobody may not start {spangap}: {error}");
        return;
    }
    assert_eq!(code, Some(1), "{error}");
    assert!(
        error.starts_with("spangap: cannot run the probe stacks: this process lacks CAP_PERFMON"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}
