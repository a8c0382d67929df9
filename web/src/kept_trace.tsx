// All spans of a trace in the meter's short-lived store: who called whom, on one axis.

import { askTrace } from "./ask";
import { count, duration } from "./format";
import { useAnswer } from "./live";
import { attributes, type KeptTrace, type OtlpSpan } from "./otlp";
import { Panel, Waiting } from "./parts";
import { nanos } from "./spans";

/** Maximum number of spans drawn; the document contains all of them. */
const SHOWN = 300;

/** A span as a row. */
export interface TraceRow {
  span: OtlpSpan;
  service: string;
  /** Number of its ancestors in the store. */
  depth: number;
  startNs: bigint;
  endNs: bigint;
}

/** Parents before their children, siblings by start; a span whose parent is not in the store is at the left. */
export function rows(trace: KeptTrace): TraceRow[] {
  const all: TraceRow[] = trace.resourceSpans.flatMap((of) => {
    const service = attributes(of.resource?.attributes).get("service.name") ?? "unknown";
    return (of.scopeSpans ?? []).flatMap((scope) => (scope.spans ?? []).map((span) => ({ span, service, depth: 0, startNs: nanos(span.startTimeUnixNano), endNs: nanos(span.endTimeUnixNano) })));
  });
  all.sort((a, b) => (a.startNs < b.startNs ? -1 : a.startNs > b.startNs ? 1 : 0));
  const ids = new Set(all.map((row) => row.span.spanId));
  const children = new Map<string, TraceRow[]>();
  const roots: TraceRow[] = [];
  for (const row of all) {
    const parent = row.span.parentSpanId ?? "";
    if (parent === "" || !ids.has(parent) || parent === row.span.spanId) roots.push(row);
    else children.set(parent, [...(children.get(parent) ?? []), row]);
  }
  const found: TraceRow[] = [];
  const seen = new Set<TraceRow>();
  const add = (first: TraceRow, depth: number) => {
    const open: [TraceRow, number][] = [[first, depth]];
    for (let next = open.pop(); next; next = open.pop()) {
      const [row, at] = next;
      if (seen.has(row)) continue;
      seen.add(row);
      found.push({ ...row, depth: at });
      const below = children.get(row.span.spanId ?? "") ?? [];
      for (const child of [...below].reverse()) open.push([child, at + 1]);
    }
  };
  for (const root of roots) add(root, 0);
  // Spans that are each other's parents have no root, but are shown nevertheless.
  for (const row of all) if (!seen.has(row)) add(row, 0);
  return found;
}

const KINDS: Record<number, string> = { 2: "server", 3: "client" };

function Rows({ trace, spanId }: { trace: KeptTrace; spanId: string }) {
  const found = rows(trace);
  const first = found.reduce((least, row) => (row.startNs < least ? row.startNs : least), found[0]?.startNs ?? 0n);
  const last = found.reduce((most, row) => (row.endNs > most ? row.endNs : most), first + 1n);
  const whole = Math.max(1, Number(last - first));
  const percent = (ns: bigint) => (Number(ns) / whole) * 100;
  return (
    <>
      <div class="scroller" tabIndex={0} role="region" aria-label="All spans of this trace">
        <table class="kept-trace">
          <thead>
            <tr>
              <th scope="col">service and span</th>
              <th scope="col" class="number">
                began
              </th>
              <th scope="col" class="number">
                took
              </th>
              <th scope="col">{duration(whole)} by each span's own clock</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, SHOWN).map((row, at) => (
              <tr key={at} class={row.span.spanId === spanId && row.span.kind === 3 ? "chosen" : ""}>
                <th scope="row" style={{ paddingLeft: `${8 + Math.min(row.depth, 12) * 14}px` }}>
                  {row.service} <span class="quiet">{row.span.name ?? ""}</span>
                </th>
                <td class="number">{duration(Number(row.startNs - first))}</td>
                <td class="number">{duration(Number(row.endNs - row.startNs))}</td>
                <td class="bar">
                  <i class={KINDS[row.span.kind ?? 0] ?? "other"} style={{ marginLeft: `${percent(row.startNs - first)}%`, width: `${Math.max(0.2, percent(row.endNs - row.startNs))}%` }} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {found.length > SHOWN && <p class="quiet">The first {count(SHOWN)} of {count(found.length)} spans; the document has them all.</p>}
      {(trace.incomplete ?? []).map((why, at) => (
        <p key={at} class="note">
          {why}
        </p>
      ))}
    </>
  );
}

export const traceAddress = (traceId: string): string => `/api/v1/traces/${encodeURIComponent(traceId)}`;

export function KeptTraceView({ traceId, spanId }: { traceId: string; spanId: string }) {
  const asked = useAnswer("trace", traceId, (signal) => askTrace(traceId, signal), 0);
  const documents = (
    <span class="quiet">
      as <a href={traceAddress(traceId)}>OTLP JSON</a> or <a href={`/api/traces/${encodeURIComponent(traceId)}`}>Jaeger JSON</a>
    </span>
  );
  return (
    <Panel title="The whole trace" {...(asked.data ? { aside: documents } : {})}>
      {asked.data ? <Rows trace={asked.data} spanId={spanId} /> : asked.error ? <p class="note">{asked.error}</p> : <Waiting>Looking for all spans of this trace…</Waiting>}
    </Panel>
  );
}
