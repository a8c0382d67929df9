//! Why a thread slept, derived from what it was doing in the kernel.

use crate::Cause;
use crate::named::named;

named! {
    /// What a sleeping thread waited for, told by the kernel function in which it slept. A reason says nothing about blame: see
    /// [`WaitClass`].
    pub enum WaitReason {
        /// A mutex that another thread held.
        Lock = "lock",
        /// A futex that is not known to be a mutex: a condition variable, a semaphore, a parked thread.
        Futex = "futex",
        /// A lock inside the kernel.
        KernelLock = "kernel-lock",
        /// A lock on a file that another process or thread held: flock, fcntl, a lease.
        FileLock = "file-lock",
        /// A semaphore or a message queue between processes.
        Semaphore = "semaphore",
        /// Data in a pipe.
        PipeRead = "pipe-read",
        /// Room in a pipe.
        PipeWrite = "pipe-write",
        /// Data at a socket.
        SocketRead = "socket-read",
        /// Room in a socket's send buffer.
        SocketWrite = "socket-write",
        /// A connection being opened.
        Connect = "connect",
        /// A connection to accept.
        Accept = "accept",
        /// Any of several descriptors: epoll, poll, select, io_uring.
        Poll = "poll",
        /// An eventfd, a timerfd, inotify.
        Event = "event",
        /// A terminal.
        Terminal = "terminal",
        /// A requested sleep.
        Sleep = "sleep",
        /// A child process.
        Child = "child",
        /// A requested signal.
        Signal = "signal",
        /// A disk, or a file's pages from it.
        Disk = "disk",
        /// Data on its way to stable storage: fsync and its like.
        Fsync = "fsync",
        /// A file system's journal.
        Journal = "journal",
        /// A file system in another process or on another host.
        RemoteFiles = "remote-files",
        /// A page of its own memory that had to be read: code, mapped files, swap.
        PageFault = "page-fault",
        /// Memory that had to be reclaimed first.
        Reclaim = "reclaim",
        /// Throttled writes, because too much written data waits for the disk.
        WriteThrottle = "write-throttle",
        /// A grace period of the kernel (RCU), in which all CPUs take part.
        Kernel = "kernel",
        /// SIGCONT, after a stop signal.
        Stopped = "stopped",
        /// A debugger.
        Traced = "traced",
        /// The thaw of its frozen cgroup.
        Frozen = "frozen",
        /// Known, but none of these: the function says more.
        Other = "other",
        /// Not recorded, or a kernel function without a known reason.
        Unknown = "unknown",
    }
}

named! {
    /// Whether a wait is a problem.
    pub enum WaitClass {
        /// It delayed work.
        HeldUp = "held-up",
        /// It waited for another thread, process or host to do its part.
        Handover = "handover",
        /// It waited for work, or for a requested time.
        Idle = "idle",
        /// Not known whether anybody waited for its work.
        Unknown = "unknown",
    }
}

impl WaitReason {
    /// Description that follows "waited for".
    pub fn words(self) -> &'static str {
        match self {
            WaitReason::Lock => "a mutex that another thread held",
            WaitReason::Futex => {
                "a futex: a condition variable, a semaphore, or a lock that cannot be told from these"
            }
            WaitReason::KernelLock => "a lock inside the kernel",
            WaitReason::FileLock => "a lock on a file that another one held",
            WaitReason::Semaphore => "a semaphore or a message queue between processes",
            WaitReason::PipeRead => "data in a pipe",
            WaitReason::PipeWrite => "room in a pipe",
            WaitReason::SocketRead => "data at a socket",
            WaitReason::SocketWrite => "room in a socket's send buffer",
            WaitReason::Connect => "a connection to open",
            WaitReason::Accept => "a connection to accept",
            WaitReason::Poll => "any of its descriptors (epoll, poll, select, io_uring)",
            WaitReason::Event => "an event (eventfd, timerfd, inotify)",
            WaitReason::Terminal => "a terminal",
            WaitReason::Sleep => "its own sleep to end",
            WaitReason::Child => "a child process",
            WaitReason::Signal => "a signal that it asked to receive",
            WaitReason::Disk => "a disk",
            WaitReason::Fsync => "written data to reach the disk (fsync)",
            WaitReason::Journal => "a file system's journal",
            WaitReason::RemoteFiles => "a file system in another process or on another host",
            WaitReason::PageFault => "pages of its own memory (page faults)",
            WaitReason::Reclaim => "memory to be reclaimed",
            WaitReason::WriteThrottle => "the disk to take what was written before",
            WaitReason::Kernel => "the kernel's own housekeeping",
            WaitReason::Stopped => "SIGCONT, after a stop signal",
            WaitReason::Traced => "a debugger",
            WaitReason::Frozen => "the thaw of its frozen cgroup",
            WaitReason::Other => "something else in the kernel",
            WaitReason::Unknown => "something unknown",
        }
    }

    /// The cause if a thread waits like this while working on a call; `None` for waits that are part of a call
    /// (another thread's or host's work, a requested sleep), and for unknown ones.
    pub fn cause(self) -> Option<Cause> {
        match self {
            WaitReason::Lock | WaitReason::KernelLock | WaitReason::FileLock => Some(Cause::Lock),
            WaitReason::Disk
            | WaitReason::Fsync
            | WaitReason::Journal
            | WaitReason::RemoteFiles
            | WaitReason::WriteThrottle => Some(Cause::Disk),
            WaitReason::PageFault | WaitReason::Reclaim => Some(Cause::Memory),
            WaitReason::Stopped | WaitReason::Traced | WaitReason::Frozen => Some(Cause::Stopped),
            WaitReason::Futex
            | WaitReason::Semaphore
            | WaitReason::PipeRead
            | WaitReason::PipeWrite
            | WaitReason::SocketRead
            | WaitReason::SocketWrite
            | WaitReason::Connect
            | WaitReason::Accept
            | WaitReason::Poll
            | WaitReason::Event
            | WaitReason::Terminal
            | WaitReason::Sleep
            | WaitReason::Child
            | WaitReason::Signal
            | WaitReason::Kernel
            | WaitReason::Other
            | WaitReason::Unknown => None,
        }
    }

    /// Whether such a wait is a problem.
    pub fn class(self) -> WaitClass {
        match self {
            WaitReason::Lock
            | WaitReason::KernelLock
            | WaitReason::FileLock
            | WaitReason::Disk
            | WaitReason::Fsync
            | WaitReason::Journal
            | WaitReason::RemoteFiles
            | WaitReason::PageFault
            | WaitReason::Reclaim
            | WaitReason::WriteThrottle
            | WaitReason::Kernel
            | WaitReason::Stopped
            | WaitReason::Traced
            | WaitReason::Frozen => WaitClass::HeldUp,
            WaitReason::Futex
            | WaitReason::Semaphore
            | WaitReason::PipeRead
            | WaitReason::PipeWrite
            | WaitReason::SocketRead
            | WaitReason::SocketWrite
            | WaitReason::Connect => WaitClass::Handover,
            WaitReason::Accept
            | WaitReason::Poll
            | WaitReason::Event
            | WaitReason::Terminal
            | WaitReason::Sleep
            | WaitReason::Child
            | WaitReason::Signal => WaitClass::Idle,
            WaitReason::Other | WaitReason::Unknown => WaitClass::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = WaitReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), WaitReason::ALL.len());
    }

    #[test]
    fn only_delays_are_to_blame() {
        for reason in WaitReason::ALL {
            assert!(reason.cause().is_none() || reason.class() == WaitClass::HeldUp, "{reason}");
        }
        assert_eq!(WaitReason::Lock.cause(), Some(Cause::Lock));
        assert_eq!(WaitReason::Futex.cause(), None, "a pool's idle worker waits so");
        assert_eq!(WaitReason::Sleep.cause(), None, "it asked for that");
    }
}
