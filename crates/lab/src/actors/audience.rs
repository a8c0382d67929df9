//! `audience`: a number of UDP sockets on one port, which nobody reads. The kernel delivers each broadcast
//! packet to all of them, in the softirq of its arrival.

use super::life_line;
use crate::LabError;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_reuseaddr};
use rustix::net::{AddressFamily, SocketType, bind, socket};
use std::net::{Ipv4Addr, SocketAddrV4};

/// Arguments of the actor.
#[derive(Clone, Copy, Debug)]
pub struct Audience {
    pub port: u16,
    /// How many sockets.
    pub sockets: u16,
}

/// Runs until standard input ends.
pub(super) fn act(Audience { port, sockets: number }: Audience) -> Result<(), LabError> {
    let failed = |error: Errno| LabError::program("audience", format!("port {port}: {error}"));
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let mut sockets = Vec::new();
    for _ in 0..number {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(failed)?;
        set_socket_reuseaddr(&socket, true).map_err(failed)?;
        // The minimum: unread packets should not be kept, either.
        set_socket_recv_buffer_size(&socket, 1).map_err(failed)?;
        bind(&socket, &address).map_err(failed)?;
        sockets.push(socket);
    }
    let life = life_line();
    println!("ready");
    // Nothing is ever sent on it.
    let _ = life.recv();
    Ok(())
}
