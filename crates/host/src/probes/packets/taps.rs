//! Packet sockets that carry the program, one per interface, opened and closed as interfaces come and go. `unsafe`
//!
//! A socket on all interfaces would be simpler, but then the kernel clones each packet that leaves, even by loopback, where it
//! comes in again.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Index of loopback, in every network namespace.
const LOOPBACK: u32 = 1;
/// Beyond so many interfaces there is one socket for all of them.
const MOST: usize = 256;
/// Index that stands for all interfaces.
const ALL: u32 = 0;
/// Socket option (include/uapi/linux/if_packet.h, Linux 4.20).
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// The sockets.
pub(super) struct Taps {
    program: OwnedFd,
    /// Names of the interfaces; empty for all.
    named: Vec<String>,
    sockets: BTreeMap<u32, OwnedFd>,
    /// Tells when an interface comes or goes.
    news: OwnedFd,
}

impl Taps {
    /// Opens them; `program` is a loaded one. Loopback always has one.
    pub fn open(program: OwnedFd, named: &[String]) -> io::Result<Taps> {
        let mut taps = Taps { program, named: named.to_vec(), sockets: BTreeMap::new(), news: news()? };
        taps.look()?;
        Ok(taps)
    }

    /// Waits, but not longer than until an interface comes or goes. Whether packets may have passed unseen: all sockets were replaced.
    ///
    /// # Errors
    /// When the kernel refuses a socket.
    pub fn wait(&mut self, timeout_ms: i32) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.news.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd is passed, and its number.
        let ready = unsafe { libc::poll(&mut poll, 1, timeout_ms) };
        if ready <= 0 {
            return Ok(false);
        }
        let mut buffer = [0_u8; 8192];
        // SAFETY: the buffer is as long as is said. What the messages say is looked up anew, so that lost ones do not matter.
        while unsafe { libc::recv(self.news.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) } > 0 {}
        self.look()
    }

    /// Opens and closes sockets, so that they are those of the interfaces there are.
    fn look(&mut self) -> io::Result<bool> {
        let wanted = if self.sockets.contains_key(&ALL) { BTreeSet::from([ALL]) } else { self.wanted()? };
        let replaced = wanted.contains(&ALL) && !self.sockets.is_empty() && !self.sockets.contains_key(&ALL);
        // One of an interface that was deleted stays dead, even if another one gets its number.
        self.sockets.retain(|index, socket| wanted.contains(index) && !has_failed(socket));
        for index in wanted {
            if self.sockets.contains_key(&index) {
                continue;
            }
            match tap(&self.program, index) {
                Ok(socket) => drop(self.sockets.insert(index, socket)),
                // It was there a moment ago.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(replaced)
    }

    fn wanted(&self) -> io::Result<BTreeSet<u32>> {
        let all = interfaces()?;
        if self.named.is_empty() && all.len() > MOST {
            return Ok(BTreeSet::from([ALL]));
        }
        let is_wanted = |index: u32, name: &String| {
            index == LOOPBACK || self.named.is_empty() || self.named.contains(name)
        };
        Ok(all.into_iter().filter(|(index, name)| is_wanted(*index, name)).map(|(index, _)| index).collect())
    }
}

/// Whether its interface has gone since this was last asked, for ever or for a while.
fn has_failed(socket: &OwnedFd) -> bool {
    let (mut error, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `length` bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut error).cast(),
            &raw mut length,
        )
    };
    status < 0 || error != 0
}

/// The interfaces of this network namespace.
fn interfaces() -> io::Result<Vec<(u32, String)>> {
    // SAFETY: it returns an array that ends with an index of zero, and that is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut all = Vec::new();
    let mut at = list;
    // SAFETY: every entry before the last one has an index and a name.
    unsafe {
        while (*at).if_index != 0 {
            all.push(((*at).if_index, CStr::from_ptr((*at).if_name).to_string_lossy().into_owned()));
            at = at.add(1);
        }
        libc::if_freenameindex(list);
    }
    Ok(all)
}

/// A new descriptor, or the error.
fn new(descriptor: libc::c_int) -> io::Result<OwnedFd> {
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A packet socket on an interface whose filter is the program.
fn tap(program: &OwnedFd, index: u32) -> io::Result<OwnedFd> {
    // Protocol zero: nothing is received before the filter is in place.
    // SAFETY: no memory is passed.
    let socket = new(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    if index == LOOPBACK {
        // The program drops what leaves; but each packet would be cloned for it. Before Linux 4.20 the kernel does not know the
        // option.
        let _ = set_option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
    }
    set_option(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())?;
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    bind(&socket, &address)?;
    Ok(socket)
}

/// A socket that tells of interfaces.
fn news() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let socket = new(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = libc::RTMGRP_LINK as u32;
    bind(&socket, &address)?;
    Ok(socket)
}

fn bind<T>(socket: &OwnedFd, address: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and its length is given.
    let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const *address).cast(), length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set_option(socket: &OwnedFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let (socket, place) = (socket.as_raw_fd(), (&raw const value).cast());
    // SAFETY: the value lives through the call, and its length is given.
    let status = unsafe { libc::setsockopt(socket, level, name, place, length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
