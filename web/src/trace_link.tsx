// A link to the user's own trace UI: an address with {trace_id} in it, kept in this browser.

import { kept, keep } from "./theme";

const KEY = "spangap.trace-url";

export const EXAMPLE = "https://jaeger.example/trace/{trace_id}";

/** Why an address cannot be used, or null. An address without the id would lead everywhere to the same place. */
export function wrongWith(template: string): string | null {
  if (template === "") return null;
  if (!/^https?:\/\//i.test(template)) return "expected an address that begins with http:// or https://";
  if (!template.includes("{trace_id}")) return "expected {trace_id} where the trace's id belongs";
  return URL.canParse(template.replaceAll("{trace_id}", "0").replaceAll("{span_id}", "0")) ? null : "this is not an address";
}

/** What the meter was started with; what is kept in this browser goes first. */
let ofMeter = "";

export function setMeterTemplate(to: string | null | undefined): void {
  ofMeter = to && wrongWith(to) === null ? to : "";
}

/** What this browser keeps. */
export const ownTemplate = (): string => {
  const found = kept(KEY);
  return wrongWith(found) === null ? found : "";
};

export const template = (): string => ownTemplate() || ofMeter;

/** Whose address it is, for the link's text. */
export function hostOf(from: string): string {
  const filled = traceUrl(from, "0", "0");
  return URL.canParse(filled) ? new URL(filled).host : "";
}

export function setTemplate(to: string): void {
  keep(KEY, to);
  dispatchEvent(new Event("templatechange"));
}

/** The address of a trace; ids are hex digits, and encoded all the same. */
export function traceUrl(from: string, traceId: string, spanId: string): string {
  return from.replaceAll("{trace_id}", encodeURIComponent(traceId)).replaceAll("{span_id}", encodeURIComponent(spanId));
}

export function TraceLink({ traceId, spanId, words }: { traceId: string; spanId: string; words?: string }) {
  const from = template();
  if (from === "") return null;
  return (
    <a class="out" href={traceUrl(from, traceId, spanId)} target="_blank" rel="noreferrer">
      {words ?? hostOf(from)} ↗
    </a>
  );
}
