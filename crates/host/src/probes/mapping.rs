//! Memory of an eBPF map, mapped by this process. `unsafe`

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapped eBPF map.
pub(super) struct Mapping {
    at: NonNull<libc::c_void>,
    bytes: usize,
}

// SAFETY: the memory belongs to the map, is the same from every thread, and stays until it is unmapped on drop.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps this many bytes of it.
    pub fn new(map: BorrowedFd<'_>, bytes: usize, writable: bool) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no memory of ours.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Mapping { at, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The place of its entry `index`, of the map's type.
    pub fn entry<T>(&self, index: usize) -> NonNull<T> {
        assert!((index + 1) * size_of::<T>() <= self.bytes, "entry {index} of {} bytes", self.bytes);
        // SAFETY: it lies inside of the mapping, as was just checked.
        unsafe { self.at.cast::<T>().add(index) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps the region that `new` mapped, once; no borrow of it outlives `self`.
        unsafe { libc::munmap(self.at.as_ptr(), self.bytes) };
    }
}
