// A real meter for the tests: the built binary on free ports, and OTLP JSON sent to it over HTTP.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, statSync } from "node:fs";
import { createInterface } from "node:readline";

/** The binary to test: SPANGAP_BIN, else the one built last. */
export function binary(): string {
  const given = process.env["SPANGAP_BIN"];
  if (given) return given;
  const built = ["../target/release/spangap", "../target/debug/spangap"]
    .filter((path) => existsSync(path))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  if (!built[0]) throw new Error("no spangap binary under target/: run make build, or name one in SPANGAP_BIN");
  return built[0];
}

const STOP_WITHIN_MS = 120_000;
const ANSWER_WITHIN_MS = 120_000;

export interface RunningMeter {
  /** With their scheme. */
  otlpGrpc: string;
  otlpHttp: string;
  /** Address of the page, with its last slash. */
  page: string;
  pid: number;
  stop: () => Promise<void>;
}

/** Starts the meter and waits until it says that it is ready. */
export function startMeter(...options: string[]): Promise<RunningMeter> {
  return startMeterAt("127.0.0.1:0", ...options);
}

/**
 * A loopback address that no other test process uses: a port of it is free again as soon as its meter has ended, whatever ports
 * others take on 127.0.0.1 meanwhile.
 */
export const ownAddress = (): string => `127.${1 + ((process.pid >> 14) & 127)}.${(process.pid >> 7) & 127}.${1 + (process.pid & 127)}`;

/** The same, with its page at an address that is known beforehand. */
export async function startMeterAt(http: string, ...options: string[]): Promise<RunningMeter> {
  const free = "127.0.0.1:0";
  const child: ChildProcess = spawn(binary(), ["meter", "--otlp-grpc", free, "--otlp-http", free, "--http", http, ...options], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const exited = once(child, "exit");
  const said = new Map<string, string>();
  for await (const line of createInterface({ input: child.stdout! })) {
    const [word, rest] = line.trim().split(/\s+/, 2) as [string, string | undefined];
    said.set(word, rest ?? "");
    if (word === "ready") break;
  }
  // What it may say later must not fill the pipe.
  child.stdout!.resume();
  const [otlpGrpc, otlpHttp, page] = ["otlp/grpc", "otlp/http", "page"].map((word) => said.get(word));
  if (!said.has("ready") || !otlpGrpc || !otlpHttp || !page) {
    child.kill();
    throw new Error(`the meter ended or said something unexpected: ${JSON.stringify([...said])}`);
  }
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
    const stubborn = setTimeout(() => child.kill("SIGKILL"), STOP_WITHIN_MS);
    await exited;
    clearTimeout(stubborn);
    if (child.signalCode === "SIGKILL") throw new Error(`the meter did not end within ${STOP_WITHIN_MS} ms of SIGTERM`);
  };
  const scheme = page.split(":", 1);
  return { otlpGrpc: `${scheme}://${otlpGrpc}`, otlpHttp: `${scheme}://${otlpHttp}`, page, pid: child.pid ?? 0, stop };
}

export interface TestSpan {
  service: string;
  host?: string;
  version?: string;
  kind: "CLIENT" | "SERVER";
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  startNs: bigint;
  durationNs: bigint;
  name?: string;
  attributes?: Record<string, string | number>;
}

const KINDS = { CLIENT: 3, SERVER: 2 };

const keyValues = (pairs: Record<string, string | number>) =>
  Object.entries(pairs).map(([key, value]) => ({ key, value: typeof value === "number" ? { intValue: String(value) } : { stringValue: value } }));

/** Spans as OTLP JSON, each under a resource of its own. */
export function otlpJson(spans: TestSpan[]): string {
  const resourceSpans = spans.map((span) => ({
    resource: { attributes: keyValues({ "service.name": span.service, ...(span.host ? { "host.name": span.host } : {}), ...(span.version ? { "service.version": span.version } : {}) }) },
    scopeSpans: [
      {
        spans: [
          {
            traceId: span.traceId,
            spanId: span.spanId,
            ...(span.parentSpanId ? { parentSpanId: span.parentSpanId } : {}),
            name: span.name ?? "call",
            kind: KINDS[span.kind],
            startTimeUnixNano: String(span.startNs),
            endTimeUnixNano: String(span.startNs + span.durationNs),
            attributes: keyValues(span.attributes ?? {}),
          },
        ],
      },
    ],
  }));
  return JSON.stringify({ resourceSpans });
}

/** Sends spans in one OTLP/HTTP request. */
export async function send(meter: RunningMeter, spans: TestSpan[]): Promise<void> {
  const response = await fetch(`${meter.otlpHttp}/v1/traces`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: otlpJson(spans),
  });
  if (!response.ok) throw new Error(`the meter answered ${response.status}: ${await response.text()}`);
}

/** Asks until an answer is as wanted, and returns it; fails with the last one. */
export async function eventually<T>(ask: () => Promise<T>, isWanted: (answer: T) => boolean): Promise<T> {
  const deadline = Date.now() + ANSWER_WITHIN_MS;
  for (;;) {
    const answer = await ask();
    if (isWanted(answer)) return answer;
    if (Date.now() > deadline) throw new Error(`never as wanted: ${JSON.stringify(answer)}`);
    await new Promise((later) => setTimeout(later, 50));
  }
}

/** JSON of the meter's API. */
export async function api(meter: RunningMeter, path: string, query: Record<string, string> = {}): Promise<unknown> {
  const within = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const response = await fetch(`${meter.page}api/v1/${path}?${new URLSearchParams(query)}`, { signal: within });
  const text = await response.text();
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${text}`);
  return JSON.parse(text);
}
