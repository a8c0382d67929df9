// How to reach the meter's ports, from where the page is looked at.

import assert from "node:assert/strict";
import { test } from "node:test";
import { endpoint, type Listens } from "../src/listens";

const at = (otlp: string, page: string, tls = false): Listens => ({ otlp_grpc: otlp, otlp_http: otlp, http: page, tls });

test("the address is one that works from where the page is looked at", () => {
  const cases: [Listens, string, string, boolean][] = [
    [at("127.0.0.1:4317", "127.0.0.1:7070"), "127.0.0.1", "http://127.0.0.1:4317", false],
    [at("127.0.0.1:41234", "127.0.0.1:7070"), "localhost", "http://localhost:41234", false],
    [at("0.0.0.0:5317", "0.0.0.0:7070", true), "meter.example", "https://meter.example:5317", false],
    [at("[::]:5317", "[::]:7070"), "meter.example", "http://meter.example:5317", false],
    [at("[::1]:5317", "[::1]:7070"), "[::1]", "http://[::1]:5317", false],
    // One address for spans, another for people.
    [at("10.0.0.5:4317", "192.168.1.5:7070"), "meter.example", "http://10.0.0.5:4317", false],
    [at("10.0.0.5:4317", "10.0.0.5:7070"), "meter.example", "http://meter.example:4317", false],
    // The page is open to others, or behind a proxy, and the port for spans is not.
    [at("127.0.0.1:4317", "0.0.0.0:7070"), "meter.example", "http://127.0.0.1:4317", true],
    [at("0.0.0.0:4317", "0.0.0.0:7070"), "", "http://127.0.0.1:4317", false],
  ];
  for (const [listens, page, url, local] of cases) assert.deepEqual(endpoint(listens, "otlp_grpc", page), { url, local }, JSON.stringify([listens, page]));
});
