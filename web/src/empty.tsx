// What is said while there is nothing to show.

import type { Coverage } from "./api";
import { count } from "./format";

/** What the meter is waiting for, from what it has seen so far. */
export function awaited(c: Coverage | null, rangeLabel: string): string {
  if (!c || c.spans.received === 0) return "No span has come yet: waiting for the first.";
  const { spans } = c;
  if (spans.joined > 0) return `No calls in the last ${rangeLabel}; earlier there were. A longer time range shows them.`;
  const clients = c.services.some((s) => s.client_unmatched > 0) || spans.expired_client_only > 0;
  const servers = c.services.some((s) => s.server_unmatched > 0) || spans.expired_server_only > 0;
  const came = `${count(spans.received)} spans have come, but no CLIENT span and SERVER span of the same call: `;
  if (clients && !servers) return `${came}waiting for SERVER spans. Are the called services instrumented, and do they export here?`;
  if (servers && !clients) return `${came}waiting for CLIENT spans. Are the callers instrumented, and do they export here?`;
  if (spans.pending > 0) return `${came}${count(spans.pending)} wait for their mate.`;
  if (spans.other_kind + spans.root === spans.received) return `${came}all are roots or of kinds other than CLIENT and SERVER.`;
  return `${came}waiting for two spans with the same trace id, the SERVER span's parent being the CLIENT span.`;
}

/** How to send spans, with the two endpoints in their default places. */
export function HowToSend({ sentence }: { sentence: string }) {
  const host = location.hostname || "127.0.0.1";
  return (
    <div class="empty panel">
      <h2>{sentence}</h2>
      <p>Point the OTLP exporters of both sides, client and server, at this meter. By default, it listens on:</p>
      <dl>
        <dt>OTLP over gRPC</dt>
        <dd>
          <code>OTEL_EXPORTER_OTLP_PROTOCOL=grpc OTEL_EXPORTER_OTLP_ENDPOINT={location.protocol}//{host}:4317</code>
        </dd>
        <dt>OTLP over HTTP, protobuf or JSON</dt>
        <dd>
          <code>OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf OTEL_EXPORTER_OTLP_ENDPOINT={location.protocol}//{host}:4318</code>
        </dd>
      </dl>
      <p class="quiet">A call shows up once both of its spans are here, usually within five seconds of its end: that is how long SDKs hold spans back. --otlp-grpc and --otlp-http move the endpoints; the meter prints them when it starts.</p>
    </div>
  );
}
