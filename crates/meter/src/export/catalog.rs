//! Every metric of the meter: names, units, labels and values. `docs/metrics.md` lists them for users.

use super::exemplar::{Exemplar, ExemplarCall, calls};
use super::family::{Families, Family, Labels, MetricKind, Point, Unit, Value, seconds};
use super::snapshot::Snapshot;
use crate::engine::LimitFigures;
use crate::serve::places::PortFigures;
use spangap_model::{Histogram, PairKey, PairStats};
use std::rc::Rc;

/// Every metric of a snapshot.
pub fn families(snapshot: &Snapshot) -> Vec<Family<'_>> {
    let mut families = Families::default();
    of_pairs(snapshot, &mut families);
    of_spans(snapshot, &mut families);
    of_process(snapshot, &mut families);
    of_kept(snapshot, &mut families);
    super::kafka::of_kafka(snapshot, &mut families);
    super::clickhouse::of_clickhouse(snapshot, &mut families);
    families.all()
}

/// A pair and the values its points share.
struct Pair<'a> {
    labels: Labels<'a>,
    stats: &'a PairStats,
    calls: Vec<Rc<ExemplarCall<'a>>>,
}

impl<'a> Pair<'a> {
    fn new((key, stats): &'a (PairKey, PairStats)) -> Self {
        let mut labels: Labels = vec![("client", &key.client), ("server", &key.server)];
        labels.extend(key.method.as_deref().map(|method| ("method", method)));
        Pair { labels, stats, calls: calls(&stats.worst) }
    }

    fn point(&self, value: Value<'a>) -> Point<'a> {
        Point { labels: self.labels.clone(), value }
    }

    fn distribution(
        &self,
        histogram: &'a Histogram,
        exemplar_ns: Option<fn(&ExemplarCall) -> u64>,
    ) -> Point<'a> {
        let exemplar = |value_ns: fn(&ExemplarCall) -> u64| {
            let of =
                move |call: &Rc<ExemplarCall<'a>>| Exemplar { value_ns: value_ns(call), call: call.clone() };
            self.calls.iter().map(of).collect()
        };
        let exemplars = exemplar_ns.map(exemplar).unwrap_or_default();
        self.point(Value::Distribution { histogram, exemplars })
    }
}

fn of_pairs<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let pairs: Vec<Pair> = snapshot.pairs.iter().map(Pair::new).collect();
    let mut distribution = |name, help, of: fn(&PairStats) -> &Histogram, exemplar_ns, always: bool| {
        let shown = pairs.iter().filter(|pair| always || of(pair.stats).count() > 0);
        let points = shown.map(|pair| pair.distribution(of(pair.stats), exemplar_ns)).collect();
        families.add(MetricKind::Histogram, Unit::Seconds, name, help, points);
    };
    distribution(
        "spangap_gap_seconds",
        "Client span duration minus server span duration of each call.",
        |stats| &stats.gap,
        Some(|call| call.call.gap_ns),
        true,
    );
    distribution(
        "spangap_client_duration_seconds",
        "Client span duration of the calls in spangap_gap_seconds.",
        |stats| &stats.client,
        Some(|call| call.call.client.duration_ns),
        true,
    );
    distribution(
        "spangap_server_duration_seconds",
        "Server span duration of the calls in spangap_gap_seconds.",
        |stats| &stats.server,
        Some(|call| call.call.server.duration_ns),
        true,
    );
    distribution(
        "spangap_request_leg_seconds",
        "Client span start to server span start, by the midpoint of the clock offset interval.",
        |stats| &stats.request_leg,
        None,
        false,
    );
    distribution(
        "spangap_response_leg_seconds",
        "Server span end to client span end, by the midpoint of the clock offset interval.",
        |stats| &stats.response_leg,
        None,
        false,
    );
    distribution(
        "spangap_mate_delay_seconds",
        "Time between the arrivals of a call's two spans at the meter.",
        |stats| &stats.mate_delay,
        None,
        true,
    );

    let with_legs = || pairs.iter().filter(|pair| pair.stats.request_leg.count() > 0);
    let bound = |pair: &Pair<'a>| pair.point(Value::Real(seconds(pair.stats.leg_bound_max_ns as u128)));
    families.add(
        MetricKind::Gauge,
        Unit::Seconds,
        "spangap_leg_bound_seconds",
        "Error bound of each leg since the start, because clocks differ.",
        with_legs().map(bound).collect(),
    );
    let mean = |pair: &Pair<'a>| {
        let sum_s = seconds(pair.stats.leg_bound_sum_ns);
        pair.point(Value::Real(sum_s / pair.stats.request_leg.count() as f64))
    };
    families.add(
        MetricKind::Gauge,
        Unit::Seconds,
        "spangap_leg_bound_mean_seconds",
        "Mean error bound of the calls' legs.",
        with_legs().map(mean).collect(),
    );

    let negative = pairs.iter().flat_map(|pair| {
        pair.stats.negative.iter().map(|(status, n)| {
            let mut point = pair.point(Value::Count(*n));
            point.labels.push(("status", status.name()));
            point
        })
    });
    families.add(
        MetricKind::Counter,
        Unit::None,
        "spangap_negative_calls",
        "Calls whose server span was the longer one, by client status; in no distribution.",
        negative.collect(),
    );
    let mut calls = |name, help, of: fn(&PairStats) -> u64| {
        let points = pairs.iter().map(|pair| pair.point(Value::Count(of(pair.stats)))).collect();
        families.add(MetricKind::Counter, Unit::None, name, help, points);
    };
    calls(
        "spangap_attempts_over_one_calls",
        "Calls with more than one server span under the client span: retries and hedges; in no distribution.",
        |stats| stats.attempts_over_one,
    );
    calls(
        "spangap_excluded_large_calls",
        "Calls excluded because their response was over the size limit; in no distribution.",
        |stats| stats.excluded_large,
    );
    calls(
        "spangap_sized_calls",
        "Calls with one attempt whose spans state the size of the response; only these can be excluded for it.",
        |stats| stats.sized,
    );
}

fn labelled<'a, const N: usize>(name: &'static str, counts: [(&'static str, u64); N]) -> Vec<Point<'a>> {
    let point = |(value, n)| Point { labels: vec![(name, value)], value: Value::Count(n) };
    counts.into_iter().map(point).collect()
}

fn of_spans<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let overview = &snapshot.overview;
    let spans = &overview.accounting;
    let handed_over = overview.handed_over;
    families.count(
        "spangap_spans_received",
        "Spans accepted from exporters.",
        // Never falls, although a half that leaves with its partition is no longer this meter's.
        spans.received + handed_over,
    );
    let mut classes = vec![
        ("joined", spans.joined),
        ("expired_client_only", spans.expired_client_only),
        ("expired_server_only", spans.expired_server_only),
        ("evicted", spans.evicted),
        ("duplicate", spans.duplicate),
        ("extra_attempts", spans.extra_attempts),
        ("root", spans.root),
        ("other_kind", spans.other_kind),
        ("malformed", spans.malformed),
    ];
    if overview.asks_peers {
        classes.extend([("apart", spans.apart), ("unresolved", spans.unresolved)]);
    }
    // Only partitions of a log are handed over.
    if snapshot.kafka.is_some() {
        classes.push(("handed_over", handed_over));
    }
    let class =
        |(class, n): &(&'static str, u64)| Point { labels: vec![("class", *class)], value: Value::Count(*n) };
    families.add(
        MetricKind::Counter,
        Unit::None,
        "spangap_spans",
        "Spans by what became of them; with spangap_spans_pending they sum to spangap_spans_received_total.",
        classes.iter().map(class).collect(),
    );
    families.one(
        MetricKind::Gauge,
        Unit::None,
        "spangap_spans_pending",
        "Spans still waiting for their mate.",
        Value::Count(spans.pending),
    );
    let malformed = &overview.malformed;
    let reasons = [
        ("bad_id", malformed.bad_id),
        ("end_before_start", malformed.end_before_start),
        ("no_time", malformed.no_time),
        ("too_long", malformed.too_long),
    ];
    families.add(
        MetricKind::Counter,
        Unit::None,
        "spangap_malformed_spans",
        "Spans that cannot be used, by reason.",
        labelled("reason", reasons),
    );
    let services = overview.services.iter().flat_map(|(service, counts)| {
        let point = move |(role, outcome, n): (&'static str, &'static str, u64)| Point {
            labels: vec![("service", &**service), ("role", role), ("outcome", outcome)],
            value: Value::Count(n),
        };
        [
            ("client", "joined", counts.client_joined),
            ("client", "unmatched", counts.client_unmatched),
            ("server", "joined", counts.server_joined),
            ("server", "unmatched", counts.server_unmatched),
        ]
        .map(point)
    });
    families.add(
        MetricKind::Counter,
        Unit::None,
        "spangap_service_spans",
        "CLIENT and SERVER spans of a service that found their mate, and those that did not in time.",
        services.collect(),
    );
    families.count(
        "spangap_calls_in_other",
        "Calls of pairs past the series limit, counted in the pair other.",
        overview.calls_in_other,
    );
    families.count(
        "spangap_names_in_other",
        "Resources, methods and service names that found no room and count as other.",
        overview.names_in_other,
    );
    families.count(
        "spangap_calls_without_legs",
        "Calls whose legs are unknown: no host name, too few calls, or clocks that contradict.",
        overview.calls_without_legs,
    );
    families.bytes("spangap_pending_bytes", "Memory of the store of pending spans.", overview.pending_bytes);
    families.bytes(
        "spangap_pending_bytes_limit",
        "Limit of spangap_pending_bytes; beyond it the oldest are evicted.",
        overview.pending_bytes_limit,
    );
    families.bytes(
        "spangap_whole_bytes",
        "Memory of the whole spans held for the worst calls.",
        overview.whole_bytes,
    );
    if let Some(horizon_ms) = overview.whole_span_horizon_ms {
        families.seconds(
            "spangap_whole_span_horizon_seconds",
            "Age of the oldest whole span held; a mate that comes later finds no attributes.",
            horizon_ms as f64 / 1e3,
        );
    }
}

fn of_limits<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let limits = &snapshot.overview.limits;
    let points = |of: fn(&LimitFigures) -> u64| {
        let point = |limit: &LimitFigures| Point {
            labels: vec![("limit", limit.name)],
            value: Value::Count(of(limit)),
        };
        limits.iter().map(point).collect::<Vec<_>>()
    };
    let mut add = |kind, name, help, of| families.add(kind, Unit::None, name, help, points(of));
    add(
        MetricKind::Gauge,
        "spangap_limit_used",
        "Contents of a store that has a limit: items, or bytes.",
        |l| l.used,
    );
    add(MetricKind::Gauge, "spangap_limit", "The limit of the store.", |l| l.limit);
    add(MetricKind::Counter, "spangap_limit_cut", "Items shortened to fit into the store.", |l| l.cut);
    add(
        MetricKind::Counter,
        "spangap_limit_forgotten",
        "Items forgotten to make room, or because they were idle.",
        |l| l.forgotten,
    );
    add(MetricKind::Counter, "spangap_limit_refused", "Items for which the store had no room.", |l| {
        l.refused
    });
}

fn of_requests<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let requests = &snapshot.requests;
    families.count(
        "spangap_slow_requests",
        "Requests that did not arrive within their deadlines; the sender was told.",
        requests.slow,
    );
    families.count(
        "spangap_displaced_requests",
        "Requests dropped while they were arriving slowly, because others needed their room; the sender was told to retry.",
        requests.displaced,
    );
    families.count(
        "spangap_displaced_answers",
        "Answers of the API and scrapes that were cut off, because their readers were slow and others waited.",
        requests.displaced_answers,
    );
    families.bytes(
        "spangap_request_bytes",
        "Bytes of requests in hand, as far as they have arrived.",
        requests.bytes,
    );
    families.bytes("spangap_request_bytes_limit", "Limit of spangap_request_bytes.", requests.bytes_limit);
    let of_ports = |of: fn(&PortFigures) -> u64| {
        let point = |(port, figures): &(&'static str, PortFigures)| Point {
            labels: vec![("port", *port)],
            value: Value::Count(of(figures)),
        };
        snapshot.ports.iter().map(point).collect::<Vec<_>>()
    };
    let mut add = |kind, name, help, points| families.add(kind, Unit::None, name, help, points);
    add(MetricKind::Gauge, "spangap_connections", "Connections open.", of_ports(|p| p.open));
    add(
        MetricKind::Gauge,
        "spangap_connections_limit",
        "Limit of spangap_connections.",
        of_ports(|p| p.limit),
    );
    add(
        MetricKind::Counter,
        "spangap_accepted_connections",
        "Connections accepted.",
        of_ports(|p| p.accepted),
    );
    type Closed = (&'static str, fn(&PortFigures) -> u64);
    let closed: [Closed; 6] = [
        ("no_request", |p| p.closed_no_request),
        ("idle", |p| p.closed_idle),
        ("not_reading", |p| p.closed_not_reading),
        ("for_room", |p| p.closed_for_room),
        ("no_tls", |p| p.closed_no_tls),
        ("refused", |p| p.refused),
    ];
    let closed = closed.into_iter().flat_map(|(reason, of)| {
        let reasoned = move |mut point: Point<'a>| {
            point.labels.push(("reason", reason));
            point
        };
        of_ports(of).into_iter().map(reasoned)
    });
    add(
        MetricKind::Counter,
        "spangap_closed_connections",
        "Connections that the meter closed: no request in time, idle, a peer that does not read, to make room for \
         another, no TLS handshake where TLS is required, or refused for lack of room.",
        closed.collect(),
    );
    add(
        MetricKind::Counter,
        "spangap_accept_errors",
        "Times that the system could not accept a connection, such as for lack of file descriptors.",
        of_ports(|p| p.accept_errors),
    );
}

fn of_kept<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    let Some(kept) = &snapshot.kept else { return };
    families.one(
        MetricKind::Gauge,
        Unit::None,
        "spangap_kept_spans",
        "Spans of whole traces on disk.",
        Value::Count(kept.spans),
    );
    families.bytes("spangap_kept_bytes", "Size of the whole traces on disk.", kept.bytes);
    families.bytes(
        "spangap_kept_bytes_limit",
        "Limit of the size of whole traces on disk; the oldest are dropped.",
        kept.bytes_limit,
    );
    families.bytes(
        "spangap_kept_queue_bytes",
        "Bytes of requests queued for the disk; beyond the limit, requests are not kept.",
        kept.queued_bytes,
    );
    families.bytes(
        "spangap_kept_queue_bytes_limit",
        "Limit of spangap_kept_queue_bytes.",
        kept.queued_bytes_limit,
    );
    if let Some(from_ms) = kept.from_unix_ms {
        families.seconds(
            "spangap_kept_horizon_seconds",
            "Time since the oldest span on disk arrived.",
            seconds(u128::from(snapshot.now_unix_ns).saturating_sub(u128::from(from_ms) * 1_000_000)),
        );
    }
    let reasons =
        [("queue", kept.not_kept_queue), ("disk", kept.not_kept_disk), ("too_large", kept.not_kept_large)];
    families.add(
        MetricKind::Counter,
        Unit::None,
        "spangap_not_kept_spans",
        "Spans counted but not kept on disk, by reason: they arrived faster than they could be written, the disk \
         refused them, their request was too large.",
        labelled("reason", reasons),
    );
    families.count(
        "spangap_kept_forgotten_spans",
        "Spans dropped from disk after their time, or to make room for newer ones.",
        kept.forgotten_spans,
    );
    families.count(
        "spangap_kept_damaged_segments",
        "Files of whole traces set aside because they were damaged.",
        kept.damaged_segments,
    );
}

fn of_process<'a>(snapshot: &'a Snapshot, families: &mut Families<'a>) {
    families.count(
        "spangap_refused_requests",
        "Requests refused because the meter was overloaded; the sender was told to retry.",
        snapshot.refused_requests,
    );
    families.count(
        "spangap_invalid_requests",
        "Requests that could not be decoded.",
        snapshot.invalid_requests,
    );
    let refusals = snapshot
        .refusals
        .iter()
        .map(|(reason, count)| Point { labels: vec![("reason", *reason)], value: Value::Count(*count) });
    families.add(
        MetricKind::Counter,
        Unit::None,
        "spangap_refusals",
        "Requests, agents and slices that the meter refused, by reason: a token, a role, a cross-site page, a \
         broken rule.",
        refusals.collect(),
    );
    of_requests(snapshot, families);
    of_limits(snapshot, families);
    if let Some(history) = snapshot.history {
        families.bytes("spangap_history_bytes", "Size of the stored history on disk.", history.bytes);
        families.bytes(
            "spangap_history_bytes_limit",
            "Limit of the size of the stored history.",
            history.bytes_limit,
        );
        families.one(
            MetricKind::Gauge,
            Unit::None,
            "spangap_history_waiting_rows",
            "Rows of closed minutes that wait in memory to be written; above 0 for long if the disk refuses them.",
            Value::Count(history.waiting_rows),
        );
        families.bytes(
            "spangap_history_waiting_bytes",
            "Memory of the rows that wait to be written; beyond 128 MiB the oldest are given up.",
            history.waiting_bytes,
        );
        families.count(
            "spangap_history_pruned_rows",
            "Rows removed from the history for age or size.",
            history.pruned_rows,
        );
        families.count(
            "spangap_history_damaged_rows",
            "Rows of the history that could not be decoded and were left out.",
            history.damaged_rows,
        );
        families.count(
            "spangap_history_unwritten_rows",
            "Rows of the history given up because the database refused them for too long.",
            history.unwritten_rows,
        );
    }
    let version = Point { labels: vec![("version", snapshot.version)], value: Value::Count(1) };
    families.add(
        MetricKind::Gauge,
        Unit::None,
        "spangap_build_info",
        "Always 1; the version is the label.",
        vec![version],
    );
    families.seconds(
        "spangap_uptime_seconds",
        "Time since the counts began.",
        seconds(snapshot.now_unix_ns.saturating_sub(snapshot.started_unix_ns) as u128),
    );
    families.seconds(
        "process_start_time_seconds",
        "Unix time at which the counts began.",
        seconds(snapshot.started_unix_ns as u128),
    );
    if let Some(process) = snapshot.process {
        families.one(
            MetricKind::Counter,
            Unit::Seconds,
            "process_cpu_seconds",
            "User and system CPU time of the process.",
            Value::Real(process.cpu_s),
        );
        families.bytes(
            "process_resident_memory_bytes",
            "Resident memory of the process.",
            process.resident_bytes,
        );
    }
}
