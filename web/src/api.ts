// The meter's JSON API: every shape as in the meter's `report/`, which a test compares with it, and the functions that
// fetch them. A key's name ends in its unit. Absent keys are optional here; `null` means "unknown".

import type { Explanation } from "./explain_api";
import type { OtlpSide } from "./otlp";

export interface Quantiles {
  count: number;
  p50_ns: number;
  p90_ns: number;
  p95_ns: number;
  p99_ns: number;
  p999_ns: number;
  max_ns: number;
  max_low_ns?: number;
  mean_ns: number;
  p50_ci95_ns: [number, number];
  p99_ci95_ns: [number, number];
}

export interface LegReport extends Quantiles {
  bound_ns: number;
  bound_mean_ns: number;
}

export interface PairRow {
  client: string;
  server: string;
  method?: string;
  calls: number;
  gap: Quantiles;
  client_duration: Quantiles;
  server_duration: Quantiles;
  client_p99_ns: number;
  server_p99_ns: number;
  lost_ns_total: number;
  negative: number;
  negative_by_status: Record<string, number>;
  attempts_over_one: number;
  excluded_large: number;
  size_known_ratio: number | null;
  request_leg?: LegReport;
  response_leg?: LegReport;
  mate_delay: Quantiles;
  client_match_ratio: number | null;
  server_match_ratio: number | null;
  worst: WorstRow[];
  worst_complete_above_ns?: number;
  before?: PairBefore;
  beyond?: BeyondUsual;
  lost_ns_by_step?: number[];
  client_ns_by_step?: number[];
}

export interface BeyondUsual {
  client_ns_total: number;
  gap_ns_total: number;
  since_unix_ms: number;
}

export interface PairBefore {
  calls: number;
  gap: Quantiles;
  client_duration: Quantiles;
  server_duration: Quantiles;
  lost_ns_total: number;
}

export interface WorstRow {
  trace_id: string;
  client_span_id: string;
  gap_ns: number;
  client_ns: number;
  server_ns: number;
  start_unix_ns: number;
  status: string;
  legs?: CallLegs;
  client_host?: string;
  server_host?: string;
  client_address?: string;
  server_address?: string;
  whole: boolean;
}

export interface CallLegs {
  request_ns: number;
  bound_ns: number;
}

export type NoteLevel = "wrong" | "note" | "aside";

export interface Coverage {
  spans: SpanCounts;
  match_ratio: number | null;
  malformed: MalformedCounts;
  mate_delay: Quantiles;
  services: ServiceCoverage[];
  pending_bytes: number;
  pending_bytes_limit: number;
  whole_bytes: number;
  whole_span_horizon_ms: number | null;
  refused_requests: number;
  invalid_requests: number;
  slow_requests: number;
  displaced_requests: number;
  displaced_answers: number;
  request_bytes: number;
  request_bytes_limit: number;
  ports: PortReport[];
  limits: LimitReport[];
  calls_in_other: number;
  calls_without_legs: number;
  calls_without_size: number;
  exclude_response_over_bytes: number | null;
  uptime_s: number;
  holes: Hole[];
  notes: string[];
  note_levels: NoteLevel[];
  history?: HistoryCoverage;
  kept?: KeptCoverage;
  kafka?: KafkaCoverage;
  clickhouse?: ClickHouseCoverage;
  kubernetes?: KubernetesCoverage;
  peers?: PeersCoverage;
}

export interface PeersCoverage {
  peers: PeerCoverage[];
  held: number;
  halves_of_peers: number;
  halves_limit: number;
  given_up: number;
}

export type PeerState = "answers" | "silent" | "gone" | "unheard";

export interface PeerCoverage {
  address: string;
  state: PeerState;
  heard_before_ms: number | null;
  problem: string | null;
}

export interface KubernetesCoverage {
  pods: number;
  nodes: number;
  refused: number;
  silent_ms: number | null;
  problems: string[];
  named_by_id: number;
  named_by_name: number;
  unlisted: number;
  several: number;
  contradicted: number;
  silent: number;
}

export interface ClickHouseCoverage {
  target: string;
  meter: string;
  sent_rows: number;
  unsent_rows: number;
  lost_rows: number;
  failed_requests: number;
  problem: string | null;
}

export interface KafkaCoverage {
  topic: string;
  group: string;
  library: string;
  partitions: KafkaPartition[];
  messages: number;
  bytes: number;
  undecoded: number;
  last_undecoded: string | null;
  rebalances: number;
  commits: number;
  failed_commits: number;
  gone_messages: number;
  set_back_partitions: number;
  unknown_parts: number;
  differing_read_backs: number;
  late_attempts: number;
  future_timestamps: number;
  mates_apart: number;
  mates_together: number;
  held: boolean;
  problem: string | null;
}

export interface KafkaPartition {
  partition: number;
  next_offset: number;
  lag: number | null;
  time_unix_ms: number;
  messages: number;
  read_back: number;
  is_reading_back: boolean;
  at_end: boolean;
  paused: boolean;
  waiting: number;
  taken_over: number;
  joined: number;
  unmatched: number;
}

export interface KeptCoverage {
  spans: number;
  bytes: number;
  bytes_limit: number;
  segments: number;
  from_unix_ms: number | null;
  queued_bytes: number;
  queued_bytes_limit: number;
  not_kept_queue: number;
  not_kept_disk: number;
  not_kept_large: number;
  forgotten_spans: number;
  damaged_segments: number;
}

export interface HistoryCoverage {
  stored: boolean;
  bytes: number;
  bytes_limit: number;
  steps: HistorySteps[];
  waiting_rows: number;
  waiting_bytes: number;
  waiting_bytes_limit: number;
  lost_rows: number;
  damaged_rows: number;
  problem: string | null;
}

export interface HistorySteps {
  step_s: number;
  from_unix_s: number | null;
  worst_from_unix_s: number | null;
  rows: number;
  bytes: number;
}

export interface PortReport {
  port: string;
  open: number;
  limit: number;
  accepted: number;
  closed_no_request: number;
  closed_idle: number;
  closed_not_reading: number;
  closed_for_room: number;
  closed_no_tls: number;
  refused: number;
  accept_errors: number;
}

export interface LimitReport {
  name: string;
  used: number;
  limit: number;
  cut: number;
  forgotten: number;
  refused: number;
}

export interface ServiceCoverage {
  service: string;
  client_joined: number;
  client_unmatched: number;
  server_joined: number;
  server_unmatched: number;
}

export interface Hole {
  from_unix_s: number;
  to_unix_s: number;
}

export interface SpanCounts {
  received: number;
  joined: number;
  pending: number;
  expired_client_only: number;
  expired_server_only: number;
  apart: number;
  unresolved: number;
  evicted: number;
  duplicate: number;
  extra_attempts: number;
  root: number;
  other_kind: number;
  malformed: number;
}

export interface MalformedCounts {
  bad_id: number;
  end_before_start: number;
  no_time: number;
  too_long: number;
}

export interface PairsReport {
  from_unix_s: number;
  to_unix_s: number;
  covered_from_unix_s?: number;
  of_meters?: OfMeters;
  pairs_left_out?: number;
  pairs: PairRow[];
  matching?: Matching;
  against_unix_s?: [number, number];
  step_s?: number;
  spans: SpanCounts;
  skipped?: Skipped[];
  explain?: Explanation[];
}

export interface Matching {
  pairs: number;
  of_pairs: number;
  calls: number;
  lost_ns_total: number;
  lost_before_ns_total?: number;
}

export interface Timeline {
  from_unix_s: number;
  to_unix_s: number;
  covered_from_unix_s?: number;
  of_meters?: OfMeters;
  step_s: number;
  points: TimelinePoint[];
}

export interface TimelinePoint {
  unix_s: number;
  calls: number;
  lost_ns_total: number;
  client_ns_total: number;
}

export interface Changes {
  version: string;
}

export interface Skipped {
  file: string;
  place: string;
  reason: string;
  spans: number | null;
}

export interface PairOverTime {
  total: PairRow;
  points: PairPoint[];
  step_s?: number;
  covered_from_unix_s?: number;
  of_meters?: OfMeters;
  heatmap: Heatmap;
}

export interface PairPoint {
  unix_s: number;
  open: boolean;
  gap: Quantiles;
  client_duration: Quantiles;
  server_duration: Quantiles;
  lost_ns_total: number;
}

export interface Heatmap {
  scale: number;
  first_index: number;
  upper_bounds_ns: number[];
  unix_s: number[];
  counts: number[][];
  step_s?: number;
}

export interface WorstReport {
  calls: WorstOfPair[];
  complete_above_ns?: number;
  of_meters?: OfMeters;
}

export interface OfMeters {
  meters: MeterReach[];
  note: string;
}

export interface MeterReach {
  name: string;
  to_unix_s: number;
}

export interface WorstOfPair extends WorstRow {
  client: string;
  server: string;
  method?: string;
}

export interface CallReport extends WorstOfPair {
  client_span: OtlpSide | null;
  server_span: OtlpSide | null;
}

/** Changes in the fleet since the meter started. */
export interface Annotations {
  versions: VersionRow[];
}

export interface VersionRow {
  unix_ms: number;
  service: string;
  version: string;
  before: string;
}

export interface ApiError {
  error: string;
}

/** The pair; with its method only where the meter separates methods. */
export interface PairName {
  client: string;
  server: string;
  method?: string | undefined;
}

