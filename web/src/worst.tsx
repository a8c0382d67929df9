// The worst calls of one pair, by trace id, and which hosts they ran on.

import type { ComponentChildren } from "preact";
import type { WorstOfPair, WorstReport, WorstRow } from "./api";
import { count, duration, moment, percent, stretchWords, visible } from "./format";
import { traceAddress } from "./kept_trace";
import { Copy } from "./parts";
import { toHash, type Cells, type View } from "./state";
import { TraceLink } from "./trace_link";

/** What a status is called; the sender's own word stays in the title. */
export function statusWord(status: string): string {
  return status === "unset" ? "no status" : status;
}

export const statusHint = (status: string): string => (status === "unset" ? "the CLIENT span has neither a gRPC nor an HTTP status, and its own status is unset" : "status of the CLIENT span");

/** A host's name, with its address where another host has the same name. */
const hostWords = (name: string | undefined, address: string | undefined) => (name === undefined ? undefined : address === undefined ? visible(name) : `${visible(name)} · ${visible(address)}`);

interface Props {
  view: View;
  report: WorstReport;
  /** Since when whole traces are kept; null where none are. */
  keptFromMs: number | null;
  cells: Cells | null;
  onCells: (cells: Cells | null) => void;
}

export function WorstView({ view, report, keptFromMs, cells, onCells }: Props) {
  const { calls } = report;
  const isKept = (call: WorstRow) => keptFromMs !== null && call.start_unix_ns / 1e6 >= keptFromMs;
  return (
    <div class="worst">
      {cells && (
        <p class="chosen-cells">
          Calls with a gap of {duration(cells.lowNs)} to {duration(cells.highNs)}, {stretchWords(cells)}{" "}
          <button type="button" class="plain" onClick={() => onCells(null)}>
            show all
          </button>{" "}
          <a href={toHash({ ...view, fixed: { from: cells.from, to: cells.to }, cells: null })}>zoom to this time</a>
        </p>
      )}
      {calls.length === 0 && <p class="quiet">{cells ? "None of these calls is held: of each minute the meter keeps the ones with the largest gap. Choose higher cells." : "No call of this time range is held."}</p>}
      {calls.length > 0 && (
        <WorstTable
          calls={calls}
          id={(call) => (
            <>
              <a class="id" title={call.trace_id} data-row={call.trace_id} href={toHash({ ...view, place: "call", call: { traceId: call.trace_id, clientSpanId: call.client_span_id } })}>
                {call.trace_id}
              </a>{" "}
              <Copy text={call.trace_id} /> <TraceLink traceId={call.trace_id} spanId={call.client_span_id} words="trace" />
            </>
          )}
          held={(call) => (
            <td class="quiet">
              {call.whole ? "both whole" : "times only"}
              {isKept(call) && (
                <>
                  , <a href={traceAddress(call.trace_id)}>all of the trace</a>
                </>
              )}
            </td>
          )}
        />
      )}
      {report.complete_above_ns !== undefined && <p class="quiet">Calls with a gap up to {duration(report.complete_above_ns)} may be missing: calls with several attempts had taken their places.</p>}
    </div>
  );
}

/** A row for each call; what its id leads to, and what is held of it, depends on where it is shown. */
export function WorstTable({ calls, id, held, where = "" }: { calls: WorstRow[]; id: (call: WorstRow) => ComponentChildren; held?: (call: WorstRow) => ComponentChildren; where?: string }) {
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label={`Worst calls${where}`}>
      <table class="calls">
        <thead>
          <tr>
            <th scope="col">trace id</th>
            <th scope="col" class="number">
              gap
            </th>
            <th scope="col" class="number">
              client
            </th>
            <th scope="col" class="number">
              server
            </th>
            <th scope="col" class="number" title="of the CLIENT span, by the client's clock">
              start
            </th>
            <th scope="col">status</th>
            <th scope="col">hosts</th>
            {held && <th scope="col">spans</th>}
          </tr>
        </thead>
        <tbody>
          {calls.map((call, at) => (
            // A trace sent again later is another call of the same ids.
            <tr key={`${call.trace_id} ${call.client_span_id} ${at}`}>
              <th scope="row">{id(call)}</th>
              <td class="number" data-label="gap">
                <b>{duration(call.gap_ns)}</b>
              </td>
              <td class="number" data-label="client">
                {duration(call.client_ns)}
              </td>
              <td class="number" data-label="server">
                {duration(call.server_ns)}
              </td>
              <td class="number" data-label="start">
                {moment(BigInt(Math.round(call.start_unix_ns))).slice(0, -3)}
              </td>
              <td title={statusHint(call.status)}>{statusWord(call.status)}</td>
              <td class="hosts">
                {hostWords(call.client_host, call.client_address) ?? "?"} → {hostWords(call.server_host, call.server_address) ?? "?"}
              </td>
              {held?.(call)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const NODES_SHOWN = 12;

/** On which hosts the worst calls ran: a sample by size, and said to be one. */
export function NodesView({ calls, view }: { calls: WorstOfPair[]; view: View }) {
  const groups = new Map<string, { client: string; server: string; at: [string | undefined, string | undefined]; calls: number; gapNs: number }>();
  for (const call of calls) {
    const [client, server] = [call.client_host ?? "unknown", call.server_host ?? "unknown"];
    const at: [string | undefined, string | undefined] = [call.client_address, call.server_address];
    const key = JSON.stringify([client, server, at]);
    const group = groups.get(key) ?? { client, server, at, calls: 0, gapNs: 0 };
    group.calls += 1;
    group.gapNs += call.gap_ns;
    groups.set(key, group);
  }
  const rows = [...groups.values()].sort((a, b) => b.gapNs - a.gapNs);
  const all = rows.reduce((sum, row) => sum + row.gapNs, 0);
  if (rows.length === 0) return null;
  const host = (name: string, address: string | undefined) => (name === "unknown" ? name : <a href={toHash({ ...view, place: "fleet", filters: { ...view.filters, node: name }, page: 1 })}>{hostWords(name, address)}</a>);
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Hosts of the worst calls">
    <table class="nodes">
      <caption>Hosts of the {calls.length === 1 ? "worst call" : `${count(calls.length)} worst calls`} held</caption>
      <thead>
        <tr>
          <th scope="col">client's host → server's host</th>
          <th scope="col" class="number">
            calls
          </th>
          <th scope="col" class="number">
            of their gaps
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.slice(0, NODES_SHOWN).map((row) => (
          <tr key={JSON.stringify([row.client, row.server, row.at])}>
            <th scope="row">
              {host(row.client, row.at[0])} <span class="arrow">→</span> {host(row.server, row.at[1])}
            </th>
            <td class="number">{count(row.calls)}</td>
            <td class="number">
              {percent(all > 0 ? row.gapNs / all : null)} <span class="quiet">({duration(row.gapNs)})</span>
            </td>
          </tr>
        ))}
      </tbody>
      {rows.length > NODES_SHOWN && (
        <tfoot>
          <tr>
            <td colSpan={3} class="quiet">
              and {count(rows.length - NODES_SHOWN)} more
            </td>
          </tr>
        </tfoot>
      )}
    </table>
    </div>
  );
}
