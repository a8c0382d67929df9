// All pairs: what they lost together, over time, and each in a row.

import { useRef, useState } from "preact/hooks";
import type { Coverage, Matching, PairBefore, PairRow, PairsReport } from "./api";
import { askEdges, askPairs, askTimeline, ROWS } from "./ask";
import { CaseState, foundWords } from "./cases";
import { against, slowerSince } from "./against";
import type { CaseRow } from "./cases_api";
import { CoverageView } from "./coverage";
import { awaited, hasCalls, historyFrom, HowToSend, noCalls, recordedFrom, recordedSeconds } from "./empty";
import { axisLabel, change, count, dayAndClock, duration, percent, rate, shortCount, span, visible } from "./format";
import type { Listens } from "./listens";
import { useAnswer } from "./live";
import { EDGES, MapView } from "./map";
import { lostShare, waitedNs } from "./pair_sums";
import { Failed, Figure, PairTitle, Panel, plotRange, Search, Spark, titleOf, Waiting, Whisker } from "./parts";
import { GROUPS, NO_FILTERS, pairKey, rangeWords, shownStretch, toHash, type Filters, type Go, type Sort, type Stretch, type View } from "./state";
import { TimelineView, type Annotation } from "./timeline";

interface Props {
  view: View;
  nowS: number;
  beat: number;
  coverage: Coverage | null;
  cases: CaseRow[];
  annotations: Annotation[];
  listens: Listens | null;
  go: Go;
}

/** What a stretch is multiplied by for the plot above the table, and the stretches that come out. */
const REACH = 4;
const REACHES_S = [3_600, 21_600, 86_400, 604_800, 2_592_000, 31_536_000];

/** The stretch that the plot over the table covers: longer than the one shown, and as far as the history goes. */
export function reach(shown: Stretch, nowS: number, historyFromS: number | null): Stretch {
  const length = shown.to - shown.from;
  const wanted = REACHES_S.find((one) => one >= length * REACH) ?? length * REACH;
  const to = Math.max(shown.to, Math.min(nowS, shown.to + wanted / 2));
  const from = to - wanted;
  // What lies before the history is not drawn, but an hour always is.
  const held = historyFromS === null ? from : Math.max(from, Math.min(historyFromS, to - 3_600));
  return { from: Math.min(held, shown.from), to };
}

interface Column {
  sort: Sort;
  title: string;
  hint: string;
  /** Of which time it is, beside a column of another time. */
  of?: string;
}

const COLUMNS: Column[] = [
  { sort: "pair", title: "Client → server", hint: "calling and called service" },
  { sort: "calls", title: "Calls", hint: "calls in the distributions" },
  { sort: "beyond", title: "Beyond usual", of: "since its case", hint: "seconds of waiting per second, of all clients together, in the time since the pair is slower (not the whole range): what they wait beyond what the pair usually takes, wherever the time passes; known of pairs with a case that is not fixed" },
  { sort: "waited", title: "Client time", of: "whole range", hint: "seconds of waiting per second, of all clients together, over the whole chosen range: what they waited in all; below it the part in the server's spans and the part in the gap" },
  { sort: "lost", title: "Time lost", hint: "sum of all gaps: what a fix between the two spans could win; next to it, as a share of the client's time" },
  { sort: "change", title: "Change", hint: "what clients waited in each second, against the stretch compared with" },
  { sort: "gap_p50", title: "Gap p50", hint: "median of client duration minus server duration, with its 95 % interval" },
  { sort: "gap_p99", title: "Gap p99", hint: "99th percentile of the gap, with its 95 % interval" },
  { sort: "client_p99", title: "Client p99", hint: "99th percentile of the client spans' durations" },
  { sort: "server_p99", title: "Server p99", hint: "99th percentile of the server spans' durations" },
  { sort: "negative", title: "Gap < 0", hint: "calls whose server span was the longer one, counted apart: timeouts, cancellations, work after the reply" },
  { sort: "attempts", title: "Retried", hint: "calls with more than one SERVER span under the CLIENT span, counted apart: retries and hedges" },
  { sort: "match", title: "Matched", hint: "share of the client service's CLIENT spans, and of the server service's SERVER spans, that found their mate since the meter's start; calls of databases never do" },
];

/** What a difference of two figures can be, from their intervals. */
export function difference(now: [number, number], before: [number, number]): [number, number] {
  return [now[0] - before[1], now[1] - before[0]];
}

/** Whether it went up or down beyond what the intervals leave open. */
export function direction([low, high]: [number, number]): "up" | "down" | "open" {
  return low > 0 ? "up" : high < 0 ? "down" : "open";
}

function Change({ row, before, seconds }: { row: PairRow; before: PairBefore | undefined; seconds: [number, number] }) {
  if (!before) return <td class="number" data-label="change">–</td>;
  const perSecond = waitedNs(row.client_duration) / seconds[0] - waitedNs(before.client_duration) / seconds[1];
  if (before.calls === 0) return <td class="number" data-label="change">new</td>;
  if (row.calls === 0) return <td class="number" data-label="change">ended</td>;
  const compared = [["client", row.client_duration, before.client_duration], ["gap", row.gap, before.gap]] as const;
  return (
    <td class="number" data-label="change">
      {change(perSecond)}/s
      {compared.map(([name, now, was]) => {
        const p99 = difference(now.p99_ci95_ns, was.p99_ci95_ns);
        const went = direction(p99);
        return (
          <span key={name} class={`interval went-${went}`} title={`${name} p99 was ${duration(was.p99_ns)}, is ${duration(now.p99_ns)}; the difference lies between ${change(p99[0])} and ${change(p99[1])}`}>
            {" "}
            {name} p99 {went === "open" ? "not told apart" : change(now.p99_ns - was.p99_ns)}
          </span>
        );
      })}
    </td>
  );
}

/** The client's time as a bar: the server's spans, and the gap. As long as its share of the longest of all rows. */
function Waited({ row, seconds, most }: { row: PairRow; seconds: number; most: number }) {
  const waited = waitedNs(row.client_duration);
  const gap = lostShare(row) ?? 0;
  const words = `${duration(waited)} in all: ${duration(waited - row.lost_ns_total)} in the server's spans, ${duration(row.lost_ns_total)} in the gap`;
  const long = most > 0 ? (waited / most) * 100 : 0;
  return (
    <td class="number waited" data-label="client time" title={words}>
      {rate(waited, seconds)}
      <svg class="split" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={words}>
        <rect class="leg-server" x="0" y="0" width={long * (1 - gap)} height="6" />
        <rect class="leg-gap" x={long * (1 - gap)} y="0" width={long * gap} height="6" />
      </svg>
    </td>
  );
}

/** This share of the client's time. */
const MUCH = 0.1;

/** What clients wait beyond the usual, in each second since the pair is slower. */
function Beyond({ row, its, stretch: [fromS, toS] }: { row: PairRow; its: CaseRow | undefined; stretch: [number, number] }) {
  const { beyond } = row;
  if (!beyond) return <td class="number beyond" data-label="beyond usual">–</td>;
  const sinceS = beyond.since_unix_ms / 1000;
  if (beyond.client_ns_total === 0) return <td class="number beyond" data-label="beyond usual" title={`as usual since ${dayAndClock(sinceS)}`}>none</td>;
  const inGap = beyond.gap_ns_total / beyond.client_ns_total;
  // Red is for what matters to this pair.
  const isMuch = beyond.client_ns_total > MUCH * waitedNs(row.client_duration);
  // A verdict from packets knows more than the two spans.
  const shows = inGap > 0.9 ? "shows in the gap" : inGap < 0.1 ? "shows in the server's span" : `shows to ${percent(inGap)} in the gap`;
  const where = its?.verdict?.culprit ? null : shows;
  return (
    <td class={`number beyond${isMuch ? " much" : ""}`} data-label="beyond usual" title={`clients waited ${duration(beyond.client_ns_total)} longer than usual since ${dayAndClock(sinceS)}: ${duration(beyond.gap_ns_total)} of it in the gap, ${duration(beyond.client_ns_total - beyond.gap_ns_total)} in the server's spans; a SERVER span may begin before all of its request has arrived`}>
      <b>{rate(beyond.client_ns_total, Math.max(1, toS - Math.max(fromS, sinceS)))}</b> {where && <span class="interval">{where}</span>} <span class="interval">since {dayAndClock(sinceS).slice(toS - sinceS < 86_400 ? 11 : 0)}</span>
    </td>
  );
}

/** The newest case of a row's pair that is not over. */
export function caseOf(row: PairRow, cases: CaseRow[]): CaseRow | undefined {
  const its = (one: CaseRow) => one.pair.client === row.client && one.pair.server === row.server && (row.method === undefined || (one.method ?? one.pair.method ?? row.method) === row.method);
  return cases.find((one) => one.state !== "fixed" && its(one));
}

interface RowProps {
  row: PairRow;
  view: View;
  range: [number, number];
  seconds: [number, number];
  comparing: boolean;
  showsBeyond: boolean;
  /** The longest client time of all rows, and the end of the stretch: of the time beyond the usual, which may have begun within it. */
  mostWaited: number;
  stretch: [number, number];
  isRecorded: boolean;
  stepS: number | undefined;
  cases: CaseRow[];
}

function Row({ row, view, range, seconds, comparing, showsBeyond, mostWaited, stretch, isRecorded, stepS, cases }: RowProps) {
  // A service may be called "*": which names stand for all is known from what is grouped.
  const anyClient = row.client === "*" && (view.by === "server" || view.by === "method");
  const anyServer = row.server === "*" && view.by === "client";
  const isGroup = anyClient || anyServer;
  const pair = { client: row.client, server: row.server, method: row.method };
  // A group opens into its pairs.
  const target: View = isGroup
    ? {
        ...view,
        by: "kept",
        page: 1,
        filters: { ...view.filters, client: anyClient ? view.filters.client : row.client, server: anyServer ? view.filters.server : row.server, method: row.method ?? view.filters.method },
      }
    : { ...view, place: "pair", pair, cells: null };
  const weak = row.negative + row.attempts_over_one;
  const its = isGroup ? undefined : caseOf(row, cases);
  return (
    <tr
      onClick={(event) => {
        if (!(event.target instanceof Element) || event.target.closest("a")) return;
        if (getSelection()?.isCollapsed === false) return;
        event.currentTarget.querySelector("a")?.click();
      }}
    >
      <th scope="row">
        <a class="pair-link" href={toHash(target)} title={titleOf(pair)} data-row={pairKey(pair)}>
          <PairTitle pair={pair} />
        </a>
        {its && (
          <a class="row-case" href={toHash({ ...view, place: "case", caseId: its.id })} title="its case" data-row={its.id}>
            <CaseState state={its.state} /> {foundWords(its)}
          </a>
        )}
      </th>
      <td class="number" data-label="calls" title={`${count(row.calls)} calls`}>
        {shortCount(row.calls)}
      </td>
      {showsBeyond && <Beyond row={row} its={its} stretch={stretch} />}
      <Waited row={row} seconds={seconds[0]} most={mostWaited} />
      <td class="number lost" data-label="lost">
        <b>{duration(row.lost_ns_total)}</b> <span class="interval">{percent(lostShare(row))}</span>
      </td>
      {comparing && <Change row={row} before={isRecorded ? row.before : undefined} seconds={seconds} />}
      <td class="sparkline">{stepS && <Spark values={row.client_ns_by_step ?? []} upper={row.lost_ns_by_step} unfinished={view.fixed === null} label={`what clients waited per ${span(stepS)}, at most ${duration(Math.max(0, ...(row.client_ns_by_step ?? [])))}; coloured: in the gap${view.fixed === null ? "; the last one is not over" : ""}`} />}</td>
      <td class="number" data-label="gap p50">
        <Figure ns={row.gap.p50_ns} ci95={row.gap.p50_ci95_ns} calls={row.gap.count} />
      </td>
      <td class="number" data-label="gap p99">
        <Figure ns={row.gap.p99_ns} ci95={row.gap.p99_ci95_ns} calls={row.gap.count} />
      </td>
      <td class="plotted">
        <Whisker gap={row.gap} range={range} before={comparing ? row.before?.gap : undefined} />
      </td>
      <td class="number wide client-p99" data-label="client p99">{row.calls > 0 ? duration(row.client_p99_ns) : "–"}</td>
      <td class="number wide">{row.calls > 0 ? duration(row.server_p99_ns) : "–"}</td>
      <td class="number wide">{shortCount(row.negative)}</td>
      <td class="number wide">{shortCount(row.attempts_over_one)}</td>
      <td class="number wide" title={weak > 0 ? `${count(weak)} calls are counted apart` : ""}>
        {percent(row.client_match_ratio)} <span class="interval">/ {percent(row.server_match_ratio)}</span>
      </td>
    </tr>
  );
}

/** Rows in the order they had while the reader points into the table, so that none jumps away. */
function useSteadyOrder(rows: PairRow[], key: string, held: () => boolean): PairRow[] {
  const before = useRef<{ key: string; order: string[] }>({ key: "", order: [] });
  let shown = rows;
  if (before.current.key === key && held()) {
    const byKey = new Map(rows.map((row) => [pairKey(row), row]));
    if (before.current.order.length === rows.length && before.current.order.every((one) => byKey.has(one))) {
      shown = before.current.order.flatMap((one) => byKey.get(one) ?? []);
    }
  }
  before.current = { key, order: shown.map(pairKey) };
  return shown;
}

/** By what the rows are ordered, in words. */
function orderWords({ sort, descending }: View, showsBeyond: boolean): string {
  if (sort !== "beyond") return `by ${(COLUMNS.find((column) => column.sort === sort)?.title ?? sort).toLowerCase()}${descending ? "" : ", least first"}`;
  const then = descending ? "most time lost in the gap first" : "least time lost in the gap first";
  return showsBeyond ? `those first whose clients wait longest beyond the usual; then ${then}` : `${then}: no pair shown has a case of being slower than usual`;
}

interface TableProps {
  report: PairsReport;
  view: View;
  answered: string;
  seconds: [number, number];
  cases: CaseRow[];
  /** Whether anything was recorded in the stretch compared with. */
  isRecorded: boolean;
  go: Go;
}

function Table({ report, view, answered, seconds, cases, isRecorded, go }: TableProps) {
  const body = useRef<HTMLTableSectionElement>(null);
  const held = () => body.current !== null && (body.current.matches(":hover") || body.current.querySelector(":focus-visible") !== null);
  const rows = useSteadyOrder(report.pairs, answered, held);
  const comparing = report.against_unix_s !== undefined;
  const range = plotRange(rows.flatMap((row) => (comparing && row.before ? [row.gap, row.before.gap] : [row.gap])));
  const matching = report.matching;
  const showsBeyond = rows.some((row) => row.beyond);
  const mostWaited = rows.reduce((most, row) => Math.max(most, waitedNs(row.client_duration)), 0);
  const sortBy = (sort: Sort) => go({ ...view, sort, descending: sort === view.sort ? !view.descending : true, page: 1 });
  const heading = (column: Column) => {
    const way = (column.sort === "pair") === view.descending ? "ascending" : "descending";
    const isWide = ["client_p99", "server_p99", "negative", "attempts", "match"].includes(column.sort);
    return (
      <th key={column.sort} scope="col" class={column.sort === "pair" ? "" : isWide ? "number wide" : "number"} aria-sort={column.sort === view.sort ? way : "none"}>
        <button type="button" title={column.hint} onClick={() => sortBy(column.sort)}>
          {column.title}
        </button>
        {showsBeyond && column.of && <span class="interval"> {column.of}</span>}
      </th>
    );
  };
  const number = matching?.pairs ?? rows.length;
  const filtered = matching && matching.of_pairs > matching.pairs && view.by === "kept";
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Pairs">
      <table class={`pairs${comparing ? " comparing" : ""}`}>
        <caption>
          {count(number)} {number === 1 ? "row" : "rows"}
          {filtered ? ` of ${count(matching.of_pairs)} pass the filters` : ""}, {rangeWords(view)}, {orderWords(view, showsBeyond)}
          {showsBeyond && "; s/s: seconds of waiting per second"}
        </caption>
        <thead>
          <tr>
            {COLUMNS.flatMap((column) => {
              if (column.sort === "change" && !comparing) return [];
              if (column.sort === "beyond" && !showsBeyond) return [];
              const one = heading(column);
              if (column.sort === "gap_p99") {
                const plot = (
                  <th key="plot" scope="col" class="plotted">
                    <span class="unseen">Gap p50 and p99 drawn</span>
                    <span>{axisLabel(range[0])}</span>
                    <span>log</span>
                    <span>{axisLabel(range[1])}</span>
                  </th>
                );
                return [one, plot];
              }
              if (column.sort === (comparing ? "change" : "lost")) {
                const spark = (
                  <th key="spark" scope="col" class="sparkline">
                    client time by step
                  </th>
                );
                return [one, spark];
              }
              return [one];
            })}
          </tr>
        </thead>
        <tbody ref={body}>
          {rows.map((row) => (
            <Row key={pairKey(row)} row={row} view={view} range={range} seconds={seconds} comparing={comparing} showsBeyond={showsBeyond} mostWaited={mostWaited} stretch={[report.from_unix_s, report.to_unix_s]} isRecorded={isRecorded} stepS={report.step_s} cases={cases} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Pager({ view, total, go }: { view: View; total: number; go: Go }) {
  if (total <= ROWS && view.page === 1) return null;
  const pages = Math.max(1, Math.ceil(total / ROWS));
  const first = (view.page - 1) * ROWS + 1;
  const to = (page: number) => go({ ...view, page });
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={view.page <= 1} onClick={() => to(view.page - 1)}>
        ‹ earlier rows
      </button>
      <span>
        {count(Math.min(first, total))}–{count(Math.min(total, view.page * ROWS))} of {count(total)}
      </span>
      <button type="button" disabled={view.page >= pages} onClick={() => to(view.page + 1)}>
        later rows ›
      </button>
    </nav>
  );
}

const FIELDS: { key: keyof Filters; label: string; hint: string; short?: string }[] = [
  { key: "service", label: "service", hint: "on either side" },
  { key: "client", label: "client", hint: "calling service" },
  { key: "server", label: "server", hint: "called service" },
  { key: "method", label: "method", hint: "of a meter that runs with --by method", short: "with --by method" },
  { key: "node", label: "node", hint: "a host that one of the worst calls ran on", short: "host of a worst call" },
  { key: "status", label: "status", hint: "how one of the worst calls, or of those counted apart, ended", short: "of a worst call" },
];

/** What the rows shown have to offer for each filter. */
function offered(rows: PairRow[], services: string[]): Record<string, string[]> {
  const some = (values: Iterable<string | undefined>) => [...new Set([...values].filter((value): value is string => value !== undefined))].sort().slice(0, 300);
  const calls = rows.flatMap((row) => row.worst);
  return {
    service: some(services),
    client: some(rows.map((row) => row.client)),
    server: some(rows.map((row) => row.server)),
    method: some(rows.map((row) => row.method)),
    node: some(calls.flatMap((call) => [call.client_host, call.server_host])),
    status: some([...calls.map((call) => call.status), ...rows.flatMap((row) => Object.keys(row.negative_by_status))]),
  };
}

function Toolbar({ view, rows, coverage, go }: { view: View; rows: PairRow[]; coverage: Coverage | null; go: Go }) {
  const [open, setOpen] = useState(false);
  const set = (changed: Partial<Filters>, inPlace = false) => go({ ...view, filters: { ...view.filters, ...changed }, page: 1 }, inPlace);
  const set_filters = FIELDS.filter(({ key }) => view.filters[key] !== "");
  const opener = useRef<HTMLButtonElement>(null);
  const lists = open ? offered(rows, (coverage?.services ?? []).map((s) => s.service)) : {};
  return (
    <div class="toolbar">
      <Search label="Search pairs" placeholder="search pairs" value={view.filters.q} onSearch={(q, inPlace) => set({ q }, inPlace)} />
      <button ref={opener} type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
        filter{set_filters.length > 0 ? ` (${set_filters.length})` : ""}
      </button>
      <label>
        group by{" "}
        <select value={view.by} onChange={(event) => go({ ...view, by: GROUPS.find((group) => group.by === event.currentTarget.value)?.by ?? "kept", page: 1 })}>
          {GROUPS.map((group) => (
            <option key={group.by} value={group.by} title={group.hint}>
              {group.label}
            </option>
          ))}
        </select>
      </label>
      <span class="segmented" role="group" aria-label="Show as">
        <button type="button" aria-pressed={!view.map} onClick={() => go({ ...view, map: false })}>
          table
        </button>
        <button type="button" aria-pressed={view.map} onClick={() => go({ ...view, map: true })}>
          map
        </button>
      </span>
      {set_filters.map(({ key, label }) => (
        <span key={key} class="chip">
          {label}: <b>{visible(view.filters[key])}</b>
          <button type="button" aria-label={`remove the filter ${label}`} onClick={() => set({ [key]: "" })}>
            ×
          </button>
        </span>
      ))}
      {(set_filters.length > 0 || view.filters.q !== "") && (
        <button type="button" class="plain" onClick={() => go({ ...view, filters: NO_FILTERS, page: 1 })}>
          clear
        </button>
      )}
      {open && (
        <div
          class="filters"
          onKeyDown={(event) => {
            if (event.key !== "Escape") return;
            event.stopPropagation();
            setOpen(false);
            opener.current?.focus();
          }}
        >
          {FIELDS.map(({ key, label, hint, short = hint }) => (
            <label key={key} title={hint}>
              {label}
              <input list={`offered-${key}`} value={view.filters[key]} placeholder={short} onChange={(event) => set({ [key]: event.currentTarget.value.trim() })} />
              <datalist id={`offered-${key}`}>
                {(lists[key] ?? []).map((value) => (
                  <option key={value} value={value} />
                ))}
              </datalist>
            </label>
          ))}
        </div>
      )}
    </div>
  );
}

function Headline({ matching, view, seconds, isRecorded }: { matching: Matching; view: View; seconds: [number, number]; isRecorded: boolean }) {
  const lost = matching.lost_ns_total;
  const before = isRecorded ? matching.lost_before_ns_total : undefined;
  const perSecond = lost / seconds[0];
  const than = before === undefined ? null : perSecond - before / seconds[1];
  return (
    <p class="headline">
      Clients waited <b>{duration(lost)}</b> longer than their servers worked, {rangeWords(view)}
      <span class="quiet">
        {" "}
        · {duration(perSecond)} of each second · {shortCount(matching.calls)} calls
      </span>
      {than !== null && before !== undefined && (
        <span class="versus">
          {" "}
          {change(than)}/s <span class="quiet">against {rate(before, seconds[1])} in the stretch compared with</span>
        </span>
      )}
    </p>
  );
}

export function FleetView({ view, nowS, beat, coverage, cases, annotations, listens, go }: Props) {
  const minute = Math.floor(nowS / 60) * 60;
  const besides = against(view, nowS, cases);
  // Whatever else moves with the clock is in the address; a case that opens moves the stretch before.
  const key = `${toHash({ ...view, map: false })} ${typeof view.against === "string" ? slowerSince(cases, view).join() : ""}`;
  const pairs = useAnswer("pairs", key, (signal) => askPairs(view, besides, ROWS, signal), beat);
  const edges = useAnswer("edges", view.map ? toHash({ ...view, page: 1 }) : null, (signal) => askEdges(view, EDGES, signal), beat);
  const shown = shownStretch(view, nowS);
  const plotted = reach(shownStretch(view, minute), minute, historyFrom(coverage));
  // Once a minute is enough for minutes.
  const timeline = useAnswer("timeline", JSON.stringify([view.filters, plotted]), (signal) => askTimeline(view.filters, plotted, 160, signal), Math.floor(beat / 4));
  const report = pairs.data;
  if (!report) {
    if (pairs.error) return <Failed>{pairs.error}</Failed>;
    return <Waiting>Loading the pairs…</Waiting>;
  }
  const begins = recordedFrom(coverage, nowS) ?? 0;
  const length = (from: number, to: number) => recordedSeconds(coverage, nowS, { from, to });
  const compared = report.against_unix_s;
  const isRecorded = compared !== undefined && compared[1] > begins;
  const seconds: [number, number] = [length(report.from_unix_s, report.to_unix_s), compared ? length(...compared) : 1];
  const isFiltered = Object.values(view.filters).some((value) => value !== "");
  const isEmpty = report.pairs.length === 0 && !isFiltered && view.page === 1;
  return (
    <>
      {isEmpty && !hasCalls(coverage) ? (
        <HowToSend sentence={awaited(coverage)} listens={listens} />
      ) : (
        <Panel title="Fleet" id="pairs" aside={report.matching && <Headline matching={report.matching} view={view} seconds={seconds} isRecorded={isRecorded} />}>
          {timeline.data && <TimelineView timeline={timeline.data} shown={shown} against={besides} holes={coverage?.holes ?? []} annotations={annotations} onChoose={(fixed) => go({ ...view, fixed, page: 1 })} />}
          {timeline.error && <Failed>{timeline.error}</Failed>}
          <Toolbar view={view} rows={report.pairs} coverage={coverage} go={go} />
          {report.covered_from_unix_s !== undefined && <p class="quiet">The figures begin at {dayAndClock(report.covered_from_unix_s)}: of the time before, the history has only longer steps, or nothing.</p>}
          {report.of_meters !== undefined && <p class="quiet">Meters: {report.of_meters.note}.</p>}
          {compared && !isRecorded && <p class="note">Nothing was recorded in the stretch compared with: what there is begins at {dayAndClock(begins)}.</p>}
          {pairs.error && <Failed>{pairs.error}</Failed>}
          <div class={pairs.stale ? "stale" : ""}>
            {view.map && (edges.data ? <MapView report={edges.data} view={view} caseFor={(row) => caseOf(row, cases)} /> : edges.error ? <Failed>{edges.error}</Failed> : <Waiting>Loading the map…</Waiting>)}
            {!view.map && report.pairs.length === 0 && <p class="waiting">{isEmpty ? noCalls(coverage, shown, rangeWords(view)) : "No pair passes the filters."}</p>}
            {!view.map && report.pairs.length > 0 && <Table report={report} view={view} answered={pairs.stale ? "" : key} seconds={seconds} cases={cases} isRecorded={isRecorded} go={go} />}
            {!view.map && <Pager view={view} total={report.matching?.pairs ?? report.pairs.length} go={go} />}
          </div>
        </Panel>
      )}
      {coverage && <CoverageView coverage={coverage} />}
    </>
  );
}

