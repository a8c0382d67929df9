//! `spangap dissect` as users run it: on captures of real traffic (see the README of `fixtures/captures`).

mod every_call;
mod inputs;
mod json;
mod outputs;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A capture, or another file next to it.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures").join(name)
}

/// Both ends of a case: the client's, then the server's.
pub fn ends(case: &str) -> [PathBuf; 2] {
    ["client", "server"].map(|end| {
        let plain = fixture(&format!("{case}.{end}.pcapng"));
        if plain.exists() { plain } else { fixture(&format!("{case}.{end}.pcapng.zst")) }
    })
}

/// The verb, with nothing on its standard input.
pub fn dissect() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spangap"));
    command.arg("dissect").stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
pub fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("spangap runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// Its output with `--json`; it must succeed.
pub fn json(command: &mut Command) -> Value {
    let (code, stdout, stderr) = output(command.arg("--json"));
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).expect("one JSON document")
}
