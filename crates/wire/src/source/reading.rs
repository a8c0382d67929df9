//! Statistics of reading a capture.

/// An unreadable place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the decompressed file.
    pub offset: u64,
    /// What was found, what was expected, and how reading continued.
    pub what: String,
}

/// What was read of a capture, and what was not. `bytes = packet_bytes + overhead_bytes + damaged_bytes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Name of the file.
    pub file: String,
    /// `pcap` or `pcapng`, with the compression: `pcapng, zstd`.
    pub format: String,
    /// Packets delivered.
    pub packets: u64,
    /// Bytes of these packets.
    pub packet_bytes: u64,
    /// Bytes outside packets: headers, padding, blocks of other types.
    pub overhead_bytes: u64,
    /// Bytes read, decompressed.
    pub bytes: u64,
    /// Stored bytes read so far, for progress.
    pub stored_bytes: u64,
    /// Stored size of the file, if known.
    pub stored_total_bytes: Option<u64>,
    /// Packets dropped by the capturing host, if the file tells (pcapng's interface statistics).
    pub dropped: Option<u64>,
    /// Packets cut by the snap length.
    pub cut: u64,
    /// Bytes that it cut off.
    pub cut_bytes: u64,
    /// Packets without a time (pcapng's simple packet blocks), which are not delivered.
    pub without_time: u64,
    /// Coarsest resolution of the timestamps, nanoseconds.
    pub resolution_ns: u32,
    /// First unreadable places, at most [`MAX_DAMAGE`].
    pub damage: Vec<Damage>,
    /// Total number of unreadable places.
    pub damaged_places: u64,
    /// Bytes skipped there.
    pub damaged_bytes: u64,
    /// Minimum time of a packet, Unix nanoseconds.
    pub first_ns: Option<i64>,
    /// Maximum time of a packet, Unix nanoseconds.
    pub last_ns: Option<i64>,
    /// End of the capture, if the file tells (pcapng's interface statistics), Unix nanoseconds.
    pub stopped_ns: Option<i64>,
}

/// Maximum unreadable places kept with a description; more are only counted.
pub const MAX_DAMAGE: usize = 100;

impl Reading {
    /// Records an unreadable place.
    #[cold]
    pub(super) fn damaged(&mut self, offset: u64, bytes: u64, what: String) {
        self.damaged_places += 1;
        self.damaged_bytes += bytes;
        if self.damage.len() < MAX_DAMAGE {
            self.damage.push(Damage { offset, what });
        }
    }

    /// Records a packet's time.
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
