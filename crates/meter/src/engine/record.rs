//! Adds a joined call to the statistics of its pair, or retracts it.

use super::shard::Surroundings;
use super::statistics::Statistics;
use crate::ingest::origins::NO_NAME;
use crate::ingest::walk::SpanFacts;
use crate::join::{Half, Join, Joined, Retracted, waited_ms};
use crate::keep::{Keep, MAX_SPAN_BYTES};
use crate::offset::{Clocks, KnownClocks, Legs, early_ns};
use crate::pairs::Numbered;
use crate::samples::Taken;
use crate::window::CallFigures;
use spangap_model::KeptCall;
use spangap_model::pair::{CallLegs, KeptSide, WORST_KEPT, WholeSpan};
use spangap_model::shared::SharedBytes;

impl Statistics {
    #[inline]
    pub(super) fn record(
        &mut self,
        join: &mut Join,
        call: Joined,
        arriving: &SpanFacts,
        bytes: &[u8],
        now_ms: u64,
        around: Surroundings<'_>,
    ) {
        let Surroundings { interned, common } = around;
        let client = interned.origin(call.client.origin);
        let server = interned.origin(call.server.origin);
        self.joined.of(client.service).client_joined += 1;
        self.joined.of(server.service).server_joined += 1;
        let names = common.grouping.names(client, server);
        let Numbered { number: pair, is_other } = self.known_pairs.find(names, &common.pairs, interned);
        let mut figures = CallFigures {
            client_ns: call.client.duration_ns,
            server_ns: call.server.duration_ns,
            status: call.status,
            large: call.large,
            sized: call.sized,
            request_leg_ns: None,
        };
        let gap_ns = if call.many_attempts { None } else { figures.gap_ns() };
        let mut bound_ns = 0;
        if gap_ns.is_some() {
            let known = client.host != NO_NAME && server.host != NO_NAME;
            let hosts = (client.host, server.host);
            let legs = known.then(|| legs(&mut self.known_clocks, &common.clocks, hosts, &call)).flatten();
            match legs {
                Some(legs) => {
                    figures.request_leg_ns = Some(legs.request_ns);
                    bound_ns = legs.bound_ns;
                }
                None => self.calls.without_legs += 1,
            }
        }
        self.calls.in_other += is_other as u64;
        let waited_ms = waited_ms(now_ms as u32, call.first_arrival_ms);
        let at_ms = now_ms.saturating_sub(waited_ms as u64);
        let stats = self.windows.stats(at_ms, pair);
        stats.mate_delay.record(waited_ms as u64 * 1_000_000);
        if call.many_attempts {
            stats.attempts_over_one += 1;
        } else {
            figures.record(stats);
            self.calls.with_one_attempt += 1;
            self.calls.without_size += !call.sized as u64;
        }
        if figures.request_leg_ns.is_some() {
            stats.leg_bound_max_ns = stats.leg_bound_max_ns.max(bound_ns);
            stats.leg_bound_sum_ns += bound_ns as u128;
        }
        if let Some(gap_ns) = gap_ns {
            let worst = stats.would_keep(gap_ns);
            let taken = self.samples.offer(pair, gap_ns);
            if worst | taken.any() {
                let legs = figures.request_leg_ns.map(|request_ns| CallLegs { request_ns, bound_ns });
                let whole = Whole { at_ms, pair, gap_ns, legs, worst, taken };
                self.keep_whole(whole, join.keep(), &call, (arriving, bytes), around);
            }
        }
        join.remember(call.position, pair, self.number, figures.request_leg_ns);
    }

    /// Retains a call with both its spans, where some list wants it.
    #[cold]
    fn keep_whole(
        &mut self,
        whole: Whole,
        keep: &Keep,
        call: &Joined,
        (arriving, bytes): (&SpanFacts, &[u8]),
        around: Surroundings<'_>,
    ) {
        let Surroundings { interned, common } = around;
        let Whole { at_ms, pair, gap_ns, legs, worst, taken } = whole;
        // The bytes exist once, and are charged to the list that retains them longer.
        let (account, limit, refused) = match worst {
            true => (&common.worst, common.worst_limit, &mut self.calls.worst_refused),
            false => (&self.samples.account, self.samples.limit_bytes, &mut self.samples.refused),
        };
        let mut side = |half: &Half| {
            let origin = interned.origin(half.origin);
            let span = match half.kept {
                Some(kept) => keep.get(kept),
                None => Some(bytes),
            };
            let whole = span.and_then(|span| {
                let fits = span.len() <= MAX_SPAN_BYTES;
                let Some(span) = fits.then(|| SharedBytes::charged_within(span, account, limit)).flatten()
                else {
                    *refused += 1;
                    return None;
                };
                Some(WholeSpan { resource: origin.resource.clone(), span })
            });
            KeptSide {
                start_unix_ns: half.start_ns,
                duration_ns: half.duration_ns,
                host: interned.name(origin.host).cloned(),
                whole,
            }
        };
        let kept = KeptCall {
            gap_ns,
            trace_id: arriving.trace_id(),
            client_span_id: client_span_id(arriving),
            status: call.status,
            legs,
            client: side(&call.client),
            server: side(&call.server),
        };
        if taken.any() {
            self.samples.put(pair, kept.clone(), taken);
        }
        if worst {
            let room = self.candidates.room(pair);
            let stats = self.windows.stats(at_ms, pair);
            stats.worst_room = stats.worst_room.max(room);
            stats.keep_worst(kept);
        }
    }

    #[cold]
    pub(super) fn retract(&mut self, call: Retracted, attempt: &SpanFacts, now_ms: u64) {
        let waited_ms = waited_ms(now_ms as u32, call.first_arrival_ms);
        let stats = self.windows.stats(now_ms.saturating_sub(waited_ms as u64), call.pair);
        call.figures.retract(stats);
        stats.attempts_over_one += 1;
        self.calls.with_one_attempt -= 1;
        self.calls.without_size -= !call.figures.sized as u64;
        let Some(gap_ns) = call.figures.gap_ns() else { return };
        self.samples.forget(call.pair, gap_ns, &attempt.trace_id(), &client_span_id(attempt));
        if !stats.forget_worst(gap_ns, &attempt.trace_id(), &client_span_id(attempt)) {
            return;
        }
        let is_short = stats.worst_complete_above_ns(WORST_KEPT).is_some();
        stats.worst_room = stats.worst_room.max(self.candidates.grow(call.pair, is_short));
        // The list contains every call above its floor, and hence the largest.
        if let Some(first) = stats.worst.first().filter(|first| first.gap_ns >= stats.worst_floor_ns) {
            stats.gap.set_max_ns(first.gap_ns);
        }
    }
}

/// A call to retain with its spans, and the lists that want it.
struct Whole {
    at_ms: u64,
    pair: u32,
    gap_ns: u64,
    legs: Option<CallLegs>,
    /// It is among the worst of its minute.
    worst: bool,
    taken: Taken,
}

/// The CLIENT span's id as sent on the wire, from either half.
fn client_span_id(span: &SpanFacts) -> [u8; 8] {
    use crate::ingest::semconv::SpanKind;
    if span.kind == SpanKind::Client { span.span.to_ne_bytes() } else { span.parent.to_ne_bytes() }
}

fn legs(known: &mut KnownClocks, clocks: &Clocks, hosts: (u32, u32), call: &Joined) -> Option<Legs> {
    let end = |half: &Half| i64::try_from(half.start_ns.checked_add(half.duration_ns)?).ok();
    let start = |half: &Half| i64::try_from(half.start_ns).ok();
    let d1 = start(&call.server)?.checked_sub(start(&call.client)?)?;
    let d2 = end(&call.client)?.checked_sub(end(&call.server)?)?;
    let early = |half: &Half| early_ns(half.start_ns, half.duration_ns);
    let early = (early(&call.client), early(&call.server));
    known.split(clocks, hosts, d1, d2, early, call.client.start_ns / 1_000_000)
}
