//! Options of the packet socket. `unsafe`

#![allow(unsafe_code)]

use crate::source::filter::Instruction;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Sets the filter, or replaces it.
pub(super) fn attach(socket: &OwnedFd, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter { code: i.code, jt: i.jump_true, jf: i.jump_false, k: i.k })
        .collect();
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Listens on the interface with this index; zero for all.
pub(super) fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: all zeros is a value of this plain structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and its length is given.
    let status = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let pointer = (&raw const *value).cast();
    // SAFETY: the value lives through the call, and its length is given.
    let status = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, length) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(super) fn get_option<T: Copy>(socket: &OwnedFd, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to a value that is that long and of plain numbers.
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut *value).cast(), &raw mut length)
    };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
