// The case and the call views on what a meter really answered: `recorded/` holds its answers about a case that opened by itself
// in `spangap demo --auto --fault stopped`, and about one of the calls that its verdict rests on.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { casesOf, fromCase } from "../src/call";
import type { CaseReport } from "../src/cases_api";
import type { WholeReport } from "../src/whole_api";
import { legKind, legWords, sumWords, verdictWords } from "../src/whole_words";
import type { OtlpSide } from "../src/otlp";
import { statusOf } from "../src/spans";
import { accessibilityProblems } from "./axe";
import { CHROMIUM, fits, launch, says, type OpenBrowser } from "./browser";
import { startMeter, type RunningMeter } from "./meter";

const recorded = <T>(name: string) => JSON.parse(readFileSync(`test/recorded/${name}.json`, "utf8")) as T;
const CASE = recorded<CaseReport>("case");
const CALLS = recorded<WholeReport>("call");
const CALL = CALLS.calls[0]!;
const plain = (text: string) => text.replace(/\u202f/g, " ");

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: recorded answers in a browser: ${skip}; install the package chromium`);

test("a call in words: what held it up, and legs that add up to it", () => {
  assert.equal(plain(verdictWords(CALL)), "stopped (server) took 98.0 ms of it, 80 %.");
  assert.match(plain(sumWords(CALL)), /^123 ms = 106 ms \(server: wire to application\) \+ 14\.6 ms \(server: application\) \+ 1\.88 ms \(7 other legs\)$/);
  assert.equal(CALL.legs.reduce((sum, leg) => sum + leg.ns, 0), CALL.duration_ns);
  assert.match(verdictWords({ ...CALL, findings: [] }), /^Nothing that was recorded shows/);
  assert.equal(legWords("server_host_in+server_app+server_host_out"), "server: wire to application … application to wire");
  assert.deepEqual(["client_send", "request_wire", "server_app+server_host_out", "request_wire+server_host_in"].map(legKind), ["client", "wire", "server", "mixed"]);
});

test("a call that the meter has forgotten is the same one by its case", () => {
  const call = fromCase(CALLS, CALL, CASE)!;
  assert.deepEqual([call.client, call.server, call.client_host, call.client_ns - call.server_ns - call.gap_ns], ["tank", "target", "vm", 0]);
  assert.ok(call.client_span && call.server_span);
  assert.equal(call.status, "OK", "by the span, where the capture has headers alone");
  const ended = (...pairs: [string, object][]) => statusOf({ resource: null, span: { attributes: pairs.map(([key, value]) => ({ key, value })) } } as unknown as OtlpSide);
  assert.deepEqual([ended(["rpc.grpc.status_code", { intValue: "4" }]), ended(["http.response.status_code", { intValue: "503" }]), ended()], ["DEADLINE_EXCEEDED", "http_5xx", null]);
  assert.deepEqual(casesOf([CASE], call), [CASE.id]);
  assert.deepEqual(casesOf([CASE], { ...call, start_unix_ns: call.start_unix_ns + 3_600e9 }), [], "an hour later it is another story");
  assert.deepEqual(casesOf([CASE], { ...call, server: "other" }), []);
});

let meter: RunningMeter;
let browser: OpenBrowser;
let page: Page;
let complaints: string[];
let answered = CALLS;

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter("--trace-url", "https://jaeger.example/trace/{trace_id}?span={span_id}");
  browser = await launch(CHROMIUM);
  ({ page, complaints } = await browser.open("about:blank"));
  await page.route(/\/api\/v1\/cases/, (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname.endsWith(`/calls/${CALL.trace_id}`)) return route.fulfill({ json: answered });
    const { hunt: _, files: __, time_line: ___, ...row } = CASE;
    return route.fulfill({ json: pathname.endsWith(CASE.id) ? CASE : { cases: [row] } });
  });
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

test("the sheet of a real verdict has the shares that the verdict says", { skip }, async () => {
  await page.goto(`${meter.page}#case=${CASE.id}`);
  await says(
    page,
    "#case",
    /Of the time of all 600 calls, 11\.8 ms each, stopped \(server\) owns 65 %/,
    /90 % interval/,
    /stopped \(server\)\s+65\.0 % \(57\.8 % – 71\.8 %\)\s+7\.65 ms/,
    /Do: Find who sends SIGSTOP[^]*Predicted: 7\.65 ms less for each call, on average \(6\.80–8\.44, 90 % interval\): the 65\.0 % that stopped \(server\) has/,
    /Calls: 600 calls were recorded, by spans or packets; all of them with packets; [^]*77 of them show stopped \(server\)\./,
    /100 % of the time of those examined has an owner or a leg/,
    /Did it help: nothing was tried yet\. try the remedy…/,
    /the rest: \d+ of less than 1 % each/,
    /an interval reaches below 0 %, it may be none of it/,
    /sending the request\s+4\.40 % \(−0\.60\d? % – 9\.40 %\)/,
    /34 suspects that would have shown/,
    /client p99\s+14\.9 ms\s+115 ms/,
    /because the pair became slower than it usually is/,
    /one cause/,
    /asked 3d1219c7…\w{6}, the client's host/,
  );
  const widths = await page.$$eval(".sheet tbody .mid", (bars) => bars.map((bar) => Number(bar.getAttribute("width"))));
  assert.ok(Math.abs(widths[0]! - 65) < 1, `${widths}`);
  assert.equal(await page.locator(".suspects tbody tr").count(), 8);
  await page.click("text=all 34");
  assert.equal(await page.locator(".suspects tbody tr").count(), 34);
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("from the verdict to a call: both hosts on one axis, and what held it up", { skip }, async () => {
  await page.click(".calls-of a");
  await page.waitForSelector(".whole svg");
  const parts = [/stopped \(server\) took 98\.0 ms of it, 80 %\. Over all calls, its case names stopped \(server\)\./, /client tap[^]*legs[^]*server tap[^]*SERVER span/, /was stopped for 98\.0 ms/, /which may be off by ± 2\.59 us/, /CLIENT span[^]*network\.peer\.port/];
  await says(page, "#call", ...parts);
  // The stopped thread is drawn over as much of the axis as it was stopped.
  const stopped = await page.$$eval(".doing.stopped", (bars) => Math.max(...bars.map((bar) => Number(bar.getAttribute("width")))));
  const client = Number(await page.getAttribute(".span-client", "width"));
  const took = CALL.tracks.flatMap((track) => track.pieces).filter((piece) => piece.doing === "stopped").reduce((most, piece) => Math.max(most, piece.to_ns - piece.from_ns), 0);
  assert.ok(Math.abs(stopped / client - took / CALL.duration_ns) < 0.02, `${stopped} of ${client}`);
  assert.equal(await page.locator(".packet").count(), CALL.ladder!.packets.length);
  await page.locator(".doing.stopped").first().click();
  assert.match(await page.innerText(".chosen"), /was stopped for/);
  // Zoomed in, what is drawn is longer.
  await page.focus(".whole-drawing");
  await page.keyboard.press("+");
  await page.waitForFunction((was) => Math.max(...[...document.querySelectorAll(".doing.stopped")].map((bar) => Number(bar.getAttribute("width")))) !== was, stopped);
  await page.keyboard.press("0");
  assert.equal(await page.getAttribute(".out", "href"), `https://jaeger.example/trace/${CALL.trace_id}?span=${CALL.span_id}`);
  assert.equal(await page.innerText(".out"), "jaeger.example ↗");
  assert.equal(await page.getAttribute("a:has-text('Perfetto')", "href"), `/api/v1/cases/${CASE.id}/calls/${CALL.trace_id}/perfetto`);
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.keyboard.press("Escape");
  await page.waitForSelector("#case .sheet");
});

test("a call whose spans the case does not have says so, and shows what was recorded", { skip }, async () => {
  const { client_span: _, server_span: __, ...bare } = CALL;
  answered = { ...CALLS, spans: [[], []], calls: [bare] };
  await page.goto("about:blank");
  await page.goto(`${meter.page}#case=${CASE.id}&trace_id=${CALL.trace_id}&client_span_id=${CALL.span_id}`);
  await says(page, "#call", /Its spans are not among those that the case took[^]*client tap/);
  assert.equal(await page.locator(".packet").count(), CALL.ladder!.packets.length);
  assert.equal(await page.locator(".span-client").count(), 0);
  assert.deepEqual(await accessibilityProblems(page), []);
  answered = CALLS;
  await page.goto("about:blank");
});

test("both views fit a phone and a tablet, light and dark", { skip }, async () => {
  for (const width of [390, 768, 1280]) {
    await page.setViewportSize({ width, height: 844 });
    for (const scheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const [view, wait] of [[`case=${CASE.id}`, "#case .sheet"], [`case=${CASE.id}&trace_id=${CALL.trace_id}&client_span_id=${CALL.span_id}`, ".whole svg"]] as const) {
        await page.goto(`${meter.page}#${view}`);
        await page.waitForSelector(wait);
        await fits(page, `${view} at ${width}`);
        // No label stands on another, and no share is out of sight.
        const edges = (selector: string) => page.$$eval(selector, (all) => all.map((one) => one.getBoundingClientRect()).map(({ left, right }) => [left, right] as const));
        const ticks = await edges(".whole .tick");
        for (const [at, [left]] of ticks.entries()) assert.ok(at === 0 || left >= ticks[at - 1]![1], `tick ${at} at ${width}: ${JSON.stringify(ticks)}`);
        for (const [, right] of await edges(".sheet .number, .suspects td, .packets td")) assert.ok(right <= width, `${right} at ${width}`);
        assert.deepEqual((await page.$$eval(".whole .label", (all) => all.map((one) => one.lastChild?.textContent ?? ""))).filter((label) => label.includes("…") && label.length < 27), []);
        assert.deepEqual(await accessibilityProblems(page), [], `${view} at ${width}, ${scheme}`);
      }
    }
  }
});

test("nothing was complained about", { skip }, () => {
  assert.deepEqual(complaints.filter((text) => !text.startsWith("request to")), []);
});
