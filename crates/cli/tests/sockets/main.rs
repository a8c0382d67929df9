//! `spangap sockets` as a process, on sockets of other real processes.

mod crash;
mod list;
mod live;
#[path = "../meter/process.rs"]
#[allow(dead_code)] // the meter's tests need more of it
mod process;
#[path = "../../../sockets/tests/list/program.rs"]
mod program;
mod set;

#[path = "../undo/mod.rs"]
mod undo;
use process::Ended;
use program::Program;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A Python program with connections to itself, and a folder for journals.
struct Scene {
    program: Program,
    pid: String,
    port: String,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(connections: usize) -> Option<Scene> {
        let mut program = Program::start(&[])?;
        let port = program.connect_to_itself("127.0.0.1", "127.0.0.1", connections).to_string();
        let pid = program.pid().to_string();
        Some(Scene { program, pid, port, folder: tempfile::tempdir().expect("a folder") })
    }

    /// How many connections have TCP_NODELAY, as their process reads it.
    fn on(&mut self) -> usize {
        self.program.number("sum(x.getsockopt(6, 1) for x in c)") as usize
    }

    fn folder(&self) -> &str {
        self.folder.path().to_str().expect("a plain path")
    }

    fn journals(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "journal")).collect()
    }

    /// Arguments of `sockets set` for the clients' ends.
    fn set<'a>(&'a self, peer: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let arguments = ["sockets", "set", "--pid", &self.pid, "--peer", peer, "--journal", self.folder()];
        [arguments.as_slice(), more].concat()
    }

    fn peer(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Runs `set` to its end.
    fn run(&self, more: &[&str]) -> Ended {
        process::Program::start(&self.set(&self.peer(), more)).wait()
    }

    /// Starts setting.
    fn start(&self, more: &[&str]) -> process::Program {
        process::Program::start(&self.set(&self.peer(), more))
    }

    fn undo_all(&self) -> Ended {
        self.spangap_undo(&[])
    }

    fn spangap_undo(&self, more: &[&str]) -> Ended {
        spangap(&[&["sockets", "undo", "--all", "--journal", self.folder()], more].concat())
    }
}

fn spangap(arguments: &[&str]) -> Ended {
    process::Program::start(arguments).wait()
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out.join("\n")).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// The error of a failed verb, which must be the only one.
fn error(ended: &Ended) -> String {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.err.last().unwrap_or_else(|| panic!("an error is said: {ended:?}"));
    line.strip_prefix("spangap: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}

/// Runs a verb as a user without any rights; `None` where that is not possible.
fn as_nobody(arguments: &[&str]) -> Option<std::process::Output> {
    // A copy: the binary may be in a folder that others cannot enter.
    let folder = tempfile::tempdir().expect("a folder");
    let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("it is ours");
    let copy: &Path = &folder.path().join("spangap");
    // Copied by a process of its own: see `tests/without_rights.rs`.
    let copied = std::process::Command::new("cp").arg(env!("CARGO_BIN_EXE_spangap")).arg(copy).status();
    assert!(copied.is_ok_and(|status| status.success()), "it can be copied");
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    command.arg(copy).args(arguments).env_remove("XDG_RUNTIME_DIR");
    match command.output() {
        Ok(output) if !String::from_utf8_lossy(&output.stderr).starts_with("setpriv") => Some(output),
        other => {
            println!("not run: another user needs root and setpriv: {other:?}");
            None
        }
    }
}
