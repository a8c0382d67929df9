// Figures of a run as text.

import { count, duration, shortCount, significant } from "../format";
import type { Run } from "./report";

export { duration };

const ABSENT = "n/a";

/** A duration, or `n/a`. */
export const time = (ns: number | null | undefined): string => (ns === null || ns === undefined ? ABSENT : duration(ns));

/** Calls per second: `12.3 k/s`, `0.5/s`. */
export const rate = (perS: number): string => `${perS >= 1000 ? shortCount(perS) : trimmed(perS)}/s`;

/** A number without superfluous zeros. */
function trimmed(value: number): string {
  return String(Number(value.toFixed(2)));
}

/** A count, or `n/a`. */
export const whole = (n: number | null): string => (n === null ? ABSENT : count(n));

/** A figure to three digits, or `n/a`. */
export const digits = (value: number | null): string => (value === null || !Number.isFinite(value) ? ABSENT : significant(value));

/** A ratio: `3.8×`. */
export const times = (ratio: number | null): string => (ratio === null || !Number.isFinite(ratio) ? ABSENT : `${significant(ratio)}×`);

/** A total divided by the calls made, or null if there were none. */
export const perCall = (total: number | null, run: Run): number | null => (total === null || run.calls === 0 ? null : total / run.calls);

/** CPU microseconds per call, or null. */
export const cpuPerCallUs = (cpuS: number | null, run: Run): number | null => perCall(cpuS === null ? null : cpuS * 1e6, run);

/** Latency p50 divided by that of the raw floor, or null. */
export function floorRatio(run: Run): number | null {
  const floor = run.floor?.latency.p50_ns;
  return run.latency.p50_ns === null || !floor ? null : run.latency.p50_ns / floor;
}

/** Calls made that did not return OK. */
export const failed = (run: Run): number => run.calls - run.ok;
