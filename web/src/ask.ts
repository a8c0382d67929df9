// Questions to the meter's API, one function each.

import type { Annotations, ApiError, CallReport, Changes, Coverage, PairName, PairOverTime, PairsReport, Timeline, WorstReport } from "./api";
import type { AgentsReport, CaseReport, CasesReport } from "./cases_api";
import type { PlanReport } from "./experiment_api";
import type { Explanation } from "./explain_api";
import type { PageSettings } from "./listens";
import { heardDate } from "./meter_clock";
import type { KeptTrace } from "./otlp";
import { tellLocked } from "./signin";
import type { WholeReport } from "./whole_api";
import type { Cells, Filters, Stretch, View } from "./state";

/** What the API could not do, in the words the user sees. */
export class ApiProblem extends Error {
  /** Zero when there was no answer at all. */
  status = 0;
  /** The meter's own words, where it refused. */
  said: string | null = null;
}

const ANSWER_WITHIN_MS = 30_000;

function problem(status: number, text: string, cause?: unknown): ApiProblem {
  const found = new ApiProblem(text, { cause });
  found.status = status;
  return found;
}

type Query = Record<string, string | number | undefined>;

/** The answer of the API; the browser keeps it with its tag, and gets it again only when it has changed. */
function get<T>(path: string, query: Query, signal: AbortSignal): Promise<T> {
  const given = Object.entries(query).flatMap(([key, value]): [string, string][] => (value === undefined || value === "" ? [] : [[key, String(value)]]));
  return answer(path, given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path, { cache: "no-cache" }, signal);
}

async function answer<T>(path: string, url: string, request: RequestInit, signal: AbortSignal): Promise<T> {
  const late = AbortSignal.timeout(ANSWER_WITHIN_MS);
  let response: Response;
  let text: string;
  const sentMs = Date.now();
  try {
    response = await fetch(url, { ...request, signal: AbortSignal.any([signal, late]) });
    heardDate(response.headers.get("date"), sentMs, Date.now());
    text = await response.text();
  } catch (cause) {
    if (signal.aborted) throw cause;
    if (late.aborted) throw problem(0, `${path} was not answered within ${ANSWER_WITHIN_MS / 1000} s.`, cause);
    throw problem(0, `The meter does not answer (${path}). Is it still running?`, cause);
  }
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw problem(response.status, `${path} answered ${response.status} with something that is not JSON: ${text.slice(0, 120)}`);
  }
  if (response.status === 401) tellLocked();
  if (!response.ok) {
    const said = (body as Partial<ApiError>).error ?? response.statusText;
    const found = problem(response.status, `${path} answered ${response.status}: ${said}`);
    found.said = said;
    throw found;
  }
  return body as T;
}

/** The ends as the API takes them, which counts each minute that either of them is in: the end of a stretch is not in it. */
const ends = ({ from, to }: Stretch): Stretch => ({ from, to: Math.max(from, to - 1) });

/** A range that ends now is asked for as such, so that its tag holds for a minute. */
const time = (view: View): Query => (view.fixed ? { ...ends(view.fixed) } : { window: view.range.window });

/** Filters by name, which every question about several pairs takes. */
const names = (filters: Filters): Query => {
  const { q, service, client, server, method } = filters;
  return { q, service, client, server, method };
};

/** To the minute: a stretch that moves with the clock is another question only once a minute. */
const minute = (unixS: number) => Math.floor(unixS / 60) * 60;

/** The stretch compared with. */
const beside = (against: Stretch | null): Query => (against ? { against_from: against.from, against_to: ends(against).to } : {});

/** Rows of a page of the table. */
export const ROWS = 50;
/** Steps of the small plot of a row. */
const ROW_STEPS = 30;

export function askPairs(view: View, against: Stretch | null, top: number, signal: AbortSignal): Promise<PairsReport> {
  return get(
    "/api/v1/pairs",
    {
      ...time(view),
      ...names(view.filters),
      node: view.filters.node,
      status: view.filters.status,
      by: view.by === "kept" ? undefined : view.by,
      sort: view.sort,
      order: view.descending ? undefined : "ascending",
      top,
      offset: view.page > 1 ? (view.page - 1) * top : undefined,
      ...beside(against),
      steps: ROW_STEPS,
    },
    signal,
  );
}

/** Edges of the service map: the pairs slower than usual, then those that lost most, whatever page the table shows. */
export function askEdges(view: View, top: number, signal: AbortSignal): Promise<PairsReport> {
  const { node, status } = view.filters;
  return get("/api/v1/pairs", { ...time(view), ...names(view.filters), node, status, by: "pair", sort: "beyond", top }, signal);
}

export function askTimeline(filters: Filters, stretch: Stretch, steps: number, signal: AbortSignal): Promise<Timeline> {
  const [from, to] = [minute(stretch.from), minute(stretch.to) + 59];
  return get("/api/v1/timeline", { ...names(filters), from, to, steps }, signal);
}

const pairQuery = (pair: PairName): Query => ({ client: pair.client, server: pair.server, method: pair.method });

export function askPair(view: View, pair: PairName, signal: AbortSignal): Promise<PairOverTime> {
  return get("/api/v1/pair", { ...pairQuery(pair), ...time(view) }, signal);
}

/** The pair's row beside the stretch compared with. */
export function askBeside(view: View, pair: PairName, against: Stretch, signal: AbortSignal): Promise<PairsReport> {
  return get("/api/v1/pairs", { ...pairQuery(pair), ...time(view), ...beside(against), top: 1 }, signal);
}

export function askWorst(view: View, pair: PairName, cells: Cells | null, limit: number, signal: AbortSignal): Promise<WorstReport> {
  const within = cells
    ? { from: cells.from, to: Math.max(cells.from, cells.to - 1), min_gap_ns: Math.ceil(cells.lowNs), max_gap_ns: Math.floor(cells.highNs) }
    : time(view);
  return get("/api/v1/worst", { ...pairQuery(pair), ...within, limit }, signal);
}

export function askExplanation(pair: PairName, signal: AbortSignal): Promise<Explanation> {
  return get("/api/v1/explain", pairQuery(pair), signal);
}

export function askCall(traceId: string, clientSpanId: string, signal: AbortSignal): Promise<CallReport> {
  return get("/api/v1/call", { trace_id: traceId, client_span_id: clientSpanId }, signal);
}

export function askTrace(traceId: string, signal: AbortSignal): Promise<KeptTrace> {
  return get(`/api/v1/traces/${encodeURIComponent(traceId)}`, {}, signal);
}

export function askCoverage(signal: AbortSignal): Promise<Coverage> {
  return get("/api/v1/coverage", {}, signal);
}

/** Answers when something has changed since that version, or when the wait is over. */
export function askChanges(since: string | null, waitS: number, signal: AbortSignal): Promise<Changes> {
  return get("/api/v1/changes", { since: since ?? undefined, wait: `${waitS}s` }, signal);
}

/** Nothing where the meter has no cases: that is not an error. */
async function orNone<T>(asked: Promise<T>): Promise<T | null> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 404) return null;
    throw error;
  }
}

/** Cases that are asked for where they are not the subject; of all of them, as many as a meter keeps. */
const FEW_CASES = 200;
const ALL_CASES = 1_000;

export function askCases(all: boolean, signal: AbortSignal): Promise<CasesReport | null> {
  return orNone(get<CasesReport>("/api/v1/cases", { limit: all ? ALL_CASES : FEW_CASES }, signal));
}

export function askCase(id: string, signal: AbortSignal): Promise<CaseReport> {
  return get(`/api/v1/cases/${encodeURIComponent(id)}`, {}, signal);
}

const experimentOf = (id: string) => `/api/v1/cases/${encodeURIComponent(id)}/experiment`;
const uncancelled = () => new AbortController().signal;

/** What an experiment of a case would do. The host is asked; nothing is changed. */
export const planExperiment = (id: string): Promise<PlanReport> => get(experimentOf(id), {}, uncancelled());

/** Carries out a plan that was shown. */
export function startExperiment(id: string, plan: string): Promise<unknown> {
  const request = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ plan }) };
  return answer(experimentOf(id), experimentOf(id), request, uncancelled());
}

/** Ends it, and undoes what is changed. */
export const endExperiment = (id: string): Promise<unknown> => answer(experimentOf(id), experimentOf(id), { method: "DELETE" }, uncancelled());

/** The trace in the first of these cases that has it. */
export async function askWhole(caseIds: string[], traceId: string, signal: AbortSignal): Promise<WholeReport | null> {
  for (const id of caseIds) {
    const found = await orNone(get<WholeReport>(`/api/v1/cases/${encodeURIComponent(id)}/calls/${encodeURIComponent(traceId)}`, {}, signal));
    if (found) return found;
  }
  return null;
}

export function askAnnotations(signal: AbortSignal): Promise<Annotations | null> {
  return orNone(get<Annotations>("/api/v1/annotations", {}, signal));
}

export function askPage(signal: AbortSignal): Promise<PageSettings | null> {
  return orNone(get<PageSettings>("/api/v1/page", {}, signal));
}

export function askAgents(signal: AbortSignal): Promise<AgentsReport | null> {
  return orNone(get<AgentsReport>("/api/v1/agents", {}, signal));
}
