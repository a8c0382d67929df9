// Two spans as rows to compare.

import { duration, moment } from "./format";
import { attributes, type OtlpSide, type OtlpSpan } from "./otlp";

const KINDS = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];
const CODES = ["not set", "ok", "error"];

/** One row of the comparison; `undefined` where that side lacks it. */
export interface Compared {
  name: string;
  client: string | undefined;
  server: string | undefined;
  /** Both sides have it, with different values. */
  differs: boolean;
}

/** Attributes of both sides by key, in alphabetical order. */
export function compare(client: Map<string, string>, server: Map<string, string>): Compared[] {
  const names = [...new Set([...client.keys(), ...server.keys()])].sort();
  return names.map((name) => {
    const [c, s] = [client.get(name), server.get(name)];
    return { name, client: c, server: s, differs: c !== undefined && s !== undefined && c !== s };
  });
}

export function nanos(value: string | number | undefined): bigint {
  return value === undefined ? 0n : BigInt(value);
}

/** Fields of a span other than its attributes. */
export function facts(side: OtlpSide | null): Map<string, string> {
  const span: OtlpSpan | undefined = side?.span;
  if (!span) return new Map();
  const [start, end] = [nanos(span.startTimeUnixNano), nanos(span.endTimeUnixNano)];
  const code = span.status?.code ?? 0;
  const said = span.status?.message;
  // Many a span has its end in attributes alone.
  const byAttributes = code === 0 ? statusOf(side) : null;
  const found = new Map([
    ["name", span.name ?? ""],
    ["kind", KINDS[span.kind ?? 0] ?? String(span.kind)],
    ["span id", span.spanId ?? ""],
    ["start", moment(start)],
    ["end", moment(end)],
    ["status", `${byAttributes ? `${byAttributes}, by its attributes` : (CODES[code] ?? code)}${said ? `: ${said}` : ""}`],
  ]);
  (span.events ?? []).forEach((event, i) => {
    const offset = duration(Number(nanos(event.timeUnixNano) - start));
    const extra = [...attributes(event.attributes)].map(([key, value]) => `${key}=${value}`).join(" ");
    found.set(`event ${i + 1}`, `${event.name ?? ""} at ${offset} ${extra}`.trim());
  });
  return found;
}

/** In these rows a difference is normal and tells nothing. */
export const EXPECTED_TO_DIFFER = new Set(["kind", "span id", "start", "end", "service.name", "process.pid", "network.local.address", "network.local.port", "network.peer.address", "network.peer.port"]);

/** Names of gRPC's status codes, by number. */
const GRPC = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"];

/** How a call ended, according to its span: the code of its protocol, else the span's own status; null if it has neither. */
export function statusOf(side: OtlpSide | null): string | null {
  const found = attributes(side?.span.attributes);
  const rpc = found.get("rpc.response.status_code") ?? found.get("rpc.grpc.status_code");
  if (rpc !== undefined) return GRPC[Number(rpc)] ?? rpc;
  const http = found.get("http.response.status_code") ?? found.get("http.status_code");
  if (http !== undefined && /^[1-5]\d\d$/.test(http)) return `http_${http[0]}xx`;
  return [null, "span_ok", "span_error"][side?.span.status?.code ?? 0] ?? null;
}

