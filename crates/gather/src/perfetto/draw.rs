//! Tracks and slices to packets of the format, in order of time.

use super::Shown;
use super::format::{
    BOOTTIME, Clock, ClockSnapshot, DebugAnnotation, EXPLICIT, INSTANT, REALTIME, SLICE_BEGIN, SLICE_END,
    Trace, TracePacket, TrackDescriptor, TrackEvent,
};
use spangap_model::Side;
use std::collections::HashMap;

/// A single writer emits all packets.
const SEQUENCE: u32 = 1;

/// A track of the drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TrackId(u64);

/// Values attached to an event.
#[derive(Default)]
pub(super) struct Args(Vec<DebugAnnotation>);

impl Args {
    pub(super) fn text(&mut self, name: &str, value: &str) {
        let (name, string_value) = (Some(name.to_owned()), Some(value.to_owned()));
        self.0.push(DebugAnnotation { name, string_value, ..DebugAnnotation::default() });
    }

    pub(super) fn number(&mut self, name: &str, value: i64) {
        let (name, int_value) = (Some(name.to_owned()), Some(value));
        self.0.push(DebugAnnotation { name, int_value, ..DebugAnnotation::default() });
    }

    /// Adds the maximum error of the event's times in either direction.
    pub(super) fn bound(&mut self, bound_ns: Option<u64>) {
        match bound_ns {
            Some(bound) => self.number("bound_ns", i64::try_from(bound).unwrap_or(i64::MAX)),
            None => self.text("bound_ns", "unknown"),
        }
    }
}

/// The drawing so far.
pub(super) struct Drawing {
    first_ns: i64,
    tracks: Vec<TrackDescriptor>,
    /// Sorted by time; at equal times, ends precede begins.
    events: Vec<(u64, u8, TrackEvent)>,
    /// Parallel tracks for overlapping slices, with the end of each one's last slice.
    beside: HashMap<TrackId, Vec<(i64, TrackId)>>,
}

impl Drawing {
    pub(super) fn new(first_ns: i64) -> Drawing {
        Drawing { first_ns, tracks: Vec::new(), events: Vec::new(), beside: HashMap::new() }
    }

    pub(super) fn track(&mut self, parent: Option<TrackId>, name: &str, about: &str) -> TrackId {
        // Zero is the trace itself.
        let id = TrackId(self.tracks.len() as u64 + 1);
        self.tracks.push(TrackDescriptor {
            uuid: Some(id.0),
            name: Some(name.to_owned()),
            parent_uuid: parent.map(|parent| parent.0),
            child_ordering: Some(EXPLICIT),
            sibling_order_rank: Some(self.tracks.len() as i32),
            description: (!about.is_empty()).then(|| about.to_owned()),
        });
        id
    }

    fn event(&mut self, at_ns: i64, order: u8, event: TrackEvent) {
        self.events.push((u64::try_from(at_ns).unwrap_or(0), order, event));
    }

    pub(super) fn slice(&mut self, track: TrackId, name: &str, stretch: (i64, i64), args: Args) {
        self.draw(track, name, stretch, args, Vec::new());
    }

    pub(super) fn slice_with_flow(
        &mut self,
        track: TrackId,
        name: &str,
        stretch: (i64, i64),
        args: Args,
        flow: u64,
    ) {
        self.draw(track, name, stretch, args, vec![flow]);
    }

    fn draw(
        &mut self,
        track: TrackId,
        name: &str,
        (from_ns, to_ns): (i64, i64),
        args: Args,
        flow_ids: Vec<u64>,
    ) {
        // The begin and end of an empty slice would change places.
        let to_ns = to_ns.max(from_ns.saturating_add(1));
        let begin = TrackEvent {
            debug_annotations: args.0,
            kind: Some(SLICE_BEGIN),
            track_uuid: Some(track.0),
            categories: vec!["spangap".into()],
            name: Some(name.to_owned()),
            flow_ids,
        };
        let end = TrackEvent { kind: Some(SLICE_END), track_uuid: Some(track.0), ..TrackEvent::default() };
        self.event(from_ns, 1, begin);
        self.event(to_ns, 0, end);
    }

    /// A slice that may overlap others: it is then moved to a parallel track.
    pub(super) fn free_slice(&mut self, track: TrackId, name: &str, stretch: (i64, i64), args: Args) {
        let until = stretch.1.max(stretch.0.saturating_add(1));
        let lanes = self.beside.entry(track).or_default();
        let place = lanes.iter_mut().find(|(busy_until, _)| *busy_until <= stretch.0);
        let lane = match place {
            Some((busy_until, lane)) => {
                *busy_until = until;
                *lane
            }
            None => {
                let number = lanes.len() + 1;
                let lane = self.track(Some(track), &format!("finding {number}"), "");
                self.beside.entry(track).or_default().push((until, lane));
                lane
            }
        };
        self.slice(lane, name, stretch, args);
    }

    pub(super) fn instant(&mut self, track: TrackId, name: &str, at_ns: i64, args: Args) {
        let event = TrackEvent {
            debug_annotations: args.0,
            kind: Some(INSTANT),
            track_uuid: Some(track.0),
            categories: vec!["spangap".into()],
            name: Some(name.to_owned()),
            flow_ids: Vec::new(),
        };
        self.event(at_ns, 1, event);
    }

    /// The possible error between the clocks, from call to call.
    pub(super) fn clock_bounds(&mut self, parent: TrackId, calls: &[Shown<'_>], base: Side) {
        let other = base.other();
        let track = self.track(
            Some(parent),
            "clocks",
            "the correction added to times of the other end, and its bound either way",
        );
        for (place, shown) in calls.iter().enumerate() {
            let start_ns = shown.start_ns();
            let next = calls.get(place + 1).map_or(shown.end_ns(), Shown::start_ns);
            if next <= start_ns {
                continue;
            }
            let mut args = Args::default();
            let name = match shown.axis.correction(other, start_ns) {
                Some((correction, bound)) => {
                    args.number("correction_ns", correction);
                    args.bound(Some(bound));
                    format!("{} {correction} ns ± {bound} ns", other.name())
                }
                None => "not known".into(),
            };
            self.slice(track, &name, (start_ns, next), args);
        }
    }

    pub(super) fn finish(mut self) -> Trace {
        self.events.sort_by_key(|(at, order, _)| (*at, *order));
        let first = u64::try_from(self.first_ns).unwrap_or(0);
        let first = self.events.first().map_or(first, |(at, ..)| first.min(*at));
        // Times are already Unix time; declaring the format's own clock equal to it lets viewers show dates.
        let clock = |clock_id| Clock { clock_id: Some(clock_id), timestamp: Some(first) };
        let snapshot = TracePacket {
            timestamp: Some(first),
            trusted_packet_sequence_id: Some(SEQUENCE),
            clock_snapshot: Some(ClockSnapshot { clocks: vec![clock(BOOTTIME), clock(REALTIME)] }),
            ..TracePacket::default()
        };
        let tracks = self.tracks.into_iter().map(|descriptor| TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_descriptor: Some(descriptor),
            ..TracePacket::default()
        });
        let events = self.events.into_iter().map(|(at, _, event)| TracePacket {
            timestamp: Some(at),
            trusted_packet_sequence_id: Some(SEQUENCE),
            track_event: Some(event),
            ..TracePacket::default()
        });
        Trace { packet: std::iter::once(snapshot).chain(tracks).chain(events).collect() }
    }
}
