// The pairs, most time lost first. Rows are kept by pair across refreshes, so focus and selection stay.

import type { PairRow, PairsReport, Quantiles } from "./api";
import { el, refill, svg } from "./dom";
import { axisLabel, count, duration, interval, percent, shortCount } from "./format";
import { pairKey, samePair, toHash, type Sort, type View } from "./state";

interface Column {
  sort: Sort;
  title: string;
  hint: string;
  /** What the rows are sorted by: text ascending by default, numbers descending. */
  order: (row: PairRow) => number | string;
}

/** A share of unmatched spans from which the figure is marked. */
const WEAK_MATCH = 0.98;

const worseMatch = (row: PairRow) => Math.min(row.client_match_ratio ?? 2, row.server_match_ratio ?? 2);

const COLUMNS: Column[] = [
  { sort: "pair", title: "Client → server", hint: "calling and called service", order: (r) => `${r.client}\u0000${r.server}\u0000${r.method ?? ""}` },
  { sort: "calls", title: "Calls", hint: "calls in the distributions", order: (r) => r.calls },
  { sort: "lost", title: "Time lost", hint: "sum of all gaps: what a fix could win; beside it, as a share of what the client waited", order: (r) => r.lost_ns_total },
  { sort: "gap_p50", title: "Gap p50", hint: "median of client duration minus server duration, with its 95 % interval", order: (r) => r.gap.p50_ns },
  { sort: "gap_p99", title: "Gap p99", hint: "99th percentile of the gap, with its 95 % interval", order: (r) => r.gap.p99_ns },
  { sort: "client_p99", title: "Client p99", hint: "99th percentile of the client spans' durations", order: (r) => r.client_p99_ns },
  { sort: "server_p99", title: "Server p99", hint: "99th percentile of the server spans' durations", order: (r) => r.server_p99_ns },
  { sort: "negative", title: "Negative", hint: "calls whose server span was the longer one, counted apart: timeouts, cancellations, work after the reply", order: (r) => r.negative },
  { sort: "attempts", title: "Attempts > 1", hint: "calls with more than one SERVER span under the CLIENT span, counted apart: retries and hedges", order: (r) => r.attempts_over_one },
  { sort: "match", title: "Match", hint: "share of the client service's CLIENT spans, and of the server service's SERVER spans, that found their mate since the meter's start", order: worseMatch },
];

/** Which part of the time that the client waited lies between the two spans. */
export function lostShare(row: PairRow): number | null {
  const waited = row.client_duration.mean_ns * row.client_duration.count;
  return waited > 0 ? Math.min(1, row.lost_ns_total / waited) : null;
}

/** The rows in the order the view asks for; equal ones by time lost. */
export function sorted(rows: PairRow[], sort: Sort, descending: boolean): PairRow[] {
  const { order } = COLUMNS.find((column) => column.sort === sort) ?? COLUMNS[2]!;
  // Descending is the natural direction: the largest number, but of names the first letter, comes first.
  const sign = descending ? 1 : -1;
  return [...rows].sort((a, b) => {
    const [x, y] = [order(a), order(b)];
    const natural = typeof x === "string" ? x.localeCompare(String(y)) : Number(y) - x;
    return sign * natural || b.lost_ns_total - a.lost_ns_total;
  });
}

const WIDTH = 150;

/** From which to which duration the small plots of all rows reach. */
function plotRange(rows: PairRow[]): [number, number] {
  const seen = rows.filter((row) => row.gap.count > 0);
  const low = Math.min(...seen.map((row) => Math.max(1, row.gap.p50_ci95_ns[0])));
  const high = Math.max(...seen.map((row) => Math.max(1, row.gap.p99_ci95_ns[1])));
  return seen.length > 0 ? [low * 0.8, high * 1.25] : [1, 10];
}

/** Median and 99th percentile with their intervals, on one log scale for all rows. */
function whisker(gap: Quantiles, [low, high]: [number, number]): SVGSVGElement {
  const x = (ns: number) => (Math.log(Math.max(ns, low) / low) / Math.log(high / low)) * (WIDTH - 8) + 4;
  const figure = (className: string, ns: number, [from, to]: [number, number]) => [
    svg("line", { class: `${className} reach`, x1: x(from), x2: x(to), y1: 8, y2: 8 }),
    svg("line", { class: className, x1: x(from), x2: x(from), y1: 4, y2: 12 }),
    svg("line", { class: className, x1: x(to), x2: x(to), y1: 4, y2: 12 }),
    svg("circle", { class: className, cx: x(ns), cy: 8, r: 2.6 }),
  ];
  const picture = svg("svg", { class: "whisker", viewBox: `0 0 ${WIDTH} 16`, width: WIDTH, height: 16, "aria-hidden": "true" });
  if (gap.count === 0) return picture;
  picture.append(
    svg("line", { class: "between", x1: x(gap.p50_ns), x2: x(gap.p99_ns), y1: 8, y2: 8 }),
    ...figure("p50", gap.p50_ns, gap.p50_ci95_ns),
    ...figure("p99", gap.p99_ns, gap.p99_ci95_ns),
  );
  return picture;
}

function quantile(ns: number, ci95: [number, number], calls: number): HTMLTableCellElement {
  if (calls === 0) return el("td", { class: "number" }, "–");
  return el("td", { class: "number" }, duration(ns), " ", el("span", { class: "interval" }, `(${interval(ns, ci95)})`));
}

function matchText(row: PairRow): HTMLTableCellElement {
  const weak = worseMatch(row) < WEAK_MATCH;
  return el("td", { class: weak ? "number bad" : "number" }, percent(row.client_match_ratio), " ", el("span", { class: "of-server" }, `/ ${percent(row.server_match_ratio)}`));
}

/** How a pair is called where it stands alone. */
export function pairTitle(row: { client: string; server: string; method?: string | undefined }): (Node | string)[] {
  const arrow = el("span", { class: "arrow" }, " → ");
  const method = row.method === undefined ? [] : [el("span", { class: "method" }, ` ${row.method}`)];
  return [row.client, arrow, row.server, ...method];
}

export class PairsView {
  private readonly head = el("tr", {});
  private readonly body = el("tbody", {});
  private readonly caption = el("caption", {});
  private readonly scroller: HTMLElement;
  private readonly headings = new Map<Sort, HTMLTableCellElement>();
  private readonly rows = new Map<string, { row: HTMLTableRowElement; link: HTMLAnchorElement }>();
  private shown: PairRow | null = null;

  constructor(root: HTMLElement, onSort: (sort: Sort) => void) {
    for (const column of COLUMNS) {
      const button = el("button", { type: "button", title: column.hint }, column.title);
      button.addEventListener("click", () => onSort(column.sort));
      const heading = el("th", { scope: "col", class: column.sort === "pair" ? "" : "number" }, button);
      this.headings.set(column.sort, heading);
      this.head.append(heading);
      if (column.sort === "gap_p99") this.head.append(el("th", { scope: "col", class: "plotted" }));
    }
    const table = el("table", { class: "pairs" }, this.caption, el("thead", {}, this.head), this.body);
    this.scroller = el("div", { class: "scroller" }, table);
    root.append(this.scroller);
  }

  update(report: PairsReport, view: View): void {
    const rows = sorted(report.pairs, view.sort, view.descending);
    const range = plotRange(rows);
    for (const [sort, heading] of this.headings) {
      const direction = (sort === "pair") === view.descending ? "ascending" : "descending";
      heading.setAttribute("aria-sort", sort === view.sort ? direction : "none");
    }
    const axis = this.head.querySelector(".plotted");
    if (axis) {
      refill(axis, el("span", { class: "unseen" }, "Gap p50 and p99 drawn"), el("span", {}, axisLabel(range[0])), el("span", {}, "log"), el("span", {}, axisLabel(range[1])));
    }
    refill(this.caption, `${count(rows.length)} ${rows.length === 1 ? "pair" : "pairs"} with calls in the last ${view.range.label}`);

    const present = new Set<string>();
    const inOrder = rows.map((row) => {
      const key = pairKey(row);
      present.add(key);
      return this.fill(key, row, view, range);
    });
    for (const key of this.rows.keys()) if (!present.has(key)) this.rows.delete(key);
    // Moving a row that is in its place already would take the focus from its link.
    if (inOrder.length !== this.body.rows.length || inOrder.some((row, i) => this.body.rows[i] !== row)) {
      const focused = document.activeElement;
      this.body.replaceChildren(...inOrder);
      if (focused instanceof HTMLElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
    }
    this.scroller.classList.toggle("with-detail", view.pair !== null);
    this.reveal(rows.find((row) => samePair(row, view.pair)) ?? null);
  }

  private fill(key: string, pair: PairRow, view: View, range: [number, number]): HTMLTableRowElement {
    let known = this.rows.get(key);
    if (!known) {
      const link = el("a", { class: "pair-link", title: [pair.client, "→", pair.server, pair.method].filter(Boolean).join(" ") }, ...pairTitle(pair));
      known = { row: el("tr", {}, el("th", { scope: "row" }, link)), link };
      const { row } = known;
      row.addEventListener("click", (event) => {
        if (!(event.target instanceof Element) || event.target.closest("a")) return;
        if (getSelection()?.isCollapsed === false) return;
        link.click();
      });
      this.rows.set(key, known);
    }
    const { row, link } = known;
    const chosen = samePair(pair, view.pair);
    link.href = toHash({ ...view, pair: { client: pair.client, server: pair.server, method: pair.method }, call: null });
    row.classList.toggle("chosen", chosen);
    if (chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    // The first cell stays where it is: a moved link loses the focus.
    while (row.cells.length > 1) row.deleteCell(1);
    row.append(
      el("td", { class: "number", title: `${count(pair.calls)} calls` }, shortCount(pair.calls)),
      el("td", { class: "number lost" }, el("b", {}, duration(pair.lost_ns_total)), " ", el("span", { class: "interval" }, percent(lostShare(pair)))),
      quantile(pair.gap.p50_ns, pair.gap.p50_ci95_ns, pair.gap.count),
      quantile(pair.gap.p99_ns, pair.gap.p99_ci95_ns, pair.gap.count),
      el("td", { class: "plotted" }, whisker(pair.gap, range)),
      el("td", { class: "number" }, pair.calls > 0 ? duration(pair.client_p99_ns) : "–"),
      el("td", { class: "number" }, pair.calls > 0 ? duration(pair.server_p99_ns) : "–"),
      el("td", { class: "number" }, shortCount(pair.negative)),
      el("td", { class: "number" }, shortCount(pair.attempts_over_one)),
      matchText(pair),
    );
    return row;
  }

  /** Brings the chosen row into the part of the table that is visible, once per choice. */
  private reveal(chosen: PairRow | null): void {
    if (!samePair(chosen, this.shown) && chosen) {
      const row = this.rows.get(pairKey(chosen))?.row;
      if (row) {
        const top = row.offsetTop - this.scroller.clientHeight / 2;
        if (row.offsetTop < this.scroller.scrollTop || row.offsetTop + row.offsetHeight > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top;
      }
    }
    this.shown = chosen;
  }
}
