// Charts over the load: throughput next to linear growth, latency, lateness. Pure: reports in, specs out.

import { durations, linear, loads, logarithmic, shortLabel } from "./axes";
import type { Curve, Spec } from "./chart";
import { rate, time } from "./figures";
import type { Quantiles, Run } from "./report";
import { loadsOf, loadText, passes, spread, type Configuration, type Direction, type LoadKind, type Sweep } from "./sweep";

export const COLOURS = 8;
export const colourOf = (index: number): string => `--c${index % COLOURS}`;
/** If there are more configurations than colours, colours repeat with another dash. */
const dashOf = (index: number): number[] | undefined => [undefined, [8, 4], [2, 4], [10, 3, 2, 3]][Math.floor(index / COLOURS) % 4];

export const QUANTILES: [keyof Quantiles, string, number[] | undefined][] = [
  ["p50_ns", "p50", undefined],
  ["p99_ns", "p99", [8, 4]],
  ["p999_ns", "p99.9", [2, 4]],
];

const ARROW: Record<string, string> = { up: " ↑", down: " ↓" };
const named = (label: string, fallback: string, direction: Direction) => (label || fallback) + (direction ? (ARROW[direction] ?? "") : "");

const xName: Record<LoadKind, string> = { inflight: "calls in flight", rate: "calls due per second" };
const loadLabel = (kind: LoadKind) => (kind === "rate" ? shortLabel : String);

/** The curve of one figure over the load, with a band if there are repetitions. */
function curveOf(x: number[], points: Configuration["points"], pick: (run: Run) => number | null): Pick<Curve, "values" | "band"> {
  const at = new Map(points.map((point) => [point.load, spread(point.runs, pick)]));
  const values = x.map((load) => at.get(load)?.median ?? null);
  if (!points.some((point) => point.runs.length > 1)) return { values };
  return { values, band: { low: x.map((load) => at.get(load)?.low ?? null), high: x.map((load) => at.get(load)?.high ?? null) } };
}

/** Throughput if every call in flight contributed as much as at the smallest load. */
export function linearOf(x: number[], values: (number | null)[]): (number | null)[] {
  const first = values.findIndex((value) => value !== null);
  const [load, value] = [x[first], values[first]];
  if (load === undefined || value === null || value === undefined) return x.map(() => null);
  return x.map((at, i) => (i < first ? null : (value / load) * at));
}

/** The raw floor of each load, over all runs that have one; null if none has. */
function floorOf(x: number[], sweep: Sweep, pick: (run: Run) => number | null): (number | null)[] | null {
  const runs = sweep.configurations.flatMap((one) => one.points.flatMap((point) => point.runs)).filter((run) => run.floor !== null);
  if (runs.length === 0) return null;
  return x.map((load) => spread(runs.filter((run) => (run.rate_per_s ?? run.inflight) === load), pick).median);
}

/** Axes are logarithmic if most loads would be crowded into a corner of linear ones. */
export const wantsLog = (sweep: Sweep): boolean => {
  const x = loadsOf(sweep);
  return sweep.kind === "rate" ? (x.at(-1) ?? 0) > 10 * (x[0] ?? 1) : (x.at(-1) ?? 0) > 40 * (x[0] ?? 1);
};

export function throughput(sweep: Sweep, log: boolean): Spec {
  const x = loadsOf(sweep);
  const fallback = "throughput";
  const actual: Curve[] = sweep.configurations.flatMap((one, i) =>
    passes(one).map(({ direction, points }): Curve => {
      const dash = direction === "down" ? [4, 3] : dashOf(i);
      return {
        label: named(one.label, fallback, direction),
        colour: colourOf(i),
        points: direction === "down" ? "hollow" : "filled",
        ...(dash ? { dash } : {}),
        ...curveOf(x, points, (run) => run.throughput_per_s),
      };
    }),
  );
  const reference: Curve[] =
    sweep.kind === "rate"
      ? [{ label: "asked", colour: "--quiet", points: "none", width: 1.25, dash: [3, 3], values: x }]
      : actual.map((curve): Curve => ({
          label: `${curve.label}, if linear`,
          group: "if linear",
          colour: curve.colour,
          points: "none",
          width: 1.25,
          dash: [3, 3],
          values: linearOf(x, curve.values),
        }));
  const only = reference.length === 1 ? reference.map(({ group: _group, ...curve }) => curve) : reference;
  // In an open loop, the floor also achieves the requested rate.
  const floor = sweep.kind === "rate" ? null : floorOf(x, sweep, (run) => run.floor?.throughput_per_s ?? null);
  const raw: Curve[] = floor ? [{ label: "raw floor", colour: "--text", points: "none", width: 1.5, dash: [10, 4], values: floor }] : [];
  const measured = actual.flatMap((curve) => [curve.values, ...(curve.band ? [curve.band.high] : [])]);
  const beside = [...only, ...raw].map((curve) => curve.values);
  return {
    title: `Throughput against ${xName[sweep.kind]}`,
    x,
    xText: (load) => loadText(sweep.kind, load),
    yText: rate,
    xAxis: loads(x, log, loadLabel(sweep.kind)),
    // A linear axis covers what was measured; the reference lines may leave it, which shows how far off they are.
    yAxis: log ? logarithmic([...measured, ...beside], shortLabel) : linear([...measured, ...inSight(measured, beside)], shortLabel),
    xName: xName[sweep.kind],
    yName: "OK calls per second",
    curves: [...actual, ...only, ...raw],
  };
}

const ROOM = 1.5;

function inSight(measured: (number | null)[][], beside: (number | null)[][]): (number | null)[][] {
  const most = Math.max(0, ...measured.flat().map((value) => value ?? 0));
  return beside.map((values) => values.map((value) => (value === null ? null : Math.min(value, ROOM * most))));
}

export function latency(sweep: Sweep, log: boolean): Spec {
  const x = loadsOf(sweep);
  const curves: Curve[] = sweep.configurations.flatMap((one, i) =>
    passes(one).flatMap(({ direction, points }) =>
      QUANTILES.map(([key, name, dash]): Curve => ({
        label: named([one.label, name].filter((part) => part !== "").join(" "), "", direction),
        colour: sweep.configurations.length === 1 ? colourOf(QUANTILES.findIndex((one) => one[0] === key)) : colourOf(i),
        points: direction === "down" ? "hollow" : "filled",
        ...(dash ? { dash } : {}),
        width: key === "p50_ns" ? 2 : 1.5,
        // With many configurations, three curves each are too many; the legend brings them back.
        hidden: key === "p999_ns" && sweep.configurations.length > 2,
        ...curveOf(x, points, (run) => run.latency[key]),
      })),
    ),
  );
  const floor = floorOf(x, sweep, (run) => run.floor?.latency.p50_ns ?? null);
  if (floor) curves.push({ label: "raw floor p50", colour: "--text", points: "none", width: 1.5, dash: [10, 4], values: floor });
  return {
    title: `Latency against ${xName[sweep.kind]}`,
    x,
    xText: (load) => loadText(sweep.kind, load),
    yText: time,
    xAxis: loads(x, log, loadLabel(sweep.kind)),
    yAxis: durations(curves.flatMap((curve) => [curve.values, ...(curve.band ? [curve.band.low, curve.band.high] : [])])),
    xName: xName[sweep.kind],
    yName: "latency",
    curves,
  };
}

/** Lateness of calls; null in a closed loop, where no call has a due time. */
export function lateness(sweep: Sweep): Spec | null {
  if (sweep.kind !== "rate") return null;
  const x = loadsOf(sweep);
  const figures: [keyof Quantiles, string, number[] | undefined][] = [["p50_ns", "p50", undefined], ["p99_ns", "p99", [8, 4]], ["max_ns", "max", [2, 4]]];
  const curves: Curve[] = sweep.configurations.flatMap((one, i) =>
    passes(one).flatMap(({ direction, points }) =>
      figures.map(([key, name, dash]): Curve => ({
        label: named([one.label, name].filter((part) => part !== "").join(" "), "", direction),
        colour: sweep.configurations.length === 1 ? colourOf(figures.findIndex((one) => one[0] === key)) : colourOf(i),
        points: direction === "down" ? "hollow" : "filled",
        ...(dash ? { dash } : {}),
        ...curveOf(x, points, (run) => run.lateness?.[key] ?? null),
      })),
    ),
  );
  if (curves.every((curve) => curve.values.every((value) => value === null))) return null;
  return {
    title: "Lateness of the sends against the rate",
    x,
    xText: (load) => loadText(sweep.kind, load),
    yText: time,
    xAxis: loads(x, wantsLog(sweep), shortLabel),
    yAxis: durations(curves.map((curve) => curve.values)),
    xName: xName.rate,
    yName: "sent after due time",
    curves,
  };
}
