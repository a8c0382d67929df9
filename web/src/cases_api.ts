// Shapes of cases and agents, as the meter answers them. What a case does not have yet is absent.

import type { PairName } from "./api";
import type { ExperimentReport } from "./experiment_api";

export interface Share {
  low: number;
  mid: number;
  high: number;
}

export type CaseState = "open" | "explained" | "proven" | "fixed" | "regressed" | "unknown";

export interface CaseRow {
  id: string;
  pair: PairName;
  method?: string | null;
  state: CaseState;
  trigger: string;
  opened_unix_ms: number;
  /** In lists: until when the pair was as usual. */
  usual_until_unix_ms?: number;
  verdict?: CaseVerdict | null;
  slow_calls?: number;
  excess_ns?: number | null;
}

export interface CaseVerdict {
  verdict: string;
  words: string;
  culprit?: string | null;
  side?: string | null;
  share?: Share | null;
}

export interface CasesReport {
  cases: CaseRow[];
  /** Oldest first. */
  events?: CaseEvent[];
}

export interface CaseEvent {
  unix_ms: number;
  case: string;
  kind: string;
  lever: string;
}

export interface CaseHost {
  agent?: string | null;
  rule?: string | null;
  why_not?: string | null;
  of_several?: boolean;
}

export interface CaseReport extends CaseRow {
  hosts?: { client?: CaseHost; server?: CaseHost };
  time_line?: { unix_ms: number; what: string }[];
  hunt?: Hunt | null;
  files?: { name: string; bytes: number }[];
  usual?: CaseGap | null;
  before?: CaseGap | null;
  after?: CaseGap | null;
  lacks?: string[];
  /** What was tried, the latest last. */
  experiments?: ExperimentReport[];
}

/** Of a gap row what before and after are compared by. */
export interface CaseGap {
  from_unix_ms?: number;
  to_unix_ms?: number;
  calls?: number;
  gap?: { p50_ns: number; p99_ns: number; p50_ci95_ns?: [number, number]; p99_ci95_ns?: [number, number] };
  client_duration?: { p50_ns: number; p99_ns: number; mean_ns?: number };
  lost_ns_total?: number;
}

/** The document of `spangap hunt --json`. */
export interface Hunt {
  verdict: string;
  /** In a sentence or two. */
  words?: string;
  /** `slow`: why slow calls are slower than others; `all`: what all calls spend their time on. */
  question?: string;
  culprits?: Culprit[];
  place?: { leg: string; share: Share } | null;
  excess?: { pair?: unknown; method?: string | null; calls?: number; slow_calls?: number; total_ns?: number; baseline_ns?: number; mean_ns?: number };
  sheet?: SheetRow[];
  unexplained?: Share | null;
  /** `with_legs` is the share of the time that has an owner or a leg. */
  coverage?: {
    calls?: number;
    captured?: number;
    looked_at?: number;
    /** Those that are not among them, by why. */
    without_spans?: number;
    not_behind_proxies?: number;
    without_recording?: number;
    with_legs?: number;
    hosts?: string[];
  };
  cleared?: { cause: string; side?: string | null; would_show?: string; seen?: string }[];
  not_looked?: { cause: string; side?: string | null; needs?: string }[];
  look_next?: unknown[];
  experiments?: Experiment[];
  trace_ids?: string[];
  beside?: { cause: string; side?: string | null; cost_ns?: number | null; note?: string; instrument?: string; certainty?: string; missing?: string }[];
  questions?: { slow?: { words: string }; all?: { words: string } };
}

export interface Culprit {
  cause: string;
  side?: string | null;
  share: Share;
  calls?: number;
  for?: unknown[];
  against?: unknown[];
  /** What the cause is, as a clause. */
  meaning?: string;
  remedy?: unknown;
  wins?: { p50_ns: number; p99_ns: number };
}

/** Times are of one call in the mean; `low_ns` and `high_ns` and the share's ends are 90 % intervals. */
export interface SheetRow {
  share: Share;
  hop?: number;
  noise?: boolean;
  cause?: string | null;
  leg?: string | null;
  side?: string | null;
  ns: number;
  low_ns: number;
  high_ns: number;
}

export interface Experiment {
  lever?: string;
  predicted_ns?: number;
  effect_ns?: Share;
  outcome?: string;
}

export interface AgentsReport {
  agents: Agent[];
  unmatched?: { client?: number; server?: number };
}

export interface Agent {
  id: string;
  host_name: string;
  connected: boolean;
  since_unix_ms?: number;
  last_seen_unix_ms?: number;
  payload?: string;
  kernel?: string;
  version?: string;
  addresses?: string[];
  containers?: number;
  rings?: Ring[];
  memory_bytes?: number;
  memory_limit_bytes?: number;
  cpu_share?: number;
  cpu_limit?: number;
  given_up?: unknown[];
  lacks?: unknown[];
}

export interface Ring {
  instrument: string;
  from_unix_ns?: number | null;
  to_unix_ns?: number | null;
  bytes?: number;
  taken?: number;
  lost?: number;
  canaries_sent?: number;
  canaries_seen?: number;
}
