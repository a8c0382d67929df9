//! A TUN device of a namespace, as a file. The only `unsafe` of the lab: no library makes this request.
#![allow(unsafe_code)]

use crate::LabError;
use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Turns a file of `/dev/net/tun` into a device.
const TUNSETIFF: rustix::ioctl::Opcode = opcode::write::<i32>(b'T', 202);
/// Bare IP packets.
const IFF_TUN: u16 = 0x0001;
/// Without a header in front.
const IFF_NO_PI: u16 = 0x1000;

/// `struct ifreq` of `linux/if.h`, with the flags of its union.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Enters a namespace (a name of `ip netns`, or a path) and attaches to an existing device: a device belongs to
/// the namespace in which its file was opened. The calling thread stays in that namespace.
///
/// # Errors
/// The namespace or device does not exist, or the right is missing.
pub fn attach(namespace: &str, device: &str) -> Result<OwnedFd, LabError> {
    let failed = |what: &str, error: rustix::io::Errno| {
        LabError::program("line", format!("{device} in {namespace}: {what}: {error}"))
    };
    let path = match namespace.contains('/') {
        true => PathBuf::from(namespace),
        false => Path::new("/run/netns").join(namespace),
    };
    let space = open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failed("no namespace", error))?;
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| failed("entering the namespace", error))?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = open("/dev/net/tun", flags, Mode::empty()).map_err(|error| failed("/dev/net/tun", error))?;
    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI, rest: [0; 22] };
    // The last byte stays 0: the name ends there at the latest.
    let name = request.name[..15].get_mut(..device.len());
    let name =
        name.ok_or_else(|| LabError::Parameter(format!("{device}: a device has 15 letters at most")))?;
    name.copy_from_slice(device.as_bytes());
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `Request` is laid out as, to its last byte: the
    // kernel copies no more than its 40 bytes in and out, and nothing of it outlives the call.
    unsafe { ioctl(&tun, Updater::<TUNSETIFF, Request>::new(&mut request)) }
        .map_err(|error| failed("attaching to the device", error))?;
    Ok(tun)
}
