// What the page says and how it sorts, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { CallReport, Coverage, PairRow, Quantiles } from "../src/api";
import { lay, whichLeg } from "../src/call";
import { foundWords, offset, sinceWords } from "../src/cases";
import type { CaseReport, CaseRow } from "../src/cases_api";
import { ramp } from "../src/colour";
import { awaited, hasCalls, historyFrom, noCalls, recordedSeconds } from "../src/empty";
import { findings } from "../src/findings";
import { caseOf, difference, direction, reach } from "../src/fleet";
import { place } from "../src/layout";
import { attributes, valueText } from "../src/otlp";
import { chartStart } from "../src/pair";
import { plotRange } from "../src/parts";
import { compare } from "../src/spans";
import { againstStretch, NO_FILTERS, pairKey, parseHash, RANGES, shownStretch, START, toHash, type View } from "../src/state";
import { traceUrl, wrongWith } from "../src/trace_link";

const NONE: Quantiles = {
  count: 0,
  p50_ns: 0,
  p90_ns: 0,
  p95_ns: 0,
  p99_ns: 0,
  p999_ns: 0,
  max_ns: 0,
  mean_ns: 0,
  p50_ci95_ns: [0, 0],
  p99_ci95_ns: [0, 0],
};

const SPANS = {
  received: 0,
  joined: 0,
  pending: 0,
  expired_client_only: 0,
  expired_server_only: 0,
  apart: 0,
  unresolved: 0,
  evicted: 0,
  duplicate: 0,
  extra_attempts: 0,
  root: 0,
  other_kind: 0,
  malformed: 0,
};

function coverage(changes: Omit<Partial<Coverage>, "spans"> & { spans?: Partial<Coverage["spans"]> } = {}): Coverage {
  return {
    match_ratio: null,
    malformed: { bad_id: 0, end_before_start: 0, no_time: 0, too_long: 0 },
    mate_delay: NONE,
    services: [],
    pending_bytes: 0,
    pending_bytes_limit: 2 ** 30,
    whole_bytes: 0,
    whole_span_horizon_ms: null,
    refused_requests: 0,
    invalid_requests: 0,
    slow_requests: 0,
    displaced_requests: 0,
    displaced_answers: 0,
    request_bytes: 0,
    request_bytes_limit: 40 * 2 ** 20,
    ports: [],
    limits: [],
    calls_in_other: 0,
    calls_without_legs: 0,
    calls_without_size: 0,
    exclude_response_over_bytes: 102_400,
    uptime_s: 60,
    holes: [],
    notes: [],
    note_levels: [],
    ...changes,
    spans: { ...SPANS, ...changes.spans },
  };
}

const said = (c: Coverage) => findings(c).map((finding) => finding.text).join("\n").replace(/\u202f/g, " ");

test("a meter that sees everything says nothing", () => {
  assert.deepEqual(findings(coverage({ spans: { received: 200, joined: 200 } })), []);
});

test("what is wrong is said in words", () => {
  const service = { service: "cart", client_joined: 62, client_unmatched: 38, server_joined: 500, server_unmatched: 1 };
  const half = coverage({ spans: { received: 601, joined: 562, expired_client_only: 38, expired_server_only: 1 }, services: [service] });
  assert.match(said(half), /^38\.0 % of the CLIENT spans of cart never found their SERVER span \(38 of 100\): are the services that cart calls instrumented/);
  assert.doesNotMatch(said(half), /SERVER spans of cart/);

  const none = coverage({ spans: { received: 40, expired_server_only: 40 }, services: [{ ...service, client_joined: 0, client_unmatched: 0, server_joined: 0, server_unmatched: 40 }] });
  assert.match(said(none), /No SERVER span of cart has found its CLIENT span \(40 of 40\)/);

  const databases = { ...service, client_joined: 0, client_unmatched: 40, server_joined: 0, server_unmatched: 0 };
  const note = findings(coverage({ spans: { received: 40, expired_client_only: 40 }, services: [databases] }));
  assert.deepEqual(note.map((finding) => finding.level), ["note"], "calls of databases have no SERVER spans");

  assert.match(said(coverage({ spans: { received: 5, evicted: 5 } })), /5 spans were evicted .* --max-pending-bytes/);
  assert.match(said(coverage({ refused_requests: 3 })), /3 requests were refused/);
  assert.match(said(coverage({ invalid_requests: 1 })), /could not be decoded/);
  assert.match(said(coverage({ spans: { received: 2, malformed: 2 }, malformed: { bad_id: 0, end_before_start: 2, no_time: 0, too_long: 0 } })), /2 spans cannot be used: 2 that end before they start\./);
  assert.match(said(coverage({ spans: { received: 3, joined: 2 } })), /a fault of the meter/);
  assert.match(said(coverage({ holes: [{ from_unix_s: 1_000, to_unix_s: 4_600 }], notes: ["word"], note_levels: ["note"] })), /Nothing was recorded .*\(1 h\).*\nword$/);
});

test("a note has the level that the meter gives it, whatever it says", () => {
  const notes = ["damaged", "damaged", "damaged"];
  const found = findings(coverage({ notes, note_levels: ["aside", "note", "wrong"] }));
  assert.deepEqual(found.map((one) => one.level), ["aside", "note", "wrong"]);
});

test("limits that were reached are said, and those that were not are not", () => {
  const limit = { name: "names", used: 5, limit: 100, cut: 0, forgotten: 9, refused: 0 };
  const port = { port: "otlp_grpc", open: 4096, limit: 4096, accepted: 5000, closed_no_request: 1, closed_idle: 2, closed_not_reading: 0, closed_for_room: 0, closed_no_tls: 0, refused: 0, accept_errors: 0 };
  assert.equal(said(coverage({ limits: [limit], ports: [port] })), "");
  assert.match(said(coverage({ limits: [{ ...limit, cut: 3 }] })), /^3 names of services, hosts or methods were too long/);
  assert.match(said(coverage({ limits: [{ ...limit, refused: 7 }] })), /^7 times a name found no room/);
  assert.match(said(coverage({ ports: [{ ...port, closed_for_room: 104 }] })), /^104 connections of port otlp_grpc were closed to make room/);
  assert.match(said(coverage({ ports: [{ ...port, refused: 2 }] })), /^Port otlp_grpc could not take 2 connections/);
  assert.match(said(coverage({ slow_requests: 1, displaced_requests: 2 })), /^1 requests did not arrive .*\n2 requests that arrived slowly/);
});

test("of many services without mates the worst are named and the rest counted", () => {
  const services = Array.from({ length: 10 }, (_, i) => ({ service: `s${i}`, client_joined: 0, client_unmatched: 100 + i, server_joined: 0, server_unmatched: 0 }));
  const all = findings(coverage({ services }));
  assert.match(all[0]!.text, /s9/);
  assert.equal(all.length, 7);
  assert.match(all[6]!.text, /4 more/);
});

test("the empty page says what it waits for", () => {
  assert.match(awaited(null), /waiting for the first/);
  assert.match(awaited(coverage({ spans: { received: 9, expired_client_only: 9 } })), /waiting for SERVER spans/);
  assert.match(awaited(coverage({ spans: { received: 9, expired_server_only: 9 } })), /waiting for CLIENT spans/);
  assert.match(awaited(coverage({ spans: { received: 9, root: 9 } })), /roots/);
});

test("a range without calls says where the history has some", () => {
  const from = (unixS: number) => ({ ...coverage(), history: { steps: [{ step_s: 60, from_unix_s: unixS }] } }) as Coverage;
  assert.deepEqual([coverage(), coverage({ spans: { joined: 8 } }), from(100)].map(hasCalls), [false, true, true]);
  assert.match(noCalls(from(500_000), { from: 0, to: 1_000 }, "then"), /^No calls then\. The history begins at 1970-01-0/);
  assert.match(noCalls(from(500_000), { from: 600_000, to: 700_000 }, "then"), /reaches back to 1970-01-0.*a longer time range shows more\.$/);
  assert.equal(noCalls(coverage(), { from: 0, to: 1 }, "then"), "No calls then.");
});

test("what is lost in a second is of the seconds in which somebody recorded", () => {
  const steps = (minutes: number | null, tens: number | null) => [{ step_s: 60, from_unix_s: minutes }, { step_s: 600, from_unix_s: tens }];
  const held = (uptime_s: number, minutes: number | null, tens: number | null) => ({ ...coverage(), uptime_s, holes: [], history: { steps: steps(minutes, tens) } }) as unknown as Coverage;
  // Ten minutes begin at a full ten minutes, whenever the meter began within them.
  assert.equal(historyFrom(held(0, 6_240, 6_000)), 6_240);
  assert.equal(historyFrom(held(0, 60_000, 6_000)), 6_000, "older than any minute that is left");
  assert.equal(historyFrom(held(0, null, null)), null);
  const range = { from: 6_300 - 900, to: 6_300 };
  assert.equal(recordedSeconds(held(40, 6_240, 6_000), 6_300, range), 40, "the meter began 40 s ago");
  assert.equal(recordedSeconds(held(40, 5_000, 4_800), 6_300, range), 900, "an earlier run recorded the rest");
  assert.equal(recordedSeconds({ ...held(40, 5_000, 4_800), holes: [{ from_unix_s: 6_000, to_unix_s: 6_260 }] }, 6_300, range), 640, "but for a hole");
  assert.equal(recordedSeconds(held(40, 6_240, 6_000), 6_300, { from: 0, to: 1_000 }), 1, "nobody divides by nothing");
  assert.equal(recordedSeconds(held(9_000, 0, 0), 6_300, { from: 6_000, to: 9_000 }), 300, "the future is not recorded");
  assert.equal(recordedSeconds(held(9_000, 0, 0), 6_300, { from: 6_010, to: 6_179 }), 180, "sums are of whole minutes");
});

test("a view survives its way through the URL, whatever the names", () => {
  const names = ["a", "", "a & b=c#d", "<img src=x>", "größe/→", "100%", '["x"]', "a+b c"];
  for (const client of names) {
    for (const server of names) {
      const view: View = {
        ...START,
        place: "call",
        range: RANGES[2],
        fixed: { from: 1_000, to: 2_000 },
        against: server === "" ? "previous" : { from: 10, to: 20 },
        filters: { ...NO_FILTERS, q: client, service: server, client: server, server: client, node: "n=&", status: "http_5xx" },
        by: "server",
        sort: "gap_p99",
        descending: false,
        page: 3,
        map: true,
        pair: { client, server, method: server === "a" ? undefined : "m/" + client },
        cells: { from: 60, to: 120, lowNs: 1_000, highNs: 5_000 },
        call: { traceId: "ab".repeat(16), clientSpanId: "cd".repeat(8) },
        cases: { state: "open", q: server, page: 2 },
      };
      assert.deepEqual(parseHash(toHash(view)), view);
    }
  }
  assert.deepEqual(parseHash(""), START);
  assert.deepEqual(parseHash("#sort=nonsense&window=7y&order=up&from=9&to=3&against=never&page=-1&by=magic"), START);
  for (const place of ["fleet", "cases", "hosts"] as const) assert.equal(parseHash(toHash({ ...START, place })).place, place);
  const one: View = { ...START, place: "case", caseId: "c/1 &" };
  assert.deepEqual(parseHash(toHash(one)), one);
  // Addresses that were handed out before there were more views.
  const old = parseHash("#client=a&server=b&trace_id=00ff&client_span_id=12&window=6h");
  assert.deepEqual([old.place, old.pair?.client, old.call?.traceId, old.range.window], ["call", "a", "00ff", "6h"]);
  assert.equal(new Set(names.flatMap((a) => names.map((b) => pairKey({ client: a, server: b })))).size, names.length ** 2);
});

test("the stretch compared with has no minute in common with the one shown", () => {
  const now = 1_700_000_045;
  for (const range of RANGES) {
    const view: View = { ...START, range, against: "previous" };
    const [shown, before] = [shownStretch(view, now), againstStretch(view, now)!];
    assert.equal(before.to - before.from, range.seconds);
    assert.equal(before.to, Math.floor(shown.from / 60) * 60, `${range.window}: ends where the minutes of the other begin`);
  }
  const fixed = { from: 86_400 * 10, to: 86_400 * 10 + 600 };
  assert.deepEqual(againstStretch({ ...START, fixed, against: "day" }, now), { from: 86_400 * 9, to: 86_400 * 9 + 600 });
  assert.equal(againstStretch(START, now), null);
});

test("small plots are drawn to what is there, not to gaps of zero", () => {
  const gap = (p50: number, p99: number): Quantiles => ({ ...NONE, count: 40, p50_ns: p50, p99_ns: p99, p50_ci95_ns: [p50 * 0.9, p50 * 1.1], p99_ci95_ns: [p99 * 0.9, p99 * 1.1] });
  const range = plotRange([gap(5e6, 2e7), gap(8e6, 3e7)]);
  assert.deepEqual(plotRange([gap(5e6, 2e7), gap(0, 0), gap(8e6, 3e7)]), range);
  const [low, high] = plotRange([gap(0, 2e7)]);
  assert.ok(high / low < 1e5, "one whose median is zero leaves room for the others");
});

test("a row's case is the newest of its pair that is not over", () => {
  const row = { client: "web", server: "cart" } as unknown as PairRow;
  const one = (id: string, state: CaseRow["state"], method?: string) => ({ id, state, pair: { client: "web", server: "cart" }, trigger: "baseline", opened_unix_ms: 0, ...(method ? { method } : {}) }) as CaseRow;
  const other = { ...one("other", "open"), pair: { client: "web", server: "db" } };
  assert.equal(caseOf(row, [other, one("a", "fixed"), one("b", "explained"), one("c", "open")])?.id, "b");
  assert.equal(caseOf({ ...row, method: "Get" }, [one("a", "open", "Put"), one("b", "open", "Get")])?.id, "b");
  assert.equal(caseOf({ ...row, method: "Get" }, [one("a", "open")])?.id, "a", "a case of the pair is one of each method");
  assert.equal(caseOf(row, [other]), undefined);
  assert.equal(foundWords(one("a", "open")), "being looked into");
  assert.equal(foundWords(one("a", "unknown")), "no verdict: too little was recorded");
});

test("a difference is named only when the intervals leave no other", () => {
  assert.equal(direction(difference([44, 51], [0.9, 1.2])), "up");
  assert.equal(direction(difference([0.9, 1.2], [44, 51])), "down");
  assert.equal(direction(difference([10, 20], [15, 30])), "open");
  assert.deepEqual(difference([44, 51], [1, 2]), [42, 50]);
});

test("the plot over time reaches further than the range, and no further than the history", () => {
  const now = 10_000_000;
  const shown = { from: now - 900, to: now };
  assert.deepEqual(reach(shown, now, null), { from: now - 3_600, to: now });
  assert.deepEqual(reach({ from: now - 86_400, to: now }, now, now - 7_200), { from: now - 86_400, to: now });
  assert.deepEqual(reach({ from: now - 21_600, to: now }, now, now - 30_000), { from: now - 30_000, to: now });
});

test("callers stand to the left of those they call, and circles end", () => {
  const spots = place([
    { from: "web", to: "cart" },
    { from: "cart", to: "db" },
    { from: "web", to: "db" },
    { from: "db", to: "web" },
    { from: "cart", to: "cart" },
  ]);
  const layer = (name: string) => spots.get(name)!.layer;
  assert.ok(layer("web") < layer("cart") && layer("cart") < layer("db"), JSON.stringify([...spots]));
  const taken = [...spots.values()].map((spot) => `${spot.layer} ${spot.row}`);
  assert.equal(new Set(taken).size, 3);
});

test("where the server worked is as open as the clocks leave it", () => {
  const call = { gap_ns: 10e6, client_ns: 30e6, server_ns: 20e6, client_span: null, server_span: null } as unknown as CallReport;
  assert.deepEqual([lay(call).earliestNs, lay(call).latestNs], [0, 10e6], "nothing is known but that it lies within");
  const some = lay({ ...call, legs: { request_ns: 9e6, bound_ns: 2e6 } });
  assert.deepEqual([some.earliestNs, some.startNs, some.latestNs], [7e6, 9e6, 10e6], "no leg is negative");
  const exact = lay({ ...call, legs: { request_ns: 4e6, bound_ns: 0 } });
  assert.deepEqual([exact.earliestNs, exact.latestNs], [4e6, 4e6]);
  assert.match(whichLeg(0.7, 0.9), /request leg/);
  assert.match(whichLeg(0.1, 0.3), /response leg/);
  assert.match(whichLeg(0.45, 0.55), /half/);
  assert.equal(whichLeg(0, 1), "");
});

test("the address of a trace UI is one, and has a place for the id", () => {
  for (const good of ["", "https://j.example/trace/{trace_id}", "http://127.0.0.1:3000/x?t={trace_id}&s={span_id}"]) assert.equal(wrongWith(good), null, good);
  for (const bad of ["javascript:alert('{trace_id}')", "https://j.example/", "j.example/{trace_id}", "https://{trace_id}:x/"]) assert.notEqual(wrongWith(bad), null, bad);
  assert.equal(traceUrl("https://j/{trace_id}/{span_id}", "ab", "c/d"), "https://j/ab/c%2Fd");
});

test("two spans are compared by key, and values of every kind are text", () => {
  const client = attributes([
    { key: "k", value: { stringValue: "x" } },
    { key: "same", value: { intValue: "7" } },
    { key: "list", value: { arrayValue: { values: [{ boolValue: true }, { doubleValue: 1.5 }] } } },
  ]);
  const server = attributes([
    { key: "k", value: { stringValue: "y" } },
    { key: "same", value: { intValue: 7 } },
  ]);
  assert.deepEqual(compare(client, server), [
    { name: "k", client: "x", server: "y", differs: true },
    { name: "list", client: "[true, 1.5]", server: undefined, differs: false },
    { name: "same", client: "7", server: "7", differs: false },
  ]);
  assert.equal(valueText({ kvlistValue: { values: [{ key: "a", value: { bytesValue: "AQ==" } }] } }), "{a: base64 AQ==}");
  assert.equal(valueText(null), "");
});

test("the colour ramp reaches both ends and stays within", () => {
  const stops: [number, number, number][] = [[0, 0, 0], [10, 20, 30], [255, 255, 255]];
  assert.equal(ramp(stops, 0), "rgb(0 0 0)");
  assert.equal(ramp(stops, 0.5), "rgb(10 20 30)");
  assert.equal(ramp(stops, 1), "rgb(255 255 255)");
  assert.equal(ramp(stops, 7), "rgb(255 255 255)");
});

test("charts begin where something could be recorded", () => {
  const at = (unixS: number) => [{ unix_s: unixS }] as Parameters<typeof chartStart>[0];
  assert.equal(chartStart(at(99_000), 10_000, 100_000, 1_000), 99_000);
  assert.equal(chartStart(at(50_000), 10_000, 100_000, 1_000), 50_000);
  assert.equal(chartStart(at(99_990), 10_000, 100_000, 20), 99_700);
  assert.equal(chartStart([], 10_000, 100_000, 900_000), 10_000);
});

test("times of a case are to the tenth of a second while that matters", () => {
  assert.deepEqual([0, 17.34, 119.94, 1_210.2, 90_000].map((seconds) => offset(seconds).replace(/\u202f/g, " ")), ["0.0 s", "17.3 s", "119.9 s", "20 min 10 s", "1 d 1 h"]);
});

test("a pair is slow since its first slow call, unless that came while it was still as usual", () => {
  const words = (noted: number[], usualTo?: number) => sinceWords({ opened_unix_ms: 100_000, time_line: noted.map((s) => ({ unix_ms: s * 1_000, what: "" })), ...(usualTo === undefined ? {} : { usual: { to_unix_ms: usualTo * 1_000 } }) } as CaseReport);
  assert.match(words([81, 85, 100, 103], 79) ?? "", /^Slow since [\d:]+( [AP]M)?\.$/);
  assert.match(words([60, 85, 100], 79) ?? "", /^Slow since some time between .+ and .+; the first slow call ended at .+\.$/);
  assert.match(words([81, 100]) ?? "", /or longer\.$/);
  assert.equal(words([100, 103], 79), null, "nothing was noted before it opened");
});
