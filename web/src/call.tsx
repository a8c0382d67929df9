// One call: both spans on one axis with what the clocks leave open, then side by side, differences marked.

import type { CallReport } from "./api";
import { askCall } from "./ask";
import { dayAndClock, duration } from "./format";
import { useAnswer } from "./live";
import { attributes } from "./otlp";
import { Copy, Failed, Panel, save, titleOf, Waiting } from "./parts";
import { compare, EXPECTED_TO_DIFFER, facts, nanos, type Compared } from "./spans";
import { toHash, type View } from "./state";
import { template, TraceLink } from "./trace_link";
import { statusHint, statusWord } from "./worst";

/** Where the server span lies within the client span: its earliest and latest start, and what is said of them. */
export interface Lay {
  startNs: number;
  earliestNs: number;
  latestNs: number;
  words: string;
}

/**
 * The gap is known, and its two legs sum to it; how it divides depends on how far the two clocks are apart. A server
 * works between the client's start and end, whatever the clocks say: that bounds the start even when nothing else does.
 */
export function lay(call: CallReport): Lay {
  const gap = call.gap_ns;
  const within = (ns: number) => Math.min(gap, Math.max(0, ns));
  if (call.legs) {
    const { request_ns: request, bound_ns: bound } = call.legs;
    const words =
      bound === 0
        ? `Both ran on ${call.client_host ?? "one host"}, by one clock: the legs are exact.`
        : `The hosts' clocks allow the server's start to lie anywhere within ± ${duration(bound)}: the hatched bands.`;
    return { startNs: within(request), earliestNs: within(request - bound), latestNs: within(request + bound), words };
  }
  const { client_span: client, server_span: server } = call;
  if (client && server && call.client_host !== undefined && call.client_host === call.server_host) {
    const request = Number(nanos(server.span.startTimeUnixNano) - nanos(client.span.startTimeUnixNano));
    if (request >= 0 && request <= gap) return { startNs: request, earliestNs: request, latestNs: request, words: `Both ran on ${call.client_host}, by one clock: the legs are exact.` };
  }
  return { startNs: gap / 2, earliestNs: 0, latestNs: gap, words: "How far the two hosts' clocks are apart was not known for this call: the server's work lies somewhere within the hatched bands, and which leg was the slow one is not known." };
}

const WIDTH = 1000;
/** A leg with at least this part of the gap is the slow one. */
const MOST = 0.6;

/** In words, which leg has the gap, if the request leg's share lies between these two. */
export function whichLeg(low: number, high: number): string {
  if (low >= MOST) return "Most of the gap lies before the server began: the request leg.";
  if (high <= 1 - MOST) return "Most of the gap lies after the server was done: the response leg.";
  if (low > 1 - MOST && high < MOST) return "Both legs have about half of the gap.";
  return "";
}

function Axis({ call }: { call: CallReport }) {
  const { startNs, earliestNs, latestNs, words } = lay(call);
  const whole = Math.max(1, call.client_ns);
  const x = (ns: number) => (ns / whole) * WIDTH;
  const server = Math.min(call.server_ns, whole);
  const open = latestNs - earliestNs;
  const wide = x(open) >= 1;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const response = call.gap_ns - startNs;
  const leg = (label: string, ns: number, low: number, high: number) => (
    <span>
      {label} <b>{open > 0 ? `${duration(low)} – ${duration(high)}` : duration(ns)}</b>
    </span>
  );
  return (
    <div class="axis">
      <svg viewBox={`0 0 ${WIDTH} 112`} preserveAspectRatio="none" role="img" aria-label={`Client span of ${duration(call.client_ns)}; within it the server span of ${duration(call.server_ns)}, which starts ${duration(earliestNs)} to ${duration(latestNs)} after the client's start`}>
        <defs>
          <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect class="hatch-ground" width="6" height="6" />
            <line class="hatch-line" x1="0" x2="0" y1="0" y2="6" />
          </pattern>
        </defs>
        {ticks.map((tick) => (
          <line key={tick} class="grid" x1={tick * WIDTH} x2={tick * WIDTH} y1="0" y2="112" />
        ))}
        <rect class="client" x="0" y="10" width={WIDTH} height="26" />
        <rect class="leg-request" x="0" y="46" width={x(startNs)} height="10" />
        <rect class="leg-response" x={x(startNs + server)} y="46" width={Math.max(0, WIDTH - x(startNs + server))} height="10" />
        <rect class="server" x={x(startNs)} y="66" width={Math.max(1, x(server))} height="26" />
        {wide && <rect class="bound" x={x(earliestNs)} y="42" width={x(open)} height="54" fill="url(#hatch)" />}
        {wide && <rect class="bound" x={x(earliestNs + server)} y="42" width={x(open)} height="54" fill="url(#hatch)" />}
      </svg>
      <div class="axis-scale" aria-hidden="true">
        {ticks.map((tick) => (
          <span key={tick}>{duration(tick * whole)}</span>
        ))}
      </div>
      <p class="legs-key">
        <span>
          <i class="key client" /> client <b>{duration(call.client_ns)}</b>
        </span>
        <span>
          <i class="key leg-request" /> {leg("request leg", startNs, earliestNs, latestNs)}
        </span>
        <span>
          <i class="key server" /> server <b>{duration(call.server_ns)}</b>
        </span>
        <span>
          <i class="key leg-response" /> {leg("response leg", response, call.gap_ns - latestNs, call.gap_ns - earliestNs)}
        </span>
      </p>
      <p class="remark">{words}</p>
      {call.gap_ns > 0 && <p class="verdict">{whichLeg(earliestNs / call.gap_ns, latestNs / call.gap_ns)}</p>}
    </div>
  );
}

function Group({ title, rows }: { title: string; rows: Compared[] }) {
  if (rows.length === 0) return null;
  const cell = (side: string, text: string | undefined) => (
    <td class={text === undefined ? "absent" : ""} data-label={side}>
      {text ?? "–"}
    </td>
  );
  return (
    <>
      <tr class="group">
        <th scope="colgroup" colSpan={3}>
          {title}
        </th>
      </tr>
      {rows.map((row) => {
        const marked = row.differs && !EXPECTED_TO_DIFFER.has(row.name);
        return (
          <tr key={row.name} class={marked ? "differs" : ""}>
            <th scope="row">
              {row.name}
              {marked && (
                <span class="mark" title="the two sides differ">
                  {" "}
                  ≠
                </span>
              )}
            </th>
            {cell("client", row.client)}
            {cell("server", row.server)}
          </tr>
        );
      })}
    </>
  );
}

function lacking(call: CallReport): string | null {
  if (call.client_span && call.server_span) return null;
  const which = call.client_span ? "SERVER span is" : call.server_span ? "CLIENT span is" : "spans are";
  return `The ${which} no longer held whole: the bytes were overwritten before the mate came, so only times and host are known.`;
}

function Spans({ call }: { call: CallReport }) {
  const { client_span: client, server_span: server } = call;
  const summary: Compared[] = [
    { name: "service", client: call.client, server: call.server, differs: false },
    { name: "host", client: call.client_host ?? "unknown", server: call.server_host ?? "unknown", differs: false },
    { name: "duration", client: duration(call.client_ns), server: duration(call.server_ns), differs: false },
  ];
  const spanRows = compare(facts(client), facts(server));
  const order = [...new Set([...facts(client).keys(), ...facts(server).keys()])];
  spanRows.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
  return (
    <table class="spans">
      <thead>
        <tr>
          <th scope="col">
            <span class="unseen">name</span>
          </th>
          <th scope="col" class="client">
            CLIENT span
          </th>
          <th scope="col" class="server">
            SERVER span
          </th>
        </tr>
      </thead>
      <tbody>
        <Group title="call" rows={summary} />
        <Group title="span" rows={spanRows} />
        <Group title="span attributes" rows={compare(attributes(client?.span.attributes), attributes(server?.span.attributes))} />
        <Group title="resource" rows={compare(attributes(client?.resource?.attributes), attributes(server?.resource?.attributes))} />
      </tbody>
    </table>
  );
}

export function CallView({ view, onSettings }: { view: View; onSettings: () => void }) {
  const { traceId, clientSpanId } = view.call ?? { traceId: "", clientSpanId: "" };
  // A call does not change any more: it is asked for once.
  const asked = useAnswer("call", `${traceId} ${clientSpanId}`, (signal) => askCall(traceId, clientSpanId, signal), 0);
  const call = asked.data;
  const back = toHash({ ...view, place: view.pair ? "pair" : "fleet", call: null });
  return (
    <div id="call">
      <div class="view-head">
        <h2 tabIndex={-1}>
          Call <code class="id">{traceId}</code> <Copy text={traceId} />
        </h2>
        <a class="close" href={back} title="back (Esc)">
          close
        </a>
      </div>
      {asked.error && <Failed>{asked.error}</Failed>}
      {!call && !asked.error && <Waiting>Loading this call…</Waiting>}
      {call && (
        <div class={asked.stale ? "content stale" : "content"}>
          <p class="summary">
            {titleOf(call)}: gap <b>{duration(call.gap_ns)}</b>. The client waited {duration(call.client_ns)}, the server worked {duration(call.server_ns)}. <span title={statusHint(call.status)}>Status {statusWord(call.status)}.</span> Started {dayAndClock(Math.floor(call.start_unix_ns / 1e9))}.
          </p>
          <p class="actions">
            {template() === "" ? (
              <button type="button" onClick={onSettings}>
                link to your trace UI…
              </button>
            ) : (
              <TraceLink traceId={call.trace_id} spanId={call.client_span_id} words="open in your trace UI ↗" />
            )}
            <button type="button" onClick={() => save(`call-${call.trace_id}.json`, JSON.stringify(call, null, 2))}>
              download JSON
            </button>
            <Copy text={location.href} what="copy link" />
          </p>
          {lacking(call) && <p class="note">{lacking(call)}</p>}
          <Panel title="On one axis">
            <Axis call={call} />
          </Panel>
          <Panel title="Both spans" aside={<span class="quiet">≠ marks what differs</span>}>
            <Spans call={call} />
          </Panel>
        </div>
      )}
    </div>
  );
}
