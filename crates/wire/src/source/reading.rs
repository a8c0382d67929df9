//! What was read of a capture, and what was not.

/// A place that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the decompressed file.
    pub offset: u64,
    /// What was found, what was expected, and how reading went on.
    pub what: String,
}

/// What was read of a capture, and what was not. `bytes = packet_bytes + overhead_bytes + damaged_bytes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Name of the file.
    pub file: String,
    /// `pcap` or `pcapng`, with the compression: `pcapng, zstd`.
    pub format: String,
    /// Packets handed out.
    pub packets: u64,
    /// Bytes of them.
    pub packet_bytes: u64,
    /// Bytes that are no packet's: headers, padding, blocks of other kinds.
    pub overhead_bytes: u64,
    /// Bytes read, decompressed.
    pub bytes: u64,
    /// Bytes read as they are stored, and how many there are, for progress.
    pub stored_bytes: u64,
    /// Size of the file as it is stored, where it is known.
    pub stored_total_bytes: Option<u64>,
    /// Packets that the capturing host dropped, where the file tells (pcapng's interface statistics).
    pub dropped: Option<u64>,
    /// Packets of which the snap length cut something off.
    pub cut: u64,
    /// Bytes that it cut off.
    pub cut_bytes: u64,
    /// Packets without a time (pcapng's simple packet blocks): not handed out.
    pub without_time: u64,
    /// Coarsest resolution of the timestamps, nanoseconds.
    pub resolution_ns: u32,
    /// First places that could not be read, at most [`MAX_DAMAGE`].
    pub damage: Vec<Damage>,
    /// Places that could not be read, all of them.
    pub damaged_places: u64,
    /// Bytes skipped there.
    pub damaged_bytes: u64,
    /// Smallest and largest time of a packet, Unix nanoseconds.
    pub first_ns: Option<i64>,
    /// See `first_ns`.
    pub last_ns: Option<i64>,
    /// When capturing ended, where the file tells (pcapng's interface statistics), Unix nanoseconds.
    pub stopped_ns: Option<i64>,
}

/// Places of damage kept with their words; more are only counted.
pub const MAX_DAMAGE: usize = 100;

impl Reading {
    /// A place that could not be read.
    #[cold]
    pub(super) fn damaged(&mut self, offset: u64, bytes: u64, what: String) {
        self.damaged_places += 1;
        self.damaged_bytes += bytes;
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { offset, what });
        }
    }

    /// A packet's time.
    #[inline]
    pub(super) fn times(&mut self, time_ns: i64) {
        if self.first_ns.is_none_or(|first_ns| time_ns < first_ns) {
            self.first_ns = Some(time_ns);
        }
        if self.last_ns.is_none_or(|last_ns| time_ns > last_ns) {
            self.last_ns = Some(time_ns);
        }
    }
}
