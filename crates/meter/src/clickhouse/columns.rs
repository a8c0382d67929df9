//! Statistics of a pair as columns of `spangap_pairs`: written as they are, read as sums that ClickHouse has made.

use super::rowbinary::{Answer, Rows};
use crate::history::{Figure, Needs, Unsent};
use sha2::{Digest, Sha256};
use spangap_model::{CallStatus, Histogram, PairKey, PairStats};
use std::fmt::Write;

type Of = fn(&mut PairStats) -> &mut Histogram;

/// The distributions, by the prefix of their columns.
const DISTRIBUTIONS: [(&str, Of); 6] = [
    ("gap", |stats| &mut stats.gap),
    ("client", |stats| &mut stats.client),
    ("server", |stats| &mut stats.server),
    ("request_leg", |stats| &mut stats.request_leg),
    ("response_leg", |stats| &mut stats.response_leg),
    ("mate_delay", |stats| &mut stats.mate_delay),
];
const OF_DISTRIBUTION: [&str; 8] =
    ["bucket", "calls", "zero", "count", "sum_ns", "min_ns", "max_ns", "max_low_ns"];
const BEFORE: &str = "step_s, start, meter, pair, client, server, method";
const AFTER: &str = "leg_bound_max_ns, leg_bound_sum_ns, negative_status, negative_calls, attempts_over_one, \
                     excluded_large, sized, worst_floor_ns, top_gap_ns, top_start, version";

/// Identifies a pair in all tables. Names are in no statement: only this is.
pub fn pair_id(key: &PairKey) -> [u8; 16] {
    let mut digest = Sha256::new();
    for name in [&*key.client, &*key.server, key.method.as_deref().unwrap_or("")] {
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
    }
    let digest: [u8; 32] = digest.finalize().into();
    std::array::from_fn(|at| digest[at])
}

/// Appends the names of a pair.
pub fn write_names(rows: &mut Rows, key: &PairKey) {
    rows.string(key.client.as_bytes());
    rows.string(key.server.as_bytes());
    rows.string(key.method.as_deref().unwrap_or("").as_bytes());
}

/// Reads the names of a pair.
pub fn read_names(row: &mut Answer) -> Option<PairKey> {
    let (client, server, method) = (row.text()?, row.text()?, row.text()?);
    let method = (!method.is_empty()).then(|| method.into());
    Some(PairKey { client: client.into(), server: server.into(), method })
}

/// The table with the columns that [`write`] fills.
pub fn insert_into() -> String {
    let mut columns = BEFORE.to_string();
    for (name, _) in DISTRIBUTIONS {
        for part in OF_DISTRIBUTION {
            let _ = write!(columns, ", {name}_{part}");
        }
    }
    format!("spangap_pairs ({columns}, {AFTER})")
}

/// Seconds as a `DateTime`, which ends in the year 2106.
pub fn date_time(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

/// Appends a row of this meter's history.
pub fn write_row(rows: &mut Rows, meter: u64, unsent: &Unsent) {
    let mut stats = unsent.row.stats.clone();
    rows.u32(unsent.step.seconds() as u32);
    rows.u32(date_time(unsent.row.unix_s));
    rows.u64(meter);
    rows.fixed(&pair_id(&unsent.row.key));
    write_names(rows, &unsent.row.key);
    for (_, of) in DISTRIBUTIONS {
        write_distribution(rows, of(&mut stats));
    }
    rows.u64(stats.leg_bound_max_ns);
    rows.u128(stats.leg_bound_sum_ns);
    rows.length(stats.negative.len());
    stats.negative.keys().for_each(|status| rows.u8(status.code()));
    rows.length(stats.negative.len());
    stats.negative.values().for_each(|calls| rows.u64(*calls));
    for count in [stats.attempts_over_one, stats.excluded_large, stats.sized, stats.worst_floor_ns] {
        rows.u64(count);
    }
    rows.length(unsent.tops.len());
    unsent.tops.iter().for_each(|top| rows.u64(top.gap_ns));
    rows.length(unsent.tops.len());
    unsent.tops.iter().for_each(|top| rows.u32(date_time(top.unix_s)));
    rows.u64(unsent.number);
}

fn write_distribution(rows: &mut Rows, of: &Histogram) {
    let buckets: Vec<(i32, u64)> = of.buckets().collect();
    rows.length(buckets.len());
    // Indices of nanoseconds lie within -479 and 545.
    buckets.iter().for_each(|(index, _)| rows.i16(*index as i16));
    rows.length(buckets.len());
    buckets.iter().for_each(|(_, calls)| rows.u64(*calls));
    rows.u64(of.zero_count());
    rows.u64(of.count());
    rows.u128(of.sum_ns());
    // Neutral where nothing was recorded.
    rows.u64(of.min_ns().unwrap_or(u64::MAX));
    rows.u64(of.max_ns().unwrap_or(0));
    rows.u64(of.max_low_ns().unwrap_or(0));
}

/// How much of a distribution an answer has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Sums,
    SumsAndBuckets,
}

/// Merging the buckets of every row is most of the work, and reading the columns of all distributions most of the rest. A
/// table sorted by a quantile asks for all pairs: its answer has one distribution alone.
fn part_of(name: &str, needs: Needs) -> Part {
    let figure = match needs {
        Needs::Statistics | Needs::WorstCalls => return Part::SumsAndBuckets,
        Needs::Sums => return Part::Sums,
        Needs::Distribution(Figure::Gap) => "gap",
        Needs::Distribution(Figure::Client) => "client",
        Needs::Distribution(Figure::Server) => "server",
    };
    if name == figure { Part::SumsAndBuckets } else { Part::Nothing }
}

/// Expressions that sum rows up, in the order of [`read_sums`]. Where buckets are not needed, one has the count of all.
/// ClickHouse merges maps in half the time that it takes for pairs of arrays.
pub fn sums(needs: Needs) -> String {
    let mut list = Vec::new();
    for (name, _) in DISTRIBUTIONS {
        list.push(match part_of(name, needs) {
            Part::Nothing => continue,
            Part::Sums => format!("map(toInt16(0), sum({name}_count) - sum({name}_zero))"),
            Part::SumsAndBuckets => format!("sumMap(mapFromArrays({name}_bucket, {name}_calls))"),
        });
        list.push(format!(
            "sum({name}_zero), sum({name}_sum_ns), min({name}_min_ns), max({name}_max_ns), max({name}_max_low_ns)"
        ));
    }
    if !matches!(needs, Needs::Distribution(_)) {
        list.push(
            "max(leg_bound_max_ns), sum(leg_bound_sum_ns), sumMap(mapFromArrays(negative_status, negative_calls)), \
             sum(attempts_over_one), sum(excluded_large), sum(sized), max(worst_floor_ns)"
                .into(),
        );
    }
    list.join(", ")
}

/// What is needed of a pair's statistics, without worst calls, from [`sums`]. `None` if the bytes end too soon or contradict
/// each other.
pub fn read_sums(row: &mut Answer, needs: Needs) -> Option<PairStats> {
    let mut stats = PairStats::default();
    for (name, of) in DISTRIBUTIONS {
        if part_of(name, needs) == Part::Nothing {
            continue;
        }
        let buckets = row.array(|row| Some((i32::from(row.i16()?), row.u64()?)))?;
        let (zero, sum_ns) = (row.u64()?, row.u128()?);
        let bounds_ns = [row.u64()?, row.u64()?, row.u64()?];
        *of(&mut stats) = Histogram::from_parts(buckets, zero, sum_ns, bounds_ns)?;
    }
    if let Needs::Distribution(_) = needs {
        return Some(stats);
    }
    stats.leg_bound_max_ns = row.u64()?;
    stats.leg_bound_sum_ns = row.u128()?;
    let negative = row.array(|row| Some((CallStatus::from_code(row.u8()?), row.u64()?)))?;
    stats.negative = negative.into_iter().collect();
    stats.attempts_over_one = row.u64()?;
    stats.excluded_large = row.u64()?;
    stats.sized = row.u64()?;
    stats.worst_floor_ns = row.u64()?;
    Some(stats)
}
