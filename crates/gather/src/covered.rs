//! Legs of calls that a host recording covers, and the threads that handled their bytes.

use spangap_host::event::{Event, What};
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
    let mut rests = Rests::default();
    if !covered.is_empty() {
        // A recording ends at its first damage; what comes before it counts.
        let damage = recording.read(&mut |event| {
            ended_ns = ended_ns.max(event.time_ns);
            rests.on(event);
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
    let known = all.filter(|one| {
        one.hands.any()
            && one.window.to_ns <= ended_ns
            && !rests.overlap(one.window.from_ns, one.window.to_ns)
    });
    Cover { legs: known.collect(), handovers, ended_ns, other_end }
}

/// Stretches in which the recorder rested. Of a call in one of them nothing is known: a thread that read from its connection later
/// may be another one than read it.
#[derive(Default)]
struct Rests(Vec<(u64, u64)>);

impl Rests {
    /// Takes the events in order of time.
    fn on(&mut self, event: &Event) {
        let What::Lost { count: 0, since_ns } = event.what else { return };
        match self.0.last_mut().filter(|last| since_ns <= last.1) {
            Some(last) => last.1 = last.1.max(event.time_ns),
            None => self.0.push((since_ns, event.time_ns)),
        }
    }

    fn overlap(&self, from_ns: u64, to_ns: u64) -> bool {
        let after = self.0.partition_point(|rest| rest.1 <= from_ns);
        self.0.get(after).is_some_and(|rest| rest.0 < to_ns)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_a_rest_is_not_covered() {
        let mut rests = Rests::default();
        let piece =
            |time_ns, cpu, count, since_ns| Event { time_ns, cpu, what: What::Lost { count, since_ns } };
        for cpu in 0..2 {
            rests.on(&piece(200, cpu, 0, 100));
        }
        // Lost, which the timeline knows about; the next piece of the rest; and another rest.
        [piece(150, 0, 7, 10), piece(300, 0, 0, 200), piece(300, 1, 0, 200), piece(900, 0, 0, 800)]
            .iter()
            .for_each(|event| rests.on(event));
        assert_eq!(rests.0, [(100, 300), (800, 900)]);
        let overlaps = |from_ns, to_ns| rests.overlap(from_ns, to_ns);
        assert!(overlaps(50, 101) && overlaps(299, 400) && overlaps(150, 160) && overlaps(0, 2_000));
        assert!(overlaps(700, 850) && !overlaps(50, 100) && !overlaps(300, 800) && !overlaps(900, 2_000));
    }
}
