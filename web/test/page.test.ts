// The page in a real browser, over a real meter, fed with real OTLP.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { CallReport, Coverage, PairOverTime, PairsReport, WorstReport } from "../src/api";
import { become, CHROMIUM, launch, says, type OpenBrowser, type Watched } from "./browser";
import { api, eventually, send, startMeter, type RunningMeter } from "./meter";
import { typescriptShapes, violations } from "./shapes";
import { call, HOSTILE, traffic } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: the page in a browser: ${skip}; install the package chromium`);

const TRAFFIC = traffic();
const WINDOW = { window: "15m" };
let meter: RunningMeter;
let browser: OpenBrowser;
let watched: Watched;
let page: Page;

const coverageWhen = (wanted: (coverage: Coverage) => boolean) => eventually(async () => (await api(meter, "coverage")) as Coverage, wanted);

/** Waits until a canvas shows more than a few colours: a drawing, and not its ground alone. */
const isDrawn = (target: Page, selector: string) =>
  target.waitForFunction((selector) => {
    const canvas = document.querySelector<HTMLCanvasElement>(selector);
    if (!canvas || canvas.width === 0) return false;
    const { data } = canvas.getContext("2d")!.getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size > 8;
  }, selector);

const plain = (text: string) => text.replace(/\u202f|(?<=\d),(?=\d{3})/g, "");
const ROWS = ".pairs tbody th";

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter("--join-ttl", "2s");
  browser = await launch(CHROMIUM);
  watched = await browser.open(meter.page);
  page = watched.page;
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

test("the page served is the one that was built, under a strict policy", { skip }, async () => {
  const response = await fetch(meter.page);
  assert.equal(await response.text(), readFileSync("dist/index.html", "utf8"), "the binary holds another page than web/dist: build it again");
  assert.match(response.headers.get("content-security-policy") ?? "", /default-src 'none'.*script-src 'sha256-/);
  const again = await fetch(meter.page, { headers: { "if-none-match": response.headers.get("etag") ?? "" } });
  assert.equal(again.status, 304);
});

test("before the first span it says what it waits for and where to send", { skip }, async () => {
  await page.waitForSelector(".empty dl");
  const text = await says(page, ".empty", /No span has come yet: waiting for the first/, /OTEL_EXPORTER_OTLP_ENDPOINT/);
  // Its own ports, which are not the default ones.
  for (const [protocol, endpoint] of [["grpc", meter.otlpGrpc], ["http/protobuf", meter.otlpHttp]]) {
    assert.ok(text.includes(`OTEL_EXPORTER_OTLP_PROTOCOL=${protocol} OTEL_EXPORTER_OTLP_ENDPOINT=${endpoint}`), text);
  }
});

test("pairs appear by themselves, most time lost first", { skip }, async () => {
  await send(meter, TRAFFIC.spans);
  await coverageWhen((coverage) => coverage.spans.expired_client_only === TRAFFIC.lonely);
  const report = (await api(meter, "pairs", WINDOW)) as PairsReport;
  assert.deepEqual(report.pairs.map((row) => `${row.client} → ${row.server}`), TRAFFIC.pairs);
  await become(page, ROWS, TRAFFIC.pairs);
});

test("names stay text", { skip }, async () => {
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.title(), "spangap");
});

test("coverage is in sight and as the API has it", { skip }, async () => {
  const coverage = await coverageWhen((one) => one.spans.pending === 0);
  // Of a meter by itself: what other meters have to do with is not shown.
  const { apart, unresolved, ...spans } = coverage.spans;
  assert.deepEqual([apart, unresolved], [0, 0]);
  assert.equal(spans.received, TRAFFIC.spans.length);
  assert.equal(spans.duplicate, TRAFFIC.duplicates);
  assert.equal(spans.malformed, TRAFFIC.malformed);
  assert.equal(spans.root, TRAFFIC.roots);
  // What is shown may be of before the last spans were given up.
  await page.waitForFunction((all) => all.every(([key, n]) => document.querySelector(`[data-count=${key}]`)?.textContent?.replace(/\D/g, "") === n), Object.entries(spans).map(([key, n]) => [key, String(n)] as const));
  const shown = await page.$$eval("[data-count]", (all) => all.map((one) => [one.getAttribute("data-count"), one.textContent] as const));
  const figures = Object.fromEntries(shown.map(([key, text]) => [key, plain(text)]));
  for (const [key, n] of Object.entries(spans)) assert.equal(figures[key], String(n), key);
  assert.equal(figures["refused_requests"], String(coverage.refused_requests));
  assert.ok(Math.abs(parseFloat(figures["match_ratio"]!) / 100 - coverage.match_ratio!) < 0.001, figures["match_ratio"]);
  const remarks = plain(await page.innerText(".findings"));
  assert.match(remarks, /No CLIENT span of lonely has found its SERVER span \(30 of 30\)/);
  assert.match(remarks, /2 that end before they start/);
});

test("columns sort both ways and say so", { skip }, async () => {
  const heading = page.locator(".pairs thead th", { has: page.getByRole("button", { name: "Gap p50" }) });
  await heading.locator("button").click();
  await page.waitForFunction(() => location.hash.includes("sort=gap_p50"));
  await page.waitForSelector(".pairs thead th[aria-sort=descending]:has-text('Gap p50')");
  assert.equal(await heading.getAttribute("aria-sort"), "descending");
  await heading.locator("button").click();
  await page.waitForFunction((last) => document.querySelector(".pairs tbody th")?.textContent === last, TRAFFIC.pairs.at(-1));
  assert.equal(await heading.getAttribute("aria-sort"), "ascending");
  await become(page, ROWS, [...TRAFFIC.pairs].reverse());
  await page.locator(".pairs thead button", { hasText: "Time lost" }).click();
  await page.waitForFunction((first) => document.querySelector(".pairs tbody th")?.textContent === first, TRAFFIC.pairs[0]);
});

test("a pair opens by keyboard: over time, as heatmap, with what is counted apart", { skip }, async () => {
  await page.focus(".pairs tbody tr:first-child a");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#pair .content:not([hidden])");
  await isDrawn(page, ".timeseries canvas");
  const plot = ".heatmap .plot canvas";
  await isDrawn(page, plot);

  const pair = (await api(meter, "pair", { client: "front", server: HOSTILE, ...WINDOW })) as PairOverTime;
  const calls = pair.heatmap.counts.flat().reduce((sum, n) => sum + n, 0);
  assert.equal(calls, 120);
  assert.match(plain((await page.getAttribute(plot, "aria-label")) ?? ""), /of 120 calls/);

  // The tip of the busiest cell tells its bucket and its count.
  await page.focus(plot);
  await page.keyboard.press("ArrowUp");
  await says(page, ".heatmap .tip", /^\d.* – \d.*\n+\d+ of 120 calls/);

  await says(page, ".apart", /negative gap\s+3/, /DEADLINE_EXCEEDED\s+3/);
  const distributions = await says(page, ".distributions", /mate delay/);
  assert.equal(/request leg/.test(distributions), pair.total.request_leg !== undefined);
});

test("worst calls have their trace ids, and one shows both spans whole", { skip }, async () => {
  await page.waitForSelector(".worst .id");
  const shown = await page.$$eval(".worst .id", (links) => links.map((link) => link.textContent));
  const wanted = TRAFFIC.worst.slice(0, 5).map((one) => one.traceId);
  assert.deepEqual(shown.slice(0, 5), wanted);
  await page.locator(".worst .copy").first().click();
  await page.waitForFunction(() => document.querySelector(".worst .copy")?.textContent === "copied");
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), wanted[0]);

  await page.locator(".worst .id").first().click();
  await page.waitForSelector("table.spans");
  const rows = await page.$$eval("table.spans tbody tr:not(.group)", (all) =>
    all.map((row) => ({ cells: [...row.children].map((cell) => cell.textContent ?? ""), differs: row.classList.contains("differs") })),
  );
  const row = (name: string) => rows.find(({ cells }) => cells[0]?.startsWith(name));
  assert.deepEqual(row("only.client")?.cells.slice(1), ["<b>bold</b>", "–"]);
  assert.deepEqual(row("only.server")?.cells.slice(1), ["–", "there"]);
  assert.deepEqual(row("shared"), { cells: ["shared", "same", "same"], differs: false });
  assert.deepEqual(row("differs")?.cells.slice(1), ["here", "elsewhere"]);
  assert.equal(row("differs")?.differs, true);
  assert.deepEqual(row("host.name")?.cells.slice(1), ["node-a", "node-b"]);
  assert.deepEqual(row("duration")?.cells.slice(1).map(plain), ["144ms", "20.0ms"]);
});

test("a shared address shows the same view, in the dark too", { skip }, async () => {
  const dark = await launch(CHROMIUM!, "dark");
  try {
    const call = page.url();
    const other = await dark.open(call);
    await other.page.waitForSelector("table.spans");
    await other.page.goto(call.replace(/&trace_id=.*/, ""));
    await other.page.waitForSelector(".heatmap .plot canvas[aria-label]");
    assert.equal(await other.page.innerText("#pair h2"), TRAFFIC.pairs[0]);
    await isDrawn(other.page, ".heatmap .plot canvas");
    const [light, black] = await Promise.all([page, other.page].map((one) => one.evaluate(() => getComputedStyle(document.body).backgroundColor)));
    assert.notEqual(light, black);
    assert.deepEqual(other.complaints, []);
  } finally {
    await dark.close();
  }
});

test("Escape goes back, step by step", { skip }, async () => {
  await page.keyboard.press("Escape");
  await page.waitForSelector("table.spans", { state: "detached" });
  await page.keyboard.press("Escape");
  await page.waitForSelector("#pair", { state: "hidden" });
});

test("new calls come in without a reload and leave the focus where it is", { skip }, async () => {
  await page.focus(".pairs tbody tr:nth-child(2) a");
  await send(meter, Array.from({ length: 11 }, () => call("checkout", "payment", 3_000_000n)).flatMap((one) => [one.client, one.server]));
  await page.waitForFunction(() => document.querySelector(".pairs tbody tr:nth-child(2) td")?.textContent === "91");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "checkout → payment");
});

test("every answer of the API is of its shape", { skip }, async () => {
  const shapes = typescriptShapes(readFileSync("src/api.ts", "utf8"));
  const pair = { client: "front", server: HOSTILE, ...WINDOW };
  const worst = (await api(meter, "worst", { ...pair, limit: "3" })) as WorstReport;
  assert.equal(worst.calls.length, 3);
  const one = worst.calls[0]!;
  const report = (await api(meter, "call", { trace_id: one.trace_id, client_span_id: one.client_span_id })) as CallReport;
  const answers: [string, unknown][] = [
    ["PairsReport", await api(meter, "pairs", WINDOW)],
    ["PairOverTime", await api(meter, "pair", pair)],
    ["WorstReport", worst],
    ["CallReport", report],
    ["Coverage", await api(meter, "coverage")],
    ["Timeline", await api(meter, "timeline", WINDOW)],
    ["Changes", await api(meter, "changes")],
    ["PairsReport", await api(meter, "pairs", { ...WINDOW, against_from: "600", against_to: "1200", steps: "10", by: "client", sort: "change", top: "2" })],
  ];
  for (const [type, answer] of answers) assert.deepEqual(violations(answer, type, shapes), [], type);
  const wrong = await fetch(`${meter.page}api/v1/call?trace_id=zz&client_span_id=1`);
  assert.ok(wrong.status >= 400 && wrong.status < 500, `${wrong.status}`);
  assert.deepEqual(violations(await wrong.json(), "ApiError", shapes), []);
  for (const query of ["from=yesterday", "window=15parsecs", "from=9&to=3", "sort=beauty", "by=colour", "top=-1", "against_from=5", "windw=1h"]) {
    const refused = await fetch(`${meter.page}api/v1/pairs?${query}`);
    assert.equal(refused.status, 400, query);
    assert.deepEqual(violations(JSON.parse(await refused.text()), "ApiError", shapes), [], query);
  }
});

test("nothing was complained about and no other host was asked", { skip }, () => {
  assert.deepEqual(watched.complaints, []);
});

test("when the meter is gone the page says so and keeps the last answer", { skip }, async () => {
  await meter.stop();
  await page.waitForSelector("#problem:not([hidden])");
  await says(page, "#problem", /meter does not answer.*last answer/);
  await become(page, ROWS, TRAFFIC.pairs);
});
