//! Two hosts on one machine: network namespaces with something between them.

use crate::LabError;
use crate::undo::{Made, Undo};
use spangap_model::Side;
use std::process::{Command, Output};

/// Address of the client's host.
pub const CLIENT: &str = "10.88.0.1";
/// Address of the server's host.
pub const SERVER: &str = "10.88.0.2";
/// The network device on each of the two.
pub const DEVICE: &str = "eth0";

/// Both of them. Removed through the journal.
#[derive(Debug)]
pub struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Two hosts with nothing between them.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn make(undo: &mut Undo) -> Result<Hosts, LabError> {
        let names = ["client", "server"].map(|side| format!("lab-{}-{side}", undo.id()));
        for name in &names {
            undo.about_to_make(Made::Namespace { name: name.clone() })?;
            ip(&["netns", "add", name])?;
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

    /// Name of a host's namespace.
    pub fn name(&self, side: Side) -> &str {
        &self.names[side.index()]
    }
}

/// Runs `ip`.
///
/// # Errors
/// What it says when it fails.
pub fn ip(arguments: &[&str]) -> Result<Output, LabError> {
    let name = || format!("ip {}", arguments.join(" "));
    let output = Command::new("ip").args(arguments).output();
    let output =
        output.map_err(|error| LabError::program(name(), format!("{error}; the package iproute2 has it")))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(LabError::program(name(), String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
