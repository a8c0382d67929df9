//! Tables of sockets.

use crate::State;
use crate::rates::{Rates, SocketRates};
use crate::report::ListReport;
use crate::socket::{Owner, Source, TcpSocket};
use serde_json::Value;
use spangap_model::duration::format_ns;
use spangap_report::figures::{bytes_in_memory, counted, percent};
use spangap_report::table::aligned;
use std::io::{self, Write};

const HEADING: [&str; 17] = [
    "OWNER", "LOCAL", "PEER", "STATE", "NODELAY", "RTT", "MIN", "RTO", "ATO", "CWND", "UNACKED", "NOTSENT",
    "SEND-Q", "RECV-Q", "RETRANS", "SENT", "RECEIVED",
];
/// The first columns are names, which are left-aligned.
const NAMES: usize = 5;

/// One row per socket, then the hints.
pub fn print_list(out: &mut impl Write, report: &ListReport) -> io::Result<()> {
    let mut rows: Vec<Vec<String>> = vec![HEADING.map(String::from).to_vec()];
    rows.extend(report.listing.sockets.iter().map(row));
    out.write_all(aligned(&rows, |column| column < NAMES).as_bytes())?;
    print_rest(out, report)
}

/// Every known value of every socket, one block each.
pub fn print_long(out: &mut impl Write, report: &ListReport) -> io::Result<()> {
    for socket in &report.listing.sockets {
        writeln!(out, "{}", title(socket))?;
        let Ok(Value::Object(values)) = serde_json::to_value(socket) else { continue };
        let shown = ["local", "peer", "state", "owners"];
        let known = values.iter().filter(|(key, value)| !value.is_null() && !shown.contains(&key.as_str()));
        let words =
            known.map(|(key, value)| match (key.strip_suffix("_ns"), value.as_u64(), value.as_str()) {
                (Some(name), Some(ns), _) => format!("{name} {}", format_ns(ns)),
                (_, _, Some(text)) => format!("{key} {text}"),
                _ => format!("{key} {value}"),
            });
        for line in words.collect::<Vec<_>>().chunks(4) {
            writeln!(out, "    {}", line.join(", "))?;
        }
    }
    print_rest(out, report)
}

const RATES: [&str; 16] = [
    "OWNER",
    "LOCAL",
    "PEER",
    "STATE",
    "NODELAY",
    "HELD",
    "RTT",
    "SENT/s",
    "RECEIVED/s",
    "SEGS OUT/s",
    "SEGS IN/s",
    "BYTES/SEG",
    "RETRANS",
    "BUSY",
    "RWND-LIM",
    "SNDBUF-LIM",
];

/// Differences between two listings, one row per active socket.
pub fn print_rates(out: &mut impl Write, rates: &Rates) -> io::Result<()> {
    let moved = |socket: &&SocketRates| {
        let counts =
            [socket.sent_data_segments_per_s, socket.received_data_segments_per_s, socket.busy_share];
        socket.held_back || counts.into_iter().flatten().any(|rate| rate > 0.0)
    };
    let moving: Vec<_> = rates.sockets.iter().filter(moved).collect();
    let mut rows: Vec<Vec<String>> = vec![RATES.map(String::from).to_vec()];
    rows.extend(moving.iter().map(|socket| rates_row(socket)));
    out.write_all(aligned(&rows, |column| column < 6).as_bytes())?;
    writeln!(
        out,
        "{} in {}, {} idle, {} opened, {} closed.\n",
        counted(rates.sockets.len(), "socket"),
        format_ns(rates.elapsed_ns),
        rates.sockets.len() - moving.len(),
        rates.opened,
        rates.closed
    )
}

fn rates_row(socket: &SocketRates) -> Vec<String> {
    let rate =
        |value: Option<f64>| value.map_or("-".to_owned(), |value| bytes_in_memory(value.round() as u64));
    let share = |value: Option<f64>| value.map_or("-".to_owned(), percent);
    let nodelay = socket.nodelay.map_or("?", |on| if on { "on" } else { "off" });
    let peer = socket.peer.map_or("-".to_owned(), |peer| peer.to_string());
    let mut cells = vec![owner_cell(&socket.owners), socket.local.to_string(), peer];
    cells.extend([socket.state.name(), nodelay, if socket.held_back { "now" } else { "" }].map(String::from));
    cells.push(socket.rtt_ns.map_or("-".to_owned(), format_ns));
    cells.extend([socket.sent_bytes_per_s, socket.received_bytes_per_s].map(rate));
    cells.extend([socket.sent_data_segments_per_s, socket.received_data_segments_per_s].map(rate));
    cells.push(rate(socket.bytes_per_sent_segment));
    cells.push(socket.retransmitted_segments.map_or("-".to_owned(), |count| count.to_string()));
    let limited = [socket.receive_window_limited_share, socket.send_buffer_limited_share];
    cells.push(share(socket.busy_share));
    cells.extend(limited.map(share));
    cells
}

fn title(socket: &TcpSocket) -> String {
    let peer = socket.peer.map_or(String::new(), |peer| format!(" -> {peer}"));
    format!("{}{peer} {} {}", socket.local, socket.state.name(), owners(socket))
}

fn print_rest(out: &mut impl Write, report: &ListReport) -> io::Result<()> {
    let listing = &report.listing;
    let connections = listing.sockets.iter().filter(|socket| socket.state == State::Established).count();
    let groups = report.peers.len();
    writeln!(
        out,
        "\n{}, {} with {}.",
        counted(listing.sockets.len(), "socket"),
        counted(connections, "established connection"),
        counted(groups, "peer")
    )?;
    for group in report.peers.iter().filter(|group| group.connections > 1).take(20) {
        let share = group
            .largest_share
            .map_or(String::new(), |share| format!("; the busiest carries {} of the bytes", percent(share)));
        writeln!(
            out,
            "  {} {}: {} sent, {} received{share}",
            counted(group.connections, "connection"),
            group.towards(),
            bytes_in_memory(group.sent_bytes),
            bytes_in_memory(group.received_bytes)
        )?;
    }
    let off = listing.sockets.iter().filter(|socket| is_connected(socket) && socket.nodelay == Some(false));
    let on = listing.sockets.iter().filter(|socket| is_connected(socket) && socket.nodelay == Some(true));
    let unknown = listing.sockets.iter().filter(|socket| is_connected(socket) && socket.nodelay.is_none());
    let (on, off, unknown) = (on.count(), off.count(), unknown.count());
    if connections > 0 {
        let unknown = if unknown > 0 { format!(", not known of {unknown}") } else { String::new() };
        writeln!(out, "TCP_NODELAY is on for {on} and off for {off} of them{unknown}.")?;
    }
    for hint in &report.hints {
        writeln!(out, "* {}", hint.text)?;
    }
    print_missing(out, report)
}

fn is_connected(socket: &TcpSocket) -> bool {
    socket.state == State::Established
}

fn print_missing(out: &mut impl Write, report: &ListReport) -> io::Result<()> {
    let listing = &report.listing;
    let undone: Vec<_> = listing.sockets.iter().filter_map(|socket| socket.open_undo.as_ref()).collect();
    if let Some(first) = undone.first() {
        writeln!(
            out,
            "{} (marked +) changed by `sockets set` and not yet restored; `spangap sockets undo --journal {}` \
             restores.",
            counted(undone.len(), "socket"),
            first.display()
        )?;
    }
    let not_borrowed = |source| listing.sockets.iter().filter(move |socket| socket.source == source);
    for (source, what) in [
        (Source::SockDiag, "read by sock_diag, which does not tell TCP_NODELAY and TCP_CORK"),
        (Source::Table, "only in the table of /proc/PID/net: queues and owner, no TCP_INFO"),
    ] {
        let because = not_borrowed(source).find_map(|socket| socket.not_borrowed_because.as_deref());
        let because = because.map_or(String::new(), |because| format!(" ({because})"));
        match not_borrowed(source).count() {
            0 => {}
            count => writeln!(out, "{} {what}{because}.", counted(count, "socket"))?,
        }
    }
    if let Some(error) = &listing.sock_diag_failed {
        writeln!(out, "sock_diag could not be asked: {error}.")?;
    }
    if listing.vanished > 0 {
        writeln!(out, "{} closed during the reading.", counted(listing.vanished, "socket"))?;
    }
    if !listing.without_owner.is_empty() {
        let states = listing.without_owner.iter().map(|(state, count)| format!("{count} {state}"));
        let states: Vec<_> = states.collect();
        writeln!(out, "Besides, on this port, of no process: {}.", states.join(", "))?;
    }
    if listing.processes_not_seen > 0 {
        writeln!(
            out,
            "{} could not be examined (that needs CAP_SYS_PTRACE and at least their rights): owners may be missing.",
            counted(listing.processes_not_seen, "process")
        )?;
    }
    Ok(())
}

fn row(socket: &TcpSocket) -> Vec<String> {
    let info = &socket.info;
    let listens = socket.state == State::Listen;
    let peer = match socket.peer {
        Some(peer) => peer.to_string(),
        None if listens => "*".to_owned(),
        None => "-".to_owned(),
    };
    let nodelay = match (socket.nodelay, socket.cork) {
        (None, _) => "?".to_owned(),
        (Some(on), cork) => {
            let mark = if socket.open_undo.is_some() { " +" } else { "" };
            let cork = if cork == Some(true) { ", cork" } else { "" };
            format!("{}{cork}{mark}", if on { "on" } else { "off" })
        }
    };
    let count = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let time = |value: Option<u64>| value.map_or("-".to_owned(), format_ns);
    let size = |value: Option<u64>| value.map_or("-".to_owned(), bytes_in_memory);
    // The queue of a listening socket holds connections.
    let (send_queue, receive_queue) = match listens {
        true => (count(info.accept_backlog_connections), count(info.accept_queue_connections)),
        false => (size(socket.send_queue_bytes), size(socket.receive_queue_bytes)),
    };
    let mut cells =
        vec![owners(socket), socket.local.to_string(), peer, socket.state.name().to_owned(), nodelay];
    cells.extend([info.rtt_ns, info.min_rtt_ns, info.rto_ns, info.ato_ns.filter(|ns| *ns > 0)].map(time));
    cells.extend([info.cwnd_segments, info.unacked_segments].map(count));
    cells.extend([size(info.notsent_bytes), send_queue, receive_queue, count(info.retransmitted_segments)]);
    cells.extend([info.sent_bytes, info.received_bytes].map(size));
    cells
}

fn owners(socket: &TcpSocket) -> String {
    owner_cell(&socket.owners)
}

fn owner_cell(owners: &[Owner]) -> String {
    let owner = |owner: &Owner| {
        let fds: Vec<_> = owner.fds.iter().map(i32::to_string).collect();
        format!("{} ({}) fd {}", owner.comm, owner.pid, fds.join(","))
    };
    match owners {
        [] => "?".to_owned(),
        owners => owners.iter().map(owner).collect::<Vec<_>>().join(" + "),
    }
}
