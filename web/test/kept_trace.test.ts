import assert from "node:assert/strict";
import { test } from "node:test";
import { rows } from "../src/kept_trace";
import type { KeptTrace, OtlpSpan } from "../src/otlp";

const span = (spanId: string, parentSpanId: string, start: number): OtlpSpan => ({ spanId, parentSpanId, startTimeUnixNano: String(start), endTimeUnixNano: String(start + 10) });

function trace(...spans: OtlpSpan[]): KeptTrace {
  const of = (service: string, some: OtlpSpan[]) => ({ resource: { attributes: [{ key: "service.name", value: { stringValue: service } }] }, scopeSpans: [{ spans: some }] });
  return { resourceSpans: [of("web", spans.slice(0, 2)), of("cart", spans.slice(2))] };
}

test("spans stand below their parents, siblings by their start, whatever resource they came under", () => {
  const found = rows(trace(span("c", "b", 40), span("a", "", 0), span("b", "a", 30), span("d", "a", 20), span("e", "gone", 5)));
  assert.deepEqual(
    found.map((row) => [row.span.spanId, row.depth, row.service]),
    [
      ["a", 0, "web"],
      ["d", 1, "cart"],
      ["b", 1, "cart"],
      ["c", 2, "web"],
      ["e", 0, "cart"],
    ],
  );
});

test("spans that are each other's parents are all there, once", () => {
  const found = rows(trace(span("a", "b", 1), span("b", "a", 2), span("c", "c", 3), span("c", "b", 4)));
  assert.deepEqual(found.map((row) => row.span.spanId).sort(), ["a", "b", "c", "c"]);
});
