-- Tables of spangap in ClickHouse. A row is a replica of a row of a meter's own history: sent again, it replaces itself.
-- To use engines of your own (such as ReplicatedReplacingMergeTree) or a TTL, create the tables before the first meter starts.

-- Sums of a pair over an interval of step_s seconds, by meter. Distributions have base-2 exponential buckets of scale 4, in seconds:
-- bucket i holds durations in (2^(i/16), 2^((i+1)/16)] s. They merge by sum: sumMap(mapFromArrays(gap_bucket, gap_calls)).
CREATE TABLE IF NOT EXISTS spangap_pairs (
  step_s UInt32,
  start DateTime CODEC(Delta, ZSTD(1)),
  block UInt32 MATERIALIZED intDiv(toUInt32(start), 24 * step_s) COMMENT 'keeps 24 rows of a pair together',
  meter UInt64 COMMENT 'history of one meter, see spangap_intervals',
  pair FixedString(16) COMMENT 'digest of client, server and method',
  client LowCardinality(String),
  server LowCardinality(String),
  method LowCardinality(String) COMMENT 'empty unless meters distinguish methods',
  gap_bucket Array(Int16) CODEC(ZSTD(1)) COMMENT 'client duration minus server duration',
  gap_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  gap_zero UInt64 CODEC(T64, ZSTD(1)),
  gap_count UInt64 CODEC(T64, ZSTD(1)),
  gap_sum_ns UInt128 CODEC(ZSTD(1)),
  gap_min_ns UInt64 CODEC(ZSTD(1)) COMMENT '2^64 - 1 if empty',
  gap_max_ns UInt64 CODEC(ZSTD(1)),
  gap_max_low_ns UInt64 CODEC(ZSTD(1)) COMMENT 'the largest is at least this',
  client_bucket Array(Int16) CODEC(ZSTD(1)) COMMENT 'client durations of the same calls',
  client_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  client_zero UInt64 CODEC(T64, ZSTD(1)),
  client_count UInt64 CODEC(T64, ZSTD(1)),
  client_sum_ns UInt128 CODEC(ZSTD(1)),
  client_min_ns UInt64 CODEC(ZSTD(1)) COMMENT '2^64 - 1 if empty',
  client_max_ns UInt64 CODEC(ZSTD(1)),
  client_max_low_ns UInt64 CODEC(ZSTD(1)) COMMENT 'the largest is at least this',
  server_bucket Array(Int16) CODEC(ZSTD(1)) COMMENT 'server durations of the same calls',
  server_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  server_zero UInt64 CODEC(T64, ZSTD(1)),
  server_count UInt64 CODEC(T64, ZSTD(1)),
  server_sum_ns UInt128 CODEC(ZSTD(1)),
  server_min_ns UInt64 CODEC(ZSTD(1)) COMMENT '2^64 - 1 if empty',
  server_max_ns UInt64 CODEC(ZSTD(1)),
  server_max_low_ns UInt64 CODEC(ZSTD(1)) COMMENT 'the largest is at least this',
  request_leg_bucket Array(Int16) CODEC(ZSTD(1)) COMMENT 'client start to server start',
  request_leg_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  request_leg_zero UInt64 CODEC(T64, ZSTD(1)),
  request_leg_count UInt64 CODEC(T64, ZSTD(1)),
  request_leg_sum_ns UInt128 CODEC(ZSTD(1)),
  request_leg_min_ns UInt64 CODEC(ZSTD(1)) COMMENT '2^64 - 1 if empty',
  request_leg_max_ns UInt64 CODEC(ZSTD(1)),
  request_leg_max_low_ns UInt64 CODEC(ZSTD(1)) COMMENT 'the largest is at least this',
  response_leg_bucket Array(Int16) CODEC(ZSTD(1)) COMMENT 'server end to client end',
  response_leg_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  response_leg_zero UInt64 CODEC(T64, ZSTD(1)),
  response_leg_count UInt64 CODEC(T64, ZSTD(1)),
  response_leg_sum_ns UInt128 CODEC(ZSTD(1)),
  response_leg_min_ns UInt64 CODEC(ZSTD(1)) COMMENT '2^64 - 1 if empty',
  response_leg_max_ns UInt64 CODEC(ZSTD(1)),
  response_leg_max_low_ns UInt64 CODEC(ZSTD(1)) COMMENT 'the largest is at least this',
  mate_delay_bucket Array(Int16) CODEC(ZSTD(1)) COMMENT 'time between the arrivals of both spans, of every joined call',
  mate_delay_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  mate_delay_zero UInt64 CODEC(T64, ZSTD(1)),
  mate_delay_count UInt64 CODEC(T64, ZSTD(1)),
  mate_delay_sum_ns UInt128 CODEC(ZSTD(1)),
  mate_delay_min_ns UInt64 CODEC(ZSTD(1)) COMMENT '2^64 - 1 if empty',
  mate_delay_max_ns UInt64 CODEC(ZSTD(1)),
  mate_delay_max_low_ns UInt64 CODEC(ZSTD(1)) COMMENT 'the largest is at least this',
  leg_bound_max_ns UInt64 CODEC(ZSTD(1)) COMMENT 'error of a leg in either direction',
  leg_bound_sum_ns UInt128 CODEC(ZSTD(1)),
  negative_status Array(UInt8) CODEC(ZSTD(1)) COMMENT 'calls with a negative gap, by status',
  negative_calls Array(UInt64) CODEC(T64, ZSTD(1)),
  attempts_over_one UInt64 CODEC(ZSTD(1)),
  excluded_large UInt64 CODEC(ZSTD(1)),
  sized UInt64 CODEC(ZSTD(1)),
  worst_floor_ns UInt64 CODEC(ZSTD(1)),
  top_gap_ns Array(UInt64) CODEC(ZSTD(1)) COMMENT 'gaps of the worst calls',
  top_start Array(DateTime) CODEC(ZSTD(1)) COMMENT 'their minutes in spangap_calls',
  version UInt64 CODEC(ZSTD(1))
) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(start) ORDER BY (step_s, block, pair, start, meter)
SETTINGS index_granularity = 256, min_compress_block_size = 4096;

-- The names of pairs, from every row that arrives.
CREATE TABLE IF NOT EXISTS spangap_names (
  pair FixedString(16), client String, server String, method String
) ENGINE = ReplacingMergeTree ORDER BY pair;
CREATE MATERIALIZED VIEW IF NOT EXISTS spangap_names_of_pairs TO spangap_names AS
  SELECT DISTINCT pair, client, server, method FROM spangap_pairs;

-- Worst calls of a pair and minute, by meter, in an encoding of spangap.
CREATE TABLE IF NOT EXISTS spangap_calls (
  start DateTime CODEC(Delta, ZSTD(1)),
  meter UInt64,
  pair FixedString(16),
  client LowCardinality(String),
  server LowCardinality(String),
  method LowCardinality(String),
  trace_ids Array(FixedString(16)),
  calls String,
  version UInt64,
  INDEX by_trace trace_ids TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree(version) PARTITION BY toYYYYMM(start) ORDER BY (start, pair, meter);

-- Intervals of which a meter has sent every row. Rows of others are not read.
CREATE TABLE IF NOT EXISTS spangap_intervals (
  step_s UInt32,
  start DateTime CODEC(Delta, ZSTD(1)),
  meter UInt64,
  name LowCardinality(String) COMMENT 'name of the meter'
) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(start) ORDER BY (step_s, meter, start);
