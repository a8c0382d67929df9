// A link to the user's own trace UI: an address that contains {trace_id}, stored in this browser.

import { kept, keep } from "./theme";

const KEY = "spangap.trace-url";

export const EXAMPLE = "https://jaeger.example/trace/{trace_id}";

/** Why an address is unusable, or null. Without the id, every link would lead to the same place. */
export function wrongWith(template: string): string | null {
  if (template === "") return null;
  if (!/^https?:\/\//i.test(template)) return "expected an address that begins with http:// or https://";
  if (!template.includes("{trace_id}")) return "expected {trace_id} where the trace's id belongs";
  return URL.canParse(template.replaceAll("{trace_id}", "0").replaceAll("{span_id}", "0")) ? null : "this is not an address";
}

/** The address that the meter was started with; one stored in this browser takes precedence. */
let ofMeter = "";

export function setMeterTemplate(to: string | null | undefined): void {
  ofMeter = to && wrongWith(to) === null ? to : "";
}

/** The stored address. */
export const ownTemplate = (): string => {
  const found = kept(KEY);
  return wrongWith(found) === null ? found : "";
};

export const template = (): string => ownTemplate() || ofMeter;

/** Host of the address, for the link's text. */
export function hostOf(from: string): string {
  const filled = traceUrl(from, "0", "0");
  return URL.canParse(filled) ? new URL(filled).host : "";
}

export function setTemplate(to: string): void {
  keep(KEY, to);
  dispatchEvent(new Event("templatechange"));
}

/** The address of a trace; ids are hex digits, but encoded nevertheless. */
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
