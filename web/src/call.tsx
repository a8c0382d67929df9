// One call: both spans on one axis with what the clocks leave open, then side by side, differences marked.

import { useEffect, useState } from "preact/hooks";
import type { CallReport } from "./api";
import { askCall, askWhole } from "./ask";
import type { CaseRow } from "./cases_api";
import { dayAndClock, duration } from "./format";
import { KeptTraceView } from "./kept_trace";
import { useAnswer } from "./live";
import { attributes, type OtlpSide } from "./otlp";
import { Copy, Failed, Panel, save, titleOf, Waiting } from "./parts";
import { compare, EXPECTED_TO_DIFFER, facts, nanos, statusOf, type Compared } from "./spans";
import { toHash, type View } from "./state";
import { template, TraceLink } from "./trace_link";
import { causeWords } from "./verdict_words";
import { Findings, Packets, WholeAxis } from "./whole";
import type { WholeCall, WholeReport } from "./whole_api";
import { sumWords, verdictWords } from "./whole_words";
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
  return { startNs: gap / 2, earliestNs: 0, latestNs: gap, words: "The offset between the two hosts' clocks was unknown for this call: the server's work lies somewhere within the hatched bands, and which leg was slow is unknown." };
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

/** Whether a row of both spans is marked. */
function differing({ client_span: client, server_span: server }: CallReport): boolean {
  const all = [compare(facts(client), facts(server)), compare(attributes(client?.span.attributes), attributes(server?.span.attributes)), compare(attributes(client?.resource?.attributes), attributes(server?.resource?.attributes))];
  return all.flat().some((row) => row.differs && !EXPECTED_TO_DIFFER.has(row.name));
}

/** The host's name, with its address where the other end's host has the same name. */
function hostOf(name: string | undefined, side: OtlpSide | null, other: string | undefined): string {
  if (name === undefined) return "unknown";
  const address = name === other ? (attributes(side?.span.attributes).get("network.local.address") ?? attributes(side?.resource?.attributes).get("network.local.address")) : undefined;
  return address ? `${name} · ${address}` : name;
}

function Spans({ call }: { call: CallReport }) {
  const { client_span: client, server_span: server } = call;
  const summary: Compared[] = [
    { name: "service", client: call.client, server: call.server, differs: false },
    { name: "host", client: hostOf(call.client_host, client, call.server_host), server: hostOf(call.server_host, server, call.client_host), differs: false },
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

/** Cases whose slices may hold a call: of its pair, and opened soon after it. */
const BEFORE_A_CASE_MS = 40_000;
const AFTER_A_CASE_MS = 20_000;
const MOST_CASES = 3;

export function casesOf(rows: CaseRow[], call: { client: string; server: string; start_unix_ns: number }): string[] {
  const startMs = call.start_unix_ns / 1e6;
  const near = rows.filter((row) => row.pair.client === call.client && row.pair.server === call.server && startMs > row.opened_unix_ms - BEFORE_A_CASE_MS && startMs < row.opened_unix_ms + AFTER_A_CASE_MS);
  return near.slice(0, MOST_CASES).map((row) => row.id);
}

/** The call that was asked for, of those of its trace. */
function wanted(whole: WholeReport | null, spanId: string): WholeCall | null {
  return whole?.calls.find((one) => one.span_id === spanId) ?? whole?.calls[0] ?? null;
}

/** What a case knows of a call that the meter no longer holds. */
export function fromCase(whole: WholeReport, call: WholeCall, row: CaseRow | undefined): CallReport | null {
  const [client, server] = [call.client_span, call.server_span];
  if (!client || !server) return null;
  const clientSpan = whole.spans[0].find((one) => one.span.spanId === call.span_id) ?? null;
  const serverSpan = whole.spans[1].find((one) => one.span.parentSpanId === call.span_id) ?? null;
  const [clientHost, serverHost] = [clientSpan, serverSpan].map((side) => attributes(side?.resource?.attributes).get("host.name"));
  const [clientNs, serverNs] = [client.to_ns - client.from_ns, server.to_ns - server.from_ns];
  const bound = server.bound_ns;
  return {
    client: row?.pair.client ?? call.client ?? "client",
    server: row?.pair.server ?? call.server ?? "server",
    trace_id: call.trace_id ?? "",
    client_span_id: call.span_id ?? "",
    start_unix_ns: call.start_unix_ns,
    client_ns: clientNs,
    server_ns: serverNs,
    gap_ns: clientNs - serverNs,
    // Captures of headers alone do not have it.
    status: call.status ?? statusOf(clientSpan) ?? "unset",
    ...(clientHost ? { client_host: clientHost } : {}),
    ...(serverHost ? { server_host: serverHost } : {}),
    client_span: clientSpan,
    server_span: serverSpan,
    ...(bound === null ? {} : { legs: { request_ns: server.from_ns - client.from_ns, bound_ns: bound } }),
  } as CallReport;
}

/** What it would take to see more of a call than its spans. */
function Recorded({ whole, call, pending, error }: { whole: WholeCall | null; call: CallReport; pending: boolean; error: string | null }) {
  if (whole) return null;
  if (pending) return <Waiting>Reading what was recorded of this call…</Waiting>;
  return (
    <p class="note">
      {error ?? "No packets and no threads: no case has recorded this call."} A case records both hosts for seconds around slow calls; it opens by itself when a pair leaves its baseline, or with <code>spangap hunt '{call.client}-&gt;{call.server}' --meter {location.origin}</code>.
    </p>
  );
}

interface Props {
  view: View;
  cases: CaseRow[];
  /** Whether the meter keeps whole traces. */
  keepsTraces: boolean;
  onSettings: () => void;
}

export function CallView({ view, cases, keepsTraces, onSettings }: Props) {
  const { traceId, clientSpanId } = view.call ?? { traceId: "", clientSpanId: "" };
  // A call does not change any more: it is asked for once. One that a case has kept the meter may have forgotten.
  const [lost, setLost] = useState(false);
  const asked = useAnswer("call", view.caseId && !lost ? null : `${traceId} ${clientSpanId}`, (signal) => askCall(traceId, clientSpanId, signal), 0);
  const caseIds = view.caseId ? [view.caseId] : asked.data ? casesOf(cases, asked.data) : [];
  const recorded = useAnswer("whole", caseIds.length > 0 ? `${traceId} ${caseIds.join(" ")}` : null, (signal) => askWhole(caseIds, traceId, signal), 0);
  const report = caseIds.length > 0 ? recorded.data : null;
  const isLost = view.caseId !== null && !recorded.stale && !recorded.data;
  useEffect(() => setLost(isLost), [isLost]);
  const whole = wanted(report, clientSpanId);
  const row = cases.find((one) => one.id === report?.case);
  const kept = asked.data ?? (report && whole ? fromCase(report, whole, row) : null);
  const pending = caseIds.length > 0 && recorded.stale && recorded.error === null;
  const back = toHash(view.caseId ? { ...view, place: "case", call: null } : { ...view, place: view.pair ? "pair" : "fleet", call: null });
  const file = (name: string) => `/api/v1/cases/${encodeURIComponent(report?.case ?? "")}/${name}`;
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
      {!kept && !pending && (recorded.error ?? asked.error) && <Failed>{recorded.error ?? asked.error}</Failed>}
      {!kept && !whole && (pending || !asked.error) && <Waiting>Loading this call…</Waiting>}
      <div class={asked.data && asked.stale ? "content stale" : "content"}>
        {kept && (
          <p class="summary">
            {titleOf(kept)}: gap <b>{duration(kept.gap_ns)}</b>. Its CLIENT span takes {duration(kept.client_ns)}, its SERVER span {duration(kept.server_ns)}. <span title={statusHint(kept.status)}>{kept.status === "unset" ? "Its status is unknown." : `Status ${statusWord(kept.status)}.`}</span> Started {dayAndClock(Math.floor(kept.start_unix_ns / 1e9))}.
          </p>
        )}
        {whole && (
          <>
            <p class="verdict-words">
              {verdictWords(whole)}
              {row?.verdict?.culprit && ` Over all calls, its case names ${causeWords(row.verdict.culprit, row.verdict.side)}.`}
            </p>
            <p class="summary sum">{sumWords(whole)}</p>
          </>
        )}
        {(kept || whole) && (
          <p class="actions">
            {template() === "" ? (
              <button type="button" onClick={onSettings}>
                link to your trace UI…
              </button>
            ) : (
              <span>
                open in <TraceLink traceId={traceId} spanId={clientSpanId || (whole?.span_id ?? "")} />
              </span>
            )}
            <button type="button" onClick={() => save(`call-${traceId}.json`, JSON.stringify({ ...kept, recorded: whole ?? undefined }, null, 2))}>
              download JSON
            </button>
            {report && (
              <>
                <a class="button" href={file(`calls/${encodeURIComponent(traceId)}/perfetto`)} download title="both hosts on one time line, for ui.perfetto.dev or your copy of it">
                  Perfetto
                </a>
                {[...new Set(whole?.ladder?.packets.map((packet) => packet.seen_at))].sort().map((side) => (
                  <a key={side} class="button" href={file(`files/${side}.pcapng`)} download title={`the case's packets at the ${side}'s tap; their numbers are those below`}>
                    {side}.pcapng
                  </a>
                ))}
                <a href={toHash({ ...view, place: "case", caseId: report.case, call: null })}>its case</a>
              </>
            )}
            <Copy text={location.href} what="copy link" />
          </p>
        )}
        {kept && lacking(kept) && <p class="note">{lacking(kept)}</p>}
        {whole && !kept && <p class="note">Its spans are not among those that the case took: it takes some of the slow calls and some of the ordinary ones. What follows is from packets and threads.</p>}
        {kept && <Recorded whole={whole} call={kept} pending={pending} error={recorded.error} />}
        {whole && (
          <>
            <Panel title="On one axis" aside={<span class="quiet">times since the call began, by the {whole.axis.base}'s clock</span>}>
              <WholeAxis key={whole.span_id} call={whole} />
              <Findings call={whole} />
            </Panel>
            <Panel title="Packets">
              <Packets call={whole} />
            </Panel>
            {report && report.caveats.length > 0 && (
              <details class="caveats">
                <summary>{report.caveats.length} remarks on what was read</summary>
                <ul class="plain-list">{report.caveats.map((one, at) => <li key={at}>{one}</li>)}</ul>
              </details>
            )}
          </>
        )}
        {kept && !whole && (
          <Panel title="On one axis">
            <Axis call={kept} />
          </Panel>
        )}
        {kept && (
          <Panel title="Both spans" aside={differing(kept) ? <span class="quiet">≠ marks what differs</span> : undefined}>
            <Spans call={kept} />
          </Panel>
        )}
        {keepsTraces && traceId !== "" && <KeptTraceView traceId={traceId} spanId={clientSpanId} />}
      </div>
    </div>
  );
}
