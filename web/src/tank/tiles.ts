// One load only: the configurations' figures side by side, with bars in proportion.

import { el, svg } from "../dom";
import { cpuPerCallUs, digits, floorRatio, rate, time, times } from "./figures";
import { colourOf } from "./load";
import type { Run } from "./report";
import { loadText, spread, type Sweep } from "./sweep";

const FIGURES: [string, (run: Run) => number | null, (value: number | null) => string][] = [
  ["OK/s", (run) => run.throughput_per_s, (value) => (value === null ? "n/a" : rate(value))],
  ["p50", (run) => run.latency.p50_ns, time],
  ["p99", (run) => run.latency.p99_ns, time],
  ["p99.9", (run) => run.latency.p999_ns, time],
  ["Max", (run) => run.latency.max_ns, time],
  ["Late p99", (run) => run.lateness?.p99_ns ?? null, time],
  ["Client CPU per call", (run) => cpuPerCallUs(run.cpu_client_s, run), (us) => (us === null ? "n/a" : `${digits(us)} us`)],
  ["p50 over the raw floor", floorRatio, times],
];

/** The section. */
export function tiles(sweep: Sweep): HTMLElement {
  const rows = sweep.configurations.flatMap((one, i) => one.points.map((point) => ({ label: one.label || "this run", runs: point.runs, colour: colourOf(i), load: point.load })));
  const shown = FIGURES.filter(([, pick]) => rows.some((row) => spread(row.runs, pick).median !== null));
  if (rows.length === 1 && rows[0]) {
    const { runs, load } = rows[0];
    const facts = shown.map(([name, pick, text]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, text(spread(runs, pick).median))));
    return el("section", { class: "figure", id: `figures-${sweep.kind}` }, el("h2", {}, `At ${loadText(sweep.kind, load)}`), el("dl", { class: "tiles" }, ...facts), repetitions(runs));
  }
  const most = shown.map(([, pick]) => Math.max(...rows.map((row) => spread(row.runs, pick).median ?? 0)));
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, row.label),
      ...shown.map(([, pick, text], i) => {
        const { median, low, high } = spread(row.runs, pick);
        const range = low !== null && high !== null && high > low ? `${text(low)} – ${text(high)}` : "";
        return el("td", {}, bar(row.colour, median, most[i] ?? 0), el("span", { class: "figure-value" }, text(median)), el("span", { class: "interval" }, ` ${range}`));
      }),
    ),
  );
  const heads = ["", ...shown.map(([name]) => name)].map((name) => el("th", { scope: "col" }, name));
  return el(
    "section",
    { class: "figure", id: `figures-${sweep.kind}` },
    el("h2", {}, `At ${loadText(sweep.kind, rows[0]?.load ?? NaN)}`),
    el("div", { class: "scroller" }, el("table", { class: "side-by-side" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body))),
    repetitions(rows.flatMap((row) => row.runs)),
  );
}

function repetitions(runs: Run[]): HTMLElement | null {
  return runs.some((run) => run.repeat > 0) ? el("p", { class: "note" }, "The median of the repetitions, and the smallest to the largest.") : null;
}

function bar(colour: string, value: number | null, most: number): SVGElement {
  const rect = svg("rect", { x: 0, y: 0, height: 8, width: most > 0 ? `${(100 * (value ?? 0)) / most}%` : 0, rx: 2 });
  rect.style.fill = `var(${colour})`;
  return svg("svg", { class: "bar", height: 8, width: "100%", "aria-hidden": "true" }, rect);
}
