//! Calls in flight on one connection, whose responses arrive in the order of the requests.

use crate::contract::Phase;
use crate::raw::frame::Context;
use std::collections::VecDeque;

/// A call in flight, or several sent at once without trace contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    pub phase: Phase,
    pub due_ns: Option<u64>,
    pub sent_ns: u64,
    pub sent_unix_ns: u64,
    pub context: Option<Context>,
    pub times: u32,
}

/// First in, first out. Abandoned calls are at the front: their responses may still arrive, and are then
/// dropped.
#[derive(Default)]
pub struct Flights {
    flights: VecDeque<Flight>,
    /// Number of abandoned entries and calls at the front.
    given_up_entries: usize,
    given_up_calls: u64,
    calls: u64,
}

impl Flights {
    pub fn push(&mut self, flight: Flight) {
        self.calls += u64::from(flight.times);
        self.flights.push_back(flight);
    }

    /// Calls with outstanding responses, abandoned or not.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Calls in flight that were not abandoned.
    pub fn live(&self) -> u64 {
        self.calls - self.given_up_calls
    }

    /// Abandoned calls, whose responses will be dropped.
    pub fn given_up(&self) -> u64 {
        self.given_up_calls
    }

    pub fn oldest_live(&self) -> Option<&Flight> {
        self.flights.get(self.given_up_entries)
    }

    /// The flight of the next response, and whether it was abandoned.
    pub fn front(&self) -> Option<(&Flight, bool)> {
        self.flights.front().map(|flight| (flight, self.given_up_entries > 0))
    }

    /// Context of the call that has this many behind it, itself included.
    pub fn context(&self, from_behind: u64) -> Option<Context> {
        // With contexts, each call is an entry of its own.
        let at = self.flights.len().checked_sub(from_behind as usize)?;
        self.flights.get(at)?.context
    }

    /// A number of responses arrived.
    pub fn answered(&mut self, calls: u32) {
        let Some(front) = self.flights.front_mut() else { return };
        front.times -= calls;
        self.calls -= u64::from(calls);
        let empty = front.times == 0;
        if self.given_up_entries > 0 {
            self.given_up_calls -= u64::from(calls);
            self.given_up_entries -= usize::from(empty);
        }
        if empty {
            self.flights.pop_front();
        }
    }

    /// Abandons the oldest live flight. `unsent` of all calls have not been sent; returns how many of them
    /// belong to this flight: they will get no response.
    pub fn give_up(&mut self, unsent: u64) -> u64 {
        let Some(flight) = self.flights.get_mut(self.given_up_entries) else { return 0 };
        let sent = self.calls - unsent - self.given_up_calls;
        let kept = u64::from(flight.times).min(sent);
        let removed = u64::from(flight.times) - kept;
        self.calls -= removed;
        flight.times = kept as u32;
        if kept == 0 {
            self.flights.remove(self.given_up_entries);
        } else {
            self.given_up_entries += 1;
            self.given_up_calls += kept;
        }
        removed
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        *self = Flights::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flight(n: u64, times: u32) -> Flight {
        let context = Some(Context { trace_id: u128::from(n).to_be_bytes(), span_id: [1; 8] });
        Flight { phase: Phase::Measured, due_ns: None, sent_ns: n, sent_unix_ns: 0, context, times }
    }

    #[test]
    fn late_responses_belong_to_abandoned_calls() {
        let mut flights = Flights::default();
        flights.push(flight(1, 3));
        flights.push(flight(2, 5));
        flights.push(flight(3, 1));
        // Of the second flight, three were sent.
        assert_eq!((flights.give_up(3), flights.live(), flights.given_up()), (0, 6, 3));
        assert_eq!((flights.give_up(3), flights.live(), flights.given_up()), (2, 1, 6));
        assert_eq!((flights.give_up(1), flights.live(), flights.oldest_live()), (1, 0, None));
        flights.push(flight(4, 1));
        for sent_ns in [1, 1, 1, 2, 2, 2] {
            assert_eq!(
                flights.front().map(|(flight, given_up)| (flight.sent_ns, given_up)),
                Some((sent_ns, true))
            );
            flights.answered(1);
        }
        assert_eq!(flights.front(), Some((&flight(4, 1), false)));
    }

    proptest! {
        #[test]
        fn each_call_is_answered_given_up_or_live(steps in prop::collection::vec((0u8..4, 1u32..5), 0..60)) {
            let mut flights = Flights::default();
            let (mut pushed, mut ended, mut never_sent, mut unsent, mut late) = (0u64, 0u64, 0u64, 0u64, 0u64);
            for (n, (step, times)) in (1u64..).zip(steps) {
                match step {
                    0 => {
                        flights.push(flight(n, times));
                        pushed += u64::from(times);
                        unsent += u64::from(times);
                    }
                    1 => unsent = unsent.saturating_sub(u64::from(times)),
                    2 => {
                        let before = flights.live();
                        let removed = flights.give_up(unsent);
                        unsent -= removed;
                        never_sent += removed;
                        ended += before - flights.live();
                    }
                    _ => if flights.live() + flights.given_up() > unsent && let Some((_, given_up)) = flights.front() {
                        flights.answered(1);
                        if given_up { late += 1 } else { ended += 1 }
                    },
                }
                prop_assert_eq!(ended + flights.live(), pushed);
                let given_up_in_all = flights.given_up() + late + never_sent;
                prop_assert!(given_up_in_all <= ended && unsent <= flights.live());
                prop_assert_eq!(flights.live() > 0, flights.oldest_live().is_some());
            }
        }
    }
}
