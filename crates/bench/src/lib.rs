//! Tank and target: the RPC ping-pong pair. [`client`] makes calls on a schedule that never drifts, [`target`]
//! responds, and both record every call. [`tank`] starts clients by the rules of [`contract`], and turns their
//! messages into a [`report`].

pub mod client;
pub mod clock;
pub mod compare;
pub mod connection;
pub mod distribution;
pub mod slow_log;
mod status;

pub mod contract;
mod deadline;
pub mod method;
pub mod otlp;
pub mod process;
pub mod programs;
pub mod raw;
pub mod report;
pub mod schedule;
pub mod stream_limit;
pub mod tank;
pub mod target;
pub mod trace;
pub mod usage;

/// The Ping service, compiled from `proto/`.
pub mod ping {
    // Documented in the .proto file.
    tonic::include_proto!("spangap.ping.v1");

    /// Encoded `FileDescriptorSet` of the service, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("ping_descriptor_set");
    /// Full name of the service.
    pub const SERVICE: &str = "spangap.ping.v1.Ping";
    /// Full name of the method for a single ping.
    pub const METHOD: &str = "spangap.ping.v1.Ping/Ping";
    /// Full name of the method for pings inside a stream.
    pub const STREAM_METHOD: &str = "spangap.ping.v1.Ping/PingStream";
    /// Maximum payload that either side accepts, in bytes.
    pub const MAX_PAYLOAD_BYTES: u64 = 64 << 20;
    /// Maximum message size: a payload and its framing.
    pub(crate) const MAX_MESSAGE_BYTES: usize = MAX_PAYLOAD_BYTES as usize + 1024;
    /// Maximum think time of a request, in nanoseconds.
    pub const MAX_THINK_NS: u64 = 60_000_000_000;
}
