//! How a row's statistics are stored: protobuf messages of our own, compressed.

use prost::Message;
use spangap_model::pair::{KeptSide, WholeSpan};
use spangap_model::{CallStatus, Histogram, PairStats, WorstCall};
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

/// Worst calls stored per row; the engine keeps more, so that a retracted one leaves no hole.
const WORST_STORED: usize = 5;
/// Fast, and the resources of the spans repeat.
const ZSTD_LEVEL: i32 = 1;
/// No row is larger than this when it is sound.
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
    // Making one costs as much as a row.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compressed(message: &impl Message) -> Vec<u8> {
    let plain = message.encode_to_vec();
    let compress = |compressor: &mut Option<Compressor<'static>>| -> std::io::Result<Vec<u8>> {
        if compressor.is_none() {
            let mut new = Compressor::new(ZSTD_LEVEL)?;
            // So that a flipped bit is noticed and does not read as other figures.
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

/// Everything but the worst calls.
pub fn encode_stats(stats: &PairStats) -> Vec<u8> {
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
    })
}

/// Reads what [`encode_stats`] wrote; `None` when it is damaged.
pub fn decode_stats(bytes: &[u8]) -> Option<PairStats> {
    let stored: Stats = plain(bytes)?;
    let status = |code: u32| u8::try_from(code).ok().map(CallStatus::from_code);
    let negative = stored.negative.iter().map(|(code, n)| Some((status(*code)?, *n)));
    Some(PairStats {
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
        worst: Vec::new(),
        worst_room: 0,
        worst_floor_ns: stored.worst_floor_ns,
        sized: stored.sized,
    })
}

/// The trace ids one after the other, to be searched, and the calls.
pub fn encode_worst(worst: &[WorstCall]) -> (Vec<u8>, Vec<u8>) {
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
    });
    let trace_ids = stored.iter().flat_map(|call| call.trace_id).collect();
    (trace_ids, compressed(&Worst { calls: calls.collect() }))
}

/// Reads the calls that [`encode_worst`] wrote; `None` when they are damaged.
pub fn decode_worst(bytes: &[u8]) -> Option<Vec<WorstCall>> {
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
        Some(WorstCall {
            gap_ns: call.gap_ns,
            trace_id: call.trace_id.try_into().ok()?,
            client_span_id: call.client_span_id.try_into().ok()?,
            status: CallStatus::from_code(u8::try_from(call.status).ok()?),
            client: side(call.client)?,
            server: side(call.server)?,
        })
    };
    plain::<Worst>(bytes)?.calls.into_iter().map(call).collect()
}
