//! The end of a section: finished connections, sums, clocks.

use super::Run;
use super::kept_calls::Keeper;
use super::reader::Reader;
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

    /// What the rules have to say of a connection that has ended at each end that has it.
    fn notes(&self, connections: [Option<u32>; 2]) -> Vec<String> {
        let ended = self.known.iter().zip(connections);
        let notes = ended.filter_map(|(known, connection)| Some(known.notes(connection?)));
        once_each(notes.flatten().cloned())
    }

    /// Computes the sums and clocks. Calls counted afterwards are lost.
    pub fn close_all(&mut self) -> Closed {
        for (capture, Reader { tap, .. }) in self.readers.iter().enumerate() {
            for facts in tap.connections() {
                if self.joiner.links.known(capture, facts.id).is_none() {
                    self.unopened.take(capture, facts);
                }
            }
        }
        for mut link in self.joiner.links.take_all() {
            let mut of_rules = Vec::new();
            for (capture, Reader { tap, .. }) in self.readers.iter().enumerate() {
                let latest = link.connections[capture].and_then(|connection| tap.connection(connection));
                link.facts[capture] = latest.or(link.facts[capture].take());
                of_rules.extend(link.connections[capture].map(|connection| tap.notes(connection)));
            }
            let mut notes = std::mem::take(&mut link.notes);
            notes.extend(once_each(of_rules.into_iter().flatten()));
            self.totals.take(link, notes);
        }
        for (seen, note) in self.unopened.finish(self.readers.len()) {
            self.totals.list(Link::without_calls(seen), vec![note]);
        }
        let resolution_ns =
            self.readers.iter().map(|reader| reader.source.reading().resolution_ns).max().unwrap_or(1);
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
        let choices = self.readers.iter_mut().map(|reader| Some(reader.choice.take()?.0));
        Settled {
            parts: self.numbers.iter().copied().zip(choices).collect(),
            packets: self.readers.iter().map(|reader| reader.source.reading().packets).collect(),
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
            trace_id_elsewhere: std::mem::take(&mut self.places),
            ..Dissection::default()
        };
        for (i, Reader { source, tap, .. }) in self.readers.iter().enumerate() {
            dissection.captures.push(CaptureTotals {
                reading: source.reading().clone(),
                counts: tap.counts(),
                unmatched: self.joiner.unmatched[i],
                halves_evicted: self.joiner.evicted[i],
                bookmarks: Some(source.bookmarks().clone()),
            });
        }
        dissection.clock = clock.filter(|_| self.readers.len() == 2);
        dissection
    }
}

fn once_each(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for note in all {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}
