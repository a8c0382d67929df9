//! Two hosts on one machine: network namespaces with something between them.

pub mod delayed_calls;
pub mod line;
mod names;
pub mod netem;

use crate::LabError;
use crate::undo::MARK;
use crate::undo::{CreatedObject, Undo};
use spangap_model::Side;
use std::process::{Command, Output, Stdio};

/// Address of the client's host.
pub const CLIENT: &str = "10.88.0.1";
/// Address of the server's host.
pub const SERVER: &str = "10.88.0.2";
/// The network device on each of the two.
pub const DEVICE: &str = "eth0";

/// The device at each end of a second cable.
pub const SECOND_DEVICE: &str = "eth1";
const SECOND_SUBNET: &str = "10.89.0";
/// Broadcast address of the second cable.
pub const SECOND_BROADCAST: &str = "10.89.0.255";

/// Addresses of both, by the index of their side.
const ADDRESSES: [&str; 2] = [CLIENT, SERVER];
/// Fixed Ethernet addresses.
const MAC: [&str; 2] = ["02:00:0a:58:00:01", "02:00:0a:58:00:02"];
/// Host names, by the index of their side.
const NAMES: [(&str, &str); 2] = [("client", CLIENT), ("server", SERVER)];

/// Both hosts and the link between them. Removed through the journal.
#[derive(Debug)]
pub struct Hosts {
    names: [String; 2],
    /// Namespace of the path between them, if there is one.
    path: Option<String>,
}

/// Journals and creates a network namespace of a run.
fn space(undo: &mut Undo, ending: &str) -> Result<String, LabError> {
    let name = format!("lab-{}-{ending}", undo.id());
    undo.about_to_make(CreatedObject::Namespace { name: name.clone() })?;
    // Marked with the run's id: if the run is killed, a remaining process is killed before its namespace is
    // removed.
    run(Command::new("ip").args(["netns", "add", &name]).env(MARK, undo.id()))?;
    ip(&["-n", &name, "link", "set", "lo", "up"])?;
    Ok(name)
}

impl Hosts {
    /// Two hosts without a link. On each, `client` and `server` resolve to the addresses that the two have, or
    /// will have.
    ///
    /// # Errors
    /// They cannot be created.
    pub fn make(undo: &mut Undo) -> Result<Hosts, LabError> {
        let names = NAMES.map(|(side, _)| format!("lab-{}-{side}", undo.id()));
        for (name, (side, _)) in names.iter().zip(NAMES) {
            undo.about_to_make(CreatedObject::Names { namespace: name.clone() })?;
            names::write(name, &NAMES)?;
            space(undo, side)?;
        }
        Ok(Hosts { names, path: None })
    }

    /// Connects them by a pair of virtual Ethernet devices.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn cable(&self) -> Result<(), LabError> {
        let [client, server] = &self.names;
        ip(&[
            "link", "add", DEVICE, "netns", client, "type", "veth", "peer", "name", DEVICE, "netns", server,
        ])?;
        self.addresses()
    }

    /// Adds a second cable, whose packets are processed on `cpu` when they arrive at `side`. It vanishes with
    /// the hosts' namespaces, including the steering.
    ///
    /// # Errors
    /// The kernel refuses, or has no steering.
    pub fn second_cable(&self, side: Side, cpu: usize) -> Result<(), LabError> {
        let [near, far] = [side, side.other()].map(|side| self.name(side));
        let device = SECOND_DEVICE;
        ip(&["link", "add", device, "netns", near, "type", "veth", "peer", "name", device, "netns", far])?;
        for (name, last) in [(near, 1), (far, 2)] {
            ip(&["-n", name, "addr", "add", &format!("{SECOND_SUBNET}.{last}/24"), "dev", device])?;
            ip(&["-n", name, "link", "set", device, "up"])?;
        }
        let write = format!("echo {} >/sys/class/net/{device}/queues/rx-0/rps_cpus", mask(cpu));
        ip(&["netns", "exec", near, "sh", "-c", &write]).map_err(|error| LabError::Unavailable {
            what: "steering of packets (RPS)".into(),
            why: error.to_string(),
        })?;
        Ok(())
    }

    /// Assigns each host's address to its device.
    fn addresses(&self) -> Result<(), LabError> {
        for (name, address) in self.names.iter().zip(ADDRESSES) {
            ip(&["-n", name, "addr", "add", &format!("{address}/24"), "dev", DEVICE])?;
            ip(&["-n", name, "link", "set", DEVICE, "up"])?;
        }
        Ok(())
    }

    /// Makes the programs of a host look up names at a dead name server first and, after a second, in
    /// `/etc/hosts`; or there at once. Applies to programs started from here on.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn look_up(&self, side: Side, dead_server_first: bool) -> Result<(), LabError> {
        names::look_up(self.name(side), dead_server_first)
    }

    /// Name of a host's namespace.
    pub fn name(&self, side: Side) -> &str {
        &self.names[side.index()]
    }
}

/// One CPU in the kernel's mask format: 32-bit words, the highest first.
fn mask(cpu: usize) -> String {
    format!("{:x}{}", 1_u32 << (cpu % 32), ",00000000".repeat(cpu / 32))
}

/// Checks that hosts can be created here.
///
/// # Errors
/// What is missing, and how to get it.
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
    // Root of a container without the right.
    run(Command::new("unshare").args(["--net", "true"])).map_err(|error| {
        lacks(&format!("it needs to make network namespaces, which the kernel refuses ({error}); CAP_SYS_ADMIN is the right to"))
    })?;
    Ok(())
}

/// Runs `ip`. Not for objects that outlive a namespace.
///
/// # Errors
/// Its message if it fails.
pub fn ip(arguments: &[&str]) -> Result<Output, LabError> {
    run(Command::new("ip").args(arguments))
}

/// Runs a system program to its end.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

    #[test]
    fn masks_as_the_kernel_reads_them() {
        assert_eq!((mask(0), mask(1), mask(37)), ("1".into(), "2".into(), "20,00000000".into()));
    }

    /// Two hosts without a link, and the journal that removes them; without root it prints so and returns
    /// `None`.
    pub(super) fn hosts() -> Option<(tempfile::TempDir, Undo, Hosts)> {
        if let Err(error) = needs() {
            println!("not run: {error}");
            return None;
        }
        let state = tempfile::tempdir().expect("a folder");
        let mut undo = Undo::begin(state.path()).expect("a journal");
        let hosts = Hosts::make(&mut undo).expect("they can be made");
        Some((state, undo, hosts))
    }

    /// The same, with a cable.
    fn cabled() -> Option<(tempfile::TempDir, Undo, Hosts)> {
        let made = hosts()?;
        made.2.cable().expect("it can be laid");
        Some(made)
    }

    /// Results of five attempts to connect from the client's host, with durations in milliseconds. Nobody
    /// listens: one packet each way.
    pub(super) fn attempts(hosts: &Hosts, to: &str) -> Option<Vec<(i32, f64)>> {
        const SCRIPT: &str = "import socket, sys, time
for _ in range(5):
    begun = time.monotonic()
    print(socket.socket().connect_ex((sys.argv[1], 9)), (time.monotonic() - begun) * 1000)";
        if Command::new("python3").arg("-V").output().is_err() {
            println!("not run: there is no program python3");
            return None;
        }
        let client = hosts.name(Side::Client);
        let output = ip(&["netns", "exec", client, "python3", "-c", SCRIPT, to]).expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let attempts = text.lines().filter_map(|line| {
            let (code, ms) = line.split_once(' ')?;
            Some((code.parse().ok()?, ms.parse().ok()?))
        });
        let attempts: Vec<_> = attempts.collect();
        assert_eq!(attempts.len(), 5, "{text}");
        Some(attempts)
    }

    /// The fastest of them.
    pub(super) fn fastest_ms(attempts: &[(i32, f64)]) -> f64 {
        attempts.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min)
    }

    /// Final output of a Python program on a host; `meanwhile` runs once the program is ready.
    pub(super) fn output_on(hosts: &Hosts, side: Side, program: &str, meanwhile: impl FnOnce()) -> String {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", hosts.name(side), "python3", "-c", program]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        assert_eq!(said.next().expect("a line").expect("text"), "ready");
        meanwhile();
        let last = said.last().expect("another line").expect("text");
        assert!(child.wait().expect("it is ours").success());
        last
    }

    #[test]
    fn a_packet_finds_the_other_host_by_its_name_and_no_other_network() {
        const REFUSED: i32 = 111;
        const NO_WAY: i32 = 101;
        let Some((_state, undo, hosts)) = cabled() else { return };
        for (to, came_to) in
            [("server", REFUSED), ("client", REFUSED), ("localhost", REFUSED), ("192.0.2.1", NO_WAY)]
        {
            let Some(attempts) = attempts(&hosts, to) else { return };
            assert!(attempts.iter().all(|(code, _)| *code == came_to), "{to}: {attempts:?}");
        }
        undo.everything().expect("nothing holds it");
    }

    #[test]
    fn output_of_a_failed_program_is_reported() {
        let Some((_state, _undo, hosts)) = cabled() else { return };
        let said = hosts.cable().expect_err("there is one already").to_string();
        assert!(said.starts_with("ip link add eth0 netns lab-") && said.contains("File exists"), "{said}");
    }
}
