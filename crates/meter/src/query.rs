//! Converts statistics of the engine and the history to reports.

use crate::addresses;
use crate::engine::{ClockStep, LimitFigures, Overview};
use crate::history::OverTime;
use crate::report::*;
use crate::serve::places::PortFigures;
use crate::services::ServiceCounts;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use spangap_model::count::grouped;
use spangap_model::histogram::{SCALE, upper_bound_ns};
use spangap_model::pair::WholeSpan;
use spangap_model::{Histogram, KeptCall, PairKey, PairStats};
use std::collections::HashMap;
use std::sync::Arc;

/// Match ratios by service, for table rows.
#[derive(Debug, Default)]
pub struct Matches(HashMap<Arc<str>, ServiceCounts>);

impl Matches {
    /// Match ratios from the engine's counts.
    pub fn new(overview: &Overview) -> Matches {
        Matches(overview.services.iter().cloned().collect())
    }

    fn ratio(&self, service: &str, of: impl Fn(&ServiceCounts) -> (u64, u64)) -> Option<f64> {
        let (joined, unmatched) = of(self.0.get(service)?);
        (joined + unmatched > 0).then(|| joined as f64 / (joined + unmatched) as f64)
    }

    /// Matched share of the client's CLIENT spans, and of the server's SERVER spans.
    pub fn of(&self, key: &PairKey) -> [Option<f64>; 2] {
        [
            self.ratio(&key.client, |c| (c.client_joined, c.client_unmatched)),
            self.ratio(&key.server, |c| (c.server_joined, c.server_unmatched)),
        ]
    }
}

/// Quantiles of a distribution; all zero if it is empty, which `count` shows.
pub fn quantiles(histogram: &Histogram) -> Quantiles {
    let value = |q| histogram.quantile(q).map_or(0, |q| q.value_ns);
    let interval = |q| histogram.quantile(q).map_or([0, 0], |q| [q.low_ns, q.high_ns]);
    Quantiles {
        count: histogram.count(),
        p50_ns: value(0.5),
        p90_ns: value(0.9),
        p95_ns: value(0.95),
        p99_ns: value(0.99),
        p999_ns: value(0.999),
        max_ns: histogram.max_ns().unwrap_or(0),
        max_low_ns: histogram.max_low_ns().filter(|low| Some(*low) != histogram.max_ns()),
        mean_ns: histogram.mean_ns().unwrap_or(0),
        p50_ci95_ns: interval(0.5),
        p99_ci95_ns: interval(0.99),
    }
}

fn leg(histogram: &Histogram, stats: &PairStats) -> Option<LegReport> {
    let count = histogram.count();
    (count > 0).then(|| LegReport {
        quantiles: quantiles(histogram),
        bound_ns: stats.leg_bound_max_ns,
        bound_mean_ns: (stats.leg_bound_sum_ns / count as u128) as u64,
    })
}

/// One row of the table.
pub fn pair_row(key: &PairKey, stats: &PairStats, matches: &Matches) -> PairRow {
    let gap = quantiles(&stats.gap);
    let client_duration = quantiles(&stats.client);
    let server_duration = quantiles(&stats.server);
    let [client_match_ratio, server_match_ratio] = matches.of(key);
    PairRow {
        client: key.client.to_string(),
        server: key.server.to_string(),
        method: key.method.as_ref().map(|m| m.to_string()),
        calls: stats.calls(),
        client_p99_ns: client_duration.p99_ns,
        server_p99_ns: server_duration.p99_ns,
        gap,
        client_duration,
        server_duration,
        lost_ns_total: u64::try_from(stats.gap.sum_ns()).unwrap_or(u64::MAX),
        negative: stats.negative.values().sum(),
        negative_by_status: stats.negative.iter().map(|(s, n)| (s.name().to_string(), *n)).collect(),
        attempts_over_one: stats.attempts_over_one,
        excluded_large: stats.excluded_large,
        size_known_ratio: (stats.single_calls() > 0)
            .then(|| stats.sized as f64 / stats.single_calls() as f64),
        request_leg: leg(&stats.request_leg, stats),
        response_leg: leg(&stats.response_leg, stats),
        mate_delay: quantiles(&stats.mate_delay),
        client_match_ratio,
        server_match_ratio,
        worst: stats.worst.iter().take(WORST_SHOWN).map(worst_row).collect(),
        worst_complete_above_ns: stats.worst_complete_above_ns(WORST_SHOWN),
        before: None,
        beyond: None,
        lost_ns_by_step: None,
        client_ns_by_step: None,
    }
}

/// A pair in the time range of the comparison.
pub fn pair_before(stats: &PairStats) -> PairBefore {
    PairBefore {
        calls: stats.calls(),
        gap: quantiles(&stats.gap),
        client_duration: quantiles(&stats.client),
        server_duration: quantiles(&stats.server),
        lost_ns_total: u64::try_from(stats.gap.sum_ns()).unwrap_or(u64::MAX),
    }
}

/// Worst calls in a table row; requests can ask for more.
pub const WORST_SHOWN: usize = 5;

/// One of the worst calls.
pub fn worst_row(call: &KeptCall) -> WorstRow {
    let [client_address, server_address] = addresses::where_names_do_not_tell(call);
    WorstRow {
        trace_id: hex(&call.trace_id),
        client_span_id: hex(&call.client_span_id),
        gap_ns: call.gap_ns,
        client_ns: call.client.duration_ns,
        server_ns: call.server.duration_ns,
        start_unix_ns: call.client.start_unix_ns,
        status: call.status.name().to_string(),
        legs: call.legs.map(|legs| CallLegs { request_ns: legs.request_ns, bound_ns: legs.bound_ns }),
        client_host: call.client.host.as_ref().map(|h| h.to_string()),
        server_host: call.server.host.as_ref().map(|h| h.to_string()),
        client_address,
        server_address,
        whole: call.client.whole.is_some() && call.server.whole.is_some(),
    }
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text
}

/// The table of pairs, sorted by decreasing time lost.
pub fn pairs_report<'a>(
    pairs: impl IntoIterator<Item = (&'a PairKey, &'a PairStats)>,
    overview: &Overview,
    from_unix_s: u64,
    to_unix_s: u64,
) -> PairsReport {
    let matches = Matches::new(overview);
    let mut rows: Vec<PairRow> =
        pairs.into_iter().map(|(key, stats)| pair_row(key, stats, &matches)).collect();
    most_lost_first(&mut rows);
    PairsReport {
        from_unix_s,
        to_unix_s,
        pairs: rows,
        spans: SpanCounts::from(&overview.accounting),
        ..PairsReport::default()
    }
}

/// Sorts the table of pairs by decreasing time lost.
pub fn most_lost_first(rows: &mut [PairRow]) {
    rows.sort_by(|a, b| {
        let names = |row: &PairRow| (row.client.clone(), row.server.clone(), row.method.clone());
        b.lost_ns_total.cmp(&a.lost_ns_total).then_with(|| names(a).cmp(&names(b)))
    });
}

/// One pair over time.
pub fn over_time(key: &PairKey, over_time: &OverTime, matches: &Matches) -> PairOverTime {
    let points = over_time.points.iter().map(|(unix_s, (stats, open))| PairPoint {
        unix_s: *unix_s,
        open: *open,
        gap: quantiles(&stats.gap),
        client_duration: quantiles(&stats.client),
        server_duration: quantiles(&stats.server),
        lost_ns_total: u64::try_from(stats.gap.sum_ns()).unwrap_or(u64::MAX),
    });
    PairOverTime {
        total: pair_row(key, &over_time.total, matches),
        points: points.collect(),
        heatmap: Heatmap {
            step_s: Some(over_time.step.seconds()),
            ..heatmap(over_time.points.iter().map(|(unix_s, (stats, _))| (*unix_s, &stats.gap)))
        },
        step_s: Some(over_time.step.seconds()),
        covered_from_unix_s: None,
        of_meters: None,
    }
}

fn heatmap<'a>(columns: impl Iterator<Item = (u64, &'a Histogram)> + Clone) -> Heatmap {
    let indices = || columns.clone().flat_map(|(_, h)| h.buckets().map(|(i, _)| i));
    let (Some(first), Some(last)) = (indices().min(), indices().max()) else {
        return Heatmap { scale: SCALE, ..Heatmap::default() };
    };
    let column = |histogram: &Histogram| {
        let mut counts = vec![0; (last - first + 1) as usize];
        // A gap of exactly zero is below every bucket; it is shown in the lowest row.
        counts[0] = histogram.zero_count();
        histogram.buckets().for_each(|(i, n)| counts[(i - first) as usize] += n);
        counts
    };
    Heatmap {
        scale: SCALE,
        first_index: first,
        upper_bounds_ns: (first..=last).map(upper_bound_ns).collect(),
        unix_s: columns.clone().map(|(unix_s, _)| unix_s).collect(),
        counts: columns.map(|(_, histogram)| column(histogram)).collect(),
        step_s: None,
    }
}

/// What the meter observed and what it did not. Fields that only the server knows keep their defaults.
pub fn coverage(overview: &Overview) -> Coverage {
    let services = overview.services.iter().map(|(service, c)| ServiceCoverage {
        service: service.to_string(),
        client_joined: c.client_joined,
        client_unmatched: c.client_unmatched,
        server_joined: c.server_joined,
        server_unmatched: c.server_unmatched,
    });
    Coverage {
        spans: SpanCounts::from(&overview.accounting),
        match_ratio: overview.accounting.match_ratio(),
        malformed: MalformedCounts::from(&overview.malformed),
        mate_delay: quantiles(&overview.mate_delay),
        services: services.collect(),
        pending_bytes: overview.pending_bytes,
        pending_bytes_limit: overview.pending_bytes_limit,
        whole_bytes: overview.whole_bytes,
        whole_span_horizon_ms: overview.whole_span_horizon_ms,
        calls_in_other: overview.calls_in_other,
        calls_without_legs: overview.calls_without_legs,
        calls_without_size: overview.calls_without_size,
        exclude_response_over_bytes: overview.exclude_response_over,
        limits: overview.limits.iter().map(limit_report).collect(),
        ..Coverage::default()
    }
    .with_notes(size_note(overview).into_iter().map(Note::aside).collect())
}

/// Note for readers on a step of the wall clock, in words.
pub fn clock_note(steps: u64, last: &ClockStep) -> String {
    let by = match last.by_ms.unsigned_abs() as f64 / 1e3 {
        by_s if by_s >= 2.0 * 86_400.0 => format!("{:.1} days", by_s / 86_400.0),
        by_s if by_s >= 2.0 * 3_600.0 => format!("{:.1} hours", by_s / 3_600.0),
        by_s => format!("{by_s:.1} s"),
    };
    let way = if last.by_ms < 0 { "back" } else { "forward" };
    format!(
        "the system clock was set {steps} times since the start, last by {by} {way}; minutes written before a step \
         keep the clock's earlier time"
    )
}

/// Note for readers on the response size limit, if most calls do not state their size.
pub fn size_note(overview: &Overview) -> Option<String> {
    let limit_bytes = overview.exclude_response_over?;
    let (calls, unknown) = (overview.calls_with_one_attempt, overview.calls_without_size);
    (unknown * 2 > calls).then(|| {
        format!(
            "the size of the response is unknown for {} of {} calls: large ones among them are not excluded by \
             --exclude-response-over {} bytes and widen their gaps; let an SDK record \
             http.response.body.size, the header content-length or message events, or name the attribute with \
             --response-size-attribute",
            grouped(unknown),
            grouped(calls),
            grouped(limit_bytes)
        )
    })
}

fn limit_report(limit: &LimitFigures) -> LimitReport {
    let LimitFigures { name, used, limit, cut, forgotten, refused } = *limit;
    LimitReport { name: name.into(), used, limit, cut, forgotten, refused }
}

/// Connections of a port.
pub fn port_report(port: &str, figures: &PortFigures) -> PortReport {
    PortReport {
        port: port.into(),
        open: figures.open,
        limit: figures.limit,
        accepted: figures.accepted,
        closed_no_request: figures.closed_no_request,
        closed_idle: figures.closed_idle,
        closed_not_reading: figures.closed_not_reading,
        closed_for_room: figures.closed_for_room,
        closed_no_tls: figures.closed_no_tls,
        refused: figures.refused,
        accept_errors: figures.accept_errors,
    }
}

/// One call with both its spans.
pub fn call_report(key: &PairKey, call: &KeptCall) -> CallReport {
    CallReport {
        call: worst_of_pair(key, call),
        client_span: call.client.whole.as_ref().and_then(otlp_json_of),
        server_span: call.server.whole.as_ref().and_then(otlp_json_of),
    }
}

/// A worst call with its pair.
pub fn worst_of_pair(key: &PairKey, call: &KeptCall) -> WorstOfPair {
    WorstOfPair {
        client: key.client.to_string(),
        server: key.server.to_string(),
        method: key.method.as_ref().map(|m| m.to_string()),
        call: worst_row(call),
    }
}

/// `{"resource": …, "span": …}` in OTLP JSON. `None` for bytes that the walk skipped but that do not decode.
fn otlp_json_of(whole: &WholeSpan) -> Option<serde_json::Value> {
    let resource = Resource::decode(&whole.resource[..]).ok()?;
    let span = Span::decode(&whole.span[..]).ok()?;
    Some(
        serde_json::json!({"resource": serde_json::to_value(resource).ok()?, "span": serde_json::to_value(span).ok()?}),
    )
}
