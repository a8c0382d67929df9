//! Combines the results of all sections: one numbering of connections, one total, one list of calls.

use super::run::{Closed, Run};
use super::{Dissection, SectionTotals};
use crate::align::Clock;
use crate::call::Call;
use crate::segment::Endpoint;
use crate::totals::{ConnectionTotals, PairTotals};
use std::cmp::Reverse;

/// Maximum rate difference between the clocks of a section.
pub(super) fn drift(clock: Option<&Clock>) -> f64 {
    let slopes = clock.into_iter().flat_map(|clock| &clock.stretches).flat_map(|stretch| &stretch.corners);
    let most = slopes
        .map(|(_, slope)| slope.abs())
        .fold(None, |most: Option<f64>, slope| Some(most.map_or(slope, |most| most.max(slope))));
    most.unwrap_or(1e-3)
}

/// Numbers the connections of all sections together, by descending time in calls, and uses overall capture
/// numbers.
pub(super) fn renumber(closed: &mut [Closed], numbers: &[Vec<usize>]) {
    if let [_] = closed {
        return;
    }
    let mut order: Vec<(Reverse<u128>, usize, usize)> = Vec::new();
    for (section, of) in closed.iter().enumerate() {
        for (place, connection) in of.finished.connections.iter().enumerate() {
            order.push((Reverse(connection.sums.durations.sum_ns()), section, place));
        }
    }
    order.sort_unstable();
    let mut new: Vec<Vec<u32>> =
        closed.iter().map(|section| vec![0; section.finished.connections.len()]).collect();
    for (number, (_, section, place)) in (1..).zip(order) {
        new[section][place] = number;
    }
    for ((section, new), numbers) in closed.iter_mut().zip(new).zip(numbers) {
        let capture = |local: u8| numbers.get(usize::from(local)).map_or(u8::MAX, |number| *number as u8);
        for (connection, number) in section.finished.connections.iter_mut().zip(&new) {
            let ConnectionTotals { captures, client_capture, .. } = connection;
            connection.number = *number;
            *captures = captures.map(capture);
            *client_capture = client_capture.map(capture);
        }
        for (number, _) in section.finished.numbers.values_mut() {
            *number = new.get(number.wrapping_sub(1) as usize).copied().unwrap_or(0);
        }
    }
}

/// Adds the result of a section to the overall result.
pub(super) fn put_together(all: &mut Dissection, run: &mut Run<'_>, closed: Closed, captures: usize) {
    let matched = run.matched();
    let section = run.dissection(closed);
    let numbers = run.numbers.clone();
    let number = |local: u8| numbers.get(usize::from(local)).map_or(local, |number| *number as u8);
    all.captures.resize(captures, Default::default());
    for (capture, totals) in numbers.iter().zip(section.captures) {
        all.captures[*capture].add(totals);
    }
    if captures <= 2 {
        all.clock = section.clock.clone();
    }
    all.sections.push(SectionTotals {
        captures: numbers.iter().map(|number| *number as u8).collect(),
        clock: section.clock,
        matched,
    });
    all.sums.add(&section.sums);
    all.matching += section.matching;
    all.connections.extend(section.connections);
    all.connections.sort_by_key(|connection| connection.number);
    all.connections_left_out += section.connections_left_out;
    all.pairs_left_out += section.pairs_left_out;
    for pair in section.pairs {
        let same = |known: &&mut PairTotals| {
            let key = |pair: &PairTotals| -> (Endpoint, Endpoint) { (pair.client, pair.server) };
            key(known) == key(&pair)
        };
        match all.pairs.iter_mut().find(same) {
            Some(known) => {
                known.connections += pair.connections;
                known.sums.add(&pair.sums);
            }
            None => all.pairs.push(pair),
        }
    }
    all.pairs.sort_by_key(|pair| (Reverse(pair.sums.durations.sum_ns()), pair.client, pair.server));
    all.copies += section.copies;
    all.presumed += section.presumed;
    all.contradictions += section.contradictions;
    let places = section.trace_id_elsewhere.into_iter();
    all.trace_id_elsewhere.extend(places.map(|(capture, packet, form)| (number(capture), packet, form)));
}

/// Removes places of trace ids that are within requests of the listed calls.
pub(super) fn places(dissection: &mut Dissection) {
    fn is_in(calls: &[Call], capture: u8, packet: u64) -> bool {
        calls.iter().any(|call| {
            let mut halves = call.halves.exchanges.iter().zip(call.halves.captures);
            let own = halves.any(|(half, of)| {
                let request = half.as_ref().map(|half| half.request);
                of == capture
                    && request.is_some_and(|part| (part.first.packet..=part.last.packet).contains(&packet))
            });
            own || call.hops.iter().any(|hop| is_in(std::slice::from_ref(&hop.call), capture, packet))
        })
    }
    let calls = &dissection.calls;
    dissection.trace_id_elsewhere.retain(|(capture, packet, _)| !is_in(calls, *capture, *packet));
}
