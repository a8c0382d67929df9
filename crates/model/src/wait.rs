//! Why a thread slept, by what it was doing in the kernel.

use std::fmt;

/// What a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitReason {
    /// A mutex that another thread held.
    Lock,
    /// A futex that is no mutex for all that is known: a condition variable, a semaphore, a parked thread.
    Futex,
    /// A lock inside of the kernel.
    KernelLock,
    /// Data in a pipe.
    PipeRead,
    /// Room in a pipe.
    PipeWrite,
    /// Data at a socket.
    SocketRead,
    /// Room in a socket's send buffer.
    SocketWrite,
    /// A connection being opened.
    Connect,
    /// A connection to accept.
    Accept,
    /// Any of several descriptors: epoll, poll, select, io_uring.
    Poll,
    /// An eventfd, a timerfd, inotify.
    Event,
    /// A terminal.
    Terminal,
    /// The time it asked for.
    Sleep,
    /// A child process.
    Child,
    /// A signal it asked for.
    Signal,
    /// A disk, or a file's pages from it.
    Disk,
    /// Data on its way to stable storage: fsync and its like.
    Fsync,
    /// A file system's journal.
    Journal,
    /// A file system in another process or on another host.
    RemoteFiles,
    /// A page of its own memory that had to be read: code, mapped files, swap.
    PageFault,
    /// Memory that had to be reclaimed first.
    Reclaim,
    /// Writing held back, as too much written data waits for the disk.
    WriteThrottle,
    /// A grace period of the kernel's own (RCU), all CPUs to take part in something.
    Kernel,
    /// SIGCONT, after a stop signal.
    Stopped,
    /// A debugger.
    Traced,
    /// The thaw of its frozen cgroup.
    Frozen,
    /// Known, but none of these: its function says more.
    Other,
    /// Not known.
    Unknown,
}

/// Whether a wait is a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitClass {
    /// It kept work from going on.
    HeldUp,
    /// For another thread, process or host to do its part.
    Handover,
    /// For work to come, or for time that it asked for.
    Idle,
    /// Not known.
    Unknown,
}

impl WaitReason {
    /// All of them.
    pub const ALL: [WaitReason; 28] = [
        WaitReason::Lock,
        WaitReason::Futex,
        WaitReason::KernelLock,
        WaitReason::PipeRead,
        WaitReason::PipeWrite,
        WaitReason::SocketRead,
        WaitReason::SocketWrite,
        WaitReason::Connect,
        WaitReason::Accept,
        WaitReason::Poll,
        WaitReason::Event,
        WaitReason::Terminal,
        WaitReason::Sleep,
        WaitReason::Child,
        WaitReason::Signal,
        WaitReason::Disk,
        WaitReason::Fsync,
        WaitReason::Journal,
        WaitReason::RemoteFiles,
        WaitReason::PageFault,
        WaitReason::Reclaim,
        WaitReason::WriteThrottle,
        WaitReason::Kernel,
        WaitReason::Stopped,
        WaitReason::Traced,
        WaitReason::Frozen,
        WaitReason::Other,
        WaitReason::Unknown,
    ];

    /// The name in JSON and tables.
    pub fn name(self) -> &'static str {
        match self {
            WaitReason::Lock => "lock",
            WaitReason::Futex => "futex",
            WaitReason::KernelLock => "kernel-lock",
            WaitReason::PipeRead => "pipe-read",
            WaitReason::PipeWrite => "pipe-write",
            WaitReason::SocketRead => "socket-read",
            WaitReason::SocketWrite => "socket-write",
            WaitReason::Connect => "connect",
            WaitReason::Accept => "accept",
            WaitReason::Poll => "poll",
            WaitReason::Event => "event",
            WaitReason::Terminal => "terminal",
            WaitReason::Sleep => "sleep",
            WaitReason::Child => "child",
            WaitReason::Signal => "signal",
            WaitReason::Disk => "disk",
            WaitReason::Fsync => "fsync",
            WaitReason::Journal => "journal",
            WaitReason::RemoteFiles => "remote-files",
            WaitReason::PageFault => "page-fault",
            WaitReason::Reclaim => "reclaim",
            WaitReason::WriteThrottle => "write-throttle",
            WaitReason::Kernel => "kernel",
            WaitReason::Stopped => "stopped",
            WaitReason::Traced => "traced",
            WaitReason::Frozen => "frozen",
            WaitReason::Other => "other",
            WaitReason::Unknown => "unknown",
        }
    }

    /// What it is, in words that go on after "waited for".
    pub fn words(self) -> &'static str {
        match self {
            WaitReason::Lock => "a mutex that another thread held",
            WaitReason::Futex => {
                "a futex: a condition variable, a semaphore, or a lock that does not show itself as one"
            }
            WaitReason::KernelLock => "a lock inside of the kernel",
            WaitReason::PipeRead => "data in a pipe",
            WaitReason::PipeWrite => "room in a pipe",
            WaitReason::SocketRead => "data at a socket",
            WaitReason::SocketWrite => "room in a socket's send buffer",
            WaitReason::Connect => "a connection to open",
            WaitReason::Accept => "a connection to accept",
            WaitReason::Poll => "any of its descriptors (epoll, poll, select, io_uring)",
            WaitReason::Event => "an event (eventfd, timerfd, inotify)",
            WaitReason::Terminal => "a terminal",
            WaitReason::Sleep => "time that it asked for",
            WaitReason::Child => "a child process",
            WaitReason::Signal => "a signal that it asked for",
            WaitReason::Disk => "a disk",
            WaitReason::Fsync => "written data to reach the disk (fsync)",
            WaitReason::Journal => "a file system's journal",
            WaitReason::RemoteFiles => "a file system in another process or on another host",
            WaitReason::PageFault => "pages of its own memory to be read (page faults)",
            WaitReason::Reclaim => "memory to be reclaimed",
            WaitReason::WriteThrottle => "the disk to take what was written before",
            WaitReason::Kernel => "the kernel's own housekeeping",
            WaitReason::Stopped => "SIGCONT, after a stop signal",
            WaitReason::Traced => "a debugger",
            WaitReason::Frozen => "the thaw of its frozen cgroup",
            WaitReason::Other => "something else in the kernel",
            WaitReason::Unknown => "something that is not known",
        }
    }

    /// Whether it is a problem to wait so.
    pub fn class(self) -> WaitClass {
        match self {
            WaitReason::Lock
            | WaitReason::KernelLock
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

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl WaitClass {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            WaitClass::HeldUp => "held-up",
            WaitClass::Handover => "handover",
            WaitClass::Idle => "idle",
            WaitClass::Unknown => "unknown",
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
}
