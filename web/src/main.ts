// The page: reads its view from the URL's hash, asks the meter every five seconds, and draws.

import { ApiProblem, fetchCall, fetchCoverage, fetchPair, fetchPairs, fetchWorst, type CallReport, type Coverage, type PairsReport } from "./api";
import { CallView } from "./call";
import { CoverageView } from "./coverage";
import { byId, el, refill } from "./dom";
import { awaited, howToSend } from "./empty";
import { chartStart, PairView } from "./pair";
import { parseHash, RANGES, samePair, toHash, type Sort, type View } from "./state";
import { PairsView } from "./table";

const REFRESH_MS = 5_000;
const WORST_SHOWN = 20;

let view: View = parseHash(location.hash);
let report: PairsReport | null = null;
let coverage: Coverage | null = null;
let call: CallReport | null = null;
let inFlight: AbortController | null = null;
let callInFlight: AbortController | null = null;
let nextRefresh: ReturnType<typeof setTimeout> | undefined;

const pairsRoot = byId("pairs");
const emptyRoot = el("div", { id: "empty" });
const coverageView = new CoverageView(byId("coverage"), byId("remarks"));
const pairsView = new PairsView(pairsRoot, sortBy);
const pairView = new PairView(byId("pair"));
const callView = new CallView(byId("call"));
pairsRoot.append(emptyRoot);
const pairsTable = pairsRoot.querySelector<HTMLElement>(".scroller");

function go(next: View): void {
  location.hash = toHash(next);
}

function sortBy(sort: Sort): void {
  go({ ...view, sort, descending: sort === view.sort ? !view.descending : true });
}

function drawRanges(): void {
  const choices = RANGES.map((range) => {
    const input = el("input", { type: "radio", name: "range", value: range.window });
    input.checked = range === view.range;
    input.addEventListener("change", () => go({ ...view, range }));
    return el("label", {}, input, el("span", {}, range.label));
  });
  byId("ranges").append(...choices);
}

function drawPairs(): void {
  if (!report) return;
  const empty = report.pairs.length === 0;
  if (pairsTable) pairsTable.hidden = empty;
  emptyRoot.hidden = !empty;
  if (empty) refill(emptyRoot, howToSend(awaited(coverage, view.range.label)));
  else pairsView.update(report, view);
}

function problem(text: string | null): void {
  const root = byId("problem");
  root.hidden = text === null;
  refill(root, text);
}

function freshness(text: string, late = false): void {
  const root = byId("freshness");
  root.textContent = text;
  root.classList.toggle("bad", late);
}

/** What the user is told; a fault of the page itself also goes to the console. */
function inWords(error: unknown): string {
  if (!(error instanceof ApiProblem)) console.error(error);
  return error instanceof Error ? error.message : String(error);
}

/** Asks for everything the view shows, draws it, and asks again in a while. */
async function refresh(): Promise<void> {
  clearTimeout(nextRefresh);
  inFlight?.abort();
  if (document.hidden) {
    freshness("paused");
    return;
  }
  const mine = new AbortController();
  inFlight = mine;
  const { signal } = mine;
  const { pair, range } = view;
  const ofPair = pair && Promise.all([fetchPair(pair, range.window, signal), fetchWorst(pair, range.window, WORST_SHOWN, signal)]);
  const [pairs, seen, over] = await Promise.allSettled([fetchPairs(range.window, signal), fetchCoverage(signal), ofPair]);
  if (signal.aborted) return;

  if (seen.status === "fulfilled") {
    coverage = seen.value;
    coverageView.update(coverage);
  }
  if (pairs.status === "fulfilled") {
    report = pairs.value;
    drawPairs();
  }
  if (over.status === "rejected") pairView.failed(inWords(over.reason));
  else if (over.value && report) {
    const [shown, worst] = over.value;
    const from = chartStart(shown.points, report.from_unix_s, report.to_unix_s, coverage?.uptime_s ?? Infinity);
    pairView.update(shown, worst.calls, view, from, report.to_unix_s);
  }

  const failed = [pairs, seen].find((answer) => answer.status === "rejected");
  if (failed) {
    problem(inWords(failed.reason) + (report ? " What is shown below is the last answer." : ""));
    freshness("trying again every 5 s", true);
  } else {
    problem(null);
    freshness(`updated ${new Date().toLocaleTimeString([], { hour12: false })}, every 5 s`);
    document.body.dataset["refreshed"] = String(Number(document.body.dataset["refreshed"] ?? 0) + 1);
  }
  for (const [id, known] of [["coverage", coverage], ["remarks", coverage], ["pairs", report]] as const) byId(id).hidden = known === null;
  nextRefresh = setTimeout(refresh, REFRESH_MS);
}

/** A call does not change any more: it is fetched once. */
async function openCall(): Promise<void> {
  callInFlight?.abort();
  const wanted = view.call;
  if (!wanted) {
    call = null;
    callView.clear();
    return;
  }
  if (call?.trace_id === wanted.traceId && call.client_span_id === wanted.clientSpanId) return;
  const mine = new AbortController();
  callInFlight = mine;
  callView.loading();
  try {
    const found = await fetchCall(wanted.traceId, wanted.clientSpanId, mine.signal);
    if (mine.signal.aborted) return;
    call = found;
    callView.update(found, view);
  } catch (error) {
    if (mine.signal.aborted) return;
    call = null;
    callView.failed(inWords(error));
  }
}

function viewChanged(): void {
  const before = view;
  view = parseHash(location.hash);
  for (const input of document.querySelectorAll<HTMLInputElement>("#ranges input")) input.checked = input.value === view.range.window;
  const anotherPair = !samePair(before.pair, view.pair);
  if (!view.pair) pairView.hide();
  else if (anotherPair || before.range !== view.range) pairView.open(view);
  drawPairs();
  if (anotherPair && view.pair) pairView.focus();
  void openCall();
  void refresh();
}

drawRanges();
addEventListener("hashchange", viewChanged);
document.addEventListener("visibilitychange", () => void refresh());
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !view.pair) return;
  go(view.call ? { ...view, call: null } : { ...view, pair: null });
});
if (view.pair) pairView.open(view);
void openCall();
void refresh();
