//! Hints that follow from socket values alone. Pure.

use crate::socket::TcpSocket;
use serde::Serialize;
use spangap_machine::facts::net_tcp::State;
use spangap_model::Cause;
use spangap_model::duration::format_ns;
use spangap_report::figures::{counted, percent, small_percent};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// What the values of some sockets suggest, in a sentence that names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    pub kind: HintKind,
    /// Sockets concerned.
    pub inodes: Vec<u64>,
    /// Description.
    pub text: String,
}

/// What it suggests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HintKind {
    /// Bytes wait behind an unacknowledged segment, although both windows have room.
    HeldBack,
    /// An RTT that the peer of the same connection does not have.
    NagleAgainstDelayedAck,
    /// No TCP_NODELAY, and small segments.
    NodelayOffSmallMessages,
    /// TCP_CORK.
    Corked,
    /// The peer's window was closed for a considerable share of the time.
    ReceiveWindowLimited,
    /// The send buffer was full for a considerable share of the time.
    SendBufferLimited,
    /// Retransmitted segments.
    Retransmits,
    /// One of several connections to a peer carries nearly all traffic.
    SharedConnection,
    /// A listening socket with a full accept queue.
    AcceptQueueFull,
}

/// Connections of one process to one peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerGroup {
    /// The first process that owns them.
    pub pid: Option<u32>,
    /// Remote port, or the local port if the connections were accepted.
    pub port: u16,
    /// Whether this host accepted them.
    pub accepted: bool,
    pub peer: IpAddr,
    pub connections: u64,
    /// Total payload sent.
    pub sent_bytes: u64,
    /// Total payload received.
    pub received_bytes: u64,
    /// Share of the total payload on the busiest connection.
    pub largest_share: Option<f64>,
    /// The busiest connection.
    pub busiest_inode: u64,
}

/// Minimum number of segments for a mean size.
const ENOUGH_SEGMENTS: u64 = 20;
/// RTT caused by delayed ACKs, many times the minimum; the peer's RTT would be well below.
const HELD_RTT_NS: u64 = 5_000_000;
const HELD_OVER_SMALLEST: u64 = 50;
const HELD_OVER_PEER: u64 = 4;
/// Shares from which on they are worth a line.
const LIMITED_SHARE: f64 = 0.05;
const ENOUGH_BUSY_NS: u64 = 10_000_000;
const RETRANSMITTED_SHARE: f64 = 0.001;
const ONE_CARRIES_SHARE: f64 = 0.8;
const ENOUGH_BYTES: u64 = 10_000;
/// Maximum number of sockets named per line.
const NAMED: usize = 3;

/// All hints, the most evident first.
pub fn hints(sockets: &[TcpSocket]) -> Vec<Hint> {
    let mut found = Vec::new();
    let connected = || sockets.iter().filter(|socket| socket.state == State::Established);
    let mut add = |kind, sockets: Vec<&TcpSocket>, say: &dyn Fn(&[&TcpSocket]) -> String| {
        if !sockets.is_empty() {
            let inodes = sockets.iter().map(|socket| socket.inode).collect();
            found.push(Hint { kind, inodes, text: say(&sockets) });
        }
    };
    let held_back: Vec<_> = connected().filter(|socket| is_held_back(socket)).collect();
    add(HintKind::HeldBack, held_back, &held_back_text);
    let held: Vec<_> = connected().filter(|socket| is_held(socket)).collect();
    add(HintKind::NagleAgainstDelayedAck, held, &held_text);
    let small: Vec<_> = connected().filter(|socket| sends_little_at_once(socket)).collect();
    add(HintKind::NodelayOffSmallMessages, small, &small_text);
    let corked: Vec<_> = connected().filter(|socket| socket.cork == Some(true)).collect();
    add(HintKind::Corked, corked, &|sockets| {
        format!("TCP_CORK is set: less than a full segment is held back for up to 200 ms: {}", names(sockets))
    });
    let limited = |share: fn(&TcpSocket) -> Option<f64>| -> Vec<&TcpSocket> {
        let long = |socket: &&TcpSocket| socket.info.busy_ns.is_some_and(|busy| busy >= ENOUGH_BUSY_NS);
        let much = |socket: &&TcpSocket| share(socket).is_some_and(|share| share >= LIMITED_SHARE);
        connected().filter(long).filter(much).collect()
    };
    add(HintKind::ReceiveWindowLimited, limited(TcpSocket::receive_window_limited_share), &|sockets| {
        limited_text(
            sockets,
            TcpSocket::receive_window_limited_share,
            "the peer's receive window was closed: its application reads too slowly, or its buffer is small",
        )
    });
    add(HintKind::SendBufferLimited, limited(TcpSocket::send_buffer_limited_share), &|sockets| {
        limited_text(
            sockets,
            TcpSocket::send_buffer_limited_share,
            "the send buffer was full: a larger SO_SNDBUF (tcp_wmem) would let more be under way",
        )
    });
    let sent_again: Vec<_> = connected()
        .filter(|socket| again(socket).is_some_and(|share| share >= RETRANSMITTED_SHARE))
        .collect();
    add(HintKind::Retransmits, sent_again, &retransmits_text);
    let full: Vec<_> = sockets.iter().filter(|socket| has_full_queue(socket)).collect();
    add(HintKind::AcceptQueueFull, full, &|sockets| {
        let first = sockets[0];
        let [waiting, room] = [first.info.accept_queue_connections, first.info.accept_backlog_connections]
            .map(Option::unwrap_or_default);
        format!(
            "the accept queue of {} is full ({waiting} of {room}): new connections are dropped, and retried after 1 \
             s",
            first.local
        )
    });
    for group in groups(sockets) {
        let Some(share) = group.largest_share else { continue };
        let enough = group.sent_bytes + group.received_bytes >= ENOUGH_BYTES;
        if group.connections > 1 && share >= ONE_CARRIES_SHARE && enough {
            let text = format!(
                "1 of {} connections {} carries {} of the bytes: channels share one connection?",
                group.connections,
                group.towards(),
                percent(share)
            );
            found.push(Hint { kind: HintKind::SharedConnection, inodes: vec![group.busiest_inode], text });
        }
    }
    found
}

impl PeerGroup {
    /// Description of the connections.
    pub fn towards(&self) -> String {
        if self.accepted {
            format!("from {} to port {}", self.peer, self.port)
        } else {
            format!("to {}", SocketAddr::new(self.peer, self.port))
        }
    }
}

/// Connections by process and peer, most bytes first.
pub fn groups(sockets: &[TcpSocket]) -> Vec<PeerGroup> {
    let mut groups: BTreeMap<_, Vec<&TcpSocket>> = BTreeMap::new();
    for socket in sockets.iter().filter(|socket| socket.state == State::Established) {
        let Some(peer) = socket.peer else { continue };
        let accepted = socket.accepted == Some(true);
        let port = if accepted { socket.local.port() } else { peer.port() };
        let pid = socket.owners.first().map(|owner| owner.pid);
        groups.entry((pid, accepted, peer.ip(), port)).or_default().push(socket);
    }
    let group = |((pid, accepted, peer, port), sockets): (_, Vec<&TcpSocket>)| {
        let sum = |of: fn(&TcpSocket) -> Option<u64>| sockets.iter().filter_map(|socket| of(socket)).sum();
        let (sent_bytes, received_bytes): (u64, u64) =
            (sum(|socket| socket.info.sent_bytes), sum(|socket| socket.info.received_bytes));
        let busiest = sockets.iter().max_by_key(|socket| carried(socket)).expect("a group has a socket");
        let all = sent_bytes + received_bytes;
        PeerGroup {
            pid,
            port,
            accepted,
            peer,
            connections: sockets.len() as u64,
            sent_bytes,
            received_bytes,
            largest_share: (all > 0).then(|| carried(busiest) as f64 / all as f64),
            busiest_inode: busiest.inode,
        }
    };
    let mut groups: Vec<PeerGroup> = groups.into_iter().map(group).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.sent_bytes + group.received_bytes));
    groups
}

fn carried(socket: &TcpSocket) -> u64 {
    socket.info.sent_bytes.unwrap_or(0) + socket.info.received_bytes.unwrap_or(0)
}

/// A partial segment remains unsent while another is in flight, and nothing else holds it back: the effect of
/// Nagle's algorithm.
pub(crate) fn is_held_back(socket: &TcpSocket) -> bool {
    let info = &socket.info;
    let (Some(notsent), Some(unacked), Some(cwnd), Some(mss)) =
        (info.notsent_bytes, info.unacked_segments, info.cwnd_segments, info.send_mss_bytes)
    else {
        return false;
    };
    let in_flight = socket.send_queue_bytes.unwrap_or(0).saturating_sub(notsent);
    let window_has_room = info.send_window_bytes.is_none_or(|window| in_flight + notsent <= window);
    let recovers = info.congestion_state != Some("open") || info.unanswered_timeouts != Some(0);
    socket.nodelay == Some(false)
        && socket.cork == Some(false)
        && (1..mss).contains(&notsent)
        && (1..cwnd).contains(&unacked)
        && window_has_room
        && !recovers
}

fn held_back_text(sockets: &[&TcpSocket]) -> String {
    let first = &sockets[0].info;
    format!(
        "{} held back by Nagle's algorithm right now: {} bytes wait for the ACK of {}, though the windows have room \
         and TCP_NODELAY would send them; {}: {}",
        counted(sockets.len(), "connection"),
        first.notsent_bytes.unwrap_or(0),
        counted(first.unacked_segments.unwrap_or(0), "segment"),
        try_it(sockets),
        names(sockets)
    )
}

fn try_it(sockets: &[&TcpSocket]) -> String {
    let pid = sockets[0].owners.first().map_or(0, |owner| owner.pid);
    format!("`spangap sockets set --pid {pid} nodelay=on --for 30s` tries what it changes")
}

/// Its own segments are acknowledged late, those of the peer early: the signature of Nagle's algorithm waiting
/// for delayed ACKs.
fn is_held(socket: &TcpSocket) -> bool {
    let (Some(rtt), Some(peer)) = (socket.info.rtt_ns, &socket.peer_socket) else { return false };
    sends_little_at_once(socket)
        && rtt >= HELD_RTT_NS
        && socket.info.min_rtt_ns.is_some_and(|least| least.saturating_mul(HELD_OVER_SMALLEST) <= rtt)
        && peer.rtt_ns.is_some_and(|peer_rtt| peer_rtt.saturating_mul(HELD_OVER_PEER) <= rtt)
}

fn held_text(sockets: &[&TcpSocket]) -> String {
    let first = sockets[0];
    let peer = first.peer_socket.as_ref().and_then(|peer| peer.rtt_ns);
    let [rtt, least, peer] =
        [first.info.rtt_ns, first.info.min_rtt_ns, peer].map(|ns| format_ns(ns.unwrap_or(0)));
    format!(
        "{} without TCP_NODELAY whose segments are acknowledged late: rtt {rtt}, at best {least}, and {peer} at the \
         other end of the same connection: Nagle's algorithm waits for delayed ACKs, or the other end takes so long \
         to answer; {}: {}",
        counted(sockets.len(), "connection"),
        try_it(sockets),
        names(sockets)
    )
}

fn mean_segment(socket: &TcpSocket) -> Option<u64> {
    let segments = socket.info.sent_data_segments.filter(|segments| *segments >= ENOUGH_SEGMENTS)?;
    Some(socket.info.sent_bytes? / segments)
}

fn sends_little_at_once(socket: &TcpSocket) -> bool {
    let (Some(mean), Some(mss)) = (mean_segment(socket), socket.info.send_mss_bytes) else { return false };
    socket.nodelay == Some(false) && mean < mss / 2
}

fn small_text(sockets: &[&TcpSocket]) -> String {
    let sizes = || sockets.iter().filter_map(|socket| mean_segment(socket));
    let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let size = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    format!(
        "{} without TCP_NODELAY whose segments carry {size} bytes on average (segment size {}): a message written \
         in two pieces waits for an ACK between them: {}",
        counted(sockets.len(), "connection"),
        sockets[0].info.send_mss_bytes.unwrap_or(0),
        names(sockets)
    )
}

fn limited_text(sockets: &[&TcpSocket], share: fn(&TcpSocket) -> Option<f64>, why: &str) -> String {
    let worst = sockets.iter().filter_map(|socket| share(socket)).fold(0.0, f64::max);
    format!(
        "{} for up to {} of the time with data to send {why}: {}",
        counted(sockets.len(), "connection"),
        percent(worst),
        names(sockets)
    )
}

fn again(socket: &TcpSocket) -> Option<f64> {
    let sent = socket.info.sent_data_segments.filter(|sent| *sent > 0)?;
    Some(socket.info.retransmitted_segments? as f64 / sent as f64)
}

/// Possible causes of the kernel's retransmissions, according to its counters.
pub(crate) fn retransmitted_by(socket: &TcpSocket) -> &'static [Cause] {
    match socket.info.timeouts {
        Some(1..) => &[Cause::Rto],
        // Triggered by ACKs or by a probe: the counters do not distinguish these.
        _ => &[Cause::FastRetransmit, Cause::TailLoss],
    }
}

fn retransmits_text(sockets: &[&TcpSocket]) -> String {
    let sum = |of: fn(&TcpSocket) -> Option<u64>| sockets.iter().filter_map(|socket| of(socket)).sum::<u64>();
    let again = sum(|socket| socket.info.retransmitted_segments);
    let sent = sum(|socket| socket.info.sent_data_segments);
    let timeouts = sum(|socket| socket.info.timeouts);
    let timeouts =
        if timeouts > 0 { format!(", {} among them", counted(timeouts, "timeout")) } else { String::new() };
    format!(
        "{} retransmitted {again} of {sent} data segments ({}){timeouts}: {}",
        counted(sockets.len(), "connection"),
        small_percent(again as f64 / sent.max(1) as f64),
        names(sockets)
    )
}

fn has_full_queue(socket: &TcpSocket) -> bool {
    let (waiting, room) = (socket.info.accept_queue_connections, socket.info.accept_backlog_connections);
    // The kernel admits one more than the backlog.
    matches!((waiting, room), (Some(waiting), Some(room)) if waiting > room)
}

fn names(sockets: &[&TcpSocket]) -> String {
    let name = |socket: &&TcpSocket| match socket.peer {
        Some(peer) => format!("{} -> {peer}", socket.local),
        None => socket.local.to_string(),
    };
    let mut text = sockets.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
    if sockets.len() > NAMED {
        text += &format!(" and {} more", sockets.len() - NAMED);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Owner, PeerSocket, Source};
    use crate::tcp_info::TcpInfo;
    use crate::{Asked, Listing};
    use spangap_machine::facts::net_tcp::Family;
    use spangap_model::evidence::{Missing, Proof, Scope};

    fn socket(inode: u64, info: TcpInfo) -> TcpSocket {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        TcpSocket {
            network_namespace: Some(1),
            inode,
            family: Family::Ipv4,
            local: end(40_000 + inode as u16),
            peer: Some(end(50_051)),
            state: State::Established,
            accepted: Some(false),
            owners: vec![Owner { pid: 812, comm: "client".into(), fds: vec![inode as i32] }],
            uid: Some(0),
            source: Source::Descriptor,
            not_borrowed_because: None,
            nodelay: Some(false),
            cork: Some(false),
            quickack: Some(true),
            quick_acks_left: Some(0),
            congestion_control: Some("cubic".into()),
            send_queue_bytes: Some(0),
            receive_queue_bytes: Some(0),
            timer: None,
            timer_ns: None,
            info,
            peer_socket: None,
            open_undo: None,
        }
    }

    fn quiet() -> TcpInfo {
        TcpInfo {
            congestion_state: Some("open"),
            rtt_ns: Some(100_000),
            min_rtt_ns: Some(20_000),
            send_mss_bytes: Some(1448),
            cwnd_segments: Some(10),
            unacked_segments: Some(0),
            unanswered_timeouts: Some(0),
            notsent_bytes: Some(0),
            send_window_bytes: Some(65_536),
            sent_data_segments: Some(0),
            retransmitted_segments: Some(0),
            sent_bytes: Some(0),
            received_bytes: Some(0),
            busy_ns: Some(0),
            receive_window_limited_ns: Some(0),
            send_buffer_limited_ns: Some(0),
            ..TcpInfo::default()
        }
    }

    fn kinds(sockets: &[TcpSocket]) -> Vec<HintKind> {
        hints(sockets).into_iter().map(|hint| hint.kind).collect()
    }

    #[test]
    fn idle_and_unknown_connections_have_no_hints() {
        assert_eq!(kinds(&[socket(1, quiet()), socket(2, TcpInfo::default())]), []);
    }

    #[test]
    fn bytes_behind_an_unacknowledged_segment_are_held_back_unless_something_else_holds_them() {
        let held = TcpInfo { notsent_bytes: Some(23), unacked_segments: Some(1), ..quiet() };
        let made = |info, nodelay| TcpSocket { send_queue_bytes: Some(59), nodelay, ..socket(1, info) };
        assert_eq!(kinds(&[made(held, Some(false))]), [HintKind::HeldBack]);
        assert_eq!(kinds(&[made(held, Some(true))]), []);
        assert_eq!(kinds(&[made(held, None)]), []);
        for otherwise in [
            TcpInfo { notsent_bytes: Some(1448), ..held },
            TcpInfo { unacked_segments: Some(0), ..held },
            TcpInfo { unacked_segments: Some(10), ..held },
            TcpInfo { send_window_bytes: Some(40), ..held },
            TcpInfo { congestion_state: Some("loss"), ..held },
            TcpInfo { unanswered_timeouts: Some(1), ..held },
        ] {
            assert_eq!(kinds(&[made(otherwise, Some(false))]), [], "{otherwise:?}");
        }
    }

    #[test]
    fn late_acks_count_if_the_peers_are_early() {
        let late = TcpInfo {
            rtt_ns: Some(20_000_000),
            sent_data_segments: Some(100),
            sent_bytes: Some(3_000),
            ..quiet()
        };
        let with = |peer_rtt_ns| {
            let peer = PeerSocket { inode: 9, owners: vec![], nodelay: Some(true), rtt_ns: peer_rtt_ns };
            TcpSocket { peer_socket: Some(peer), ..socket(1, late) }
        };
        let small = HintKind::NodelayOffSmallMessages;
        assert_eq!(kinds(&[with(Some(80_000))]), [HintKind::NagleAgainstDelayedAck, small]);
        assert_eq!(kinds(&[with(Some(15_000_000))]), [small]);
        assert_eq!(kinds(&[with(None)]), [small]);
        let text = &hints(&[with(Some(80_000))])[0].text;
        assert!(text.contains("--pid 812") && text.contains("20.0 ms") && text.contains("80.0 us"), "{text}");
    }

    #[test]
    fn shares_and_losses_have_thresholds() {
        let busy = TcpInfo { busy_ns: Some(1_000_000_000), ..quiet() };
        let limited = TcpInfo { receive_window_limited_ns: Some(400_000_000), ..busy };
        let found = hints(&[socket(1, limited), socket(2, busy)]);
        assert_eq!(
            (found.len(), found[0].kind, &found[0].inodes),
            (1, HintKind::ReceiveWindowLimited, &vec![1])
        );
        assert!(found[0].text.contains("40 %"), "{}", found[0].text);
        let buffer = TcpInfo { send_buffer_limited_ns: Some(60_000_000), ..busy };
        assert_eq!(kinds(&[socket(1, buffer)]), [HintKind::SendBufferLimited]);
        let lossy = TcpInfo {
            sent_data_segments: Some(1_000),
            sent_bytes: Some(1_448_000),
            retransmitted_segments: Some(3),
            timeouts: Some(1),
            ..quiet()
        };
        let found = hints(&[socket(1, lossy)]);
        assert_eq!(found[0].kind, HintKind::Retransmits);
        assert!(
            found[0].text.contains("3 of 1000") && found[0].text.contains("1 timeout"),
            "{}",
            found[0].text
        );
    }

    #[test]
    fn the_busiest_of_several_connections_is_named_by_its_share() {
        let of = |inode, bytes| socket(inode, TcpInfo { sent_bytes: Some(bytes), ..quiet() });
        let sockets = [of(1, 97_000), of(2, 1_000), of(3, 1_000), of(4, 1_000)];
        let found = hints(&sockets);
        assert_eq!((found.len(), found[0].kind, &found[0].inodes), (1, HintKind::SharedConnection, &vec![1]));
        assert!(
            found[0].text.starts_with("1 of 4 connections to 10.0.0.1:50051 carries 97 %"),
            "{}",
            found[0].text
        );
        assert_eq!(kinds(&[of(1, 50_000), of(2, 50_000)]), []);
        assert_eq!(kinds(&[of(1, 97_000)]), []);
        let [group] = &groups(&sockets)[..] else { panic!("one peer") };
        assert_eq!((group.connections, group.sent_bytes, group.busiest_inode), (4, 100_000, 1));
    }

    #[test]
    fn full_accept_queue_is_reported_and_a_used_one_is_not() {
        let listening = |waiting| {
            let queue = (Some(waiting), Some(128));
            let info = TcpInfo {
                accept_queue_connections: queue.0,
                accept_backlog_connections: queue.1,
                ..TcpInfo::default()
            };
            TcpSocket { state: State::Listen, peer: None, accepted: None, nodelay: None, ..socket(1, info) }
        };
        assert_eq!(kinds(&[listening(129)]), [HintKind::AcceptQueueFull]);
        assert_eq!(kinds(&[listening(128)]), []);
    }

    #[test]
    fn each_socket_that_hints_at_a_cause_is_a_finding_of_its_connection() {
        let small = TcpInfo { sent_data_segments: Some(100), sent_bytes: Some(3_000), ..quiet() };
        let busy = TcpInfo { busy_ns: Some(1_000_000_000), ..quiet() };
        let limited = TcpInfo { receive_window_limited_ns: Some(400_000_000), ..busy };
        let buffer = TcpInfo { send_buffer_limited_ns: Some(60_000_000), ..busy };
        let lossy = |timeouts| TcpInfo {
            sent_data_segments: Some(1_000),
            sent_bytes: Some(1_448_000),
            retransmitted_segments: Some(3),
            timeouts: Some(timeouts),
            ..quiet()
        };
        let full = TcpInfo {
            accept_queue_connections: Some(129),
            accept_backlog_connections: Some(128),
            ..TcpInfo::default()
        };
        let sockets = vec![
            socket(1, small),
            TcpSocket { accepted: Some(true), ..socket(2, limited) },
            TcpSocket { accepted: None, nodelay: None, ..socket(3, lossy(1)) },
            socket(4, lossy(0)),
            socket(5, buffer),
            socket(6, quiet()),
            TcpSocket { state: State::Listen, peer: None, accepted: None, ..socket(7, full) },
        ];
        let hints = hints(&sockets);
        let listing = Listing { sockets, vanished: 2, ..Listing::default() };
        let testimony =
            crate::evidence(5_000, &Asked { pids: vec![812], ..Asked::default() }, &listing, &hints);
        let found: BTreeMap<String, (Missing, &Scope)> = testimony
            .findings
            .iter()
            .map(|finding| {
                (finding.culprit.to_string(), (finding.certainty.missing().unwrap(), &finding.scope))
            })
            .collect();
        let ends = |local: u32, accepted| {
            let (local, peer) = (format!("10.0.0.1:{}", 40_000 + local), "10.0.0.1:50051".to_owned());
            let (client, server) = if accepted { (peer, local) } else { (local, peer) };
            Scope::Connection { client, server }
        };
        let owner = Scope::Process { pid: 812, name: "client".into() };
        let expected = [
            // The listening socket has no peer, so the side is that of its process.
            ("accept-overflow (server)", (Missing::ListenCounters, &owner)),
            ("fast-retransmit (client)", (Missing::MetByCalls, &ends(4, false))),
            ("nagle-delayed-ack (client)", (Missing::SocketOption, &ends(1, false))),
            // A server's segments held up by the client's window.
            ("receive-window (client)", (Missing::MetByCalls, &ends(2, true))),
            // It is unknown which side opened this connection.
            ("rto", (Missing::MetByCalls, &owner)),
            ("tail-loss (client)", (Missing::MetByCalls, &ends(4, false))),
        ];
        assert_eq!(found, expected.map(|(name, told)| (name.to_owned(), told)).into());
        let nagle = &testimony.findings[0].proofs[0];
        let place = "nodelay of 10.0.0.1:40001 -> 10.0.0.1:50051".to_owned();
        assert_eq!(*nagle, Proof::Value { place, value: "false".into() });
        let [coverage] = testimony.coverage.as_slice() else { panic!("one look") };
        assert_eq!((coverage.seen, coverage.lost), (7, 2));
        assert_eq!(coverage.cannot, ["TCP_NODELAY of 1 of 6 connections is hidden."]);
    }
}
