//! `TCP_INFO` of a socket. The only `unsafe` of this crate: no library reads all of it safely.
#![allow(unsafe_code)]

use libc::socklen_t;
use serde::Serialize;
use spangap_machine::facts::net_tcp::State;
use std::os::fd::{AsFd, AsRawFd};

/// Larger than in any kernel so far, so that new fields cost nothing but these bytes.
const ROOM: usize = 512;

/// The kernel's measurements of a connection. Values that do not exist (yet) are `None`: the struct grows with
/// kernels, and fields beyond its end are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpInfo {
    /// State of the connection; shown by its socket.
    #[serde(skip)]
    pub state: Option<State>,
    /// State of congestion control: `open`, `disorder`, `cwr`, `recovery` or `loss`.
    pub congestion_state: Option<&'static str>,
    /// Smoothed RTT.
    pub rtt_ns: Option<u64>,
    /// Its mean deviation.
    pub rttvar_ns: Option<u64>,
    /// Minimum RTT, as measured by TCP recently.
    pub min_rtt_ns: Option<u64>,
    /// RTT as estimated by the receiving half.
    pub receive_rtt_ns: Option<u64>,
    /// Retransmission timeout, including back-off.
    pub rto_ns: Option<u64>,
    /// Delayed-ACK timeout.
    pub ato_ns: Option<u64>,
    /// Maximum segment size for sending.
    pub send_mss_bytes: Option<u64>,
    /// Estimated segment size of the peer.
    pub receive_mss_bytes: Option<u64>,
    /// Maximum segment size announced to the peer.
    pub advertised_mss_bytes: Option<u64>,
    /// Scale of the peer's windows in bits; 0 without the option.
    pub send_window_scale: Option<u64>,
    /// Scale of the windows announced to the peer, in bits.
    pub receive_window_scale: Option<u64>,
    /// Whether segments carry timestamps, which take 12 bytes of each.
    pub timestamps: Option<bool>,
    /// Path MTU, headers included.
    pub path_mtu_bytes: Option<u64>,
    /// Congestion window.
    pub cwnd_segments: Option<u64>,
    /// Slow-start threshold; `None` also while nothing was ever lost.
    pub ssthresh_segments: Option<u64>,
    /// Segments sent and not acknowledged.
    pub unacked_segments: Option<u64>,
    /// Of these, acknowledged out of order.
    pub sacked_segments: Option<u64>,
    /// Of these, presumed lost.
    pub lost_segments: Option<u64>,
    /// Of these, retransmitted.
    pub retransmitting_segments: Option<u64>,
    /// Consecutive retransmission timeouts without an ACK.
    pub unanswered_timeouts: Option<u64>,
    /// Consecutive window probes without a response.
    pub unanswered_probes: Option<u64>,
    /// Retransmitted segments since the connection was opened.
    pub retransmitted_segments: Option<u64>,
    pub retransmitted_bytes: Option<u64>,
    /// Segments that the peer received twice.
    pub duplicate_segments: Option<u64>,
    /// Retransmission timeouts since the connection was opened.
    pub timeouts: Option<u64>,
    /// Expected reordering distance, in segments.
    pub reordering_segments: Option<u64>,
    /// Number of reordering events.
    pub reordering_seen: Option<u64>,
    /// Segments received out of order.
    pub out_of_order_segments: Option<u64>,
    /// Bytes written by the application but not sent for the first time.
    pub notsent_bytes: Option<u64>,
    /// Window granted by the peer.
    pub send_window_bytes: Option<u64>,
    /// Window granted to the peer.
    pub receive_window_bytes: Option<u64>,
    /// Target size of the receive buffer's auto-tuning.
    pub receive_space_bytes: Option<u64>,
    /// Time since data was last sent.
    pub last_sent_ns: Option<u64>,
    /// Time since data was last received.
    pub last_received_ns: Option<u64>,
    /// Time since an ACK was last received.
    pub last_ack_received_ns: Option<u64>,
    /// Time with data outstanding.
    pub busy_ns: Option<u64>,
    /// Of it, limited by the peer's window.
    pub receive_window_limited_ns: Option<u64>,
    /// Of it, limited by a full send buffer.
    pub send_buffer_limited_ns: Option<u64>,
    /// Most recent delivery rate sample.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Whether that rate is the application's rather than the network's.
    pub delivery_rate_app_limited: Option<bool>,
    /// Maximum pacing rate; `None` also if unlimited.
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// Payload sent, including retransmissions.
    pub sent_bytes: Option<u64>,
    /// Payload acknowledged.
    pub acked_bytes: Option<u64>,
    /// Payload received in order.
    pub received_bytes: Option<u64>,
    /// Segments sent, ACKs included.
    pub sent_segments: Option<u64>,
    /// Segments received, ACKs included.
    pub received_segments: Option<u64>,
    pub sent_data_segments: Option<u64>,
    pub received_data_segments: Option<u64>,
    /// Delivered segments, according to the peer's ACKs.
    pub delivered_segments: Option<u64>,
    /// Of these, marked as congested by the network.
    pub delivered_ce_segments: Option<u64>,
    /// Length of the accept queue; only for a listening socket.
    pub accept_queue_connections: Option<u64>,
    /// Limit of the accept queue.
    pub accept_backlog_connections: Option<u64>,
}

/// Reads `TCP_INFO`; `None` if the kernel refuses.
pub fn of(socket: impl AsFd) -> Option<TcpInfo> {
    let mut bytes = [0u8; ROOM];
    let mut length = bytes.len() as socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `fd` is borrowed, so it is open for the whole call; the kernel writes at most `length` bytes to
    // `bytes`, which has that many, and the length that it wrote to `length`. Any byte is a valid `u8`.
    let failed = unsafe {
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            std::ptr::from_mut(&mut length),
        )
    };
    (failed == 0).then(|| decode(bytes.get(..length as usize).unwrap_or(&bytes)))
}

/// Offsets in the kernel's struct: they never change, it only grows.
mod at {
    pub const STATE: usize = 0;
    pub const CA_STATE: usize = 1;
    pub const RETRANSMITS: usize = 2;
    pub const PROBES: usize = 3;
    pub const OPTIONS: usize = 5;
    pub const WINDOW_SCALES: usize = 6;
    pub const APP_LIMITED: usize = 7;
    pub const RTO: usize = 8;
    pub const ATO: usize = 12;
    pub const SND_MSS: usize = 16;
    pub const RCV_MSS: usize = 20;
    pub const UNACKED: usize = 24;
    pub const SACKED: usize = 28;
    pub const LOST: usize = 32;
    pub const RETRANS: usize = 36;
    pub const LAST_DATA_SENT: usize = 44;
    pub const LAST_DATA_RECV: usize = 52;
    pub const LAST_ACK_RECV: usize = 56;
    pub const PMTU: usize = 60;
    pub const RTT: usize = 68;
    pub const RTTVAR: usize = 72;
    pub const SND_SSTHRESH: usize = 76;
    pub const SND_CWND: usize = 80;
    pub const ADVMSS: usize = 84;
    pub const REORDERING: usize = 88;
    pub const RCV_RTT: usize = 92;
    pub const RCV_SPACE: usize = 96;
    pub const TOTAL_RETRANS: usize = 100;
    pub const PACING_RATE: usize = 104;
    pub const BYTES_ACKED: usize = 120;
    pub const BYTES_RECEIVED: usize = 128;
    pub const SEGS_OUT: usize = 136;
    pub const SEGS_IN: usize = 140;
    pub const NOTSENT_BYTES: usize = 144;
    pub const MIN_RTT: usize = 148;
    pub const DATA_SEGS_IN: usize = 152;
    pub const DATA_SEGS_OUT: usize = 156;
    pub const DELIVERY_RATE: usize = 160;
    pub const BUSY_TIME: usize = 168;
    pub const RWND_LIMITED: usize = 176;
    pub const SNDBUF_LIMITED: usize = 184;
    pub const DELIVERED: usize = 192;
    pub const DELIVERED_CE: usize = 196;
    pub const BYTES_SENT: usize = 200;
    pub const BYTES_RETRANS: usize = 208;
    pub const DSACK_DUPS: usize = 216;
    pub const REORD_SEEN: usize = 220;
    pub const RCV_OOOPACK: usize = 224;
    pub const SND_WND: usize = 228;
    pub const RCV_WND: usize = 232;
    pub const TOTAL_RTO: usize = 240;
}

/// Nanoseconds per microsecond, the unit of most times in the struct.
const US: u64 = 1_000;
/// Nanoseconds per millisecond, the unit of the `last_` times.
const MS: u64 = 1_000_000;
/// Stands for a slow-start threshold that was never set.
const INFINITE_SSTHRESH: u64 = 0x7fff_ffff;

/// Decodes the struct, which sock_diag carries as well.
pub(crate) fn decode(bytes: &[u8]) -> TcpInfo {
    let one = |at: usize| bytes.get(at).copied();
    let two = |at: usize| Some(u64::from(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let four = |at: usize| Some(u64::from(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?)));
    let eight = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let state = one(at::STATE).map(State::of);
    if state == Some(State::Listen) {
        // For a listening socket the kernel fills nothing else, and reuses two fields.
        let (accept_queue_connections, accept_backlog_connections) = (four(at::UNACKED), four(at::SACKED));
        return TcpInfo { state, accept_queue_connections, accept_backlog_connections, ..TcpInfo::default() };
    }
    // Before the first sample the RTT is zero, and the minimum has all bits set.
    let sampled = |us: Option<u64>| us.filter(|us| *us != 0).map(|us| us * US);
    let min_rtt_us = four(at::MIN_RTT).filter(|us| *us != u64::from(u32::MAX));
    // Both scales are zero where the peers did not agree on scaling (TCPI_OPT_WSCALE).
    let scales = one(at::WINDOW_SCALES).map(scales);
    TcpInfo {
        state,
        congestion_state: one(at::CA_STATE).and_then(congestion_state),
        rtt_ns: sampled(four(at::RTT)),
        rttvar_ns: four(at::RTTVAR).filter(|_| four(at::RTT) != Some(0)).map(|us| us * US),
        min_rtt_ns: min_rtt_us.map(|us| us * US),
        receive_rtt_ns: sampled(four(at::RCV_RTT)),
        rto_ns: four(at::RTO).map(|us| us * US),
        ato_ns: four(at::ATO).map(|us| us * US),
        send_mss_bytes: four(at::SND_MSS),
        receive_mss_bytes: four(at::RCV_MSS),
        advertised_mss_bytes: four(at::ADVMSS),
        send_window_scale: scales.map(|scales| scales[0]),
        receive_window_scale: scales.map(|scales| scales[1]),
        timestamps: one(at::OPTIONS).map(|options| options & TIMESTAMPS != 0),
        path_mtu_bytes: four(at::PMTU),
        cwnd_segments: four(at::SND_CWND),
        ssthresh_segments: four(at::SND_SSTHRESH).filter(|segments| *segments < INFINITE_SSTHRESH),
        unacked_segments: four(at::UNACKED),
        sacked_segments: four(at::SACKED),
        lost_segments: four(at::LOST),
        retransmitting_segments: four(at::RETRANS),
        unanswered_timeouts: one(at::RETRANSMITS).map(u64::from),
        unanswered_probes: one(at::PROBES).map(u64::from),
        retransmitted_segments: four(at::TOTAL_RETRANS),
        retransmitted_bytes: eight(at::BYTES_RETRANS),
        duplicate_segments: four(at::DSACK_DUPS),
        timeouts: two(at::TOTAL_RTO),
        reordering_segments: four(at::REORDERING),
        reordering_seen: four(at::REORD_SEEN),
        out_of_order_segments: four(at::RCV_OOOPACK),
        notsent_bytes: four(at::NOTSENT_BYTES),
        send_window_bytes: four(at::SND_WND),
        receive_window_bytes: four(at::RCV_WND),
        receive_space_bytes: four(at::RCV_SPACE),
        last_sent_ns: four(at::LAST_DATA_SENT).map(|ms| ms * MS),
        last_received_ns: four(at::LAST_DATA_RECV).map(|ms| ms * MS),
        last_ack_received_ns: four(at::LAST_ACK_RECV).map(|ms| ms * MS),
        busy_ns: eight(at::BUSY_TIME).map(|us| us.saturating_mul(US)),
        receive_window_limited_ns: eight(at::RWND_LIMITED).map(|us| us.saturating_mul(US)),
        send_buffer_limited_ns: eight(at::SNDBUF_LIMITED).map(|us| us.saturating_mul(US)),
        delivery_rate_bytes_per_s: eight(at::DELIVERY_RATE),
        delivery_rate_app_limited: one(at::APP_LIMITED).map(app_limited),
        pacing_rate_bytes_per_s: eight(at::PACING_RATE).filter(|rate| *rate != u64::MAX),
        sent_bytes: eight(at::BYTES_SENT),
        acked_bytes: eight(at::BYTES_ACKED),
        received_bytes: eight(at::BYTES_RECEIVED),
        sent_segments: four(at::SEGS_OUT),
        received_segments: four(at::SEGS_IN),
        sent_data_segments: four(at::DATA_SEGS_OUT),
        received_data_segments: four(at::DATA_SEGS_IN),
        delivered_segments: four(at::DELIVERED),
        delivered_ce_segments: four(at::DELIVERED_CE),
        accept_queue_connections: None,
        accept_backlog_connections: None,
    }
}

/// TCPI_OPT_TIMESTAMPS.
const TIMESTAMPS: u8 = 1;

/// Two bit fields: the scale announced by the peer, and the one announced to it.
fn scales(byte: u8) -> [u64; 2] {
    let halves = [u64::from(byte & 0x0f), u64::from(byte >> 4)];
    if cfg!(target_endian = "little") { halves } else { [halves[1], halves[0]] }
}

/// A bit field: the first bit of the byte in the machine's byte order.
fn app_limited(byte: u8) -> bool {
    byte & if cfg!(target_endian = "little") { 0x01 } else { 0x80 } != 0
}

fn congestion_state(number: u8) -> Option<&'static str> {
    ["open", "disorder", "cwr", "recovery", "loss"].get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::tcp_info;
    use proptest::prelude::*;
    use std::mem::{offset_of, size_of};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_has_a_round_trip_and_nothing_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let info = of(&stream).unwrap();
        let (rtt_ns, min_rtt_ns) = (info.rtt_ns.unwrap(), info.min_rtt_ns.unwrap());
        assert!(min_rtt_ns <= rtt_ns, "{info:?}");
        assert_eq!((info.state, info.retransmitted_segments), (Some(State::Established), Some(0)));
        // Over loopback both ends have equal settings.
        assert_eq!(info.send_window_scale, info.receive_window_scale);
        assert!(info.receive_window_scale.is_some_and(|scale| scale <= 14), "{info:?}");
        assert!(info.advertised_mss_bytes >= info.send_mss_bytes, "{info:?}");
        let listening = of(&listener).unwrap();
        assert_eq!((listening.state, listening.accept_queue_connections), (Some(State::Listen), Some(1)));
        assert_eq!(of(std::fs::File::open("/proc/self/stat").unwrap()), None, "a file is no socket");
    }

    #[test]
    fn offsets_are_those_of_the_c_library_as_far_as_it_knows_the_struct() {
        assert_eq!(at::RTO, offset_of!(tcp_info, tcpi_rto));
        assert_eq!(at::LAST_DATA_RECV, offset_of!(tcp_info, tcpi_last_data_recv));
        assert_eq!(at::SND_CWND, offset_of!(tcp_info, tcpi_snd_cwnd));
        assert_eq!(at::ADVMSS, offset_of!(tcp_info, tcpi_advmss));
        assert_eq!(at::TOTAL_RETRANS, offset_of!(tcp_info, tcpi_total_retrans));
        assert_eq!(at::BYTES_RECEIVED, offset_of!(tcp_info, tcpi_bytes_received));
        assert_eq!(at::NOTSENT_BYTES, offset_of!(tcp_info, tcpi_notsent_bytes));
        assert_eq!(at::MIN_RTT, offset_of!(tcp_info, tcpi_min_rtt));
        assert_eq!(at::DATA_SEGS_OUT, offset_of!(tcp_info, tcpi_data_segs_out));
        assert_eq!(at::SNDBUF_LIMITED, offset_of!(tcp_info, tcpi_sndbuf_limited));
        assert_eq!(at::BYTES_RETRANS, offset_of!(tcp_info, tcpi_bytes_retrans));
        assert_eq!(at::SND_WND, offset_of!(tcp_info, tcpi_snd_wnd));
        assert_eq!(at::RCV_WND, offset_of!(tcp_info, tcpi_rcv_wnd));
        assert_eq!(at::TOTAL_RTO, offset_of!(tcp_info, tcpi_total_rto));
        assert!(ROOM > size_of::<tcp_info>());
    }

    #[test]
    fn fields_missing_in_older_kernels_are_unknown() {
        let mut bytes = [0u8; ROOM];
        bytes[at::RTT] = 7;
        bytes[at::TOTAL_RETRANS] = 2;
        bytes[at::MIN_RTT] = 5;
        let whole = decode(&bytes);
        assert_eq!(whole.rtt_ns, Some(7_000));
        assert_eq!((whole.min_rtt_ns, whole.retransmitted_segments), (Some(5_000), Some(2)));
        assert_eq!(whole.receive_window_bytes, Some(0));
        let older = decode(&bytes[..at::MIN_RTT + 3]);
        assert_eq!((older.rtt_ns, older.retransmitted_segments), (Some(7_000), Some(2)));
        assert_eq!((older.min_rtt_ns, older.busy_ns, older.receive_window_bytes), (None, None, None));
        assert_eq!(decode(&[]), TcpInfo::default());
    }

    #[test]
    fn a_connection_without_a_sample_has_no_round_trip() {
        let mut bytes = [0u8; ROOM];
        bytes[at::MIN_RTT..at::MIN_RTT + 4].fill(0xff);
        let info = decode(&bytes);
        assert_eq!((info.rtt_ns, info.rttvar_ns, info.min_rtt_ns), (None, None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_of_any_length_are_read(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            decode(&bytes);
        }
    }
}
