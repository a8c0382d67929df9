// What the page shows, and its form in the URL's hash, so that a view can be shared and the back button works.

import type { PairName } from "./api";

/** Time ranges the picker offers, as the API's `window` takes them. */
export const RANGES = [
  { window: "15m", label: "15 min", seconds: 900 },
  { window: "1h", label: "1 h", seconds: 3_600 },
  { window: "6h", label: "6 h", seconds: 21_600 },
  { window: "24h", label: "24 h", seconds: 86_400 },
] as const;

export type Range = (typeof RANGES)[number];

/** Columns the pairs can be sorted by. */
export const SORTS = [
  "pair",
  "calls",
  "lost",
  "gap_p50",
  "gap_p99",
  "client_p99",
  "server_p99",
  "negative",
  "attempts",
  "match",
] as const;

export type Sort = (typeof SORTS)[number];

export interface View {
  range: Range;
  sort: Sort;
  descending: boolean;
  pair: PairName | null;
  call: { traceId: string; clientSpanId: string } | null;
}

export const START: View = { range: RANGES[0], sort: "lost", descending: true, pair: null, call: null };

/** Reads a hash; what it does not understand takes its value from [`START`]. */
export function parseHash(hash: string): View {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const client = given.get("client");
  const server = given.get("server");
  const traceId = given.get("trace_id");
  const clientSpanId = given.get("client_span_id");
  const pair = client !== null && server !== null ? { client, server, method: given.get("method") ?? undefined } : null;
  return {
    range: RANGES.find((range) => range.window === given.get("window")) ?? START.range,
    sort: SORTS.find((sort) => sort === given.get("sort")) ?? START.sort,
    descending: given.get("order") !== "ascending",
    pair,
    call: pair && traceId && clientSpanId ? { traceId, clientSpanId } : null,
  };
}

/** The hash of a view; what is as in [`START`] is left out. */
export function toHash(view: View): string {
  const said = new URLSearchParams();
  if (view.range !== START.range) said.set("window", view.range.window);
  if (view.sort !== START.sort) said.set("sort", view.sort);
  if (!view.descending) said.set("order", "ascending");
  if (view.pair) {
    said.set("client", view.pair.client);
    said.set("server", view.pair.server);
    if (view.pair.method !== undefined) said.set("method", view.pair.method);
    if (view.call) {
      said.set("trace_id", view.call.traceId);
      said.set("client_span_id", view.call.clientSpanId);
    }
  }
  return `#${said}`;
}

/** One text per pair: names may hold any character, so the parts are quoted. */
export function pairKey(pair: PairName): string {
  return JSON.stringify([pair.client, pair.server, pair.method ?? null]);
}

export function samePair(a: PairName | null, b: PairName | null): boolean {
  return a === b || (a !== null && b !== null && pairKey(a) === pairKey(b));
}
