//! The end of a section: finished connections, sums, clocks.

use super::Run;
use super::kept_calls::Keeper;
use crate::align::Clock;
use crate::dissect::unsettled::{Settled, UnsettledCall};
use crate::dissect::{CaptureTotals, Dissection};
use crate::join::links::Link;
use crate::totals::Finished;

/// Facts known at the end of a section.
pub(in crate::dissect) struct Closed {
    pub clock: Option<Clock>,
    pub resolution_ns: u32,
    pub finished: Finished,
    pub pairs_left_out: u64,
}

impl Run<'_> {
    /// Moves a finished link to the sums.
    pub(super) fn close(&mut self, link: usize) {
        if let Some(mut link) = self.joiner.links.take_if_over(link) {
            let mut notes = std::mem::take(&mut link.notes);
            notes.extend(self.notes(link.connections));
            self.totals.take(link, notes);
        }
    }

    fn notes(&self, connections: [Option<u32>; 2]) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for (tap, connection) in self.taps.iter().zip(connections) {
            for note in connection.map(|connection| tap.notes(connection)).unwrap_or_default() {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }

    /// Computes the sums and clocks. Calls counted afterwards are lost.
    pub fn close_all(&mut self) -> Closed {
        for (capture, tap) in self.taps.iter().enumerate() {
            for facts in tap.connections() {
                if self.joiner.links.known(capture, facts.id).is_none() {
                    self.unopened.take(capture, facts);
                }
            }
        }
        for mut link in self.joiner.links.take_all() {
            for (capture, tap) in self.taps.iter().enumerate() {
                let latest = link.connections[capture].and_then(|connection| tap.connection(connection));
                link.facts[capture] = latest.or(link.facts[capture].take());
            }
            let mut notes = std::mem::take(&mut link.notes);
            notes.extend(self.notes(link.connections));
            self.totals.take(link, notes);
        }
        for (seen, note) in self.unopened.finish(self.captures.len()) {
            self.totals.list(Link::without_calls(seen), vec![note]);
        }
        let resolution_ns =
            self.captures.iter().map(|capture| capture.reading().resolution_ns).max().unwrap_or(1);
        let clock = if self.settings.same_clock || self.one_host() {
            Some(Clock::same())
        } else {
            Clock::fit(&self.joiner.bounds, resolution_ns)
        };
        let pairs_left_out = self.totals.pairs_left_out;
        let finished = std::mem::take(&mut self.totals).finish(clock.as_ref(), resolution_ns);
        Closed { pairs_left_out, clock, resolution_ns, finished }
    }

    /// Whether the names of both captures say that they share one host's clock.
    fn one_host(&self) -> bool {
        let name = |place: usize| {
            self.numbers.get(place).and_then(|number| self.settings.names.get(*number)?.as_ref())
        };
        name(0).is_some() && name(0) == name(1)
    }

    /// State for reading its captures again and for completing its calls. It can be taken once.
    pub fn settled(&mut self, closed: &mut Closed) -> Settled {
        let choices = self.choices.iter_mut().map(|choice| Some(choice.take()?.0));
        Settled {
            parts: self.numbers.iter().copied().zip(choices).collect(),
            packets: self.captures.iter().map(|capture| capture.reading().packets).collect(),
            clock: closed.clock.clone(),
            resolution_ns: closed.resolution_ns,
            connections: std::mem::take(&mut closed.finished.numbers),
            reconnects: std::mem::take(&mut closed.finished.reconnects),
        }
    }

    /// Every matching call since the last request.
    pub fn take_every(&mut self) -> Vec<UnsettledCall> {
        self.every.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The kept calls.
    pub fn take_kept(&mut self) -> Keeper {
        std::mem::take(&mut self.kept)
    }

    /// The result without the calls, with this section's capture numbers.
    pub fn dissection(&mut self, closed: Closed) -> Dissection {
        let Closed { clock, finished, pairs_left_out, .. } = closed;
        let mut dissection = Dissection {
            matching: self.matching,
            sums: finished.sums,
            connections: finished.connections,
            connections_left_out: finished.connections_left_out,
            pairs: finished.pairs,
            pairs_left_out,
            copies: self.joiner.copies,
            contradictions: self.joiner.contradictions,
            presumed: self.joiner.presumed,
            trace_id_elsewhere: std::mem::take(&mut self.search.places),
            ..Dissection::default()
        };
        for (i, (capture, tap)) in self.captures.iter().zip(&self.taps).enumerate() {
            dissection.captures.push(CaptureTotals {
                reading: capture.reading().clone(),
                counts: tap.counts(),
                unmatched: self.joiner.unmatched[i],
                halves_evicted: self.joiner.evicted[i],
                bookmarks: Some(capture.bookmarks().clone()),
            });
        }
        dissection.clock = clock.filter(|_| self.captures.len() == 2);
        dissection
    }
}
