//! The instruments, by name.

use crate::named::named;

named! {
    /// What looked. A program that is none of these calls itself [`Instrument::Other`] and says its name as the source of its coverage.
    pub enum Instrument {
        /// Packets: `dissect`.
        Packets = "packets",
        /// Spans: `meter`, `gaps`.
        Spans = "spans",
        /// The scheduler and softirqs, recorded: `host record`.
        HostRecording = "host-recording",
        /// Users of CPUs that a process wanted: `host thieves`.
        Thieves = "thieves",
        /// Known traps in settings and counters of a host: `host check`.
        HostCheck = "host-check",
        /// Live TCP sockets: `sockets`.
        Sockets = "sockets",
        /// The ping-pong pair: `tank`.
        Tank = "tank",
        /// Interrupts and the CPUs of applications: `isolate`.
        Isolation = "isolation",
        /// Any other program that writes evidence; its coverage names it as the source.
        Other = "other",
    }
}

impl Instrument {
    /// What a sentence calls it: its name, unless the name says nothing.
    pub fn in_words(self) -> &'static str {
        match self {
            Instrument::Other => "another tool",
            known => known.name(),
        }
    }
}
