//! Minutes to write, and their comparison.

use spangap_meter::engine::PairMinute;
use spangap_model::pair::{CallLegs, KeptSide, WholeSpan};
use spangap_model::{CallStatus, Histogram, KeptCall, PairKey, PairStats};

pub fn key(client: &str, server: &str) -> PairKey {
    PairKey { client: client.into(), server: server.into(), method: None }
}

pub fn worst_call(gap_ns: u64, id: u64) -> KeptCall {
    let side = |host: Option<&str>, text: &[u8]| KeptSide {
        start_unix_ns: 1_700_000_000_000_000_000 + id,
        duration_ns: 2_000_000 + gap_ns,
        host: host.map(Into::into),
        whole: Some(WholeSpan { resource: b"resource of the service"[..].into(), span: text.into() }),
    };
    KeptCall {
        gap_ns,
        trace_id: (u128::from(id) << 32 | 7).to_be_bytes(),
        client_span_id: id.to_be_bytes(),
        status: CallStatus::from_grpc(id % 17),
        legs: (!id.is_multiple_of(3)).then_some(CallLegs { request_ns: gap_ns / 2, bound_ns: id % 5 }),
        client: side(Some("node-1"), format!("client span {id}").as_bytes()),
        server: KeptSide { whole: None, ..side(None, b"") },
    }
}

/// A minute with one call per gap, the largest of which is among the worst.
pub fn minute(unix_s: u64, key: &PairKey, gaps: &[u64], id: u64) -> PairMinute {
    let mut stats = PairStats::default();
    for gap_ns in gaps {
        stats.gap.record(*gap_ns);
        stats.client.record(gap_ns + 1_000_000);
        stats.server.record(1_000_000);
        stats.mate_delay.record(gap_ns % 5 * 1_000_000);
    }
    if let Some(largest) = gaps.iter().max() {
        stats.request_leg.record(largest / 2);
        stats.response_leg.record(largest - largest / 2);
        stats.leg_bound_max_ns = 50_000 + id;
        stats.leg_bound_sum_ns = 70_000 + id as u128;
        stats.keep_worst(worst_call(*largest, id));
        stats.negative.insert(CallStatus::from_grpc(id % 17), id % 3 + 1);
        stats.attempts_over_one = id % 4;
        stats.excluded_large = id % 2;
    }
    PairMinute { unix_s, key: key.clone(), stats }
}

fn same_distribution(a: &Histogram, b: &Histogram) -> bool {
    a.buckets().eq(b.buckets())
        && (a.count(), a.zero_count(), a.sum_ns()) == (b.count(), b.zero_count(), b.sum_ns())
        && (a.min_ns(), a.max_ns()) == (b.min_ns(), b.max_ns())
}

/// Whether two statistics are equal.
pub fn same(a: &PairStats, b: &PairStats) -> bool {
    let of: [fn(&PairStats) -> &Histogram; 6] = [
        |s| &s.gap,
        |s| &s.client,
        |s| &s.server,
        |s| &s.request_leg,
        |s| &s.response_leg,
        |s| &s.mate_delay,
    ];
    of.iter().all(|of| same_distribution(of(a), of(b)))
        && (a.leg_bound_max_ns, a.leg_bound_sum_ns) == (b.leg_bound_max_ns, b.leg_bound_sum_ns)
        && a.negative == b.negative
        && (a.attempts_over_one, a.excluded_large) == (b.attempts_over_one, b.excluded_large)
        && a.worst == b.worst
}
