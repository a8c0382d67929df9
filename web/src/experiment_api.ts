// Shapes of experiments, as crates/cases/src/experiment/shapes.rs writes them.

export interface PlanReport {
  plan: string;
  case: string;
  lever: string;
  suspect: string;
  is_named: boolean;
  side: string;
  agent: string;
  host_name: string;
  server: string;
  connections: Connection[];
  already: number;
  not_readable: number;
  /** For `isolate`: the host's settings to change, the interfaces, and the CPUs for the network and for the application. */
  values?: Value[];
  interfaces?: string[];
  net_cpus?: string;
  app_cpus?: string;
  /** `halves` of the connections, or `blocks` of time. */
  design: string;
  blocks: number;
  /** After so many blocks it ends, if the effect is clear; zero of a meter that had one look alone. */
  first_look: number;
  block_ms: number;
  takes_ms: number;
  words: string;
}

export interface Value {
  place: string;
  from: string;
  to: string;
}

export interface Connection {
  local: string;
  peer: string;
  pid: number;
  comm: string;
}

export type Outcome = "running" | "proven" | "refuted" | "undecided";

export interface ExperimentReport {
  plan: PlanReport;
  lever: string;
  asked_by: string;
  from_unix_ms: number;
  to_unix_ms?: number;
  outcome: Outcome;
  words: string;
  predicted_ns?: number;
  /** While it runs: by the blocks so far, of which nothing may be concluded. */
  so_far_ns?: number;
  is_early: boolean;
  effect_ns?: Effect;
  probability?: number;
  treated: Arm;
  control: Arm;
  calls_of_neither: number;
  /** Future ones have no time. */
  blocks: Block[];
  in_force?: InForce;
  undone: boolean;
  lacks: string[];
}

/** A 95 % interval with its estimate, nanoseconds. */
export interface Effect {
  low: number;
  mid: number;
  high: number;
}

/** Durations of client spans. */
export interface Arm {
  calls: number;
  mean_ns: number;
  p50_ns: number;
  p50_ci95_ns?: [number, number];
  p99_ns: number;
}

export interface Block {
  from_unix_ms: number;
  to_unix_ms: number;
  treated_connections: number;
  control_connections: number;
  treated: Arm;
  control: Arm;
}

/** A change that the host has not yet reported as undone. */
export interface InForce {
  block: number;
  connections: number;
  since_unix_ms: number;
  until_unix_ms: number;
  guard_unix_ms: number;
}
