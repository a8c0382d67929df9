//! Events -> what each watched thread did, without a hole: intervals that follow one another to the nanosecond.

use crate::event::{Irq, Tid};
use spangap_model::Doing;

/// Who had a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Taker {
    /// A thread; 0 is the idle task.
    Task(Tid),
    /// A softirq, of packets of a device (0 for none).
    Softirq {
        /// Its number: 3 is NET_RX.
        vector: u8,
        /// Interface.
        device: u32,
    },
    /// An interrupt handler.
    Hardirq(Irq),
}

/// What a thread did from one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Begin, nanoseconds of CLOCK_MONOTONIC.
    pub from_ns: u64,
    /// End: the next interval of the thread begins here.
    pub to_ns: u64,
    /// What.
    pub doing: Doing,
    /// Who had the CPU that it ran on, or waited for; `None` where nobody else, or not known.
    pub taker: Option<Taker>,
    /// That CPU.
    pub cpu: Option<u16>,
}
