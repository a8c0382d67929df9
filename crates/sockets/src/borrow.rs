//! Duplicates of other processes' socket descriptors. A duplicate stays the same socket, whatever the owner
//! does with its descriptor.

use rustix::io::Errno;
use rustix::net::SocketAddrAny;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// A pidfd: the id cannot be reused by another process while it responds.
pub fn process(pid: u32) -> Result<OwnedFd, Errno> {
    pidfd_open(process_id(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

pub fn process_id(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Duplicates a descriptor of another process.
pub fn borrow(process: &OwnedFd, fd: i32) -> Result<OwnedFd, Errno> {
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty())
}

/// Inode of a socket: unlike a descriptor, never shared by two sockets at the same time.
pub fn inode(socket: &OwnedFd) -> Option<u64> {
    rustix::fs::fstat(socket).ok().map(|stat| stat.st_ino)
}

/// Both addresses of a connected socket.
pub fn ends(socket: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    Some((local(socket)?, address(rustix::net::getpeername(socket).ok()??)?))
}

/// Local address of a socket.
pub fn local(socket: &OwnedFd) -> Option<SocketAddr> {
    address(rustix::net::getsockname(socket).ok()?)
}

fn address(found: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(found).ok().map(canonical)
}

/// Normalises IPv4-mapped addresses to IPv4, and drops flow label and scope, which the kernel's tables lack.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether it is still the same connection: descriptors are reused.
pub fn is(socket: &OwnedFd, local: SocketAddr, peer: SocketAddr) -> bool {
    ends(socket) == Some((local, peer))
}
