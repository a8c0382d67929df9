//! Legs of calls that a host recording covers, and the threads that handled their bytes.

use spangap_host::event::What;
use spangap_host::overlay::{Connection, Finder, Handovers, Hands, Window};
use spangap_host::recording::{Recording, RecordingError};
use spangap_wire::hosts::HostLeg;

/// A leg that a recording covers, with the threads that handled its bytes.
pub(crate) struct Covered {
    pub(crate) leg: HostLeg,
    pub(crate) window: Window,
    pub(crate) hands: Hands,
}

/// What a recording has of some legs.
pub(crate) struct Cover {
    /// The legs that it covers.
    pub(crate) legs: Vec<Covered>,
    /// Hand-overs of calls between threads.
    pub(crate) handovers: Handovers,
    /// End of the recording.
    pub(crate) ended_ns: u64,
    /// Whether it has reads or writes at the other end of the legs' connections.
    pub(crate) other_end: bool,
}

/// Finds the legs that a recording covers.
pub(crate) fn cover(
    recording: &mut Recording,
    legs: &[HostLeg],
    on_damage: &mut dyn FnMut(RecordingError),
) -> Cover {
    let began_ns = recording.meta().began_ns;
    let covered: Vec<(HostLeg, Window)> = legs
        .iter()
        .filter_map(|leg| Some((*leg, window(leg, recording)?)))
        .filter(|(_, window)| window.from_ns >= began_ns)
        .collect();
    let windows: Vec<Window> = covered.iter().map(|(_, window)| *window).collect();
    let mut finder = Finder::new(&windows);
    let mut other_ends: Vec<(u16, u16)> = legs.iter().map(|leg| (leg.peer.port, leg.local.port)).collect();
    other_ends.sort_unstable();
    other_ends.dedup();
    let mut other_end = false;
    let mut ended_ns = began_ns;
    if !covered.is_empty() {
        // A recording ends at its first damage; what comes before it counts.
        let damage = recording.read(&mut |event| {
            ended_ns = ended_ns.max(event.time_ns);
            if let What::Read { at, .. } | What::Wrote { at, .. } = &event.what {
                other_end = other_end || other_ends.binary_search(&(at.local_port, at.peer_port)).is_ok();
            }
            finder.on(event);
        });
        damage.unwrap_or_else(on_damage);
    }
    ended_ns = recording.end().map_or(ended_ns, |end| end.ended_ns);
    let names = recording.names();
    let (hands, handovers) = finder.finish(&|tid| names.tgid(tid));
    let all = covered.into_iter().zip(hands).map(|((leg, window), hands)| Covered { leg, window, hands });
    let known = all.filter(|one| one.hands.any() && one.window.to_ns <= ended_ns);
    Cover { legs: known.collect(), handovers, ended_ns, other_end }
}

/// A leg in the time of the recording's events.
pub(crate) fn window(leg: &HostLeg, recording: &Recording) -> Option<Window> {
    let (from_ns, _) = recording.mono_ns(leg.from_ns)?;
    let (to_ns, _) = recording.mono_ns(leg.to_ns)?;
    let [.., a, b, c, d] = leg.peer.address;
    Some(Window {
        from_ns,
        to_ns,
        connection: Connection {
            local_port: leg.local.port,
            peer_port: leg.peer.port,
            peer_tail: u32::from_be_bytes([a, b, c, d]),
        },
        read_to: leg.call_read_to,
        read_from: leg.call_read_from,
        reads: leg.read_to.is_some(),
        write_from: leg.call_write_from,
        writes: leg.write_from.is_some(),
    })
    .filter(|window| window.to_ns > window.from_ns)
}
