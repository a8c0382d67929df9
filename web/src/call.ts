// One call: both spans side by side, differences marked.

import type { CallReport } from "./api";
import { el, refill, svg } from "./dom";
import { dayAndClock, duration, moment } from "./format";
import { attributes, type OtlpSide, type OtlpSpan } from "./otlp";
import { toHash, type View } from "./state";
import { copyButton } from "./worst";

const KINDS = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
const CODES = ["unset", "ok", "error"];

/** One row of the comparison; `undefined` where that side does not have it. */
export interface Compared {
  name: string;
  client: string | undefined;
  server: string | undefined;
  /** Both sides have it, and not the same. */
  differs: boolean;
}

/** Attributes of both sides by key, in the order of the alphabet. */
export function compare(client: Map<string, string>, server: Map<string, string>): Compared[] {
  const names = [...new Set([...client.keys(), ...server.keys()])].sort();
  return names.map((name) => {
    const [c, s] = [client.get(name), server.get(name)];
    return { name, client: c, server: s, differs: c !== undefined && s !== undefined && c !== s };
  });
}

function nanos(value: string | number | undefined): bigint {
  return value === undefined ? 0n : BigInt(value);
}

function facts(side: OtlpSide | null): Map<string, string> {
  const span: OtlpSpan | undefined = side?.span;
  if (!span) return new Map();
  const [start, end] = [nanos(span.startTimeUnixNano), nanos(span.endTimeUnixNano)];
  const code = span.status?.code ?? 0;
  const said = span.status?.message;
  const found = new Map([
    ["name", span.name ?? ""],
    ["kind", KINDS[span.kind ?? 0] ?? String(span.kind)],
    ["span id", span.spanId ?? ""],
    ["start", moment(start)],
    ["end", moment(end)],
    ["status", `${CODES[code] ?? code}${said ? `: ${said}` : ""}`],
  ]);
  (span.events ?? []).forEach((event, i) => {
    const offset = duration(Number(nanos(event.timeUnixNano) - start));
    const extra = [...attributes(event.attributes)].map(([key, value]) => `${key}=${value}`).join(" ");
    found.set(`event ${i + 1}`, `${event.name ?? ""} at ${offset} ${extra}`.trim());
  });
  return found;
}

/** Rows that always differ say nothing by it. */
const EXPECTED_TO_DIFFER = new Set(["kind", "span id", "start", "end", "service.name"]);

function group(title: string, rows: Compared[]): HTMLElement[] {
  if (rows.length === 0) return [];
  const cell = (text: string | undefined) => (text === undefined ? el("td", { class: "absent" }, "–") : el("td", {}, text));
  return [
    el("tr", { class: "group" }, el("th", { scope: "colgroup", colspan: 3 }, title)),
    ...rows.map((row) => {
      const marked = row.differs && !EXPECTED_TO_DIFFER.has(row.name);
      const name = el("th", { scope: "row" }, row.name, marked && el("span", { class: "mark", title: "the two sides differ" }, " ≠"));
      return el("tr", { class: marked ? "differs" : "" }, name, cell(row.client), cell(row.server));
    }),
  ];
}

/** Both spans as bars, by what each host's clock said. */
function bars(call: CallReport): HTMLElement | null {
  const { client_span: client, server_span: server } = call;
  if (!client || !server) return null;
  const base = nanos(client.span.startTimeUnixNano);
  const at = (side: OtlpSide): [number, number] => [Number(nanos(side.span.startTimeUnixNano) - base), Number(nanos(side.span.endTimeUnixNano) - base)];
  const [c, s] = [at(client), at(server)];
  const low = Math.min(c[0], s[0]);
  const scale = 1000 / Math.max(1, Math.max(c[1], s[1]) - low);
  const rect = (className: string, [from, to]: [number, number], y: number) =>
    svg("rect", { class: className, x: (from - low) * scale, y, width: Math.max(1, (to - from) * scale), height: 12, rx: 2 });
  const oneClock = call.client_host !== undefined && call.client_host === call.server_host;
  const whose = oneClock ? `By the clock of ${call.client_host}, where both ran` : "By the two hosts' own clocks, which may differ";
  const outside = s[0] < c[0] || s[1] > c[1];
  const remark = outside
    ? `${whose}: the server span lies partly outside the client span.`
    : `${whose}: ${duration(s[0] - c[0])} before the server's start, ${duration(c[1] - s[1])} after its end.`;
  return el(
    "div",
    { class: "bars" },
    svg("svg", { viewBox: "0 0 1000 30", preserveAspectRatio: "none", "aria-hidden": "true" }, rect("client", c, 1), rect("server", s, 17)),
    el("p", { class: "quiet" }, remark),
  );
}

function lacking(call: CallReport): string | null {
  if (call.client_span && call.server_span) return null;
  const which = call.client_span ? "SERVER span is" : call.server_span ? "CLIENT span is" : "spans are";
  return `The ${which} no longer held whole: the bytes were overwritten before the mate came, so only times and host are known.`;
}

export class CallView {
  constructor(private readonly root: HTMLElement) {}

  loading(): void {
    refill(this.root, el("p", { class: "waiting" }, "Loading this call…"));
  }

  failed(message: string): void {
    refill(this.root, el("p", { class: "bad", role: "alert" }, message));
  }

  clear(): void {
    refill(this.root);
  }

  update(call: CallReport, view: View): void {
    const { client_span: client, server_span: server } = call;
    const missing = lacking(call);
    const start = BigInt(Math.round(call.start_unix_ns));
    const summary: Compared[] = [
      { name: "service", client: call.client, server: call.server, differs: false },
      { name: "host", client: call.client_host ?? "unknown", server: call.server_host ?? "unknown", differs: false },
      { name: "duration", client: duration(call.client_ns), server: duration(call.server_ns), differs: false },
    ];
    const spanRows = compare(facts(client), facts(server));
    const order = [...new Set([...facts(client).keys(), ...facts(server).keys()])];
    spanRows.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
    const heading = el("h3", { tabindex: "-1" }, "Call ", el("code", { class: "id" }, call.trace_id), " ", copyButton(call.trace_id));
    refill(
      this.root,
      el("div", { class: "pair-head" }, heading, el("a", { class: "close", href: toHash({ ...view, call: null }) }, "close")),
      el("p", {}, `Gap ${duration(call.gap_ns)}: the client waited ${duration(call.client_ns)}, the server worked ${duration(call.server_ns)}. Status ${call.status}. Started ${dayAndClock(Number(start / 1_000_000_000n))}.`),
      missing && el("p", { class: "bad" }, missing),
      bars(call),
      el(
        "div",
        { class: "scroller" },
        el(
          "table",
          { class: "spans" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, ""), el("th", { scope: "col", class: "client" }, "CLIENT span"), el("th", { scope: "col", class: "server" }, "SERVER span"))),
          el(
            "tbody",
            {},
            ...group("call", summary),
            ...group("span", spanRows),
            ...group("span attributes", compare(attributes(client?.span.attributes), attributes(server?.span.attributes))),
            ...group("resource", compare(attributes(client?.resource?.attributes), attributes(server?.resource?.attributes))),
          ),
        ),
      ),
    );
    heading.focus({ preventScroll: true });
    this.root.scrollIntoView({ block: "nearest" });
  }
}
