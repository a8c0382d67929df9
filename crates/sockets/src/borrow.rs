//! Descriptors of our own for sockets of other processes. Once borrowed it stays the same socket, whatever its owner
//! does with the descriptor.

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A process, held: its id is not another's as long as it answers.
pub fn process(pid: u32) -> Result<OwnedFd, Errno> {
    pidfd_open(process_id(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

pub fn process_id(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// A descriptor of our own for a descriptor of another process.
pub fn borrow(process: &OwnedFd, fd: i32) -> Result<OwnedFd, Errno> {
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
}

/// Inode of a socket: unlike a descriptor, never two sockets' at once.
pub fn inode(socket: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// Both ends of a connected socket.
pub fn ends(socket: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    Some((local(socket)?, address(rustix::net::getpeername(socket).ok()??)?))
}

/// This end of a socket.
pub fn local(socket: &OwnedFd) -> Option<SocketAddr> {
    address(rustix::net::getsockname(socket).ok()?)
}

fn address(found: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(found).ok().map(canonical)
}

/// IPv4 in IPv6 as IPv4, without flow label and scope, which the kernel's tables do not have.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether it is still the connection it was: descriptors are used again.
pub fn is(socket: &OwnedFd, local: SocketAddr, peer: SocketAddr) -> bool {
    ends(socket) == Some((local, peer))
}
