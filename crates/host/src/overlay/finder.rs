//! Finds the threads that handled the bytes of calls, by connection and sequence number.

use super::births::Births;
use super::{Connection, Handovers, Hands, Window};
use crate::event::{Event, Tid, What};
/// How far outside a window its events may lie: a window is one leg of a call.
const AROUND_NS: u64 = 60_000_000_000;
/// Half of the sequence space: numbers further apart are not compared.
const HALF: u32 = 1 << 31;

pub(super) fn reaches(before: u32, end: Option<u32>) -> bool {
    end.is_some_and(|end| before.wrapping_sub(end) < HALF)
}

pub(super) fn begins_at_or_before(seq: u32, first: Option<u32>) -> bool {
    first.is_some_and(|first| first.wrapping_sub(seq) < HALF)
}

/// Finds the [`Hands`] of windows.
#[derive(Debug)]
pub struct Finder<'a> {
    windows: &'a [Window],
    /// By [`Connection::key`], in its order.
    connections: Vec<(u64, Transfers)>,
    handovers: Handovers,
    births: Births,
}

/// Events of the bytes of one connection.
#[derive(Debug, Default)]
struct Transfers {
    arrived: Moments,
    read: Moments,
    wrote: Moments,
}

impl<'a> Finder<'a> {
    /// Of these.
    pub fn new(windows: &'a [Window]) -> Finder<'a> {
        let mut keys: Vec<u64> = windows.iter().map(|window| window.connection.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let connections = keys.into_iter().map(|key| (key, Transfers::default())).collect();
        let handovers = Handovers::within(windows.iter().map(|window| (window.from_ns, window.to_ns)));
        Finder { windows, connections, handovers, births: Births::default() }
    }

    /// Processes one event; events come in order of time.
    pub fn on(&mut self, event: &Event) {
        self.handovers.on(event);
        self.births.on(event);
        let (tid, at) = match &event.what {
            What::Arrived(at) => (0, at),
            What::Read { tid, at } | What::Wrote { tid, at } => (*tid, at),
            _ => return,
        };
        let Some(place) = self.place_of(Connection::of(at)) else { return };
        let transfers = &mut self.connections[place].1;
        let moments = match &event.what {
            What::Arrived(_) => &mut transfers.arrived,
            What::Read { .. } => &mut transfers.read,
            _ => &mut transfers.wrote,
        };
        moments.push(Moment { at_ns: event.time_ns, tid, seq: at.seq });
    }

    fn place_of(&self, connection: Connection) -> Option<usize> {
        self.connections.binary_search_by_key(&connection.key(), |(key, _)| *key).ok()
    }

    /// Returns the results. `process_of` maps threads to processes.
    pub fn finish(self, process_of: &dyn Fn(Tid) -> Option<u32>) -> (Vec<Hands>, Handovers) {
        let hands = |window: &Window| {
            let Some(place) = self.place_of(window.connection) else { return Hands::default() };
            let of = &self.connections[place].1;
            let around = (window.from_ns.saturating_sub(AROUND_NS), window.to_ns.saturating_add(AROUND_NS));
            let reached = |moments: &Moments| {
                let moment = moments.first_that_reaches(window.read_to, around)?;
                // If a process was followed only from then on, everything before went unseen.
                let is_seen = moments.all.first().is_some_and(|first| first.at_ns < moment.at_ns);
                (is_seen || moment.at_ns <= window.to_ns).then_some(moment)
            };
            let read = reached(&of.read);
            let begun_ns = read.and_then(|read| {
                let first = of.read.first_that_reaches(Some(window.read_from?.wrapping_add(1)), around)?;
                (first.tid == read.tid && first.at_ns <= read.at_ns).then_some(first.at_ns)
            });
            let begun = |moments: &Moments| moments.last_up_to(window.write_from, around);
            Hands {
                arrived_ns: reached(&of.arrived).map(|moment| moment.at_ns),
                read: read.map(|moment| (moment.tid, moment.at_ns)),
                begun_ns,
                created: read.and_then(|read| self.births.before(read.tid, read.at_ns, process_of)),
                wrote: begun(&of.wrote).map(|moment| (moment.tid, moment.at_ns)),
            }
        };
        let hands = self.windows.iter().map(hands).collect();
        (hands, self.handovers)
    }
}

/// One event of the bytes.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at_ns: u64,
    tid: Tid,
    seq: u32,
}

/// Events of one kind on one connection, in order of time.
#[derive(Debug, Default)]
struct Moments {
    all: Vec<Moment>,
    /// Starts of runs. Within a run, sequence numbers never decrease, and increase by less than [`HALF`] in
    /// total, so that a comparison with any number splits a run at one place.
    runs: Vec<usize>,
}

impl Moments {
    fn push(&mut self, moment: Moment) {
        let last = self.all.last().map_or(moment.seq, |last| last.seq);
        let first = self.runs.last().and_then(|run| self.all.get(*run)).map_or(last, |first| first.seq);
        let goes_on = moment.seq.wrapping_sub(last) < HALF
            && u64::from(last.wrapping_sub(first)) + u64::from(moment.seq.wrapping_sub(last))
                < u64::from(HALF);
        if self.all.is_empty() || !goes_on {
            self.runs.push(self.all.len());
        }
        self.all.push(moment);
    }

    /// The first event in that time by which everything before `end` was through.
    fn first_that_reaches(&self, end: Option<u32>, within: (u64, u64)) -> Option<Moment> {
        let reaches = |moment: &Moment| reaches(moment.seq, end);
        self.runs(within).find_map(|run| match run.first() {
            Some(first) if reaches(first) => Some(*first),
            _ => run.get(run.partition_point(|moment| !reaches(moment))).copied(),
        })
    }

    /// The last event in that time that began at `first` or before.
    fn last_up_to(&self, first: Option<u32>, within: (u64, u64)) -> Option<Moment> {
        let up_to = |moment: &Moment| begins_at_or_before(moment.seq, first);
        self.runs(within).rev().find_map(|run| match run.last() {
            Some(last) if up_to(last) => Some(*last),
            _ => run.get(run.partition_point(up_to).checked_sub(1)?).copied(),
        })
    }

    /// Runs, as far as they lie in that time.
    fn runs(&self, (from_ns, to_ns): (u64, u64)) -> impl DoubleEndedIterator<Item = &[Moment]> {
        let from = self.all.partition_point(|moment| moment.at_ns < from_ns);
        let to = self.all.partition_point(|moment| moment.at_ns <= to_ns).max(from);
        let runs = self.runs.partition_point(|run| *run <= from).saturating_sub(1)
            ..self.runs.partition_point(|run| *run < to);
        runs.filter_map(move |run| {
            let end = self.runs.get(run + 1).copied().unwrap_or(self.all.len());
            self.all.get(self.runs[run].max(from)..end.min(to)).filter(|run| !run.is_empty())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Transfer;
    use proptest::prelude::*;

    const CONNECTION: Connection = Connection { local_port: 50051, peer_port: 40_000, peer_tail: 7 };

    fn event(kind: u8, time_ns: u64, seq: u32) -> Event {
        let at = Transfer { local_port: 50051, peer_port: 40_000, peer_tail: 7, seq };
        let tid = (time_ns % 7) as Tid;
        let what = match kind {
            0 => What::Arrived(at),
            1 => What::Read { tid, at },
            _ => What::Wrote { tid, at },
        };
        Event { time_ns, cpu: 0, what }
    }

    fn window(from_ns: u64, to_ns: u64, seq: u32) -> Window {
        let (read_to, write_from) = (Some(seq), Some(seq));
        Window {
            from_ns,
            to_ns,
            connection: CONNECTION,
            read_to,
            read_from: None,
            reads: true,
            write_from,
            writes: true,
        }
    }

    /// Compares each window with each event.
    fn one_by_one(window: &Window, events: &[Event]) -> Hands {
        let mut hands = Hands::default();
        let first = |is_it: fn(&What) -> bool| events.iter().find(|event| is_it(&event.what));
        let is_seen = |time_ns: u64, is_it: fn(&What) -> bool| {
            time_ns <= window.to_ns || first(is_it).is_some_and(|first| first.time_ns < time_ns)
        };
        for event in events {
            let time_ns = event.time_ns;
            if time_ns + AROUND_NS < window.from_ns || time_ns > window.to_ns + AROUND_NS {
                continue;
            }
            let reaches = |seq: u32| seq.wrapping_sub(window.read_to.unwrap()) < HALF;
            match event.what {
                What::Arrived(at) if hands.arrived_ns.is_none() && reaches(at.seq) => {
                    hands.arrived_ns = Some(time_ns)
                }
                What::Read { tid, at } if hands.read.is_none() && reaches(at.seq) => {
                    hands.read = Some((tid, time_ns))
                }
                What::Wrote { tid, at } if window.write_from.unwrap().wrapping_sub(at.seq) < HALF => {
                    hands.wrote = Some((tid, time_ns))
                }
                _ => {}
            }
        }
        hands.arrived_ns =
            hands.arrived_ns.filter(|at| is_seen(*at, |what| matches!(what, What::Arrived(_))));
        hands.read = hands.read.filter(|(_, at)| is_seen(*at, |what| matches!(what, What::Read { .. })));
        hands
    }

    /// A process that starts during a recording is followed only some seconds later: until then its bytes go
    /// unseen.
    #[test]
    fn the_first_that_was_seen_of_a_connection_does_not_stand_for_all_before_it() {
        let [early, late] = [window(1_000, 2_000, 500), window(90_000, 91_000, 9_000)];
        let windows = [early, late];
        let mut finder = Finder::new(&windows);
        let seen = [
            event(0, 80_000, 8_000),
            event(1, 80_100, 8_000),
            event(0, 90_500, 9_000),
            event(1, 90_600, 9_000),
        ];
        seen.iter().for_each(|event| finder.on(event));
        let (hands, _) = finder.finish(&|_| None);
        assert_eq!(hands[0], Hands::default());
        assert_eq!((hands[1].arrived_ns, hands[1].read.map(|(_, at)| at)), (Some(90_500), Some(90_600)));
        // The first event counts if it is in the call's own time, as on a connection that has just been
        // opened.
        let windows = [window(79_000, 81_000, 8_000)];
        let mut finder = Finder::new(&windows);
        seen.iter().for_each(|event| finder.on(event));
        assert_eq!(finder.finish(&|_| None).0[0].arrived_ns, Some(80_000));
    }

    proptest! {
        /// Whatever the numbers do: they wrap, go back, and start over on a connection with the same ports.
        #[test]
        fn finds_what_comparing_each_window_with_each_event_finds(
            begin in any::<u32>(),
            steps in proptest::collection::vec(
                (0_u8..3, 0_u64..5_000_000_000, prop_oneof![8 => 0_u32..500, 1 => any::<u32>(), 1 => 0xffff_ff00_u32..]),
                0..200,
            ),
            windows in proptest::collection::vec((0_u64..400_000_000_000, 0_u64..2_000_000_000, 0_u32..20_000), 1..20),
        ) {
            let (mut time_ns, mut seq) = (0, begin);
            let events: Vec<Event> = steps.into_iter().map(|(kind, after_ns, bytes)| {
                time_ns += after_ns;
                seq = seq.wrapping_add(bytes);
                event(kind, time_ns, seq)
            }).collect();
            let windows: Vec<Window> = windows.into_iter()
                .map(|(from_ns, ns, bytes)| window(from_ns, from_ns + ns, begin.wrapping_add(bytes)))
                .collect();
            let mut finder = Finder::new(&windows);
            events.iter().for_each(|event| finder.on(event));
            for (window, hands) in windows.iter().zip(finder.finish(&|_| None).0) {
                prop_assert_eq!(hands, one_by_one(window, &events));
            }
        }
    }
}
