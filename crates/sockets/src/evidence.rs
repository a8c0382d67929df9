//! Socket values as evidence.
//!
//! A socket's counters run since its connection was opened, and its queued bytes may be on their way: so
//! nothing here is more than possible, and each finding says what would prove it.

use crate::hints::retransmitted_by;
use crate::{Asked, Hint, HintKind, Listing, TcpSocket};
use spangap_machine::facts::net_tcp::State;
use spangap_model::evidence::{
    Certainty, Coverage, Finding, Instrument, Interval, Missing, Proof, Scope, Testimony,
};
use spangap_model::{Cause, Culprit, Side};
use std::collections::BTreeMap;

/// Findings from the sockets at this time.
pub fn evidence(time_unix_ns: u64, asked: &Asked, listing: &Listing, hints: &[Hint]) -> Testimony {
    let sockets: BTreeMap<u64, &TcpSocket> =
        listing.sockets.iter().map(|socket| (socket.inode, socket)).collect();
    let now = i64::try_from(time_unix_ns).unwrap_or(i64::MAX);
    let when = Some(Interval { from_unix_ns: now, to_unix_ns: now });
    let shown = hints.iter().flat_map(|hint| hint.inodes.iter().map(move |inode| (hint.kind, inode)));
    let of_socket = shown.filter_map(|(kind, inode)| Some((kind, *sockets.get(inode)?)));
    let findings = of_socket.flat_map(|(kind, socket)| {
        causes(kind, socket).iter().map(move |cause| finding(kind, *cause, socket, when))
    });
    let coverage = Coverage {
        instrument: Instrument::Sockets,
        source: source(asked),
        side: None,
        when,
        seen: listing.sockets.len() as u64,
        lost: listing.vanished,
        cannot: cannot(listing),
    };
    Testimony::new(coverage, findings.collect())
}

/// Causes that a hint may indicate. A sender slowed down through nobody's fault has none.
fn causes(kind: HintKind, socket: &TcpSocket) -> &'static [Cause] {
    match kind {
        HintKind::HeldBack | HintKind::NagleAgainstDelayedAck | HintKind::NodelayOffSmallMessages => {
            &[Cause::NagleDelayedAck]
        }
        HintKind::ReceiveWindowLimited => &[Cause::ReceiveWindow],
        HintKind::Retransmits => retransmitted_by(socket),
        HintKind::SharedConnection => &[Cause::SharedConnection],
        HintKind::AcceptQueueFull => &[Cause::AcceptOverflow],
        HintKind::Corked | HintKind::SendBufferLimited => &[],
    }
}

fn missing(kind: HintKind) -> Missing {
    match kind {
        HintKind::NagleAgainstDelayedAck | HintKind::NodelayOffSmallMessages => Missing::SocketOption,
        HintKind::AcceptQueueFull => Missing::ListenCounters,
        HintKind::HeldBack
        | HintKind::ReceiveWindowLimited
        | HintKind::Retransmits
        | HintKind::SharedConnection
        | HintKind::Corked
        | HintKind::SendBufferLimited => Missing::MetByCalls,
    }
}

fn finding(kind: HintKind, cause: Cause, socket: &TcpSocket, when: Option<Interval>) -> Finding {
    let own = own_side(socket);
    let side = match kind {
        // The peer's window: its application reads late.
        HintKind::ReceiveWindowLimited => own.map(Side::other),
        HintKind::AcceptQueueFull => Some(Side::Server),
        HintKind::SharedConnection => None,
        _ => own,
    };
    Finding {
        hop: None,
        culprit: Culprit { cause, side },
        certainty: Certainty::Possible(missing(kind)),
        instrument: Instrument::Sockets,
        scope: scope(socket, own),
        when,
        cost_ns: None,
        note: String::new(),
        proofs: proofs(kind, socket),
    }
}

/// Side of the connection that this socket is on; `None` if it is unknown which side opened it.
fn own_side(socket: &TcpSocket) -> Option<Side> {
    if socket.state == State::Listen {
        return Some(Side::Server);
    }
    socket.accepted.map(|accepted| if accepted { Side::Server } else { Side::Client })
}

fn scope(socket: &TcpSocket, own: Option<Side>) -> Scope {
    let local = socket.local.to_string();
    match (own, socket.peer, socket.owners.first()) {
        (Some(Side::Client), Some(peer), _) => Scope::Connection { client: local, server: peer.to_string() },
        (Some(Side::Server), Some(peer), _) => Scope::Connection { client: peer.to_string(), server: local },
        (_, _, Some(owner)) => Scope::Process { pid: owner.pid, name: owner.comm.clone() },
        _ => Scope::Host,
    }
}

/// Values that a hint rests on, by their keys in the JSON document.
fn proofs(kind: HintKind, socket: &TcpSocket) -> Vec<Proof> {
    let info = &socket.info;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let nodelay = ("nodelay", socket.nodelay.map(|on| on.to_string()));
    let mss = ("send_mss_bytes", number(info.send_mss_bytes));
    let sent = ("sent_bytes", number(info.sent_bytes));
    let segments = ("sent_data_segments", number(info.sent_data_segments));
    let values = match kind {
        HintKind::HeldBack => vec![
            nodelay,
            ("notsent_bytes", number(info.notsent_bytes)),
            ("unacked_segments", number(info.unacked_segments)),
            mss,
        ],
        HintKind::NagleAgainstDelayedAck => {
            let peer = socket.peer_socket.as_ref().and_then(|peer| peer.rtt_ns);
            vec![
                nodelay,
                ("rtt_ns", number(info.rtt_ns)),
                ("min_rtt_ns", number(info.min_rtt_ns)),
                ("peer_socket.rtt_ns", number(peer)),
            ]
        }
        HintKind::NodelayOffSmallMessages => vec![nodelay, sent, segments, mss],
        HintKind::ReceiveWindowLimited => vec![
            ("receive_window_limited_ns", number(info.receive_window_limited_ns)),
            ("busy_ns", number(info.busy_ns)),
        ],
        HintKind::Retransmits => vec![
            ("retransmitted_segments", number(info.retransmitted_segments)),
            segments,
            ("timeouts", number(info.timeouts)),
        ],
        HintKind::SharedConnection => vec![sent, ("received_bytes", number(info.received_bytes))],
        HintKind::AcceptQueueFull => vec![
            ("accept_queue_connections", number(info.accept_queue_connections)),
            ("accept_backlog_connections", number(info.accept_backlog_connections)),
        ],
        HintKind::Corked | HintKind::SendBufferLimited => Vec::new(),
    };
    let place = match socket.peer {
        Some(peer) => format!("{} -> {peer}", socket.local),
        None => socket.local.to_string(),
    };
    let known = values.into_iter().filter_map(|(key, value)| Some((key, value?)));
    known.map(|(key, value)| Proof::Value { place: format!("{key} of {place}"), value }).collect()
}

fn source(asked: &Asked) -> String {
    let pids: Vec<String> = asked.pids.iter().map(u32::to_string).collect();
    let of = if pids.is_empty() { "all processes".to_owned() } else { format!("pid {}", pids.join(", ")) };
    match asked.port {
        Some(port) => format!("TCP sockets of {of} with port {port}"),
        None => format!("TCP sockets of {of}"),
    }
}

fn cannot(listing: &Listing) -> Vec<String> {
    let connected = || listing.sockets.iter().filter(|socket| socket.state == State::Established);
    let count = |hidden: &dyn Fn(&TcpSocket) -> bool| connected().filter(|socket| hidden(socket)).count();
    let nodelay = count(&|socket| socket.nodelay.is_none());
    let info = count(&|socket| socket.info.rtt_ns.is_none());
    let of = connected().count();
    let mut cannot = Vec::new();
    if nodelay > 0 {
        cannot.push(format!("TCP_NODELAY of {nodelay} of {of} connections is hidden."));
    }
    if info > 0 {
        cannot.push(format!("The round trips, losses and limits of {info} of {of} connections are hidden."));
    }
    if listing.processes_not_seen > 0 {
        cannot.push(format!("The sockets of {} processes are hidden.", listing.processes_not_seen));
    }
    cannot.extend(
        listing.sock_diag_failed.as_ref().map(|why| format!("sock_diag was not to be asked: {why}.")),
    );
    cannot
}
