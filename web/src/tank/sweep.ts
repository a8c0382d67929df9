// Runs in order: configurations, their loads, the repetitions of each; and the summary of a load's runs.

import { duration, rate } from "./figures";
import type { Run } from "./report";

export type LoadKind = "inflight" | "rate";
export type Direction = "up" | "down" | null;

/** The fields that distinguish configurations, named as tank's flags. */
export const FIELDS: [string, (run: Run) => string][] = [
  ["target", (run) => run.target],
  ["stack", (run) => run.stack],
  ["call", (run) => run.call],
  ["channels", (run) => run.channels],
  ["method", (run) => run.method ?? "ping"],
  ["nodelay", (run) => run.nodelay],
  ["split-writes", (run) => (run.split_writes ? "on" : "off")],
  ["attempts", (run) => String(run.attempts)],
  ["threads", (run) => String(run.threads)],
  ["cpus", (run) => run.cpus ?? "all"],
  ["request-bytes", (run) => String(run.request_bytes)],
  ["response-bytes", (run) => (run.response_bytes === null ? "the target's" : String(run.response_bytes))],
  ["think", (run) => (run.think_ns === null ? "the target's" : duration(run.think_ns))],
  ["trace", (run) => (run.trace ? "on" : "off")],
];

/** Values that show by themselves which field they belong to. */
const SELF_EXPLAINING = new Set(["target", "stack", "call", "channels"]);

export interface Point {
  load: number;
  direction: Direction;
  runs: Run[];
}

export interface Configuration {
  /** Values of the fields that vary; empty if none does. */
  label: string;
  points: Point[];
}

export interface Sweep {
  kind: LoadKind;
  configurations: Configuration[];
}

export const kindOf = (run: Run): LoadKind => (run.rate_per_s === null ? "inflight" : "rate");
export const loadOf = (run: Run): number => run.rate_per_s ?? run.inflight ?? NaN;

/** A load in words: `16 in flight`, `1 000/s`. */
export function loadText(kind: LoadKind, load: number): string {
  if (Number.isNaN(load)) return "unknown load";
  return kind === "rate" ? rate(load) : `${load} in flight`;
}

/** The fields in which these runs differ. */
export function varying(runs: Run[]): [string, (run: Run) => string][] {
  return FIELDS.filter(([, of]) => new Set(runs.map(of)).size > 1);
}

/** The label that distinguishes this run's configuration from the others. */
export function labelOf(run: Run, fields: [string, (run: Run) => string][]): string {
  return fields.map(([name, of]) => (SELF_EXPLAINING.has(name) ? of(run) : `${name} ${of(run)}`)).join(" · ");
}

/** The name of one run among all. */
export function nameOf(run: Run, all: Run[]): string {
  const several = all.some((other) => other.repeat > 0);
  return [labelOf(run, varying(all)), loadText(kindOf(run), loadOf(run)), several ? `run ${run.repeat + 1}` : ""].filter((part) => part !== "").join(", ");
}

/** Closed-loop runs and open-loop runs, each by configuration. */
export function sweeps(runs: Run[]): Sweep[] {
  const fields = varying(runs);
  return (["inflight", "rate"] as const).flatMap((kind) => {
    const byLabel = new Map<string, Run[]>();
    for (const run of runs.filter((one) => kindOf(one) === kind)) {
      const label = labelOf(run, fields);
      byLabel.set(label, [...(byLabel.get(label) ?? []), run]);
    }
    const configurations = [...byLabel].map(([label, own]) => ({ label, points: points(own) }));
    return configurations.length === 0 ? [] : [{ kind, configurations }];
  });
}

function points(runs: Run[]): Point[] {
  const ways = directions(runs.map(loadOf));
  const found: Point[] = [];
  runs.forEach((run, i) => {
    const [load, direction] = [loadOf(run), ways[i] ?? null];
    const point = found.find((one) => Object.is(one.load, load) && one.direction === direction);
    if (point) point.runs.push(run);
    else found.push({ load, direction, runs: [run] });
  });
  return found;
}

/** Splits loads, in the order of their runs, into passes that only rise or only fall; null unless there are both. */
export function directions(loads: number[]): Direction[] {
  const towards = (at: number) => Math.sign((loads[at + 1] ?? NaN) - (loads[at] ?? NaN));
  const ways: Direction[] = [];
  while (ways.length < loads.length) {
    const start = ways.length;
    const sign = towards(start);
    let end = start;
    while ((sign === 1 || sign === -1) && towards(end) === sign) end++;
    while (ways.length <= end) ways.push(sign === 1 ? "up" : sign === -1 ? "down" : null);
  }
  return ways.includes("up") && ways.includes("down") ? ways : loads.map(() => null);
}

/** Loads of all configurations, ascending. */
export function loadsOf(sweep: Sweep): number[] {
  const all = sweep.configurations.flatMap((one) => one.points.map((point) => point.load));
  return [...new Set(all)].filter((load) => !Number.isNaN(load)).sort((a, b) => a - b);
}

/** The median; of an even number, the mean of the middle two. */
export function median(values: number[]): number | null {
  const sorted = [...values].sort((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return low === undefined || high === undefined ? null : (low + high) / 2;
}

export interface Spread {
  median: number | null;
  low: number | null;
  high: number | null;
}

/** Summary of repetitions; none if one of them lacks the figure, since the median of the rest would be that of another set. */
export function spread(runs: Run[], pick: (run: Run) => number | null): Spread {
  const values = runs.map(pick);
  const known = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (known.length === 0 || known.length < values.length) return { median: null, low: null, high: null };
  return { median: median(known), low: Math.min(...known), high: Math.max(...known) };
}

/** The passes of a configuration: one, or one per direction. */
export function passes(configuration: Configuration): { direction: Direction; points: Point[] }[] {
  const ways = [...new Set(configuration.points.map((point) => point.direction))];
  return ways.map((direction) => ({ direction, points: configuration.points.filter((point) => point.direction === direction) }));
}
