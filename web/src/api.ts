// The meter's JSON API: every shape as the meter's `report.rs` has it, held to it by a test, and the calls that
// fetch them. A key's unit ends its name. Absent keys are optional here; `null` means "not known".

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
}

export interface WorstRow {
  trace_id: string;
  client_span_id: string;
  gap_ns: number;
  client_ns: number;
  server_ns: number;
  start_unix_ns: number;
  status: string;
  client_host?: string;
  server_host?: string;
  whole: boolean;
}

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
  history?: HistoryCoverage;
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
  pairs_left_out?: number;
  pairs: PairRow[];
  spans: SpanCounts;
  skipped?: Skipped[];
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

export interface ApiError {
  error: string;
}

/** Which pair; its method only where the meter tells methods apart. */
export interface PairName {
  client: string;
  server: string;
  method?: string | undefined;
}

/** What the API could not do, in the words the user sees. */
export class ApiProblem extends Error {}

const ANSWER_WITHIN_MS = 20_000;

async function get<T>(path: string, query: Record<string, string | undefined>, signal: AbortSignal): Promise<T> {
  const given = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const url = given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
  const late = AbortSignal.timeout(ANSWER_WITHIN_MS);
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, { signal: AbortSignal.any([signal, late]), cache: "no-store" });
    text = await response.text();
  } catch (cause) {
    if (signal.aborted) throw cause;
    if (late.aborted) throw new ApiProblem(`${path} was not answered within ${ANSWER_WITHIN_MS / 1000} s.`, { cause });
    throw new ApiProblem(`The meter does not answer (${path}). Is it still running?`, { cause });
  }
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new ApiProblem(`${path} answered ${response.status} with something that is not JSON: ${text.slice(0, 120)}`);
  }
  if (!response.ok) {
    const said = (body as Partial<ApiError>).error ?? response.statusText;
    throw new ApiProblem(`${path} answered ${response.status}: ${said}`);
  }
  return body as T;
}

export function fetchPairs(window: string, signal: AbortSignal): Promise<PairsReport> {
  return get("/api/v1/pairs", { window }, signal);
}

export function fetchPair(pair: PairName, window: string, signal: AbortSignal): Promise<PairOverTime> {
  return get("/api/v1/pair", { client: pair.client, server: pair.server, method: pair.method, window }, signal);
}

export function fetchWorst(pair: PairName, window: string, limit: number, signal: AbortSignal): Promise<WorstReport> {
  const query = { client: pair.client, server: pair.server, method: pair.method, window, limit: String(limit) };
  return get("/api/v1/worst", query, signal);
}

export function fetchCall(traceId: string, clientSpanId: string, signal: AbortSignal): Promise<CallReport> {
  return get("/api/v1/call", { trace_id: traceId, client_span_id: clientSpanId }, signal);
}

export function fetchCoverage(signal: AbortSignal): Promise<Coverage> {
  return get("/api/v1/coverage", {}, signal);
}
