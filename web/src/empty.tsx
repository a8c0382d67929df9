// What is said while there is nothing to show.

import { Fragment } from "preact";
import type { Coverage } from "./api";
import { count } from "./format";
import { endpoint, type Listens } from "./listens";
import { useStanding } from "./signin";

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

/** The command that starts an agent, where the address that it needs is known. */
export function AgentCommand({ listens }: { listens: Listens | null }) {
  const needsToken = useStanding()?.needs_token;
  if (!listens) return <code>spangap agent --meter URL</code>;
  const { url, local } = endpoint(listens, "otlp_grpc");
  return (
    <>
      <code>
        spangap agent --meter {url}
        {needsToken ? " --token-file FILE" : ""}
      </code>
      {local && <OnlyThere option="--otlp-grpc" />}
    </>
  );
}

const OnlyThere = ({ option }: { option: string }) => <span class="quiet"> on the meter's own host; <code>{option}</code> of the meter opens it to others</span>;

/** How to send spans to the ports on which this meter listens. */
export function HowToSend({ sentence, listens }: { sentence: string; listens: Listens | null }) {
  const needsToken = useStanding()?.needs_token;
  const ways = [
    ["otlp_grpc", "--otlp-grpc", "OTLP over gRPC", "grpc"],
    ["otlp_http", "--otlp-http", "OTLP over HTTP, protobuf or JSON", "http/protobuf"],
  ] as const;
  return (
    <div class="empty panel">
      <h2>{sentence}</h2>
      <p>Point the OTLP exporters of both sides, client and server, at this meter{listens ? ":" : "; it printed its addresses when it started."}</p>
      {listens && (
        <dl>
          {ways.map(([port, option, words, protocol]) => {
            const { url, local } = endpoint(listens, port);
            return (
              <Fragment key={port}>
                <dt>{words}</dt>
                <dd>
                  <code>
                    OTEL_EXPORTER_OTLP_PROTOCOL={protocol} OTEL_EXPORTER_OTLP_ENDPOINT={url}
                    {needsToken ? " OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN" : ""}
                  </code>
                  {local && <OnlyThere option={option} />}
                </dd>
              </Fragment>
            );
          })}
        </dl>
      )}
      <p class="quiet">A call shows up once both of its spans are here, usually within five seconds of its end: that is how long SDKs hold spans back.</p>
    </div>
  );
}
