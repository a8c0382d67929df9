//! A server and a client in Python and a server in Node, as commonly written, for faults that our own programs
//! do not have: `programs/`. They speak HTTP/1.1, write their own spans, and report the calls that they
//! delayed.

use super::traffic::Script;
use super::{PORT, Program, Serve, Stage, Tank};
use crate::calls::Calls;
use crate::truth::{Active, Affected};
use crate::{LabError, folder, hosts};
use serde::Deserialize;
use spangap_model::Side;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const CLIENT: Source = Source {
    interpreter: PYTHON,
    flags: &[],
    name: "client.py",
    text: include_str!("../programs/client.py"),
};
const SERVER: Source = Source { name: "server.py", text: include_str!("../programs/server.py"), ..CLIENT };
const NODE_SERVER: Source = Source {
    interpreter: "node",
    flags: &["--expose-gc"],
    name: "server.js",
    text: include_str!("../programs/server.js"),
};
/// Files in the run's folder where the programs report waits.
const LOGS: [&str; 2] = ["client.waits", "server.waits"];
const PYTHON: &str = "python3";

/// A program of `programs/`.
struct Source {
    interpreter: &'static str,
    flags: &'static [&'static str],
    name: &'static str,
    text: &'static str,
}

/// A wait timed by the program itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Wait {
    /// Purpose, as named by the client; the server has one kind.
    #[serde(default)]
    pub what: String,
    /// The waiting call.
    pub trace_id: String,
    /// Start.
    pub from_unix_ns: u64,
    /// End.
    pub to_unix_ns: u64,
}

impl Stage<'_> {
    fn script(&self, source: &Source, side: Side, around: &super::Surroundings) -> Result<Command, LabError> {
        let Source { interpreter, flags, name, text } = *source;
        let found =
            Command::new(interpreter).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !found.is_ok_and(|status| status.success()) {
            let package = interpreter.replace("node", "nodejs");
            let why = format!("it needs the program {interpreter}, which the package {package} has");
            return Err(LabError::Unavailable { what: format!("the program {name}"), why });
        }
        let path = self.file(name);
        fs::write(&path, text).map_err(LabError::file("write", &path))?;
        let mut command = self.on(side, around, Path::new(interpreter));
        command.current_dir(&self.folder).args(flags).arg(name);
        command.args(["--spans", folder::spans(side), "--log", LOGS[side.index()]]);
        Ok(command)
    }

    pub(super) fn start_script(&self, serve: &Serve, script: Script) -> Result<Program, LabError> {
        let source = match script {
            Script::Python => &SERVER,
            Script::Node => &NODE_SERVER,
        };
        let mut command = self.script(source, Side::Server, &serve.around)?;
        command.args(["--listen", &format!("{}:{}", hosts::SERVER, serve.port)]).args(&serve.arguments);
        Program::start("target", command, &self.folder)
    }

    pub(super) fn start_python_client(&self, tank: &Tank) -> Result<Program, LabError> {
        let mut command = self.script(&CLIENT, Side::Client, &tank.around)?;
        let [warmup, duration] = [tank.warmup, tank.duration].map(|time| time.as_secs_f64().to_string());
        command.args(["--target", &format!("{}:{PORT}", hosts::SERVER), "--seed", &self.seed().to_string()]);
        command.args(["--warmup", &warmup, "--duration", &duration]).args(&tank.arguments);
        Program::start("tank", command, &self.folder)
    }

    /// Creates a certificate for this run, `certificate.pem` and `key.pem`.
    ///
    /// # Errors
    /// [`LabError::Unavailable`] if there is no tool for it.
    pub fn certificate(&self) -> Result<(), LabError> {
        let words =
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=server -keyout key.pem -out certificate.pem";
        let made = Command::new("openssl").args(words.split(' ')).current_dir(&self.folder).output();
        let what = || "a certificate".to_owned();
        let made = made.map_err(|error| LabError::Unavailable {
            what: what(),
            why: format!("openssl: {error}; the package openssl has it"),
        })?;
        match made.status.success() {
            true => Ok(()),
            false => Err(LabError::program("openssl", String::from_utf8_lossy(&made.stderr).trim())),
        }
    }

    /// Waits of purpose `what` reported by a side's program. Call after [`Stage::end`].
    ///
    /// # Errors
    /// The report is missing or malformed.
    pub fn waits(&self, side: Side, what: &str) -> Result<Vec<Wait>, LabError> {
        let path = self.file(LOGS[side.index()]);
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let read = |line: &str| {
            serde_json::from_str(line)
                .map_err(|error| LabError::file("understand", &path)(std::io::Error::other(error)))
        };
        let waits: Vec<Wait> = text.lines().map(read).collect::<Result<_, _>>()?;
        Ok(waits.into_iter().filter(|wait| wait.what == what).collect())
    }
}

/// Cost of the waits to the measured calls: the intervals, and each call with the sum of its waits.
pub fn cost(waits: &[Wait], calls: &Calls, least_ns: u64) -> (Vec<Active>, Vec<Affected>) {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for wait in waits {
        *sums.entry(&wait.trace_id).or_default() += wait.to_unix_ns.saturating_sub(wait.from_unix_ns);
    }
    let measured = calls.all.iter().filter_map(|call| Some((call, *sums.get(call.trace_id.as_str())?)));
    let affected: Vec<Affected> = measured
        .filter(|(_, ns)| *ns >= least_ns)
        .map(|(call, ns)| Affected { trace_id: call.trace_id.clone(), cost_ns: Some(ns) })
        .collect();
    let is_affected = |wait: &&Wait| affected.iter().any(|call| call.trace_id == wait.trace_id);
    let active = waits
        .iter()
        .filter(is_affected)
        .map(|wait| Active { from_unix_ns: wait.from_unix_ns, to_unix_ns: wait.to_unix_ns })
        .collect();
    (active, affected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Call;

    #[test]
    fn waits_of_one_call_sum_and_those_of_others_do_not_count() {
        let wait = |id: &str, from_unix_ns, to_unix_ns| Wait {
            what: String::new(),
            trace_id: id.into(),
            from_unix_ns,
            to_unix_ns,
        };
        let call = |id: &str| Call { trace_id: id.into(), ..Call::default() };
        let calls = Calls { all: vec![call("a"), call("b")], server_only: 0 };
        let waits = [wait("a", 10, 15), wait("a", 20, 27), wait("b", 5, 6), wait("warm-up", 0, 90)];
        let (active, affected) = cost(&waits, &calls, 3);
        assert_eq!(affected, [Affected { trace_id: "a".into(), cost_ns: Some(12) }]);
        assert_eq!(active.len(), 2);
    }
}
