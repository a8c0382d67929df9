//! Two hosts on one machine: network namespaces with something between them.

pub mod line;
mod names;

use crate::LabError;
use crate::undo::journal::MARK;
use crate::undo::{Made, Undo};
use spangap_model::Side;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// Address of the client's host.
pub const CLIENT: &str = "10.88.0.1";
/// Address of the server's host.
pub const SERVER: &str = "10.88.0.2";
/// The network device on each of the two.
pub const DEVICE: &str = "eth0";

/// What the hosts call each other, by their side's number.
const NAMES: [(&str, &str); 2] = [("client", CLIENT), ("server", SERVER)];

/// Both of them. Removed through the journal.
#[derive(Debug)]
pub struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Two hosts with nothing between them. On each, `client` and `server` are the addresses that the two have, or will have.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn make(undo: &mut Undo) -> Result<Hosts, LabError> {
        let names = NAMES.map(|(side, _)| format!("lab-{}-{side}", undo.id()));
        for name in &names {
            undo.about_to_make(Made::Names { namespace: name.clone() })?;
            names::write(name, &NAMES)?;
            undo.about_to_make(Made::Namespace { name: name.clone() })?;
            // With the run's mark: one that goes on when the run is killed is ended before its namespace is looked for.
            run(Command::new("ip").args(["netns", "add", name]).env(MARK, undo.id()))?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(Hosts { names })
    }

    /// Connects them by a virtual Ethernet cable.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn cable(&self) -> Result<(), LabError> {
        let [client, server] = &self.names;
        ip(&[
            "link", "add", DEVICE, "netns", client, "type", "veth", "peer", "name", DEVICE, "netns", server,
        ])?;
        for (name, address) in [(client, CLIENT), (server, SERVER)] {
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", DEVICE])?;
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        Ok(())
    }

    /// Puts netem on the cable, for what this side sends: `["delay", "5ms"]`, as `tc qdisc add ... netem` takes it. Once more
    /// replaces what was there. It goes with the namespace.
    ///
    /// # Errors
    /// When the kernel has no netem ([`netem_available`]), or `tc` does not understand the words.
    pub fn netem(&self, side: Side, arguments: &[String]) -> Result<(), LabError> {
        let words = ["-n", self.name(side), "qdisc", "replace", "dev", DEVICE, "root", "netem"];
        run(Command::new("tc").args(words).args(arguments)).map(drop)
    }

    /// Takes it off again.
    ///
    /// # Errors
    /// When there is none.
    pub fn no_netem(&self, side: Side) -> Result<(), LabError> {
        run(Command::new("tc").args(["-n", self.name(side), "qdisc", "del", "dev", DEVICE, "root"])).map(drop)
    }

    /// Name of a host's namespace.
    pub fn name(&self, side: Side) -> &str {
        &self.names[side.index()]
    }
}

/// Whether `tc` and the kernel have netem: tried in a network namespace without a name, which ends with the trial. The
/// kernel may load a module for it.
pub fn netem_available() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    *TRIED.get_or_init(|| {
        let trial = "tc qdisc add dev lo root netem delay 1ms";
        run(Command::new("unshare").args(["--net", "sh", "-c", trial])).is_ok()
    })
}

/// Whether hosts can be made here: asked before anything is.
///
/// # Errors
/// What is missing, and what brings it.
pub fn needs() -> Result<(), LabError> {
    let lacks = |why: &str| LabError::Unavailable { what: "`spangap lab run`".into(), why: why.to_owned() };
    if !rustix::process::geteuid().is_root() {
        return Err(lacks("it needs root, to make network namespaces; try sudo"));
    }
    for (program, version, package) in
        [("ip", "-V", "iproute2"), ("nsenter", "-V", "util-linux"), ("unshare", "-V", "util-linux")]
    {
        run(Command::new(program).arg(version)).map_err(|error| {
            lacks(&format!("it needs the program {program}, which the package {package} has ({error})"))
        })?;
    }
    // Root, but of a container that may not.
    run(Command::new("unshare").args(["--net", "true"])).map_err(|error| {
        lacks(&format!("it needs to make network namespaces, which the kernel refuses ({error}); CAP_SYS_ADMIN is the right to"))
    })?;
    Ok(())
}

/// Runs `ip`. Not for what outlives a namespace.
///
/// # Errors
/// What it says when it fails.
pub fn ip(arguments: &[&str]) -> Result<Output, LabError> {
    run(Command::new("ip").args(arguments))
}

/// Runs a program of the system to its end.
fn run(command: &mut Command) -> Result<Output, LabError> {
    let output = command.stdin(Stdio::null()).output();
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let name = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = output.map_err(|error| LabError::program(&name, error.to_string()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = if said.trim().is_empty() { output.status.to_string() } else { said.trim().to_owned() };
    Err(LabError::program(name, why))
}
