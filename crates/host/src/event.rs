//! Actions of one machine's scheduler and interrupt handlers, one value per occurrence.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. An event is emitted when it ends; each CPU emits its events in the
//! order of their ends, and readers merge all CPUs into one order.

/// Thread id. 0 is the idle task of every CPU.
pub type Tid = u32;

/// An occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the event; for an interrupt, its end.
    pub time_ns: u64,
    /// CPU it happened on.
    pub cpu: u16,
    /// Kind of event, with its data.
    pub what: What,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A CPU switched from one thread to another.
    Switch {
        /// Thread that ran before.
        prev: Tid,
        /// Why `prev` left the CPU.
        left: Left,
        /// Thread that runs from now on.
        next: Tid,
        /// Time that `next` spent on a run queue since it last ran, whether or not it was blocked before.
        /// Includes time in which its cgroup was throttled.
        waited_ns: u64,
        /// Whether `next` waited, at least in part, because its cgroup had used up its quota.
        throttled: bool,
    },
    /// A softirq ran. One that handled packets of several devices is split into one event per device.
    Softirq {
        /// Its number: 3 is NET_RX.
        vector: u8,
        /// Interface whose packets it handled, 0 for none: the interface's index or, in a network namespace
        /// other than the recorder's, a number that `Names` resolves.
        device: u32,
        /// Packets it handled; the largest polls of Linux may be capped at 65535.
        packets: u32,
        /// Of these, packets for TCP connections of watched processes.
        own: u32,
        /// Start time.
        began_ns: u64,
    },
    /// An interrupt handler ran.
    Hardirq {
        /// Which interrupt.
        irq: Irq,
        /// Start time.
        began_ns: u64,
    },
    /// A segment with data or FIN reached a socket of a watched process; its bytes end before `seq`. Usually
    /// delivered by a softirq; if a thread holds the socket lock at that moment, as soon as it releases it.
    Arrived(Transfer),
    /// A thread has read all bytes before `seq` from a socket.
    Read {
        /// Reading thread.
        tid: Tid,
        /// Position in the stream.
        at: Transfer,
    },
    /// A thread starts writing at byte `seq` of a socket, or continues a large write with another buffer.
    /// Before Linux 6.16 the event comes at the end of the write, but `seq` is still its first byte.
    Wrote {
        /// Writing thread.
        tid: Tid,
        /// Position in the stream.
        at: Transfer,
    },
    /// A watched thread slept and is woken now, on the waker's CPU.
    Woken(Woken),
    /// Events of this CPU were lost between `since_ns` and this event's time.
    Lost {
        /// Number of lost events; 0 if the recorder rested, so that nobody knows it.
        count: u64,
        /// Time of the last event before the loss.
        since_ns: u64,
    },
    /// The hypervisor withheld this CPU for `ns` at some time since `since_ns`.
    Steal {
        /// Nanoseconds; the kernel counts in ticks.
        ns: u64,
        /// Time of the previous check.
        since_ns: u64,
    },
}

/// The end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Woken {
    /// Thread that slept.
    pub tid: Tid,
    /// Start, in nanoseconds of CLOCK_MONOTONIC. Sleeps longer than three days are cut to three days.
    pub since_ns: u64,
    /// How it slept.
    pub sleep: Sleep,
    /// What ended it.
    pub by: Waker,
}

/// State of a sleeping thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sleep {
    /// Number of its kernel stack, which [`Names`](crate::names::Names) resolves; `None` if the stack was not
    /// captured.
    pub stack: Option<u16>,
    /// Whether the sleep was uninterruptible: state D.
    pub uninterruptible: bool,
    /// Whether it slept at a futex the way threads wait for a contended mutex.
    pub as_for_a_lock: bool,
}

/// What woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waker {
    Task(Tid),
    Softirq {
        /// Its number: 3 is NET_RX.
        vector: u8,
        /// For loopback packets: the CPU's current task, which is the sender unless packets were left over.
        /// Otherwise 0, because the task that a softirq happens to interrupt is unrelated.
        during: Tid,
    },
    /// An interrupt handler.
    Hardirq(Irq),
    /// The idle task's context: an interrupt that is not recorded.
    Idle,
    /// The wake-up was not seen.
    Unseen,
}

/// Why a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// Preempted: it was still runnable.
    Runnable,
    /// Still runnable, but its cgroup's quota is used up.
    Throttled,
    Blocked,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Exited.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Irq {
    /// Device interrupt: the number in `/proc/interrupts`.
    Line(u32),
    /// The CPU's local timer.
    Timer,
    /// Inter-processor interrupt: another CPU asked this one to run a function.
    Call,
}

/// A position in the byte stream of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    pub local_port: u16,
    pub peer_port: u16,
    /// The last four bytes of the peer's address, most significant first: 127.0.0.1 is 0x7f000001.
    pub peer_tail: u32,
    /// TCP sequence number, as on the wire.
    pub seq: u32,
}
