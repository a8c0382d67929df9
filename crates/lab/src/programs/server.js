// An HTTP/1.1 server as people write them in Node: one thread for all connections. It leaves a SERVER span for each call, and
// tells in a log when its garbage collector stopped that thread: by its own clock, around the collection itself.
"use strict";
const { createServer } = require("node:http");
const { randomBytes } = require("node:crypto");
const { writeFileSync } = require("node:fs");

const told = new Map();
for (let at = 2; at + 1 < process.argv.length; at += 2) told.set(process.argv[at], process.argv[at + 1]);
const [host, port] = told.get("--listen").split(":");
const think = Number(told.get("--think") ?? 0);
const objects = Number(told.get("--objects") ?? 0);
const every = Number(told.get("--collect-every") ?? 0.5) * 1000;
const collects = told.get("--collect") === "yes";

/** Nanoseconds since 1970, finer than milliseconds. */
const now = () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e3)) * 1000n;

const spans = [];
const pauses = [];

// What a cache holds: a collection looks at each of its objects.
const cache = new Map();
for (let number = 0; number < objects; number++) cache.set(number, { number, text: `entry ${number}`, next: [number] });

const server = createServer((request, response) => {
  const started = now();
  const [, trace, parent] = (request.headers.traceparent ?? `00-${"0".repeat(32)}-${"0".repeat(16)}-01`).split("-");
  const answer = () => {
    spans.push([trace, randomBytes(8).toString("hex"), parent, started, now()]);
    // What is never asked for again would be gone with the first collection.
    response.setHeader("X-Entries", String(cache.size));
    response.setHeader("Content-Length", "64");
    response.end("x".repeat(64));
  };
  if (think > 0) setTimeout(answer, think * 1000);
  else answer();
});
server.keepAliveTimeout = 60_000;

/** What allocates a lot has it collected, all at once. */
function collect() {
  const begun = now();
  if (collects) globalThis.gc();
  pauses.push([begun, now()]);
}

function end() {
  const text = (key, value) => ({ key, value: { stringValue: value } });
  const one = ([trace, span, parent, begun, ended]) => ({
    traceId: trace, spanId: span, parentSpanId: parent, name: "GET /fast", kind: 2,
    startTimeUnixNano: String(begun), endTimeUnixNano: String(ended),
    attributes: [text("http.request.method", "GET"), { key: "server.port", value: { intValue: port } }], status: { code: 0 },
  });
  const resource = { attributes: [text("service.name", "node-server")] };
  writeFileSync(told.get("--spans"), JSON.stringify({ resourceSpans: [{ resource, scopeSpans: [{ spans: spans.map(one) }] }] }));
  const line = ([begun, ended]) =>
    `{"what": "gc", "trace_id": "", "from_unix_ns": ${begun}, "to_unix_ns": ${ended}}\n`;
  writeFileSync(told.get("--log"), pauses.map(line).join(""));
  process.exit(0);
}

process.on("SIGINT", end);
server.listen(Number(port), host, 512, () => {
  setInterval(collect, every);
  console.log(`listening on ${host}:${port}`);
});
