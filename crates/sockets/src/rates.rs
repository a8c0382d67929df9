//! Differences between two listings of the same sockets. Pure.

use crate::hints::is_held_back;
use crate::{Listing, Owner, State, TcpSocket};
use serde::Serialize;
use std::collections::HashMap;
use std::net::SocketAddr;

/// Differences between two listings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Time of the second listing, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// Time between them.
    pub elapsed_ns: u64,
    /// Sockets in both listings, most bytes first.
    pub sockets: Vec<SocketRates>,
    /// Sockets only in the second listing.
    pub opened: u64,
    /// Sockets only in the first listing.
    pub closed: u64,
}

/// One socket. Values that the kernel does not report are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SocketRates {
    pub inode: u64,
    /// Local address.
    pub local: SocketAddr,
    /// Peer address.
    pub peer: Option<SocketAddr>,
    /// State in the second listing.
    pub state: State,
    /// Processes that have it open.
    pub owners: Vec<Owner>,
    /// `TCP_NODELAY` in the second listing.
    pub nodelay: Option<bool>,
    /// Smoothed RTT in the second listing.
    pub rtt_ns: Option<u64>,
    /// Payload sent.
    pub sent_bytes_per_s: Option<f64>,
    /// Payload received.
    pub received_bytes_per_s: Option<f64>,
    pub sent_data_segments_per_s: Option<f64>,
    pub received_data_segments_per_s: Option<f64>,
    /// Mean payload of a segment sent.
    pub bytes_per_sent_segment: Option<f64>,
    pub retransmitted_segments: Option<u64>,
    /// Share of the time with data outstanding.
    pub busy_share: Option<f64>,
    /// Share of the time limited by the peer's window.
    pub receive_window_limited_share: Option<f64>,
    /// Share of the time limited by a full send buffer.
    pub send_buffer_limited_share: Option<f64>,
    /// Send queue in the second listing.
    pub send_queue_bytes: Option<u64>,
    /// Receive queue in the second listing.
    pub receive_queue_bytes: Option<u64>,
    /// Whether bytes waited in the second listing that only Nagle's algorithm held back.
    pub held_back: bool,
}

/// Compares two listings.
pub fn rates(before: &Listing, after: &Listing, time_unix_ns: u64, elapsed_ns: u64) -> Rates {
    let mut earlier: HashMap<u64, &TcpSocket> =
        before.sockets.iter().map(|socket| (socket.inode, socket)).collect();
    let mut opened = 0;
    let mut sockets = Vec::new();
    for socket in &after.sockets {
        match earlier.remove(&socket.inode) {
            Some(before) => sockets.push(between(before, socket, elapsed_ns)),
            None => opened += 1,
        }
    }
    let bytes = |socket: &SocketRates| {
        socket.sent_bytes_per_s.unwrap_or(0.0) + socket.received_bytes_per_s.unwrap_or(0.0)
    };
    sockets.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
    Rates { time_unix_ns, elapsed_ns, sockets, opened, closed: earlier.len() as u64 }
}

fn between(before: &TcpSocket, after: &TcpSocket, elapsed_ns: u64) -> SocketRates {
    let more = |of: fn(&TcpSocket) -> Option<u64>| of(after)?.checked_sub(of(before)?);
    let per_s = |of| more(of).filter(|_| elapsed_ns > 0).map(|count| count as f64 * 1e9 / elapsed_ns as f64);
    let share = |of| more(of).filter(|_| elapsed_ns > 0).map(|ns| ns as f64 / elapsed_ns as f64);
    let segments = more(|socket| socket.info.sent_data_segments).filter(|segments| *segments > 0);
    SocketRates {
        inode: after.inode,
        local: after.local,
        peer: after.peer,
        state: after.state,
        owners: after.owners.clone(),
        nodelay: after.nodelay,
        rtt_ns: after.info.rtt_ns,
        sent_bytes_per_s: per_s(|socket| socket.info.sent_bytes),
        received_bytes_per_s: per_s(|socket| socket.info.received_bytes),
        sent_data_segments_per_s: per_s(|socket| socket.info.sent_data_segments),
        received_data_segments_per_s: per_s(|socket| socket.info.received_data_segments),
        bytes_per_sent_segment: segments
            .and_then(|segments| Some(more(|socket| socket.info.sent_bytes)? as f64 / segments as f64)),
        retransmitted_segments: more(|socket| socket.info.retransmitted_segments),
        busy_share: share(|socket| socket.info.busy_ns),
        receive_window_limited_share: share(|socket| socket.info.receive_window_limited_ns),
        send_buffer_limited_share: share(|socket| socket.info.send_buffer_limited_ns),
        send_queue_bytes: after.send_queue_bytes,
        receive_queue_bytes: after.receive_queue_bytes,
        held_back: is_held_back(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, Source, TcpInfo};
    use proptest::prelude::*;

    fn socket(inode: u64, sent: Option<u64>, segments: u64, busy_ns: u64) -> TcpSocket {
        let info = TcpInfo {
            sent_bytes: sent,
            sent_data_segments: Some(segments),
            busy_ns: Some(busy_ns),
            ..TcpInfo::default()
        };
        TcpSocket {
            network_namespace: None,
            inode,
            family: Family::Ipv4,
            local: SocketAddr::from(([127, 0, 0, 1], 1)),
            peer: None,
            state: State::Established,
            accepted: None,
            owners: vec![],
            uid: None,
            source: Source::Descriptor,
            not_borrowed_because: None,
            nodelay: None,
            cork: None,
            quickack: None,
            quick_acks_left: None,
            congestion_control: None,
            send_queue_bytes: None,
            receive_queue_bytes: None,
            timer: None,
            timer_ns: None,
            info,
            peer_socket: None,
            open_undo: None,
        }
    }

    fn listing(sockets: Vec<TcpSocket>) -> Listing {
        Listing { sockets, ..Listing::default() }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let before =
            listing(vec![socket(1, Some(100), 1, 0), socket(2, Some(0), 0, 0), socket(3, None, 0, 0)]);
        let after = listing(vec![
            socket(2, Some(6_000), 4, 500_000_000),
            socket(3, None, 0, 0),
            socket(4, None, 0, 0),
        ]);
        let found = rates(&before, &after, 7, 2_000_000_000);
        assert_eq!((found.opened, found.closed, found.sockets.len()), (1, 1, 2));
        let [moved, unknown] = &found.sockets[..] else { panic!("{found:?}") };
        assert_eq!((moved.inode, moved.sent_bytes_per_s), (2, Some(3_000.0)));
        assert_eq!((moved.bytes_per_sent_segment, moved.busy_share), (Some(1_500.0), Some(0.25)));
        assert_eq!((unknown.sent_bytes_per_s, unknown.bytes_per_sent_segment), (None, None));
    }

    proptest! {
        #[test]
        fn nothing_is_divided_by_nothing(a: Option<u64>, b: Option<u64>, segments: u64, elapsed_ns in 0..3u64) {
            let (before, after) = (listing(vec![socket(1, a, 0, 0)]), listing(vec![socket(1, b, segments, 9)]));
            let found = rates(&before, &after, 0, elapsed_ns);
            let all = [found.sockets[0].sent_bytes_per_s, found.sockets[0].busy_share];
            prop_assert!(all.into_iter().flatten().all(f64::is_finite));
        }
    }
}
