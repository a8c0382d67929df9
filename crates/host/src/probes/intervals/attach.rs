//! Programs at their tracepoints. While they rest they are taken off, so that the kernel does not even call them.

#![allow(unsafe_code)]

use super::PROBE;
use crate::kernel::ProbeError;
use libbpf_rs::libbpf_sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Loaded programs, attached or not. Dropping it detaches and unloads them.
pub(super) struct Attachments {
    // Dropped first: a detached program writes no more.
    links: Vec<OwnedFd>,
    /// With their names. Those that mark a start come last: an end without a start is useless.
    programs: Vec<(String, OwnedFd)>,
}

impl Attachments {
    /// Attaches these programs.
    pub fn new(programs: Vec<(String, OwnedFd)>) -> Result<Attachments, ProbeError> {
        let mut all = Attachments { links: Vec::new(), programs };
        all.attach()?;
        Ok(all)
    }

    /// Attaches all programs, if they are detached.
    pub fn attach(&mut self) -> Result<(), ProbeError> {
        for (name, program) in &self.programs[self.links.len()..] {
            let failed = |error: io::Error| ProbeError::Attach {
                probe: PROBE,
                program: name.clone(),
                reason: error.to_string(),
            };
            self.links.push(attached(program).map_err(failed)?);
        }
        Ok(())
    }

    /// Detaches all programs. One that runs at this moment finishes.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    pub fn programs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.programs.iter().map(|(_, program)| program.as_fd())
    }
}

/// Attaches a program to the tracepoint that it was loaded for, until the result is closed.
fn attached(program: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: a system call that takes a descriptor that is open and, as the program knows its tracepoint, no name; it returns a
    // new descriptor or a negative number.
    let fd = unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
