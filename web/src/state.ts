// What the page shows, and its form in the URL's hash, so that views can be shared and the back button works.

import type { PairName } from "./api";
import { stretchWords } from "./format";

/** Time ranges that end now, as in the API's `window`. */
export const RANGES = [
  { window: "15m", label: "15 min", seconds: 900 },
  { window: "1h", label: "1 h", seconds: 3_600 },
  { window: "6h", label: "6 h", seconds: 21_600 },
  { window: "24h", label: "24 h", seconds: 86_400 },
  { window: "7d", label: "7 d", seconds: 604_800 },
] as const;

export type Range = (typeof RANGES)[number];

/** A period with fixed ends, in Unix seconds. */
export interface Stretch {
  from: number;
  to: number;
}

/** Columns by which pairs can be sorted, by their names in the API. */
export const SORTS = ["pair", "calls", "beyond", "waited", "lost", "change", "gap_p50", "gap_p99", "client_p99", "server_p99", "negative", "attempts", "match"] as const;

export type Sort = (typeof SORTS)[number];

/** What a row represents. */
export const GROUPS = [
  { by: "kept", label: "nothing", hint: "a row for all that the meter keeps apart: pairs, and with --by methods or nodes as well" },
  { by: "pair", label: "client → server", hint: "client and server service, all methods together" },
  { by: "client", label: "client", hint: "calling service, or with --by client-node service and node" },
  { by: "server", label: "server", hint: "called service, or with --by server-node service and node" },
  { by: "method", label: "method", hint: "server and method, of a meter that runs with --by method" },
] as const;

export type Group = (typeof GROUPS)[number]["by"];

/** Filter of the pairs; an empty text matches everything. */
export interface Filters {
  q: string;
  service: string;
  client: string;
  server: string;
  method: string;
  node: string;
  status: string;
}

export const NO_FILTERS: Filters = { q: "", service: "", client: "", server: "", method: "", node: "", status: "" };

/** The selected cells of a heatmap: a period and a band of gaps, in nanoseconds. */
export interface Cells extends Stretch {
  lowNs: number;
  highNs: number;
}

/** Periods that a range can be compared with. */
export const AGAINST = ["previous", "day", "week"] as const;

export type Against = (typeof AGAINST)[number] | Stretch;

export type Place = "fleet" | "pair" | "call" | "cases" | "case" | "hosts";

/** The part of the list of cases that is shown: a state, words, a page. */
export interface CaseList {
  state: string;
  q: string;
  page: number;
}

export interface View {
  place: Place;
  range: Range;
  /** A period with fixed ends, in place of the range. */
  fixed: Stretch | null;
  against: Against | null;
  filters: Filters;
  by: Group;
  sort: Sort;
  descending: boolean;
  page: number;
  map: boolean;
  pair: PairName | null;
  cells: Cells | null;
  call: { traceId: string; clientSpanId: string } | null;
  caseId: string | null;
  cases: CaseList;
}

/** Shows a view; `inPlace` of the one shown, so that going back leads past that. */
export type Go = (view: View, inPlace?: boolean) => void;

export const START: View = {
  place: "fleet",
  range: RANGES[0],
  fixed: null,
  against: null,
  filters: NO_FILTERS,
  by: "kept",
  sort: "beyond",
  descending: true,
  page: 1,
  map: false,
  pair: null,
  cells: null,
  call: null,
  caseId: null,
  cases: { state: "", q: "", page: 1 },
};

function stretch(from: string | null, to: string | null): Stretch | null {
  const [a, b] = [Number(from), Number(to)];
  if (from === null || to === null || !Number.isSafeInteger(a) || !Number.isSafeInteger(b) || a < 0 || b <= a) return null;
  return { from: a, to: b };
}

function cellsOf(text: string | null): Cells | null {
  const [from, to, lowNs, highNs] = (text ?? "").split(",").map(Number);
  if (from === undefined || to === undefined || lowNs === undefined || highNs === undefined) return null;
  if (![from, to, lowNs, highNs].every(Number.isFinite) || to <= from || highNs < lowNs) return null;
  return { from, to, lowNs, highNs };
}

function againstOf(text: string | null): Against | null {
  if (text === null) return null;
  const [from, to] = text.split("-");
  return AGAINST.find((one) => one === text) ?? stretch(from ?? null, to ?? null);
}

function pageOf(text: string | null): number {
  const page = Number(text ?? 1);
  return Number.isSafeInteger(page) && page > 0 ? page : 1;
}

/** Parses a hash; whatever is invalid takes its value from [`START`]. */
export function parseHash(hash: string): View {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const view = given.get("view");
  // Besides the pair's own name, a filter of the fleet may contain one.
  const [client, server] = [given.get("client"), given.get("server")];
  const named = client !== null && server !== null;
  const pair = named ? { client, server, method: given.get("method") ?? undefined } : null;
  const traceId = given.get("trace_id");
  const caseId = given.get("case");
  const call = traceId ? { traceId, clientSpanId: given.get("client_span_id") ?? "" } : null;
  const place: Place = call ? "call" : pair ? "pair" : caseId ? "case" : view === "cases" || view === "hosts" ? view : "fleet";
  const text = (key: string) => given.get(key) ?? "";
  return {
    place,
    range: RANGES.find((range) => range.window === given.get("window")) ?? START.range,
    fixed: stretch(given.get("from"), given.get("to")),
    against: againstOf(given.get("against")),
    filters: {
      q: text("q"),
      service: text("service"),
      client: text("of_client"),
      server: text("of_server"),
      method: text("of_method"),
      node: text("node"),
      status: text("status"),
    },
    by: GROUPS.find((group) => group.by === given.get("by"))?.by ?? START.by,
    sort: SORTS.find((sort) => sort === given.get("sort")) ?? START.sort,
    descending: given.get("order") !== "ascending",
    page: pageOf(given.get("page")),
    map: given.get("show") === "map",
    pair,
    cells: pair ? cellsOf(given.get("cells")) : null,
    call,
    caseId,
    cases: { state: text("state"), q: text("find"), page: pageOf(given.get("cases_page")) },
  };
}

/** The hash of a view; values equal to those of [`START`] are omitted. */
export function toHash(view: View): string {
  const said = new URLSearchParams();
  const { fixed, filters, pair, call, against, cells, place } = view;
  if (place === "cases" || place === "hosts") said.set("view", place);
  if ((place === "case" || place === "call") && view.caseId) said.set("case", view.caseId);
  if (view.cases.state !== "") said.set("state", view.cases.state);
  if (view.cases.q !== "") said.set("find", view.cases.q);
  if (view.cases.page !== 1) said.set("cases_page", String(view.cases.page));
  if (view.range !== START.range) said.set("window", view.range.window);
  if (fixed) {
    said.set("from", String(fixed.from));
    said.set("to", String(fixed.to));
  }
  if (against) said.set("against", typeof against === "string" ? against : `${against.from}-${against.to}`);
  const filter: [string, string][] = [
    ["q", filters.q],
    ["service", filters.service],
    ["of_client", filters.client],
    ["of_server", filters.server],
    ["of_method", filters.method],
    ["node", filters.node],
    ["status", filters.status],
  ];
  for (const [key, value] of filter) if (value !== "") said.set(key, value);
  if (view.by !== START.by) said.set("by", view.by);
  if (view.sort !== START.sort) said.set("sort", view.sort);
  if (!view.descending) said.set("order", "ascending");
  if (view.page !== 1) said.set("page", String(view.page));
  if (view.map) said.set("show", "map");
  if (pair && (place === "pair" || place === "call")) {
    said.set("client", pair.client);
    said.set("server", pair.server);
    if (pair.method !== undefined) said.set("method", pair.method);
    if (cells) said.set("cells", [cells.from, cells.to, cells.lowNs, cells.highNs].join(","));
  }
  if (call && place === "call") {
    said.set("trace_id", call.traceId);
    if (call.clientSpanId !== "") said.set("client_span_id", call.clientSpanId);
  }
  return `#${said}`;
}

/** One text per pair: names may contain any character, so the parts are quoted. */
export function pairKey(pair: PairName): string {
  return JSON.stringify([pair.client, pair.server, pair.method ?? null]);
}

export function samePair(a: PairName | null, b: PairName | null): boolean {
  return a === b || (a !== null && b !== null && pairKey(a) === pairKey(b));
}

/** Start and end of the period shown, as of now. The end is not in it, so that 10:00 to 10:03 is three minutes. */
export function shownStretch(view: View, nowS: number): Stretch {
  return view.fixed ?? { from: nowS - view.range.seconds, to: nowS };
}

/** The period compared with. The previous one has no minute in common with the one shown, nor with any since one of these moments. */
export function againstStretch(view: View, nowS: number, slowerSinceS: number[] = []): Stretch | null {
  const { against } = view;
  if (against === null) return null;
  if (typeof against !== "string") return against;
  const shown = shownStretch(view, nowS);
  const length = shown.to - shown.from;
  if (against === "previous") {
    const end = Math.floor(shown.from / 60) * 60;
    const within = slowerSinceS.filter((since) => since > Math.max(0, end - length) && since < end);
    const to = Math.floor(Math.min(end, ...within) / 60) * 60;
    return { from: Math.max(0, to - length), to };
  }
  const back = against === "day" ? 86_400 : 604_800;
  return { from: Math.max(0, shown.from - back), to: Math.max(60, shown.to - back) };
}

/** The time range in a sentence: "in the last 15 min". */
export function rangeWords(view: View): string {
  return view.fixed ? `from ${stretchWords(view.fixed, "to")}` : `in the last ${view.range.label}`;
}
