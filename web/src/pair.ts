// One pair: over time, as distributions, by leg, and what is not in the distributions.

import type { LegReport, PairOverTime, PairPoint, PairRow, Quantiles, WorstOfPair } from "./api";
import { el, refill } from "./dom";
import { count, duration, interval, percent } from "./format";
import { HeatmapView } from "./heatmap";
import { toHash, type View } from "./state";
import { lostShare, pairTitle } from "./table";
import { minutesPerPoint, TimeSeriesView } from "./timeseries";
import { WorstView } from "./worst";

const LEAST_CHART_S = 300;

interface Distribution {
  label: string;
  hint: string;
  quantiles: Quantiles;
  bound?: LegReport;
}

function distributions(total: PairRow): Distribution[] {
  const rows: Distribution[] = [
    { label: "gap", hint: "client duration minus server duration", quantiles: total.gap },
    { label: "client", hint: "durations of the CLIENT spans", quantiles: total.client_duration },
    { label: "server", hint: "durations of the SERVER spans", quantiles: total.server_duration },
  ];
  const leg = (label: string, hint: string, report: LegReport | undefined) => {
    if (report) rows.push({ label, hint, quantiles: report, bound: report });
  };
  leg("request leg", "client start to server start", total.request_leg);
  leg("response leg", "server end to client end", total.response_leg);
  rows.push({ label: "mate delay", hint: "time between the arrivals of the two spans at the meter", quantiles: total.mate_delay });
  return rows;
}

const FIGURES: { label: string; value: (q: Quantiles) => number; ci95?: (q: Quantiles) => [number, number] }[] = [
  { label: "p50", value: (q) => q.p50_ns, ci95: (q) => q.p50_ci95_ns },
  { label: "p90", value: (q) => q.p90_ns },
  { label: "p95", value: (q) => q.p95_ns },
  { label: "p99", value: (q) => q.p99_ns, ci95: (q) => q.p99_ci95_ns },
  { label: "p99.9", value: (q) => q.p999_ns },
  { label: "max", value: (q) => q.max_ns },
  { label: "mean", value: (q) => q.mean_ns },
];

function distributionsTable(total: PairRow): HTMLElement {
  const heading = (text: string, hint = "") => el("th", { scope: "col", class: "number", title: hint }, text);
  const rows = distributions(total).map(({ label, hint, quantiles: q, bound }) => {
    const figures = FIGURES.map(({ value, ci95 }) => {
      if (q.count === 0) return el("td", { class: "number" }, "–");
      return el("td", { class: "number" }, duration(value(q)), ci95 && " ", ci95 && el("span", { class: "interval" }, `(${interval(value(q), ci95(q))})`));
    });
    const off = bound && bound.bound_ns > 0
      ? el("td", { class: "number", title: `each figure is true to within this; on average to within ± ${duration(bound.bound_mean_ns)}` }, `± ${duration(bound.bound_ns)}`)
      : el("td", { class: "number quiet" }, label === "mate delay" ? "1 ms steps" : "exact");
    return el("tr", {}, el("th", { scope: "row", title: hint }, label), el("td", { class: "number" }, count(q.count)), ...figures, off);
  });
  return el(
    "table",
    { class: "distributions" },
    el("caption", {}, "Distributions, with the 95 % interval of p50 and p99"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "duration"), heading("calls"), ...FIGURES.map(({ label }) => heading(label)), heading("clocks", "how far a figure may be off because the two hosts' clocks differ"))),
    el("tbody", {}, ...rows),
  );
}

function legsRemark(total: PairRow): string {
  const { request_leg: request, response_leg: response } = total;
  if (!request || !response) {
    return "Request and response leg are unknown: a leg needs both hosts' names and enough calls between them to know how far their clocks are apart. The gap itself needs no common clock.";
  }
  const known = request.count < total.calls ? `${count(request.count)} of ${count(total.calls)} calls have legs. ` : "";
  if (request.count === 0) return `${known}No call's clock offset is known.`;
  const apart = Math.abs(request.p50_ns - response.p50_ns);
  if (apart <= 2 * Math.max(request.bound_mean_ns, response.bound_mean_ns)) {
    return `${known}The legs' medians differ by ${duration(apart)}, less than the clocks allow to tell: which way is the slower one is not known.`;
  }
  const slower = request.p50_ns > response.p50_ns ? "request" : "response";
  return `${known}In the median the ${slower} leg is the longer one by ${duration(apart)}, more than the clocks' uncertainty.`;
}

function apartTable(total: PairRow): HTMLElement {
  const statuses = Object.entries(total.negative_by_status).sort((a, b) => b[1] - a[1]);
  const row = (label: string, n: number, hint: string, indent = false) =>
    el("tr", { class: indent ? "indent" : "" }, el("th", { scope: "row", title: hint }, label), el("td", { class: "number" }, count(n)));
  return el(
    "table",
    { class: "apart" },
    el("caption", {}, "Calls counted apart"),
    el(
      "tbody",
      {},
      row("negative gap", total.negative, "the server span was the longer one: timeouts, cancellations, work after the reply"),
      ...statuses.map(([status, n]) => row(status, n, "status of the CLIENT span", true)),
      row("more than one attempt", total.attempts_over_one, "several SERVER spans under one CLIENT span"),
      row("large response", total.excluded_large, `excluded because marshalling would count into the gap; the size is known of ${percent(total.size_known_ratio)} of the calls`),
    ),
  );
}

/** What cannot be said of this pair. */
function unsaid(total: PairRow): string {
  const parts: string[] = [];
  if (total.size_known_ratio !== null && total.size_known_ratio < 0.5) {
    parts.push(` The size of the response is known of ${percent(total.size_known_ratio)} of the calls only: large ones among the others are not excluded.`);
  }
  if (total.worst_complete_above_ns !== undefined) {
    parts.push(` Worst calls with a gap up to ${duration(total.worst_complete_above_ns)} may be missing: calls with several attempts had taken their places.`);
  }
  return parts.join("");
}

function summary(total: PairRow, rangeLabel: string): string {
  if (total.calls === 0) return `No calls of this pair in the last ${rangeLabel} are in the distributions.`;
  return (
    `${count(total.calls)} calls in the last ${rangeLabel} lost ${duration(total.lost_ns_total)} between client and server: ` +
    `${percent(lostShare(total))} of what the client waited.`
  );
}

/** The charts leave out the time before the meter ran, unless its history has calls there. */
export function chartStart(points: PairPoint[], fromS: number, toS: number, uptimeS: number): number {
  const recorded = Math.min(toS - uptimeS, points[0]?.unix_s ?? toS);
  return Math.max(fromS, Math.min(recorded, toS - LEAST_CHART_S));
}

export class PairView {
  private readonly title = el("h2", { tabindex: "-1" });
  private readonly close = el("a", { class: "close", title: "back to all pairs (Esc)" }, "close");
  private readonly said = el("p", { class: "summary" });
  private readonly series = new TimeSeriesView();
  private readonly step = el("span", {});
  private readonly heatmap = new HeatmapView();
  private readonly distributions = el("div", { class: "scroller" });
  private readonly legs = el("p", { class: "remark" });
  private readonly apart = el("div", {});
  private readonly worst = new WorstView();
  private readonly content: HTMLElement;
  private readonly waiting = el("p", { class: "waiting" });

  constructor(private readonly root: HTMLElement) {
    const chart = (title: string, remark: Node | string, view: HTMLElement) => el("figure", {}, el("figcaption", {}, el("h3", {}, title), " ", el("span", { class: "quiet" }, remark)), view);
    this.content = el(
      "div",
      { class: "content" },
      this.said,
      el("div", { class: "charts" }, chart("Quantiles over time", this.step, this.series.root), chart("Latency heatmap", "of the gap", this.heatmap.root)),
      this.distributions,
      this.legs,
      el("div", { class: "lower" }, this.worst.root, this.apart),
    );
    root.append(el("div", { class: "pair-head" }, this.title, this.close), this.waiting, this.content, el("div", { id: "call" }));
  }

  /** Shows which pair is coming; its figures follow with [`PairView.update`]. */
  open(view: View): void {
    if (!view.pair) return;
    refill(this.title, ...pairTitle(view.pair));
    this.close.href = toHash({ ...view, pair: null, call: null });
    this.content.hidden = true;
    this.waiting.hidden = false;
    this.waiting.textContent = "Loading this pair…";
    this.root.hidden = false;
  }

  update(pair: PairOverTime, worst: WorstOfPair[], view: View, fromS: number, toS: number): void {
    this.close.href = toHash({ ...view, pair: null, call: null });
    this.waiting.hidden = true;
    this.content.hidden = false;
    this.said.textContent = summary(pair.total, view.range.label) + unsaid(pair.total);
    const minutes = minutesPerPoint(fromS, toS);
    this.step.textContent = minutes === 1 ? "a point is a minute" : `a point is the median of ${minutes} minutes' figures`;
    this.series.update(pair.points, fromS, toS);
    this.heatmap.update(pair.heatmap, fromS, toS);
    refill(this.distributions, distributionsTable(pair.total));
    this.legs.textContent = legsRemark(pair.total);
    refill(this.apart, apartTable(pair.total));
    this.worst.update(worst, view);
  }

  /** Says why there are no figures. */
  failed(message: string): void {
    this.content.hidden = true;
    this.waiting.hidden = false;
    this.waiting.textContent = message;
  }

  hide(): void {
    this.root.hidden = true;
  }

  focus(): void {
    this.title.focus({ preventScroll: true });
    this.root.scrollIntoView({ block: "nearest" });
  }
}
