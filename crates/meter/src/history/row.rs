//! Storage format of a row's statistics: our own protobuf messages, compressed.

use prost::Message;
use spangap_model::pair::{CallLegs, KeptSide, WholeSpan};
use spangap_model::{CallStatus, Histogram, KeptCall, PairStats};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Worst calls stored per row; the engine retains more, so that a retraction leaves no gap.
pub const WORST_STORED: usize = 5;
/// Fast, and sufficient because the resources of spans repeat.
const ZSTD_LEVEL: i32 = 1;
/// No intact row is larger.
const MAX_ROW_BYTES: usize = 64 << 20;

#[derive(Clone, PartialEq, Message)]
struct Stats {
    #[prost(bytes = "vec", tag = "1")]
    gap: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    client: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    server: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    request_leg: Vec<u8>,
    #[prost(bytes = "vec", tag = "5")]
    response_leg: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    mate_delay: Vec<u8>,
    #[prost(uint64, tag = "7")]
    leg_bound_max_ns: u64,
    #[prost(uint64, tag = "8")]
    leg_bound_sum_ns: u64,
    #[prost(map = "uint32, uint64", tag = "9")]
    negative: std::collections::HashMap<u32, u64>,
    #[prost(uint64, tag = "10")]
    attempts_over_one: u64,
    #[prost(uint64, tag = "11")]
    excluded_large: u64,
    #[prost(uint64, tag = "12")]
    worst_floor_ns: u64,
    #[prost(uint64, tag = "13")]
    sized: u64,
    /// Gaps of the worst calls, and the minute of each, counted from the row's start.
    #[prost(uint64, repeated, tag = "14")]
    top_gap_ns: Vec<u64>,
    #[prost(uint32, repeated, tag = "15")]
    top_minute: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Worst {
    #[prost(message, repeated, tag = "1")]
    calls: Vec<Call>,
}

#[derive(Clone, PartialEq, Message)]
struct Call {
    #[prost(uint64, tag = "1")]
    gap_ns: u64,
    #[prost(bytes = "vec", tag = "2")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    client_span_id: Vec<u8>,
    #[prost(uint32, tag = "4")]
    status: u32,
    #[prost(message, optional, tag = "5")]
    client: Option<Side>,
    #[prost(message, optional, tag = "6")]
    server: Option<Side>,
    #[prost(uint64, optional, tag = "7")]
    request_leg_ns: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    leg_bound_ns: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Side {
    #[prost(uint64, tag = "1")]
    start_unix_ns: u64,
    #[prost(uint64, tag = "2")]
    duration_ns: u64,
    #[prost(string, optional, tag = "3")]
    host: Option<String>,
    #[prost(bytes = "vec", optional, tag = "4")]
    resource: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "5")]
    span: Option<Vec<u8>>,
}

thread_local! {
    // Creating one costs as much as processing a row.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compressed(message: &impl Message) -> Vec<u8> {
    let plain = message.encode_to_vec();
    let compress = |compressor: &mut Option<Compressor<'static>>| -> std::io::Result<Vec<u8>> {
        if compressor.is_none() {
            let mut new = Compressor::new(ZSTD_LEVEL)?;
            // Makes a flipped bit an error instead of wrong figures.
            new.include_checksum(true)?;
            *compressor = Some(new);
        }
        compressor.as_mut().map_or(Ok(Vec::new()), |compressor| compressor.compress(&plain))
    };
    // Compression into memory does not fail; if it did, the row would read as damaged, and be counted.
    COMPRESSOR.with_borrow_mut(compress).unwrap_or_default()
}

fn plain<M: Message + Default>(bytes: &[u8]) -> Option<M> {
    let size = zstd::zstd_safe::get_frame_content_size(bytes).ok()??;
    let size = usize::try_from(size).ok().filter(|size| *size <= MAX_ROW_BYTES)?;
    let plain = DECOMPRESSOR.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = Decompressor::new().ok();
        }
        decompressor.as_mut()?.decompress(bytes, size).ok()
    });
    M::decode(&plain?[..]).ok()
}

/// Time lost in a time range, and what clients waited in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Calls in the distribution.
    pub calls: u64,
    /// Sum of their gaps, nanoseconds.
    pub gap_ns: u128,
    /// Sum of their clients' spans, nanoseconds.
    pub client_ns: u128,
}

impl Lost {
    /// Time lost according to these distributions.
    pub fn of(stats: &PairStats) -> Lost {
        Lost { calls: stats.gap.count(), gap_ns: stats.gap.sum_ns(), client_ns: stats.client.sum_ns() }
    }

    /// Adds another time range or another pair.
    pub fn add(&mut self, other: Lost) {
        self.calls += other.calls;
        self.gap_ns += other.gap_ns;
        self.client_ns += other.client_ns;
    }
}

/// Gap and minute of one of the worst calls, enough to decide whether to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Top {
    /// Client duration minus server duration.
    pub gap_ns: u64,
    /// Start of the minute, Unix seconds.
    pub unix_s: u64,
}

/// Worst calls that a row lists.
pub const TOPS_KEPT: usize = 20;

/// Contents of a row: statistics without their worst calls, and the location of those.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Statistics; `worst` is empty.
    pub stats: PairStats,
    /// Largest gap first.
    pub tops: Vec<Top>,
}

impl Figures {
    /// The figures of a minute from the engine.
    pub fn of_minute(unix_s: u64, stats: &PairStats) -> Figures {
        let tops = stats.worst.iter().take(WORST_STORED).map(|call| Top { gap_ns: call.gap_ns, unix_s });
        let tops = tops.collect();
        // Copies the histograms but not the calls.
        let mut sum = Figures { stats: PairStats::default(), tops };
        sum.stats.merge_distributions(stats);
        sum
    }

    /// Adds another row, and retains the [`TOPS_KEPT`] largest worst calls.
    pub fn merge(&mut self, other: &Figures) {
        self.stats.merge_distributions(&other.stats);
        self.tops.extend(&other.tops);
        self.sort_tops();
        self.tops.truncate(TOPS_KEPT);
    }

    /// Sorts by decreasing gap, then by time.
    pub fn sort_tops(&mut self) {
        self.tops.sort_by_key(|top| (std::cmp::Reverse(top.gap_ns), top.unix_s));
    }

    /// Encodes the figures for a row that starts at `start_s`.
    pub fn encode(&self, start_s: u64) -> Vec<u8> {
        let stats = &self.stats;
        let minute = |top: &Top| u32::try_from(top.unix_s.saturating_sub(start_s) / 60).unwrap_or(u32::MAX);
        compressed(&Stats {
            gap: stats.gap.encode(),
            client: stats.client.encode(),
            server: stats.server.encode(),
            request_leg: stats.request_leg.encode(),
            response_leg: stats.response_leg.encode(),
            mate_delay: stats.mate_delay.encode(),
            leg_bound_max_ns: stats.leg_bound_max_ns,
            leg_bound_sum_ns: u64::try_from(stats.leg_bound_sum_ns).unwrap_or(u64::MAX),
            negative: stats.negative.iter().map(|(status, n)| (status.code() as u32, *n)).collect(),
            attempts_over_one: stats.attempts_over_one,
            excluded_large: stats.excluded_large,
            worst_floor_ns: stats.worst_floor_ns,
            sized: stats.sized,
            top_gap_ns: self.tops.iter().map(|top| top.gap_ns).collect(),
            top_minute: self.tops.iter().map(minute).collect(),
        })
    }

    /// Decodes only the gap and the client's duration of an encoded row, half of the work. `None` if it is damaged.
    pub fn decode_lost(bytes: &[u8]) -> Option<Lost> {
        let stored = plain::<Stats>(bytes)?;
        let (gap, client) = (Histogram::decode(&stored.gap)?, Histogram::decode(&stored.client)?);
        Some(Lost { calls: gap.count(), gap_ns: gap.sum_ns(), client_ns: client.sum_ns() })
    }

    /// Decodes the output of [`Figures::encode`]; `None` if it is damaged.
    pub fn decode(bytes: &[u8], start_s: u64) -> Option<Figures> {
        let stored: Stats = plain(bytes)?;
        let status = |code: u32| u8::try_from(code).ok().map(CallStatus::from_code);
        let negative = stored.negative.iter().map(|(code, n)| Some((status(*code)?, *n)));
        let tops = stored.top_gap_ns.iter().zip(&stored.top_minute);
        let top =
            |(gap_ns, minute): (&u64, &u32)| Top { gap_ns: *gap_ns, unix_s: start_s + 60 * *minute as u64 };
        Some(Figures {
            tops: tops.map(top).collect(),
            stats: PairStats {
                gap: Histogram::decode(&stored.gap)?,
                client: Histogram::decode(&stored.client)?,
                server: Histogram::decode(&stored.server)?,
                request_leg: Histogram::decode(&stored.request_leg)?,
                response_leg: Histogram::decode(&stored.response_leg)?,
                mate_delay: Histogram::decode(&stored.mate_delay)?,
                leg_bound_max_ns: stored.leg_bound_max_ns,
                leg_bound_sum_ns: stored.leg_bound_sum_ns as u128,
                negative: negative.collect::<Option<_>>()?,
                attempts_over_one: stored.attempts_over_one,
                excluded_large: stored.excluded_large,
                worst_floor_ns: stored.worst_floor_ns,
                sized: stored.sized,
                ..PairStats::default()
            },
        })
    }
}

/// The concatenated trace ids, for searching, and the calls.
pub fn encode_worst(worst: &[KeptCall]) -> (Vec<u8>, Vec<u8>) {
    let stored = &worst[..worst.len().min(WORST_STORED)];
    let side = |side: &KeptSide| Side {
        start_unix_ns: side.start_unix_ns,
        duration_ns: side.duration_ns,
        host: side.host.as_deref().map(String::from),
        resource: side.whole.as_ref().map(|whole| whole.resource.to_vec()),
        span: side.whole.as_ref().map(|whole| whole.span.to_vec()),
    };
    let calls = stored.iter().map(|call| Call {
        gap_ns: call.gap_ns,
        trace_id: call.trace_id.to_vec(),
        client_span_id: call.client_span_id.to_vec(),
        status: call.status.code() as u32,
        client: Some(side(&call.client)),
        server: Some(side(&call.server)),
        request_leg_ns: call.legs.map(|legs| legs.request_ns),
        leg_bound_ns: call.legs.map(|legs| legs.bound_ns),
    });
    let trace_ids = stored.iter().flat_map(|call| call.trace_id).collect();
    (trace_ids, compressed(&Worst { calls: calls.collect() }))
}

/// Decodes the calls from [`encode_worst`]; `None` if they are damaged.
pub fn decode_worst(bytes: &[u8]) -> Option<Vec<KeptCall>> {
    let side = |side: Option<Side>| {
        let side = side?;
        let whole = side.resource.zip(side.span);
        Some(KeptSide {
            start_unix_ns: side.start_unix_ns,
            duration_ns: side.duration_ns,
            host: side.host.map(|host| host.into()),
            whole: whole.map(|(resource, span)| WholeSpan { resource: resource.into(), span: span.into() }),
        })
    };
    let call = |call: Call| {
        Some(KeptCall {
            gap_ns: call.gap_ns,
            trace_id: call.trace_id.try_into().ok()?,
            client_span_id: call.client_span_id.try_into().ok()?,
            status: CallStatus::from_code(u8::try_from(call.status).ok()?),
            legs: call
                .request_leg_ns
                .zip(call.leg_bound_ns)
                .map(|(request_ns, bound_ns)| CallLegs { request_ns, bound_ns }),
            client: side(call.client)?,
            server: side(call.server)?,
        })
    };
    plain::<Worst>(bytes)?.calls.into_iter().map(call).collect()
}
