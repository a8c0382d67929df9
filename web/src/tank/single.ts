// Charts of selected runs: the quantile spectrum, and a run second by second. Pure: runs in, specs out.

import { durations, linear, shortLabel } from "./axes";
import type { Curve, Spec } from "./chart";
import { rate, time } from "./figures";
import { colourOf, COLOURS } from "./load";
import type { Run, Second } from "./report";

/** Position of a quantile on the axis: one unit further, a tenth as many calls are slower. */
const placeOf = (quantile: number): number => -Math.log10(1 - quantile);

/** `p99.9` for 3; at position n, one call in 10^n is slower. */
function placeText(place: number): string {
  const share = 100 * (1 - 10 ** -place);
  return `p${Number(share.toFixed(Math.max(2, Math.ceil(place))))}`;
}

/** Position of the largest of n values: the middle of the last nth part, the quantile 1 - 1/(2n). */
const placeOfMax = (count: number): number => Math.log10(2 * count);

export interface Chosen {
  run: Run;
  label: string;
  /** Number of its colour. */
  colour: number;
}

/** The quantile spectrum of some runs; null if none of them has one. */
export function spectrum(chosen: Chosen[]): Spec | null {
  const points = chosen.map(({ run }) => run.spectrum.map(([quantile, ns]): [number, number] => [quantile >= 1 ? placeOfMax(run.ok) : placeOf(quantile), ns]));
  const x = [...new Set(points.flat().map(([place]) => place))].sort((a, b) => a - b);
  if (x.length === 0) return null;
  const curves = chosen.map(({ label, colour }, i): Curve => {
    const own = new Map(points[i]);
    return { label, colour: colourOf(colour), points: "none", width: chosen.length > COLOURS ? 1.25 : 2, values: x.map((place) => own.get(place) ?? null) };
  });
  return {
    title: "Quantiles of latency, towards the tail",
    x,
    xText: placeText,
    yText: time,
    xAxis: { log: false, range: [0, (x.at(-1) ?? 1) * 1.02], ticks: (low, high, most) => decades(low, high, most), label: placeText },
    yAxis: durations(curves.map((curve) => curve.values)),
    xName: "quantile; the last point of a curve is its largest latency",
    yName: "latency",
    curves,
  };
}

function decades(low: number, high: number, most: number): number[] {
  const ticks = [0, Math.log10(2)];
  for (let n = 1; n <= high; n++) ticks.push(n);
  return ticks.filter((tick, i) => tick >= low && tick <= high && (ticks.length <= most || i !== 1));
}

/** Throughput and latency of one run over time; null without any. */
export function seconds(run: Run): { throughput: Spec; latency: Spec } | null {
  const all = run.seconds;
  if (all.length === 0) return null;
  const x = all.map((second) => second.at_s);
  const end = x.at(-1) ?? 1;
  const warmup = all.filter((second) => !second.measured && second.at_s <= run.warmup_s + 0.5).at(-1)?.at_s;
  // After the measured phase only pending calls return: that is no rate.
  const last = x.findIndex((s) => s >= run.warmup_s + run.duration_s);
  const durationOf = (i: number) => (last >= 0 && i > last ? 0 : (x[i] ?? 0) - (x[i - 1] ?? 0));
  const perSecond = (pick: (second: Second) => number) => all.map((second, i) => (durationOf(i) > 0 ? pick(second) / durationOf(i) : null));
  const line = (label: string, colour: string, values: (number | null)[]): Curve => ({ label, colour, values, points: x.length > 80 ? "none" : "filled", width: 1.75 });
  const counts: Curve[] = [line("OK", "--c0", perSecond((second) => second.ok))];
  if (all.some((second) => second.errors > 0)) counts.push(line("errors", "--bad", perSecond((second) => second.errors)));
  if (all.some((second) => second.skipped > 0)) counts.push(line("skipped", "--c1", perSecond((second) => second.skipped)));
  const times: Curve[] = [
    line("p50", "--c0", all.map((second) => second.p50_ns)),
    line("p99", "--c1", all.map((second) => second.p99_ns)),
    line("max", "--c3", all.map((second) => second.max_ns)),
  ];
  const common = {
    x,
    xText: (s: number) => `second to ${Number(s.toFixed(2))} s${warmup !== undefined && s <= warmup ? ", warm-up" : ""}`,
    xAxis: { ...linear([x], (s: number) => String(Number(s.toFixed(2)))), range: [0, end * 1.01] as [number, number] },
    xName: "seconds since the start of the warm-up",
    ...(warmup === undefined ? {} : { shaded: [0, warmup] as [number, number] }),
  };
  return {
    throughput: { ...common, title: "Calls per second, second by second", yText: rate, yAxis: linear(counts.map((curve) => curve.values), shortLabel), yName: "calls per second", curves: counts },
    latency: { ...common, title: "Latency, second by second", yText: time, yAxis: durations(times.map((curve) => curve.values)), yName: "latency", curves: times },
  };
}
