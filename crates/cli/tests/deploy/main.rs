//! Everything below `deploy/`, each part checked by the program that will read it: Prometheus, Grafana's
//! queries by a Prometheus with data from a real run, systemd, dpkg, helm.

mod kubernetes;
mod packages;
#[path = "../meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;
mod prometheus;
#[path = "../../../meter/tests/prometheus/server.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod server;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A path in this checkout.
fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).canonicalize().expect(path)
}

/// A command that runs in the checkout's folder and also finds the tools that `scripts/setup.sh` installed
/// beside the system's.
fn command(program: &str, arguments: &[&str]) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin");
    let mut command = Command::new(program);
    command.args(arguments).current_dir(here(".")).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", tools.display()));
    command
}

/// `None` if there is no such program.
fn output(program: &str, arguments: &[&str]) -> Option<Output> {
    match command("sh", &["-c", "command -v \"$0\"", program]).output() {
        Ok(found) if found.status.success() => {
            Some(command(program, arguments).output().unwrap_or_else(|error| panic!("{program}: {error}")))
        }
        _ => None,
    }
}

/// The output of a program, which must succeed; `None` if it is not installed.
fn done(program: &str, arguments: &[&str]) -> Option<String> {
    let output = output(program, arguments)?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    Some(said)
}

/// `make run` is the first command a newcomer types: it must neither install nor build anything that it does
/// not run.
#[test]
fn make_run_builds_no_program_of_other_stacks() {
    let says = |target: &str| done("make", &["--dry-run", "--always-make", target]).expect("make is there");
    let run = says("run");
    assert!(run.contains("cargo build --release") && run.contains("spangap demo"), "{run}");
    assert!(!run.contains("clients"), "{run}");
    assert!(says("clients").contains("scripts/clients.sh") && says("test").contains("scripts/clients.sh"));
    assert!(says("bench").contains("--profile dist") && !says("bench").contains("--release"));
}
