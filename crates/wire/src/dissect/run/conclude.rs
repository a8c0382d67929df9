//! Calls that are complete: concluded, counted, kept.

use super::{Run, SETTLING_NS};
use crate::call::{CallFinding, Halves};
use crate::dissect::unsettled::{UnsettledCall, of_all_hops};
use crate::exchange::TraceContext;
use crate::findings;
use crate::hops::LinkedBy;
use crate::join::Joined;
use crate::legs::Moments;
use spangap_model::Side;

/// Maximum calls that wait to be settled.
const MAX_SETTLING: usize = 1024;

/// A complete call, except that it may still be a hop of another.
#[derive(Debug)]
pub(in crate::dissect) struct Concluded {
    pub(super) link: usize,
    pub halves: Box<Halves>,
    pub moments: Moments,
    pub duration_ns: u64,
    pub findings: Vec<CallFinding>,
}

impl Run<'_> {
    /// Concludes the calls that are complete.
    pub(super) fn settle(&mut self) {
        while let Some(joined) = self.settling.front() {
            if !self.is_due(&joined.halves) && self.settling.len() < MAX_SETTLING {
                break;
            }
            if let Some(joined) = self.settling.pop_front() {
                self.conclude(joined);
            }
        }
    }

    /// Whether both captures are so far beyond the call that no more of it will follow. A sender's delays after
    /// its last byte end when the receiver has that byte, so the later end counts for both.
    fn is_due(&self, halves: &Halves) -> bool {
        let offset_ns = self.pace.offset_ns.unwrap_or(0);
        let ahead_ns = |capture: u8| if capture == 1 { offset_ns } else { 0 };
        let ends = || {
            let known = halves.exchanges.iter().zip(halves.captures);
            known.filter_map(|(half, capture)| {
                let half = half.as_ref()?;
                let last = half.response.as_ref().map_or(half.request.last, |response| response.last);
                Some((capture, last.ready_ns.saturating_sub(ahead_ns(capture))))
            })
        };
        let Some(end_ns) = ends().map(|(_, end_ns)| end_ns).max() else { return true };
        ends().all(|(capture, _)| {
            let now_ns = self.pace.now_ns[usize::from(capture)].unwrap_or(i64::MAX);
            let beyond_ns = now_ns.saturating_sub(ahead_ns(capture)).saturating_sub(end_ns);
            self.pace.over[usize::from(capture)] || beyond_ns > SETTLING_NS
        })
    }

    fn conclude(&mut self, joined: Joined) {
        let Joined { link, mut halves } = joined;
        let link = self.joiner.links.settle(link);
        if !self.settings.spans.times.is_empty() {
            self.by_time(link, &mut halves);
        }
        let trace = halves.exchanges.iter().flatten().find_map(|half| half.trace);
        // The spans of a stream cover the whole stream, not a turn in its middle.
        let later_turn = halves.exchanges.iter().flatten().any(|half| half.turn > 1);
        if !self.settings.spans.times.is_empty()
            && !later_turn
            && let Some(TraceContext { trace_id, span_id }) = trace
        {
            let spans = self.settings.spans.times.get(&(trace_id, span_id)).copied();
            let others =
                self.settings.spans.attempts.get(&(trace_id, span_id)).map_or(&[][..], Vec::as_slice);
            halves.spans = match &halves.exchanges[Side::Server.index()] {
                Some(server) => spans.map(|spans| spans.of_attempt(server, others)),
                None => spans,
            }
            .map(|spans| spans.placed(&halves.exchanges));
        }
        halves.never_arrived = self.never_arrived(link, &halves);
        let moments = Moments::of(&halves).closed();
        let duration_ns = moments.ends().map_or(0, |(first, last)| (last.0 - first.0).max(0) as u64);
        let mut found = self.findings(link, &halves, &moments, duration_ns);
        findings::by_weight(&mut found);
        let call = Concluded { link, halves, moments, duration_ns, findings: found };
        match &mut self.concluded {
            None => self.count(call, Vec::new()),
            Some(concluded) => {
                // Its connection must stay until the call is counted.
                self.joiner.links.at(link).uses += 1;
                concluded.push(call);
            }
        }
    }

    /// Gives a call without a trace context the one of its spans matched by time, or records that it has none.
    fn by_time(&mut self, link: usize, halves: &mut Halves) {
        let trace = halves.exchanges.iter().flatten().find_map(|half| half.trace);
        if let Some(TraceContext { trace_id, span_id }) = trace {
            self.untracked.traced((trace_id, span_id));
            return;
        }
        let Some(client) = &halves.exchanges[Side::Client.index()] else { return };
        let place = (self.section, halves.captures[0], client.connection, client.request.start);
        if let Some((trace_id, span_id)) = self.by_time.get(&place).copied() {
            for half in halves.exchanges.iter_mut().flatten() {
                half.trace = Some(TraceContext { trace_id, span_id });
                half.doubts.by_time = true;
            }
        } else if let Some(response) = client.response.as_ref().filter(|_| client.turn <= 1)
            && self.settings.trace_ids.is_empty()
            && let Some([_, server]) = self.joiner.links.at(link).ends()
        {
            let times = (client.request.first.seen_ns, response.last.ready_ns);
            self.untracked.add(place, server.port, times);
        }
    }

    /// Counts a call that is not a hop of another one, with its own hops.
    #[inline]
    fn count(&mut self, call: Concluded, hops: Vec<(LinkedBy, UnsettledCall)>) {
        let Concluded { link, halves, moments, duration_ns, findings } = call;
        let trace = halves.exchanges.iter().flatten().find_map(|half| half.trace);
        let state = self.joiner.links.at(link);
        if hops.is_empty() {
            state.sums.call(&halves, &moments, duration_ns, &findings);
        } else {
            state.sums.call(&halves, &moments, duration_ns, &of_all_hops(&findings, &hops));
        }
        let (key, ends) = (state.key, state.ends());
        self.calls += 1;
        if self.is_wanted(duration_ns, trace) {
            self.matching += 1;
            // The duration of a call with times from two clocks is unknown: it sorts last.
            let known_ns = if halves.is_of_two_clocks() { 0 } else { duration_ns };
            let weight = (known_ns, moments.1.is_some());
            let call = UnsettledCall { section: self.section, link: key, ends, halves, findings, hops };
            match &mut self.every {
                Some(every) => every.push(call),
                None => {
                    if let Some(call) = self.kept.offer(call, weight, self.calls) {
                        self.joiner.give_back(call.halves);
                    }
                }
            }
        } else {
            self.joiner.give_back(halves);
        }
        self.close(link);
    }

    /// Counts a call of [`Run::concluded`] that is not a hop of another.
    pub fn count_later(&mut self, mut call: Concluded, hops: Vec<(LinkedBy, UnsettledCall)>) {
        call.link = self.joiner.links.settle(call.link);
        self.count(call, hops);
    }

    /// Counts a call of [`Run::concluded`] that is a hop of another, only with its connection.
    pub fn count_hop(&mut self, call: Concluded, hops: Vec<(LinkedBy, UnsettledCall)>) -> UnsettledCall {
        let link = self.joiner.links.settle(call.link);
        let Concluded { halves, moments, duration_ns, findings, .. } = call;
        let state = self.joiner.links.at(link);
        state.inner.call(&halves, &moments, duration_ns, &findings);
        let (key, ends) = (state.key, state.ends());
        let followed = UnsettledCall { section: self.section, link: key, ends, halves, findings, hops };
        self.close(link);
        followed
    }

    fn is_wanted(&self, duration_ns: u64, trace: Option<TraceContext>) -> bool {
        let ids = &self.settings.trace_ids;
        let of_trace =
            ids.is_empty() || trace.is_some_and(|trace| ids.iter().any(|id| is_trace(id, &trace.trace_id)));
        of_trace && self.settings.over_ns.is_none_or(|over| duration_ns >= over)
    }
}

/// Whether a requested id matches that of a trace. A 64-bit id is the low half of the id that another system
/// derives from it.
fn is_trace(id: &[u8; 16], of: &[u8; 16]) -> bool {
    id == of || ((id[..8] == [0; 8] || of[..8] == [0; 8]) && id[8..] == of[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_bit_id_is_the_low_half_of_a_128_bit_one() {
        let long = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let mut short = long;
        short[..8].fill(0);
        assert!(is_trace(&long, &long) && is_trace(&short, &long) && is_trace(&long, &short));
        let mut other = long;
        other[0] = 9;
        assert!(!is_trace(&other, &long));
        assert!(is_trace(&short, &other));
    }
}
