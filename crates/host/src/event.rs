//! What the scheduler and the interrupt handlers of one machine did, one value per occurrence.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. An event is told when it ends; those of one CPU come in the order of
//! their ends, and readers put those of all CPUs into one order.

/// A thread's number. 0 is the idle task, of every CPU.
pub type Tid = u32;

/// An occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When; of an interrupt, its end.
    pub time_ns: u64,
    /// Where.
    pub cpu: u16,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A CPU went from one thread to another.
    Switch {
        /// Who ran until now.
        prev: Tid,
        /// How it left.
        left: Left,
        /// Who runs from now on.
        next: Tid,
        /// How long `next` had been on a run queue since it last ran, blocked or not before. Includes time in which
        /// its cgroup was throttled.
        waited_ns: u64,
        /// Whether `next` waited (also) because the quota of its cgroup was used up.
        throttled: bool,
    },
    /// A softirq ran. One that handled packets of several devices is told in pieces, each for one device.
    Softirq {
        /// Its number: 3 is NET_RX.
        vector: u8,
        /// Interface whose packets it handled, 0 for none: its index, or, of an interface in another network namespace
        /// than the recorder's, a number that `Names` knows.
        device: u32,
        /// Packets it handled; those of Linux's largest polls may count as 65535.
        packets: u32,
        /// Those of them that were for TCP connections of watched processes.
        own: u32,
        /// When it began.
        began_ns: u64,
    },
    /// An interrupt handler ran.
    Hardirq {
        /// Which.
        irq: Irq,
        /// When it began.
        began_ns: u64,
    },
    /// A segment with data, or with the end of the stream, came to a socket of a watched process: its bytes are those before `seq`. Mostly out of a softirq; when a thread holds the socket just then, as soon as it
    /// lets go.
    Arrived(Transfer),
    /// A thread has read from a socket all bytes before `seq`.
    Read {
        /// Who.
        tid: Tid,
        /// What.
        at: Transfer,
    },
    /// A thread begins to write at byte `seq` of a socket, or goes on with a large write in another buffer. Before
    /// Linux 6.16 it is told at the end of the write; `seq` is its first byte all the same.
    Wrote {
        /// Who.
        tid: Tid,
        /// What.
        at: Transfer,
    },
    /// A watched thread slept, and is woken at this moment, on the waker's CPU.
    Woken(Woken),
    /// Events of this CPU were lost between `since_ns` and this event's time.
    Lost {
        /// How many.
        count: u64,
        /// Time of the last event before.
        since_ns: u64,
    },
    /// The hypervisor kept this CPU from running for `ns` at some time since `since_ns`.
    Steal {
        /// Nanoseconds; the kernel counts in ticks.
        ns: u64,
        /// When it was looked at before.
        since_ns: u64,
    },
}

/// The end of a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Woken {
    /// Who slept.
    pub tid: Tid,
    /// Since when, nanoseconds of CLOCK_MONOTONIC. Sleeps of more than three days seem to be of three days.
    pub since_ns: u64,
    /// What for.
    pub sleep: Sleep,
    /// Who ended it.
    pub by: Waker,
}

/// How a thread slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sleep {
    /// Number of its kernel stack, which [`Names`](crate::names::Names) knows; `None` where it could not be told.
    pub stack: Option<u16>,
    /// Whether no signal could have ended it: state D.
    pub uninterruptible: bool,
    /// Whether it slept at a futex in the way in which threads wait for a mutex that is held.
    pub as_for_a_lock: bool,
}

/// Who or what woke a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waker {
    /// A thread.
    Task(Tid),
    /// A softirq.
    Softirq {
        /// Its number: 3 is NET_RX.
        vector: u8,
        /// For packets of the loopback: the CPU's task meanwhile, which is the sender unless packets were left over.
        /// Otherwise 0, as whom a softirq interrupts has nothing to do with it.
        during: Tid,
    },
    /// An interrupt handler.
    Hardirq(Irq),
    /// The idle task's context: an interrupt that is not told.
    Idle,
    /// The wake-up was not seen.
    Unseen,
}

/// How a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Left {
    /// It could go on: another one was let in.
    Runnable,
    /// It could go on, but the quota of its cgroup is used up.
    Throttled,
    /// It waits for something.
    Blocked,
    /// It was stopped by a signal, or by a debugger.
    Stopped,
    /// It has ended.
    Ended,
}

/// An interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Irq {
    /// Of a device: the number in `/proc/interrupts`.
    Line(u32),
    /// The CPU's own timer.
    Timer,
    /// Another CPU asked this one to run something.
    Call,
}

/// A place in the bytes of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// This end's port.
    pub local_port: u16,
    /// The other end's port.
    pub peer_port: u16,
    /// The last four bytes of the other end's address, the first of them the highest: 127.0.0.1 is 0x7f000001.
    pub peer_tail: u32,
    /// TCP sequence number, as on the wire.
    pub seq: u32,
}
