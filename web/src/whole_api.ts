// Shapes of a case's call with everything recorded of it: /api/v1/cases/{id}/calls/{trace_id}.

import type { OtlpSide } from "./otlp";

export type Side = "client" | "server";

export interface WholeReport {
  case: string;
  calls: WholeCall[];
  caveats: string[];
  /** All spans of the trace: CLIENT ones, then SERVER ones. */
  spans: [OtlpSide[], OtlpSide[]];
}

/** Times in tracks, packets and spans whose names end in `_ns` are relative to the start of the axis. */
export interface WholeCall {
  trace_id?: string;
  span_id?: string;
  client?: string | null;
  server?: string | null;
  method?: string;
  protocol: string;
  status?: string | null;
  start_unix_ns: number;
  duration_ns: number;
  legs: LegPart[];
  findings: Found[];
  ladder?: Ladder;
  axis: { base: Side; start_unix_ns: number; correction_ns: number | null; correction_bound_ns: number | null };
  client_span?: Stretch;
  server_span?: Stretch;
  tracks: Track[];
}

export interface LegPart {
  leg: string;
  ns: number;
  bound_ns: number;
}

export interface Found {
  cause: string;
  side?: Side | null;
  certainty: string;
  cost_ns?: number | null;
  when?: { from_unix_ns: number; to_unix_ns: number };
  note?: string;
  evidence?: { kind: string; capture?: number; packet?: number; what?: string }[];
}

export interface Stretch {
  from_ns: number;
  to_ns: number;
  bound_ns: number | null;
}

export interface Ladder {
  correction_ns: number | null;
  correction_bound_ns: number | null;
  packets: Packet[];
  left_out: number;
  /** Pairs of the same packet at both taps: indices into `packets`. */
  crossings?: Crossing[];
}

export interface Crossing {
  from: Side;
  sent: number | null;
  arrived: number | null;
  way: "crossed" | "lost" | "unknown";
}

export interface Packet {
  capture: number;
  seen_at: Side;
  packet: number;
  since_start_ns: number;
  from: Side;
  flags: string;
  seq: number;
  bytes: number;
  ack?: number;
  acked_bytes?: number;
  notes: string[];
  stands_out: boolean;
  left_out_before: number;
}

export interface Track {
  side: Side;
  host: string;
  tid: number;
  thread?: string;
  bound_ns: number | null;
  pieces: Piece[];
  left_out: number;
}

export interface Piece {
  from_ns: number;
  to_ns: number;
  doing: string;
  behind?: string;
  cpu?: number;
  /** Number of pieces combined into this one, if several. */
  of?: number;
  waited_for?: string;
  woken_by?: string;
}
