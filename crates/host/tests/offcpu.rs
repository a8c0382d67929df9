//! The off-CPU histograms of a real kernel, of workloads whose truth is known.

use spangap_host::probes::offcpu::{By, Group, Kind, Measured, Of, Offcpu, Room, Settings};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A program that says `ready` and waits for a line before it does its work, and says `done` before it waits for its
/// end; so that nothing it does before or after is in question.
struct Workload {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Workload {
    fn python(script: &str) -> Workload {
        let script = format!(
            "import os, signal, sys, time\nprint('ready', flush=True)\nsys.stdin.readline()\n{script}\nprint('done', flush=True)\nsys.stdin.readline()\n"
        );
        let mut child = Command::new("python3")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut workload = Workload { child, stdin, stdout };
        workload.expect("ready");
        workload
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn expect(&mut self, what: &str) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        assert_eq!(line.trim_end(), what);
    }

    fn go(&mut self) {
        writeln!(self.stdin).expect("it listens");
    }

    /// Lets it do its work.
    fn run(&mut self) {
        self.go();
        self.expect("done");
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures while something is done; `None`, with the reason printed, where that cannot be.
fn measured(of: Of, by: By, work: impl FnOnce()) -> Option<Measured> {
    let mut room = Room::default();
    let mut probe = match Offcpu::start(&mut room, Settings { of, by }) {
        Ok(probe) => probe,
        Err(error) => {
            println!("not run: {error}");
            return None;
        }
    };
    work();
    probe.look();
    Some(probe.stop().expect("maps can be read"))
}

fn group(measured: &Measured, id: u32) -> &Group {
    let found = measured.groups.iter().find(|group| group.id == u64::from(id));
    found.unwrap_or_else(|| panic!("no group {id} in {:?}", measured.groups))
}

#[test]
fn each_sleep_of_a_thread_is_a_blocked_wait() {
    let mut work = Workload::python("for _ in range(50): time.sleep(0.002)");
    let of = Of::Processes(vec![work.pid()]);
    let Some(measured) = measured(of, By::Process, || work.run()) else { return };
    let group = group(&measured, work.pid());
    let blocked = group.of(Kind::Blocked);
    assert_eq!(blocked.count(), 50);
}
