//! Why a call took its time, from both captures combined.

use super::{Run, SETTLING_NS};
use crate::call::{CallFinding, Halves};
use crate::causes::syn;
use crate::dissect::unopened;
use crate::episode::Episode;
use crate::findings::{self, apps, batched_arrival, held, network_delay, ready, receiver_drop};
use crate::legs::Moments;
use spangap_model::evidence::Certainty;
use spangap_model::{Cause, Side};

impl Run<'_> {
    /// Whether the server's capture has the connection and covers the time of a call that ended without a
    /// response, but has no byte of its request.
    pub(super) fn never_arrived(&self, link: usize, halves: &Halves) -> bool {
        let [Some(client), None] = &halves.exchanges else { return false };
        let Some(ending) = client.ending else { return false };
        let other = 1 - usize::from(halves.captures[0]);
        let (Some(known), Some(so_far)) = (self.known.get(other), self.so_far.get(other)) else {
            return false;
        };
        let link = self.joiner.links.get(link);
        let own = link.facts[1 - other].as_ref();
        let linked = link.facts[other].as_ref();
        let linked = linked.map(|facts| (facts.first_ns, facts.hole_bytes[Side::Client.index()] > 0));
        let followed = || known.between(own?.ends, own?.network);
        let seen = linked.or_else(|| followed().map(|seen| (seen.first_ns, seen.misses_requests())));
        let Some((first_ns, false)) = seen else { return false };
        let offset_ns = self.pace.offset_ns.unwrap_or(0);
        let ahead_ns = if other == 1 { offset_ns } else { offset_ns.saturating_neg() };
        let there = |at_ns: i64| at_ns.saturating_add(ahead_ns);
        let until_ns = self.pace.now_ns[other].max(so_far.stopped_ns).unwrap_or(i64::MIN);
        // For a call still open: anything that could be lost would have been retransmitted by then.
        let asked_ns = client.request.last.seen_ns;
        let covered_ns =
            if ending.by.is_none() { asked_ns.saturating_add(SETTLING_NS) } else { ending.at_ns };
        first_ns <= there(asked_ns)
            && until_ns >= there(covered_ns)
            && so_far.dropped.is_none_or(|dropped| dropped == 0)
    }

    pub(super) fn findings(
        &mut self,
        link: usize,
        halves: &Halves,
        moments: &Moments,
        duration_ns: u64,
    ) -> Vec<CallFinding> {
        let mut episodes = [Vec::new(), Vec::new()];
        for (side, half) in halves.exchanges.iter().enumerate() {
            if let Some(half) = half {
                episodes[side] = self.known[usize::from(halves.captures[side])].episodes_of(half);
            }
        }
        let offset_ns = self.pace.offset_ns.unwrap_or(0);
        let least_path_ns = self.joiner.links.get(link).least_path_ns;
        let about = held::About { halves, moments, duration_ns, offset_ns, least_path_ns };
        let mut explained = Vec::new();
        self.opening(link, halves, &mut episodes);
        ready::settle(moments, &mut episodes);
        receiver_drop::settle(&mut episodes, halves.lone());
        let mut found = if episodes.iter().all(Vec::is_empty) {
            Vec::new()
        } else {
            held::findings(&about, &episodes, &mut explained)
        };
        let mut path = network_delay::PathTime::default();
        for way in findings::ways(halves, moments).into_iter().flatten() {
            let state = self.joiner.links.at(link);
            let detour_ns = &mut state.detour_ns[usize::from(way.capture & 1)];
            let mut beyond_ns = self.earlier.paths.excess_ns(&way, detour_ns);
            // The retransmission hides when the lost original was sent. For such a transit, loss took the time it
            // is known to have taken, and no excess over the fastest is attributed to the path.
            let is_loss = |cause, sender| findings::is_loss(cause) && sender == way.from;
            let mut explained_ns = findings::covered_ns(&explained, way.range(about.offset_ns), |span| {
                is_loss(span.cause, span.sender)
            });
            if episodes.iter().flatten().any(|episode| is_loss(episode.cause, episode.sender)) {
                beyond_ns = 0;
            } else if held::goes_on(&mut found, &way, beyond_ns, &about, &episodes) {
                explained_ns += beyond_ns;
                beyond_ns = 0;
            } else if network_delay::is_late(beyond_ns, duration_ns)
                && let Some(batch) = self.earlier.arrivals.batch(&way)
            {
                found.push(batched_arrival::finding(
                    &way,
                    way.range(about.offset_ns),
                    &batch,
                    beyond_ns,
                    duration_ns,
                ));
                explained_ns += beyond_ns;
                beyond_ns = 0;
            }
            path.ways[way.from.index()] = Some((way, explained_ns, beyond_ns));
        }
        if let Some(sum_ns) = path.sum_ns() {
            let least_ns = &mut self.joiner.links.at(link).least_path_ns;
            *least_ns = Some(least_ns.map_or(sum_ns, |least| least.min(sum_ns)));
        }
        if let Some(cost_ns) = path.cost_ns(duration_ns) {
            found.push(path.finding(cost_ns, duration_ns));
        }
        apps::findings(&about, &explained, &mut found);
        found
    }

    /// Assigns delays of a connection's opening to the calls that waited for it: those whose CLIENT spans say so,
    /// else the first one.
    #[inline]
    fn opening(&mut self, link: usize, halves: &Halves, episodes: &mut [Vec<Episode>; 2]) {
        let state = self.joiner.links.at(link);
        let seen = [0, 1].map(|side| {
            let facts = state.facts[usize::from(halves.captures[side])].as_ref();
            facts.filter(|_| halves.exchanges[side].is_some()).map(|facts| facts.handshake)
        });
        if seen.iter().flatten().all(|handshake| handshake.syns < 2 && handshake.syn_acks < 2) {
            return;
        }
        let opened = seen[0].and_then(|handshake| handshake.ack);
        let waited = match halves.spans.and_then(|spans| spans.client).zip(opened) {
            Some(((start, _), (opened, _))) => start < opened,
            None => !state.opening_told,
        };
        let first = !std::mem::replace(&mut state.opening_told, true);
        if !waited {
            return;
        }
        let mut held = [Vec::new(), Vec::new()];
        for (side, handshake) in seen.into_iter().enumerate() {
            let begun = handshake.and_then(|handshake| handshake.syn.or(handshake.syn_ack));
            let Some((half, (begun_ns, _))) = halves.exchanges[side].as_ref().zip(begun) else { continue };
            let mut since = half.clone();
            since.request.first.seen_ns = begun_ns;
            held[side] = self.known[usize::from(halves.captures[side])].episodes_of(&since);
            held[side].retain(|held| matches!(held.cause, Cause::SynLoss | Cause::AcceptOverflow));
        }
        if let [Some(client), Some(server)] = &seen
            && let Some((cause, certainty)) = syn::together(client, server)
        {
            let side = (cause == Cause::AcceptOverflow).then_some(Side::Server);
            for episode in held.iter_mut().flatten() {
                (episode.cause, episode.certainty, episode.side) = (cause, certainty, side);
            }
            if let Some(waiting) =
                server.queue_unanswered.filter(|_| certainty == Certainty::Shown && side.is_some())
            {
                held[Side::Server.index()].iter_mut().for_each(|episode| syn::queued(episode, waiting));
            }
        }
        if first && let Some(episode) = held.iter().flatten().max_by_key(|held| held.to_ns - held.from_ns) {
            let notes = &mut self.joiner.links.at(link).notes;
            notes.push(unopened::slowly(episode, seen));
        }
        for (all, held) in episodes.iter_mut().zip(held) {
            all.extend(held);
        }
    }
}
