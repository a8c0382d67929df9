// The shapes of `spangap tank --json`, as crates/bench/src/report/mod.rs writes them; a test compares the two.

export type Stack = string;
export type Call = string;
export type Channels = string;
export type Nodelay = string;

export type Standing = string;

export interface TankReport {
  runs: Run[];
  verdict: string;
  findings: RunFinding[];
  noise: Noise;
  spans?: SpanCounts;
  slow_log?: SlowLogReport;
  not_run: NotRun[];
  warnings: string[];
}

export interface RunFinding {
  cause: string;
  side: string | null;
  standing: Standing;
  says: string;
  rests_on: string[];
  cleared_by: string;
}

export interface NotRun {
  what: string;
  why: string;
}

export interface Asked {
  target: string;
  stack: Stack;
  call: Call;
  method?: string;
  channels: Channels;
  inflight: number | null;
  rate_per_s: number | null;
  request_bytes: number;
  response_bytes: number | null;
  think_ns: number | null;
  nodelay: Nodelay;
  split_writes: boolean;
  attempts: number;
  threads: number;
  cpus: string | null;
  trace: boolean;
}

export interface Run extends Asked {
  repeat: number;
  library: string;
  target_stack: string | null;
  target_library: string | null;
  start_unix_ns: number | null;
  duration_s: number;
  warmup_s: number;
  scheduled: number;
  calls: number;
  ok: number;
  errors: Record<string, number>;
  error_reasons: Record<string, string>;
  skipped_overload: number;
  warmup_errors: number;
  throughput_per_s: number;
  latency: Quantiles;
  latency_from_send: Quantiles;
  lateness: Quantiles | null;
  spectrum: [number, number][];
  spectrum_from_send: [number, number][];
  seconds: Second[];
  channels_made: number;
  connections: number | null;
  sockets: Sockets | null;
  streams: Streams | null;
  slow_over_ns: number;
  slow: number;
  cpu_client_s: number;
  cpu_target_s: number | null;
  context_switches: number;
  context_switches_target: number | null;
  floor: Floor | null;
  records_dropped: number;
  client_error: string | null;
  warnings: string[];
}

export interface Second {
  at_s: number;
  measured: boolean;
  ok: number;
  errors: number;
  skipped: number;
  p50_ns: number | null;
  p99_ns: number | null;
  max_ns: number | null;
}

export interface Sockets {
  most_at_once: number;
  seen: number;
  nodelay_on: number | null;
  nodelay_off: number | null;
  nodelay_forced: boolean;
  min_rtt_ns: number | null;
  retransmitted_segments: number | null;
  congestion_control: string | null;
}

export interface Streams {
  limit_per_connection: number | null;
  queued_by_limit: number | null;
  target_peak_in_progress: number | null;
}

export interface Floor {
  calls: number;
  throughput_per_s: number;
  latency: Quantiles;
  lateness: Quantiles | null;
}

export interface Noise {
  clock_read_ns: number;
  clock_step_ns: number;
  timer_lateness: Quantiles;
  timer_slack_ns: number | null;
  longest_pause_ns: number;
  watched_ns: number;
  cpus: number;
  cannot_claim: string[];
}

export interface SlowLogReport {
  path: string;
  written: number;
  dropped: number;
}

export interface Quantiles {
  p50_ns: number | null;
  p90_ns: number | null;
  p99_ns: number | null;
  p999_ns: number | null;
  p9999_ns: number | null;
  max_ns: number | null;
  mean_ns: number | null;
}

export interface SpanCounts {
  recorded: number;
  exported: number;
  rejected: number;
  dropped_queue_full: number;
  dropped_unsent: number;
}
