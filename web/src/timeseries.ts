// Quantiles over time: gap p50, p90, p99, and the p99 of both sides, on one log scale.

import uPlot from "uplot";
import type { PairPoint } from "./api";
import { cssColour, el } from "./dom";
import { axisDurations, axisLabel, clock, dayAndClock, duration } from "./format";
import { timeTicks } from "./ticks";

interface Line {
  label: string;
  colour: string;
  width: number;
  dash?: number[];
  /** The same in the legend, as a style of borders. */
  marker?: string;
  value: (point: PairPoint) => number;
}

const LINES: Line[] = [
  { label: "gap p50", colour: "--gap-p50", width: 2, value: (p) => p.gap.p50_ns },
  { label: "gap p90", colour: "--gap-p90", width: 2, value: (p) => p.gap.p90_ns },
  { label: "gap p99", colour: "--gap-p99", width: 2, value: (p) => p.gap.p99_ns },
  { label: "client p99", colour: "--client", width: 1.5, dash: [6, 4], marker: "dashed", value: (p) => p.client_duration.p99_ns },
  { label: "server p99", colour: "--server", width: 1.5, dash: [2, 3], marker: "dotted", value: (p) => p.server_duration.p99_ns },
];

const HEIGHT_PX = 264;
const MOST_POINTS = 100;

/** Minutes per point, so that a day remains a line and does not become a band. */
export function minutesPerPoint(fromS: number, toS: number): number {
  const minutes = (toS - fromS) / 60;
  return [1, 5, 15, 60].find((step) => minutes / step <= MOST_POINTS) ?? Math.ceil(minutes / MOST_POINTS);
}

/** The median; of an even number, the lower middle value, which was actually measured. */
function median(values: number[]): number | null {
  if (values.length === 0) return null;
  return [...values].sort((a, b) => a - b)[(values.length - 1) >> 1] ?? null;
}

/** Columns for uPlot: null where the pair had no calls, which interrupts the lines. */
export function toColumns(points: PairPoint[], fromS: number, toS: number): (number | null)[][] {
  const stepS = minutesPerPoint(fromS, toS) * 60;
  const byStep = new Map<number, PairPoint[]>();
  for (const point of points) {
    if (point.gap.count === 0) continue;
    const step = Math.floor(point.unix_s / stepS);
    byStep.set(step, [...(byStep.get(step) ?? []), point]);
  }
  const steps: number[] = [];
  for (let step = Math.floor(fromS / stepS); step * stepS < toS; step++) steps.push(step);
  const series = LINES.map((line) =>
    // A log scale has no zero.
    steps.map((step) => median((byStep.get(step) ?? []).map(line.value)) || null),
  );
  return [steps.map((step) => (step + 0.5) * stepS), ...series];
}

export class TimeSeriesView {
  readonly root = el("div", { class: "timeseries" });
  private plot: uPlot | null = null;
  private data: (number | null)[][] = [[]];
  private points: PairPoint[] = [];
  private range: [number, number] = [0, 60];

  private readonly gone = new AbortController();

  constructor() {
    new ResizeObserver(() => this.resize()).observe(this.root);
    addEventListener("themechange", () => this.rebuild(), { signal: this.gone.signal });
  }

  /** Ends everything that would outlive its elements. */
  destroy(): void {
    this.gone.abort();
  }

  update(points: PairPoint[], fromS: number, toS: number): void {
    this.points = points;
    this.range = [Math.floor(fromS / 60) * 60, Math.ceil(toS / 60) * 60];
    this.data = toColumns(points, ...this.range);
    if (this.plot) this.plot.setData(this.data as uPlot.AlignedData);
    else this.rebuild();
  }

  /** Moves the cursor to a time, in step with the heatmap; null removes it. */
  pointAt(unixS: number | null): void {
    const { plot } = this;
    if (!plot) return;
    const left = unixS === null ? -10 : plot.valToPos(unixS, "x");
    plot.setCursor({ left, top: unixS === null ? -10 : 10 });
  }

  private resize(): void {
    const width = this.root.clientWidth;
    if (width === 0) return;
    if (this.plot) this.plot.setSize({ width, height: HEIGHT_PX });
    else this.rebuild();
  }

  private rebuild(): void {
    const width = this.root.clientWidth;
    if (width === 0 || this.points.length === 0) return;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(width), this.data as uPlot.AlignedData, this.root);
  }

  private options(width: number): uPlot.Options {
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const quiet = cssColour("--quiet");
    const rule = cssColour("--rule");
    const axis = { stroke: quiet, font, ticks: { stroke: rule, size: 4 }, gap: 4 };
    return {
      width,
      height: HEIGHT_PX,
      padding: [8, 20, 0, 0],
      scales: {
        x: { time: true, range: () => this.range },
        y: { distr: 3, range: (_plot, low, high) => logRange(low, high) },
      },
      axes: [
        {
          ...axis,
          size: 26,
          grid: { stroke: rule, width: 1 },
          splits: (plot) => timeTicks(...this.range, Math.floor(plot.width / 72)),
          values: (_plot, ticks) => ticks.map(clock),
        },
        {
          ...axis,
          size: 62,
          grid: { stroke: rule, width: 1 },
          splits: (_plot, _axis, low, high) => axisDurations(low, high, 9),
          values: (_plot, ticks) => ticks.map((tick) => (tick === null ? "" : axisLabel(tick))),
          filter: (_plot, ticks) => ticks,
        },
      ],
      cursor: { drag: { x: false, y: false }, points: { size: 6 } },
      legend: { live: true, markers: { dash: (_plot, at) => LINES[at - 1]?.marker ?? "solid" } },
      series: [
        { label: "time", value: (_plot, at) => (at === null ? "–" : dayAndClock(Math.floor(at / 60) * 60)) },
        ...LINES.map((line): uPlot.Series => ({
          label: line.label,
          stroke: cssColour(line.colour),
          width: line.width,
          ...(line.dash ? { dash: line.dash } : {}),
          points: { show: () => this.range[1] - this.range[0] <= 3_660, size: 4 },
          value: (_plot, ns) => (ns === null ? "–" : duration(ns)),
        })),
      ],
    };
  }
}

/** A margin at both ends, and at least a factor of four between them. */
function logRange(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null || low <= 0) return [1e5, 1e9];
  const spare = Math.max(1.15, Math.sqrt(4 / (high / low)));
  return [low / spare, high * spare];
}
