//! The file of `host record`: events with names and the relation of the clocks, compact, read as a stream.
//!
//! # Format
//!
//! All numbers are little endian. The file begins with [`MAGIC`] and the version, a `u32`. Records follow:
//!
//! | bytes | |
//! |---|---|
//! | 1 | kind: 1 meta, 2 events, 3 names, 4 clocks, 5 end |
//! | 4 | length of the payload when decompressed, at most [`MAX_PAYLOAD`] |
//! | 4 | length of what follows |
//! | | the payload as one zstd frame, with its checksum |
//!
//! - *Meta* comes first, and once: [`Meta`] as JSON.
//! - *Names* are JSON of [`Names`](crate::names::Names): what is new or has changed. A later one wins.
//! - *Clocks* are JSON of one [`Reading`]: one at the begin, one each second, one at the end.
//! - *Events* are up to 65536 of them, coded as `code.rs` says; each record can be decoded without the others. They are
//!   in the order of their time, over all records.
//! - *End* comes last, and is missing when the recorder was killed: [`End`] as JSON.
//!
//! Every record is written as soon as it is complete, so a kill loses at most the last second. Everything before a
//! damaged place is read; then comes an error with its offset. Unknown kinds are skipped.

mod clocks;
mod code;
mod evidence;
mod read;
mod recorder;
mod retime;
mod rolling;
mod write;

#[cfg(test)]
mod tests;

pub use clocks::{Reading, Relation, StepWatch};
pub use evidence::evidence;
pub use read::{Recording, RecordingError};
pub use recorder::{Kinds, RecordError, Recorded, Recorder};
pub use retime::RetimeError;
pub use rolling::{Part, Rolling};
pub use write::{Writer, Written};

use crate::halted::Halted;
use serde::{Deserialize, Serialize};

/// The first bytes of a recording.
pub const MAGIC: &[u8; 12] = b"spangap host";
/// Version of the written format. Older ones are read, too: version 1 has no wake-ups, and does not say which
/// packets of a softirq were for the processes' own connections.
pub const VERSION: u32 = 2;
/// Maximum size of a decompressed payload. Names of the largest hosts need the most.
pub const MAX_PAYLOAD: u32 = 64 << 20;

/// What was recorded, where, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// Version of the recorder.
    pub spangap: String,
    pub host: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Number of possible CPUs.
    pub cpus: u32,
    /// Requested processes: those whose sockets were followed.
    pub pids: Vec<u32>,
    /// The recorder's command line.
    pub command: Vec<String>,
    /// Start of the events, nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// What this kernel could not report, in sentences.
    pub lacks: Vec<String>,
    /// Processes that were stopped or frozen when the recording began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub halted: Vec<Halted>,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// End of the events, nanoseconds of CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// Events written.
    pub events: u64,
    /// Number of lost events; the events themselves say where.
    pub lost: u64,
}

/// Kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Meta = 1,
    Events = 2,
    Names = 3,
    Clocks = 4,
    End = 5,
}

/// Size of a record before its payload: kind, decompressed length, length.
const HEADER: usize = 9;
