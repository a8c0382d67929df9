// What is said while there is nothing to show.

import { Fragment } from "preact";
import type { Coverage } from "./api";
import { count, dayAndClock } from "./format";
import { endpoint, type Listens } from "./listens";
import { useStanding } from "./signin";
import type { Stretch } from "./state";

/**
 * When the oldest figure that the meter holds begins, Unix seconds; null when it holds none. A row of ten minutes begins at a full ten
 * minutes, even if its first call came later: of a beginning that several resolutions have, the finest knows best.
 */
export function historyFrom(c: Coverage | null): number | null {
  const coarseFirst = [...(c?.history?.steps ?? [])].sort((a, b) => b.step_s - a.step_s);
  let [begins, ends] = [Infinity, Infinity];
  for (const { step_s: step, from_unix_s: from } of coarseFirst) {
    if (from !== null && from < ends) [begins, ends] = [from, from + step];
  }
  return begins === Infinity ? null : begins;
}

/** Since when calls are recorded: by earlier runs that the history holds, or by this one. */
export function recordedFrom(c: Coverage | null, nowS: number): number | null {
  if (c === null) return null;
  const [begins, started] = [historyFrom(c) ?? Infinity, nowS - c.uptime_s];
  // The minute in which this run started counts from there, if no earlier run has one.
  return begins > started - 60 ? started : begins;
}

/** Seconds of a stretch in which calls were recorded: time in which nobody recorded is no time without losses. Sums are of whole
 * minutes, of those at both ends, too. */
export function recordedSeconds(c: Coverage | null, nowS: number, { from, to }: Stretch): number {
  const [first, last] = [Math.floor(from / 60) * 60, Math.ceil(to / 60) * 60];
  const [start, end] = [Math.max(first, recordedFrom(c, nowS) ?? first), Math.min(last, nowS)];
  const missed = (c?.holes ?? []).reduce((sum, hole) => sum + Math.max(0, Math.min(hole.to_unix_s, end) - Math.max(hole.from_unix_s, start)), 0);
  return Math.max(1, end - start - missed);
}

/** Whether the meter has calls, if not in the range shown: of this run, or of earlier ones in its history. */
export const hasCalls = (c: Coverage | null): boolean => c !== null && (c.spans.joined > 0 || historyFrom(c) !== null);

/** That a range has no calls, and where there may be some. */
export function noCalls(c: Coverage | null, { from, to }: Stretch, range: string): string {
  const begins = historyFrom(c);
  const none = `No calls ${range}.`;
  if (begins === null) return none;
  if (to <= begins) return `${none} The history begins at ${dayAndClock(begins)}.`;
  return `${none} The history reaches back to ${dayAndClock(begins)}${from > begins ? ": a longer time range shows more" : ""}.`;
}

/** What the meter is waiting for, from what it has seen so far. */
export function awaited(c: Coverage | null): string {
  if (!c || c.spans.received === 0) return "No span has come yet: waiting for the first.";
  const { spans } = c;
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
