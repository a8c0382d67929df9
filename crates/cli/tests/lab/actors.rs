//! Programs of a run that do harm: they undo it when told to end.

use crate::process::until;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Killed when dropped.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Started {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Started(piped.spawn().expect("it starts"))
    }

    /// An actor that is ready.
    fn actor(arguments: &[&str]) -> (Started, ChildStdin, BufReader<ChildStdout>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        let mut actor = Started::new(command.args(["lab", "actor"]).args(arguments));
        let mut said = BufReader::new(actor.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says something");
        assert_eq!(line, "ready\n");
        let life = actor.0.stdin.take().expect("a pipe");
        (actor, life, said)
    }

    /// Its state in `/proc`: `S` asleep, `T` stopped.
    fn state(&self) -> Option<char> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        text.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stopped_process_continues_if_the_actor_is_killed() {
    // It waits for input that never comes.
    let victim = Started::new(&mut Command::new("cat"));
    let pid = victim.0.id().to_string();
    let (mut pause, life, mut said) =
        Started::actor(&["pause", "--pid", &pid, "--on", "1h", "--every", "10ms"]);
    until("it is stopped", || (victim.state() == Some('T')).then_some(()));
    drop(life);
    assert!(pause.0.wait().expect("it ends").success());
    until("it goes on", || (victim.state() == Some('S')).then_some(()));
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("what it printed");
    let stops = spangap_lab::actors::stretches(&rest);
    assert!(matches!(&stops[..], [stop] if stop.from_unix_ns < stop.to_unix_ns), "{rest}");
}

#[test]
fn an_actor_ends_with_its_subject() {
    let victim = Started::new(&mut Command::new("cat"));
    let pid = victim.0.id().to_string();
    let (mut pause, _life, _said) =
        Started::actor(&["pause", "--pid", &pid, "--on", "10ms", "--every", "20ms"]);
    drop(victim);
    assert!(pause.0.wait().expect("it ends").success());
}

#[test]
fn bursts_last_as_long_as_reported() {
    let (mut hog, life, mut said) = Started::actor(&["hog", "--on", "10ms", "--every", "20ms"]);
    let mut printed = String::new();
    for _ in 0..3 {
        said.read_line(&mut printed).expect("a line for each burst");
    }
    drop(life);
    assert!(hog.0.wait().expect("it ends").success());
    let bursts = spangap_lab::actors::stretches(&printed);
    assert_eq!(bursts.len(), 3, "{printed}");
    assert!(bursts.iter().all(|burst| burst.length_ns() >= 9_000_000), "{printed}");
    assert!(bursts.is_sorted_by(|one, next| one.to_unix_ns <= next.from_unix_ns), "{printed}");
}

#[test]
fn invalid_flags_are_refused() {
    for (arguments, expected) in [
        (&["hog", "--on", "20ms", "--every", "20ms"][..], "--on 20ms: expected at most 90 %"),
        (
            &["hog", "--on", "20", "--every", "1s"],
            "--on <DURATION>': \"20\" is not a duration: expected a number and a unit",
        ),
        (&["hog", "--on", "20ms"], "--every <DURATION>"),
        (
            &["pause", "--pid", "0", "--on", "1ms", "--every", "1s"],
            "--pid <PID>': expected the id of a process",
        ),
        (&["audience", "--port", "70000", "--sockets", "1"], "--port <PORT>': 70000 is not in 0..=65535"),
        (&["collect", "--listen", "here", "--write", "x"], "--listen <ADDRESS:PORT>'"),
        (&["line", "--delay-a", "5ms", "a", "b", "c", "d"], "--delay 5ms: expected a whole number"),
        (&["line", "a", "b"], "two namespaces, each with its device"),
        (
            &["flood", "--to", "nowhere", "--packets", "1", "--apart", "1ms", "--on", "1ms", "--every", "1s"],
            "--to <ADDRESS:PORT>'",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        let output = command.args(["lab", "actor"]).args(arguments).output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn the_preloaded_library_is_written_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("shim.so");
    let shim = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
        command.args(["lab", "shim"]).args(words).output().expect("it starts")
    };
    assert!(shim(&["--write", file.to_str().expect("a name")]).status.success());
    assert!(fs::read(&file).expect("the library") == spangap_lab::shim::LIBRARY);
    let help = String::from_utf8_lossy(&shim(&["--help"]).stdout).into_owned();
    assert!(help.contains("SPANGAP_SHIM_COST_NS") && help.contains("LD_PRELOAD="), "{help}");
    let refused = shim(&["--write", folder.path().to_str().expect("a name")]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot write"));
}
