// Reports of a tank, made up: every shape that the page has to draw.

import type { Floor, Quantiles, Run, Second, TankReport } from "../src/tank/report";

/** A generator of numbers between 0 and 1, the same ones every time. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Quantiles of a distribution with this median and tail; as far as so many calls tell. */
export function quantiles(p50: number, calls: number, tail = 1.6): Quantiles {
  const at = (oneIn: number) => (calls >= oneIn ? Math.round(p50 * tail ** Math.log10(oneIn / 2)) : null);
  return {
    p50_ns: at(2),
    p90_ns: at(10),
    p99_ns: at(100),
    p999_ns: at(1_000),
    p9999_ns: at(10_000),
    max_ns: calls > 0 ? Math.round(p50 * tail ** Math.log10(2 * calls)) : null,
    mean_ns: calls > 0 ? Math.round(p50 * 1.08) : null,
  };
}

function spectrumOf(p50: number, calls: number, tail: number): [number, number][] {
  const points: [number, number][] = [];
  for (let decade = 1; decade * 1 <= calls; decade *= 10) {
    for (const n of [1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4, 8]) {
      if (n * decade <= calls) points.push([1 - 1 / (n * decade), Math.round(p50 * tail ** Math.log10((n * decade) / 2))]);
    }
  }
  if (calls > 0) points.push([1, Math.round(p50 * tail ** Math.log10(2 * calls))]);
  return points;
}

export interface Made {
  stack?: string;
  channels?: string;
  inflight?: number;
  ratePerS?: number;
  repeat?: number;
  p50?: number;
  tail?: number;
  throughput?: number;
  channelsMade?: number;
  connections?: number | null;
  floorP50?: number;
  startS?: number;
}

/** A run of ten seconds after one of warm-up. */
export function run(made: Made): Run {
  const inflight = made.ratePerS === undefined ? (made.inflight ?? 8) : null;
  const p50 = made.p50 ?? 40_000;
  const throughput = made.throughput ?? made.ratePerS ?? ((inflight ?? 1) * 0.93e9) / p50;
  const tail = made.tail ?? 1.6;
  const ok = Math.round(throughput * 10);
  const chance = random(ok + (made.repeat ?? 0));
  const seconds = Array.from({ length: 11 }, (_, i): Second => {
    const inThis = Math.round(throughput * (0.97 + 0.06 * chance()) * (i === 0 ? 0.7 : 1));
    const q = quantiles(p50 * (0.98 + 0.05 * chance()), inThis, tail);
    return { at_s: i + 1, measured: i > 0, ok: inThis, errors: 0, skipped: 0, p50_ns: q.p50_ns, p99_ns: q.p99_ns, max_ns: q.max_ns };
  });
  const floor: Floor | null = made.floorP50
    ? { calls: 10_000, throughput_per_s: made.ratePerS ?? ((inflight ?? 1) * 0.95e9) / made.floorP50, latency: quantiles(made.floorP50, 10_000, 1.2), lateness: null }
    : null;
  return {
    target: "10.0.0.1:50051",
    stack: made.stack ?? "cpp-async",
    call: "unary",
    channels: made.channels ?? "shared",
    inflight,
    rate_per_s: made.ratePerS ?? null,
    request_bytes: 0,
    response_bytes: null,
    think_ns: null,
    nodelay: "stack",
    split_writes: false,
    attempts: 1,
    threads: 2,
    cpus: null,
    trace: false,
    repeat: made.repeat ?? 0,
    library: "gRPC C++ 1.51.1",
    target_stack: "go",
    target_library: "grpc-go 1.70.0",
    start_unix_ns: (1_763_700_000 + (made.startS ?? 0)) * 1e9,
    duration_s: 10,
    warmup_s: 1,
    scheduled: ok,
    calls: ok,
    ok,
    errors: {},
    error_reasons: {},
    skipped_overload: 0,
    warmup_errors: 0,
    throughput_per_s: throughput,
    latency: quantiles(p50, ok, tail),
    latency_from_send: quantiles(p50 * 0.97, ok, tail),
    lateness: made.ratePerS === undefined ? null : quantiles(9_000, ok, 2.2),
    spectrum: spectrumOf(p50, ok, tail),
    spectrum_from_send: spectrumOf(p50 * 0.97, ok, tail),
    seconds,
    channels_made: made.channelsMade ?? 1,
    connections: made.connections === undefined ? (made.channelsMade ?? 1) : made.connections,
    sockets: made.connections === null ? null : { most_at_once: made.connections ?? made.channelsMade ?? 1, seen: made.connections ?? made.channelsMade ?? 1, nodelay_on: 1, nodelay_off: 0, nodelay_forced: false, min_rtt_ns: 12_000, retransmitted_segments: 0, congestion_control: "cubic" },
    streams: { limit_per_connection: 100, queued_by_limit: made.ratePerS === undefined ? 0 : null, target_peak_in_progress: inflight },
    slow_over_ns: 20_000_000,
    slow: 0,
    cpu_client_s: ok * 12e-6,
    cpu_target_s: ok * 9e-6,
    context_switches: Math.round(ok * 1.3),
    context_switches_target: Math.round(ok * 1.1),
    floor,
    records_dropped: 0,
    client_error: null,
    warnings: [],
  };
}

export function report(runs: Run[]): TankReport {
  return {
    runs,
    verdict: "Nothing stands out.",
    findings: [],
    noise: {
      clock_read_ns: 26,
      clock_step_ns: 1,
      timer_lateness: quantiles(8_700, 1_000, 3),
      timer_slack_ns: 50_000,
      longest_pause_ns: 2_310_000,
      watched_ns: 1_000_000_000,
      cpus: 2,
      cannot_claim: ["Latencies above p99.9 of less than 2.3 ms: pauses of that length are this machine's own."],
    },
    not_run: [],
    warnings: [],
  };
}

const IN_FLIGHT = [1, 2, 4, 8, 16, 32, 64];

/** The client bottleneck: shared channels stop growing, distinct ones go on; five repetitions, floor included. */
export function bottleneck(repeats = 5): TankReport {
  const chance = random(7);
  const ways: [string, (n: number) => number, (n: number) => [number, number]][] = [
    ["shared", (n) => Math.min(25_000 * n ** 0.85, 104_000), () => [1, 1]],
    ["per-worker", (n) => Math.min(25_000 * n ** 0.83, 101_000), (n) => [n, 1]],
    ["distinct", (n) => Math.min(25_000 * n ** 0.93, 390_000), (n) => [n, n]],
    ["local-pool", (n) => Math.min(24_000 * n ** 0.8, 300_000), (n) => [n, n]],
  ];
  const runs: Run[] = [];
  for (let repeat = 0; repeat < repeats; repeat++) {
    for (const inflight of IN_FLIGHT) {
      for (const [channels, throughputOf, [channelsMade, connections]] of ways.map(([a, b, c]) => [a, b, c(inflight)] as const)) {
        const throughput = throughputOf(inflight) * (0.94 + 0.12 * chance());
        runs.push(run({ channels, inflight, repeat, throughput, p50: (inflight / throughput) * 0.93e9, channelsMade, connections, floorP50: 13_500 + 20 * inflight, startS: runs.length * 12 }));
      }
    }
  }
  return report(runs);
}

/** Nagle and delayed acknowledgements: less load, more delay; swept downward and then upward. */
export function paradox(): TankReport {
  const rates = [1_000, 300, 100, 30, 10, 10, 30, 100, 300, 1_000];
  const runs: Run[] = [];
  for (const nodelay of ["off", "on"]) {
    for (const ratePerS of rates) {
      const stalled = nodelay === "off" ? 43_700_000 / (1 + (ratePerS / 23) ** 0.5) : 250_000 / (1 + ratePerS / 300);
      runs.push({ ...run({ stack: "raw", ratePerS, p50: stalled, tail: 1.12, startS: runs.length * 12, floorP50: 120_000 / (1 + ratePerS / 500) }), nodelay, split_writes: true });
    }
  }
  const says = "Nagle's algorithm and delayed ACKs hold the calls up: at 10/s p50 is 26.3 ms without TCP_NODELAY and 242 us with it.";
  const finding = { cause: "nagle-delayed-ack", side: "client", standing: "shown", says, rests_on: ["off, 10/s: p50 26.3 ms"], cleared_by: "a repetition" };
  return { ...report(runs), verdict: says, findings: [finding] };
}

export const HOSTILE = `</script><img src=x onerror="alert(1)">&amp;<b>`;

/** Failed calls, what could not be seen, every remark; texts that try to become markup. */
export function troubled(): TankReport {
  const bad: Run = {
    ...run({ stack: "go", inflight: 4, p50: 60_000, channelsMade: 4, connections: null }),
    target: HOSTILE,
    errors: { UNAVAILABLE: 1_204, DEADLINE_EXCEEDED: 3 },
    error_reasons: { UNAVAILABLE: HOSTILE },
    sockets: null,
    streams: null,
    target_stack: null,
    target_library: null,
    cpu_target_s: null,
    context_switches_target: null,
    client_error: "ended by signal 9",
    warnings: ["The target was gone from second 4 on."],
  };
  bad.calls = bad.ok + 1_207;
  bad.scheduled = bad.calls;
  bad.seconds = bad.seconds.map((second, i) => (i < 5 ? second : { ...second, ok: 0, errors: 200, p50_ns: null, p99_ns: null, max_ns: null }));
  const never: Run = {
    ...run({ stack: "rust", inflight: 4, throughput: 0 }),
    target: HOSTILE,
    start_unix_ns: null,
    duration_s: 0,
    calls: 0,
    ok: 0,
    scheduled: 0,
    seconds: [],
    spectrum: [],
    spectrum_from_send: [],
    latency: quantiles(0, 0),
    latency_from_send: quantiles(0, 0),
    client_error: "cannot connect: connection refused",
  };
  return {
    ...report([bad, never]),
    spans: { recorded: 100, exported: 90, rejected: 4, dropped_queue_full: 6, dropped_unsent: 0 },
    slow_log: { path: "/tmp/slow.jsonl", written: 12, dropped: 1 },
    not_run: [{ what: "stack cpp-sync", why: HOSTILE }],
    warnings: [HOSTILE],
  };
}

/** One run at one load. */
export const single = (): TankReport => report([run({ ratePerS: 100, p50: 250_000, floorP50: 210_000 })]);

/** Several configurations at one load. */
export const oneLoad = (): TankReport =>
  report(["raw", "rust", "cpp-sync", "cpp-async", "go"].map((stack, i) => run({ stack, inflight: 8, p50: stack === "raw" ? 14_000 : 90_000 + 20_000 * i, floorP50: 13_600 })));

export const empty = (): TankReport => ({ ...report([]), not_run: [{ what: "all", why: "interrupted" }] });
