// The fate of every span; and in words, what is wrong and what to do about it.

import type { Coverage, HistoryCoverage, LimitReport, MalformedCounts, NoteLevel, ServiceCoverage, SpanCounts } from "./api";
import { bytes, count, dayAndClock, duration, percent, span } from "./format";

export interface Finding {
  /** `aside` is true of most fleets and of no consequence to most readers. */
  level: NoteLevel;
  text: string;
}

/** With fewer spans than this, nothing can be said about a service. */
const ENOUGH_SPANS = 20;
const UNMATCHED_SHARE = 0.02;
const DUPLICATE_SHARE = 0.01;
const STORE_NEARLY_FULL = 0.9;
const SERVICES_NAMED = 6;
const HOLES_NAMED = 3;

/** Classes of spans, in the order of the bar. A rare one is left out while it is empty. */
export const CLASSES: { key: keyof SpanCounts; label: string; hint: string; bad?: boolean; rare?: boolean }[] = [
  { key: "joined", label: "joined", hint: "found their mate: two for each joined call" },
  { key: "pending", label: "pending", hint: "still waiting for their mate" },
  { key: "expired_client_only", label: "client only", hint: "CLIENT spans whose SERVER span did not come in time: also those of databases, which have none" },
  { key: "expired_server_only", label: "server only", hint: "SERVER spans whose CLIENT span did not come in time" },
  { key: "apart", label: "apart", hint: "their mate reached another meter while the list of meters changed; neither counts the call", rare: true },
  { key: "unresolved", label: "unresolved", hint: "without a mate at a time when another meter ended or did not answer; it may be there", rare: true },
  { key: "evicted", label: "evicted", hint: "thrown out early because the store of pending spans was full", bad: true },
  { key: "duplicate", label: "duplicates", hint: "seen before with the same ids; counted once" },
  { key: "extra_attempts", label: "extra attempts", hint: "further SERVER spans under one CLIENT span: retries and hedges" },
  { key: "root", label: "roots", hint: "SERVER spans without a parent: the entry points of the system" },
  { key: "other_kind", label: "other kinds", hint: "INTERNAL, PRODUCER, CONSUMER and unspecified spans" },
  { key: "malformed", label: "malformed", hint: "spans that cannot be used", bad: true },
];

const MALFORMED: Record<keyof MalformedCounts, string> = {
  bad_id: "with a trace or span id of the wrong length or all zero",
  end_before_start: "that end before they start",
  no_time: "without a start or an end",
  too_long: "longer than 78 hours",
};

/** Losses at a limit that the page puts into words; the table lists all of them. */
const LIMITS: Record<string, (limit: LimitReport) => string | null> = {
  resources: (l) => (l.refused > 0 ? `${count(l.refused)} times there was no room for a resource besides ${count(l.limit)} others, and it counts as “other”.` : null),
  names: (l) =>
    l.refused > 0
      ? `${count(l.refused)} times a name found no room and counts as “other”: raise --max-resource-bytes, or find out who sends so many names.`
      : `${count(l.cut)} names of services, hosts or methods were too long and are cut; they end in a digest.`,
  resource_bytes: (l) => `Of ${count(l.cut)} resources only the names are kept, because they or all together are too large: raise --max-resource-bytes.`,
  worst_bytes: (l) => `${count(l.refused)} spans of worst calls are not held, because they or all together are too large: raise --worst-bytes.`,
  sample_bytes: (l) => `${count(l.refused)} spans of sampled calls are not held, because they or all together are too large: raise --sample-bytes.`,
};

function unmatched(services: ServiceCoverage[]): Finding[] {
  const lacking: { lost: number; finding: Finding }[] = [];
  const judge = (service: string, kind: "CLIENT" | "SERVER", joined: number, lost: number) => {
    const all = joined + lost;
    if (all < ENOUGH_SPANS || lost / all < UNMATCHED_SHARE) return;
    const mate = kind === "CLIENT" ? "SERVER" : "CLIENT";
    const ask =
      kind === "CLIENT"
        ? `are the services that ${service} calls instrumented, and do they export here?`
        : `are the callers of ${service} instrumented, do they pass the trace context on, and do they export here?`;
    if (kind === "CLIENT" && joined === 0) {
      // Calls to databases and caches look like this: those have no spans of their own, and nothing is wrong.
      const text = `No CLIENT span of ${service} has found its SERVER span (${count(lost)} of ${count(all)}). Of databases and caches none is to be expected; of services: ${ask}`;
      lacking.push({ lost, finding: { level: "note", text } });
      return;
    }
    const share = joined === 0 ? `No ${kind} span of ${service} has found its` : `${percent(lost / all)} of the ${kind} spans of ${service} never found their`;
    // A service that calls both services and databases has no mate for the latter, and nothing is wrong.
    const level = kind === "CLIENT" ? "note" : "wrong";
    const beside = kind === "CLIENT" ? " These include calls to databases and caches, which never have one." : "";
    lacking.push({ lost, finding: { level, text: `${share} ${mate} span (${count(lost)} of ${count(all)}): ${ask}${beside}` } });
  };
  for (const s of services) {
    judge(s.service, "CLIENT", s.client_joined, s.client_unmatched);
    judge(s.service, "SERVER", s.server_joined, s.server_unmatched);
  }
  lacking.sort((a, b) => b.lost - a.lost);
  const named = lacking.slice(0, SERVICES_NAMED).map((one) => one.finding);
  const more = lacking.length - named.length;
  if (more > 0) named.push({ level: "note", text: `The same holds for ${count(more)} more; the table of services has them all.` });
  return named;
}

const STEP_NAMES: Record<number, string> = { 60: "minutes", 600: "ten-minute sums", 3600: "hours", 86400: "days" };

/** How far back the history reaches, if it had to drop finer rows. */
function horizon(history: HistoryCoverage | undefined): string | null {
  const steps = history?.steps.filter((step) => step.from_unix_s !== null) ?? [];
  const oldest = steps.reduce((least, step) => Math.min(least, step.from_unix_s ?? least), Infinity);
  // A step starts at a multiple of its length, up to a day before its first minute.
  const shorter = steps.some((step) => (step.from_unix_s ?? 0) > oldest + 86_400);
  if (!history || !shorter) return null;
  const parts = steps.map((step) => `${STEP_NAMES[step.step_s] ?? `steps of ${span(step.step_s)}`} since ${dayAndClock(step.from_unix_s ?? 0)}`);
  return `The history (${bytes(history.bytes)} of at most ${bytes(history.bytes_limit)}) has ${parts.join(", ")}.`;
}

/** What to know before trusting the figures, most serious first. */
export function findings(c: Coverage): Finding[] {
  const found: Finding[] = [];
  const wrong = (text: string) => found.push({ level: "wrong", text });
  const note = (text: string) => found.push({ level: "note", text });
  const { spans } = c;

  const classified = CLASSES.reduce((sum, { key }) => sum + spans[key], 0);
  if (classified !== spans.received) {
    wrong(`The classes sum to ${count(classified)} spans but ${count(spans.received)} were received: a fault of the meter.`);
  }
  if (c.refused_requests > 0) {
    wrong(`${count(c.refused_requests)} requests were refused because the meter was overloaded; their senders were told to retry. Whatever they did not resend is missing here.`);
  }
  if (c.invalid_requests > 0) {
    wrong(`${count(c.invalid_requests)} requests could not be decoded and count nowhere below: is their sender speaking OTLP?`);
  }
  if (c.slow_requests > 0) {
    note(`${count(c.slow_requests)} requests did not arrive within their deadlines: their senders are slow, or the network to them is.`);
  }
  if (c.displaced_requests > 0) {
    note(`${count(c.displaced_requests)} requests that arrived slowly were dropped because others needed their room; their senders were told to retry.`);
  }
  if (c.displaced_answers > 0) {
    note(`${count(c.displaced_answers)} answers were cut off because their readers took more than a second and others waited.`);
  }
  for (const port of c.ports) {
    if (port.refused + port.accept_errors > 0) {
      wrong(`Port ${port.port} could not take ${count(port.refused + port.accept_errors)} connections: raise --max-connections (${count(port.limit)} now) and the limit of file descriptors.`);
    } else if (port.closed_for_room > 0) {
      note(`${count(port.closed_for_room)} connections of port ${port.port} were closed to make room for others; at most ${count(port.limit)} may be open (--max-connections).`);
    }
  }
  for (const limit of c.limits) {
    const text = LIMITS[limit.name]?.(limit);
    if (text && limit.cut + limit.refused > 0) wrong(text);
  }
  if (spans.evicted > 0) {
    wrong(`${count(spans.evicted)} spans were evicted before their mate came, because the store of pending spans was full: raise --max-pending-bytes.`);
  } else if (c.pending_bytes > c.pending_bytes_limit * STORE_NEARLY_FULL) {
    wrong(`The store of pending spans is nearly full (${bytes(c.pending_bytes)} of ${bytes(c.pending_bytes_limit)}); the oldest will be evicted: raise --max-pending-bytes.`);
  }
  found.push(...unmatched(c.services));
  if (spans.malformed > 0) {
    const why = Object.entries(MALFORMED)
      .map(([key, text]) => ({ n: c.malformed[key as keyof MalformedCounts], text }))
      .filter(({ n }) => n > 0)
      .map(({ n, text }) => `${count(n)} ${text}`);
    wrong(`${count(spans.malformed)} spans cannot be used: ${why.join(", ")}.`);
  }
  if (spans.duplicate > spans.received * DUPLICATE_SHARE) {
    note(`${percent(spans.duplicate / spans.received)} of all spans came more than once: does an exporter retry, or do two pipelines send the same spans? They are counted once.`);
  }
  if (c.calls_in_other > 0) {
    wrong(`${count(c.calls_in_other)} calls are in pairs named “other”, because the limit on the number of pairs was reached: raise --max-pairs.`);
  }
  const calls = spans.joined / 2;
  if (c.calls_without_legs > 0 && calls > 0) {
    note(`Request and response leg are unknown for ${count(c.calls_without_legs)} calls (${percent(Math.min(1, c.calls_without_legs / calls))}): a span without a host name, too few calls between two hosts, or clocks that contradict each other.`);
  }
  if (c.whole_span_horizon_ms !== null && c.mate_delay.p99_ns > c.whole_span_horizon_ms * 1e6) {
    note(`Whole spans are held for ${span(c.whole_span_horizon_ms / 1000)}, but 1 % of mates come later than ${duration(c.mate_delay.p99_ns)}: worst calls among them are shown without their first span's attributes.`);
  }
  for (const hole of c.holes.slice(-HOLES_NAMED)) {
    note(`Nothing was recorded from ${dayAndClock(hole.from_unix_s)} to ${dayAndClock(hole.to_unix_s)} (${span(hole.to_unix_s - hole.from_unix_s)}): no meter was running.`);
  }
  if (c.holes.length > HOLES_NAMED) {
    note(`${count(c.holes.length - HOLES_NAMED)} earlier stretches of the history are empty as well; /api/v1/coverage lists them.`);
  }
  c.notes.forEach((text, at) => found.push({ level: c.note_levels[at] ?? "note", text }));
  if (c.kept && c.kept.from_unix_ms !== null) {
    note(`Whole traces are kept since ${dayAndClock(Math.floor(c.kept.from_unix_ms / 1000))}: ${count(c.kept.spans)} spans in ${bytes(c.kept.bytes)} of at most ${bytes(c.kept.bytes_limit)}.`);
  }
  const reach = horizon(c.history);
  if (reach) note(reach);
  return found;
}

