//! A slice of the rings: copied, masked, and cut into pieces.

use crate::events;
use crate::machine::{OpenedBefore, machine};
use crate::masked::masked;
use crate::packets::{self, End, Packets, Wanted, unix_ns};
use crate::sensors::Sensors;
use crate::settings::{Payload, Settings};
use crate::stream::{Broken, Stream};
use spangap_fleet::slice::{CAPTURE, CAPTURE_AT_SERVER, MACHINE, RECORDING, SOCKETS};
use spangap_fleet::v1::{self, from_agent::What};
use spangap_model::Side;
use spangap_sockets::report::ListReport;
use spangap_sockets::{Asked, TcpSocket};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::mpsc;

/// Maximum wait for the end of a slice's time range.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Maximum size of `machine.json` in a slice.
const MACHINE_BYTES: u64 = 64 << 10;

/// Maximum number of reported sockets.
const MAX_SOCKETS: usize = 2_000;

/// Answers one request: pieces, then the end. There is exactly one end in all cases, unless the stream is
/// gone.
pub(crate) async fn answer(
    ask: v1::Ask,
    settings: Arc<Settings>,
    sensors: Arc<Sensors>,
    to: mpsc::Sender<v1::FromAgent>,
    cancelled: Arc<AtomicBool>,
) {
    // The meter's clock differs from ours; the requested time range may not be over yet.
    let left = u64::try_from(ask.to_unix_ns.saturating_sub(unix_ns())).unwrap_or(0);
    let left = Duration::from_nanos(left).min(MAX_WAIT);
    let _over_or_gone = tokio::time::timeout(left, to.closed()).await;
    let id = ask.id;
    let payload = v1::Payload::from(settings.payload).into();
    let cut = {
        let to = to.clone();
        tokio::task::spawn_blocking(move || cut(&ask, &settings, &sensors, &to, &cancelled)).await
    };
    let end = match cut {
        Ok(Ok(end)) => end,
        Ok(Err(Broken::Gone)) => return,
        Ok(Err(Broken::Because(error))) => {
            v1::SliceEnd { ask: id, error, payload, ..v1::SliceEnd::default() }
        }
        Err(error) => v1::SliceEnd { ask: id, error: error.to_string(), payload, ..v1::SliceEnd::default() },
    };
    // The requester may be gone.
    let _gone = to.send(v1::FromAgent { what: Some(What::End(end)) }).await;
}

fn cut(
    ask: &v1::Ask,
    settings: &Settings,
    sensors: &Sensors,
    to: &mpsc::Sender<v1::FromAgent>,
    cancelled: &AtomicBool,
) -> Result<v1::SliceEnd, Broken> {
    let because = |error: &dyn std::fmt::Display| Broken::Because(error.to_string());
    let (from_ns, to_ns) = (ask.from_unix_ns, ask.to_unix_ns);
    if from_ns >= to_ns {
        return Err(because(&format!("a slice from {from_ns} to {to_ns} ends before it begins")));
    }
    let ends = ends(&ask.endpoints).map_err(|error| because(&error))?;
    let room = ask.max_bytes.min(settings.shares().slice).saturating_sub(MACHINE_BYTES);
    let mut lacks: Vec<String> = sensors.lacks().to_vec();
    lacks.extend(sensors.given_up().iter().map(|what| format!("given up: {what}")));
    let mut held = RingContents::default();

    let recording = match sensors.events() {
        None => None,
        Some(events) => match events.copy((from_ns, to_ns), (room / 2) as usize) {
            Ok(Some(copied)) => Some(copied),
            Ok(None) => {
                lacks.push("events: the ring holds nothing from this time".into());
                None
            }
            Err(error) => {
                lacks.push(format!("events: {error}"));
                None
            }
        },
    };
    if let Some(copied) = &recording {
        held.add(copied.from_ns.max(from_ns), copied.to_ns.min(to_ns));
        lacks.extend(events_lack(copied, (from_ns, to_ns)));
    }
    let (sockets, mut socket_list) = sockets(sensors, &ends, &mut lacks);
    if socket_list.len() as u64 > room / 8 {
        lacks.push(format!("the list of sockets takes {} bytes, too many for the slice", socket_list.len()));
        socket_list.clear();
    }
    let taken = recording.as_ref().map_or(0, |copied| copied.file.len() as u64) + socket_list.len() as u64;
    let mut captures = Vec::new();
    if let Some(packets) = sensors.packets() {
        let most_bytes = room.saturating_sub(taken);
        let wanted = Wanted { from_ns, to_ns, ends, most_bytes, sockets, near: None };
        match captures_of(&packets, wanted, ask.apart) {
            Ok(copied) => captures = copied,
            Err(error) => lacks.push(format!("packets: {error}")),
        }
    }
    for (_, copied) in &captures {
        held.add(copied.from_ns, copied.to_ns);
        let new = packets_lack(copied, ask).into_iter().filter(|lack| !lacks.contains(lack));
        lacks.extend(new.collect::<Vec<_>>());
    }
    let opened = captures.first().map(|(_, copied)| OpenedBefore::of(&copied.opened));
    let copies = captures.iter().map(|(_, copied)| copied.copies).sum();
    let stream = Stream { ask: ask.id, to, cancelled };
    for (name, copied) in captures {
        match settings.payload {
            Payload::Full => stream.send(name, &copied.file)?,
            Payload::Headers => {
                let mut file = stream.file(name);
                let masked = masked(copied, sensors.mask_key(), &mut file);
                file.end()?;
                let left_out = masked.map_err(|error| because(&error))?;
                if left_out > 0 {
                    lacks.push(format!("{left_out} fragments are left out: they cannot be masked"));
                }
            }
        }
    }
    if let Some(copied) = recording {
        stream.send(RECORDING, &copied.file)?;
    }
    if !socket_list.is_empty() {
        stream.send(SOCKETS, &socket_list)?;
    }
    let machine = serde_json::to_vec_pretty(&machine(settings.payload, opened, copies, lacks.clone()))
        .map_err(|error| because(&error))?;
    stream.send(MACHINE, &machine)?;
    let (from_unix_ns, to_unix_ns) = held.both();
    Ok(v1::SliceEnd {
        ask: ask.id,
        error: String::new(),
        lacks,
        from_unix_ns,
        to_unix_ns,
        payload: v1::Payload::from(settings.payload).into(),
    })
}

/// The captures of a slice by their names: two if the ends are to be told apart, and can be.
fn captures_of(
    packets: &Packets,
    wanted: Wanted,
    apart: bool,
) -> io::Result<Vec<(&'static str, packets::Copied)>> {
    if apart {
        let next_to = |end| {
            packets.copy(Wanted { near: Some(end), most_bytes: wanted.most_bytes / 2, ..wanted.clone() })
        };
        let server = next_to(Side::Server)?;
        if server.packets > 0 {
            let client = next_to(Side::Client)?;
            if client.packets > 0 {
                return Ok(vec![(CAPTURE, client), (CAPTURE_AT_SERVER, server)]);
            }
        }
    }
    Ok(vec![(CAPTURE, packets.copy(wanted)?)])
}

/// What a copied recording lacks of the wanted time.
fn events_lack(copied: &events::Copied, wanted: (i64, i64)) -> Vec<String> {
    let mut lacks = reach("events", (copied.from_ns, copied.to_ns), wanted);
    if copied.part.lost > 0 {
        lacks.push(format!("{} events of this time were lost; the recording marks where", copied.part.lost));
    }
    if copied.part.left_out > 0 {
        lacks.push("events: the oldest of this time did not fit into the slice".into());
    }
    lacks
}

/// What copied packets lack of the wanted time.
fn packets_lack(copied: &packets::Copied, ask: &v1::Ask) -> Vec<String> {
    let mut lacks = reach("packets", (copied.from_ns, copied.to_ns), (ask.from_unix_ns, ask.to_unix_ns));
    if copied.lost > 0 {
        lacks.push(format!("the ring had no room for {} packets since it was opened", copied.lost));
    }
    if copied.left_out > 0 {
        lacks.push(format!("{} packets did not fit into the slice", copied.left_out));
    }
    if copied.fit.left_out > 0 {
        lacks.push(format!(
            "{} of {} connections are not in the slice, because not all fit into it",
            copied.fit.left_out, copied.fit.connections
        ));
    }
    if copied.unseen > 0 {
        lacks.push(format!(
            "{} packets that opened or closed connections since the ring was opened came too fast to be kept apart",
            copied.unseen
        ));
    }
    let (cut, least) = copied.cut;
    if cut > 0 {
        lacks.push(format!(
            "{cut} packets were cut to their first bytes (one to {least}), so that the ring reaches back far enough \
             and the slice holds all of its time"
        ));
    }
    if copied.opened.unknown > 0 {
        lacks.push(format!(
            "how {} of {} connections were opened: their window scales and segment sizes are not known",
            copied.opened.unknown, copied.opened.before
        ));
    }
    if copied.not_near > 0 && !ask.endpoints.is_empty() {
        lacks.push(format!(
            "{} connections have not both ends behind interfaces of their own here, and are not in the slice",
            copied.not_near
        ));
    }
    if copied.packets == 0 {
        let whose = if ask.endpoints.is_empty() { "" } else { " of the connections asked for" };
        lacks.push(format!("no packet{whose} passed in this time"));
    }
    lacks
}

/// The current connections of these endpoints according to the kernel, and the document of `sockets list
/// --json` about them.
fn sockets(sensors: &Sensors, ends: &[End], lacks: &mut Vec<String>) -> (Vec<TcpSocket>, Vec<u8>) {
    // A port common to all endpoints restricts the search.
    let mut ports = ends.iter().map(|end| end.port);
    let port = ports.next().flatten().filter(|port| ports.all(|other| other == Some(*port)));
    let asked = Asked { pids: Vec::new(), port, listening: false };
    let mut listing = match spangap_sockets::list(&asked) {
        Ok(listing) => listing,
        Err(error) => {
            lacks.push(format!("sockets: {error}"));
            return Default::default();
        }
    };
    listing.sockets.retain(|socket| {
        let is_here = socket.network_namespace.is_none_or(|netns| sensors.has(netns));
        let both = [Some(socket.local), socket.peer];
        let of_these = || both.iter().flatten().any(|address| ends.iter().any(|end| end.is_at(*address)));
        is_here && (ends.is_empty() || of_these())
    });
    let left_out = listing.sockets.len().saturating_sub(MAX_SOCKETS);
    if left_out > 0 {
        lacks.push(format!("{left_out} sockets beyond the first {MAX_SOCKETS} are not in the slice"));
        listing.sockets.truncate(MAX_SOCKETS);
    }
    let sockets = listing.sockets.clone();
    let document = serde_json::to_vec(&ListReport::new(unix_ns().unsigned_abs(), asked, listing));
    (sockets, document.unwrap_or_default())
}

/// Time range that all rings together contain.
#[derive(Default)]
struct RingContents(Option<(i64, i64)>);

impl RingContents {
    fn add(&mut self, from_ns: i64, to_ns: i64) {
        let (from, to) = self.0.unwrap_or((from_ns, to_ns));
        self.0 = Some((from.max(from_ns), to.min(to_ns)));
    }

    /// Zeros if no time is in all of them.
    fn both(&self) -> (i64, i64) {
        self.0.filter(|(from, to)| from <= to).unwrap_or_default()
    }
}

/// Parts of a time range that a ring does not contain, in sentences.
fn reach(what: &str, (from_ns, to_ns): (i64, i64), (wanted_from, wanted_to): (i64, i64)) -> Vec<String> {
    let ms = |ns: i64| ns / 1_000_000;
    let mut lacks = Vec::new();
    if from_ns > wanted_from {
        lacks.push(format!(
            "{what}: the first {} ms of this time are no longer in the ring",
            ms(from_ns - wanted_from)
        ));
    }
    if to_ns < wanted_to {
        lacks
            .push(format!("{what}: the last {} ms of this time are not in the slice", ms(wanted_to - to_ns)));
    }
    lacks
}

fn ends(endpoints: &[v1::Endpoint]) -> Result<Vec<End>, String> {
    let end = |endpoint: &v1::Endpoint| {
        let address = match &endpoint.address[..] {
            "" => None,
            text => Some(text.parse().map_err(|_| format!("{text:?} is not an address"))?),
        };
        let port = match endpoint.port {
            0 => None,
            port => Some(u16::try_from(port).map_err(|_| format!("{port} is not a port"))?),
        };
        Ok(End { address, port })
    };
    endpoints.iter().map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_endpoints_are_refused_with_a_reason() {
        let endpoint = |address: &str, port| v1::Endpoint { address: address.into(), port };
        assert_eq!(ends(&[endpoint("10.0.0.1", 0)]).unwrap()[0].port, None);
        assert_eq!(ends(&[endpoint("", 80)]).unwrap()[0], End { address: None, port: Some(80) });
        assert!(ends(&[endpoint("server", 80)]).unwrap_err().contains("server"));
        assert!(ends(&[endpoint("::1", 70_000)]).unwrap_err().contains("70000"));
    }

    #[test]
    fn the_available_range_is_common_to_all_rings() {
        let mut held = RingContents::default();
        assert_eq!(held.both(), (0, 0));
        held.add(10, 90);
        held.add(20, 100);
        assert_eq!(held.both(), (20, 90));
        held.add(95, 100);
        assert_eq!(held.both(), (0, 0));
    }
}
