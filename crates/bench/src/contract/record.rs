//! One call in 64 bytes.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// An unknown connection.
pub const NO_CONNECTION: u16 = u16::MAX;

const MEASURED: u8 = 1;
const SLOW: u8 = 2;
const STREAM: u8 = 4;

/// One call, as observed by the program that made or served it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// Trace it belongs to.
    pub trace_id: [u8; 16],
    /// Span of this side.
    pub span_id: [u8; 8],
    /// Parent's span; zero for none.
    pub parent_span_id: [u8; 8],
    /// Time of sending or receiving, wall clock.
    pub start_unix_ns: u64,
    /// Duration, by the monotonic clock.
    pub duration_ns: u64,
    /// Delay between due and sent.
    pub lateness_ns: u64,
    /// gRPC status code.
    pub status: u8,
    /// Whether the call belongs to the measured phase.
    pub measured: bool,
    /// Whether it took longer than the slow threshold.
    pub slow: bool,
    /// Whether it is a ping inside a stream.
    pub stream: bool,
    /// Id of its connection, or [`NO_CONNECTION`].
    pub connection: u16,
}

impl CallRecord {
    /// Encodes it in the contract's layout.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24..32].copy_from_slice(&self.parent_span_id);
        bytes[32..40].copy_from_slice(&self.start_unix_ns.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.duration_ns.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.lateness_ns.to_le_bytes());
        bytes[56] = self.status;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        bytes[57] = flag(self.measured, MEASURED) | flag(self.slow, SLOW) | flag(self.stream, STREAM);
        bytes[58..60].copy_from_slice(&self.connection.to_le_bytes());
        bytes
    }

    /// The inverse of [`encode`](Self::encode); reserved fields are ignored.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        fn part<const N: usize>(bytes: &[u8; RECORD_BYTES], from: usize) -> [u8; N] {
            std::array::from_fn(|at| bytes[from + at])
        }
        CallRecord {
            trace_id: part(bytes, 0),
            span_id: part(bytes, 16),
            parent_span_id: part(bytes, 24),
            start_unix_ns: u64::from_le_bytes(part(bytes, 32)),
            duration_ns: u64::from_le_bytes(part(bytes, 40)),
            lateness_ns: u64::from_le_bytes(part(bytes, 48)),
            status: bytes[56],
            measured: bytes[57] & MEASURED != 0,
            slow: bytes[57] & SLOW != 0,
            stream: bytes[57] & STREAM != 0,
            connection: u16::from_le_bytes(part(bytes, 58)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(ids in any::<([u8; 16], [u8; 8], [u8; 8])>(), times in any::<[u64; 3]>(), status: u8,
                      flags in any::<[bool; 3]>(), connection: u16) {
            let record = CallRecord {
                trace_id: ids.0, span_id: ids.1, parent_span_id: ids.2, start_unix_ns: times[0], duration_ns: times[1],
                lateness_ns: times[2], status, measured: flags[0], slow: flags[1],
                stream: flags[2], connection,
            };
            prop_assert_eq!(CallRecord::decode(&record.encode()), record);
        }
    }
}
