// Ten thousand pairs, a slow link, and a meter that goes away and comes back.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { Coverage } from "../src/api";
import { CHROMIUM, closePage, launch, type OpenBrowser } from "./browser";
import { startLink } from "./link";
import { api, ownAddress, send, startMeter, startMeterAt, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: large fleets in a browser: ${skip}; install the package chromium`);

const PAIRS = 10_000;
const AT_ONCE = 1_000;
/** A page of rows, and what surrounds it, however many pairs there are. */
const MOST_ELEMENTS = 6_000;
let meter: RunningMeter;
let browser: OpenBrowser;
let page: Page;

const service = (n: number) => `service-${String(n).padStart(3, "0")}`;

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter();
  for (let first = 0; first < PAIRS; first += AT_ONCE) {
    const calls = Array.from({ length: AT_ONCE }, (_, i) => first + i).map((n) => call(service(Math.floor(n / 100)), service(100 + (n % 100)), BigInt(1_000_000 + n * 1_000)));
    await send(meter, calls.flatMap((one) => [one.client, one.server]));
  }
  browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

test("of ten thousand pairs one page is in the document, and the others are a page away", { skip }, async (t) => {
  const coverage = (await api(meter, "coverage")) as Coverage;
  assert.equal(coverage.spans.joined, 2 * PAIRS);
  const watched = await browser.open("about:blank");
  page = watched.page;
  await page.addInitScript(() => {
    const seen = window as unknown as { longTasks: number[] };
    seen.longTasks = [];
    new PerformanceObserver((list) => seen.longTasks.push(...list.getEntries().map((one) => one.duration))).observe({ type: "longtask", buffered: true });
  });
  await page.goto(meter.page);
  await page.waitForSelector(".pairs tbody tr");
  const first = await page.evaluate(() => performance.now());
  assert.equal(await page.locator(".pairs tbody tr").count(), 50);
  assert.match((await page.innerText(".pager")).replace(/\u202f|(?<=\d),(?=\d{3})/g, ""), /1–50 of 10000/);
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(elements < MOST_ELEMENTS, `${elements} elements`);
  assert.equal(await page.locator(".pairs tbody tr:first-child th").textContent(), `${service(99)} → ${service(199)}`);
  await page.getByRole("button", { name: "later rows" }).click();
  await page.waitForFunction(() => document.querySelector(".pager")?.textContent?.includes("51–100"));
  assert.match(page.url(), /page=2/);
  await page.goBack();
  await page.keyboard.press("/");
  await page.keyboard.type("service-042 service-142");
  await page.waitForFunction(() => document.querySelectorAll(".pairs tbody tr").length === 1);
  await page.goto(`${meter.page}#show=map`);
  await page.waitForSelector(".map .edge");
  assert.ok((await page.locator(".map .edge").count()) <= 40);
  const long = await page.evaluate(() => (window as unknown as { longTasks: number[] }).longTasks);
  // How fast this is depends on what else the machine does: told, and not judged.
  t.diagnostic(`first rows after ${first.toFixed(0)} ms; tasks over 50 ms: ${long.map((ms) => ms.toFixed(0)).join(", ") || "none"}; ${elements} elements`);
  assert.deepEqual(watched.complaints.filter((text) => !text.startsWith("request to")), []);
});

test("over a slow link the page says that it loads, and then has everything", { skip }, async () => {
  const link = await startLink(meter);
  // What is waited for here comes when it is let through, so that each state is there for as long as it takes to be seen.
  const script = link.hold("/", '<script type="module">');
  const pairs = link.hold("/api/v1/pairs");
  const { page: slow } = await browser.open("about:blank");
  const cdp = await slow.context().newCDPSession(slow);
  await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 300, downloadThroughput: 200_000, uploadThroughput: 200_000 });
  await slow.goto(link.page, { waitUntil: "commit" });
  // Its words come before its script, which takes longer.
  await slow.waitForSelector("text=Loading this page…");
  assert.equal(await slow.locator("#top").count(), 0);
  script.release();
  await slow.waitForSelector("text=Loading the pairs…");
  assert.doesNotMatch(await slow.innerText("body"), /Loading this page…/);
  await pairs.waiting();
  assert.equal(await slow.locator(".pairs tbody tr").count(), 0);
  pairs.release();
  await slow.waitForSelector(".pairs tbody tr");
  assert.doesNotMatch(await slow.innerText("body"), /Loading the pairs…/);
  const [before, opened] = await slow.evaluate(() => [document.querySelector("main")?.getAttribute("data-refreshed"), performance.timeOrigin] as const);
  // Of a pair that is there already: these are as many as the meter keeps.
  await send(meter, [call(service(0), service(100), 2_000_000_000n)].flatMap((one) => [one.client, one.server]));
  await slow.waitForFunction((pair) => document.querySelector(".pairs tbody th")?.textContent === pair, `${service(0)} → ${service(100)}`);
  await slow.waitForFunction((was) => document.querySelector("main")?.getAttribute("data-refreshed") !== was, before);
  assert.equal(await slow.evaluate(() => performance.timeOrigin), opened, "it came without a reload");
  await closePage(slow);
  await link.close();
});

test("what comes while an answer is on its way is asked for once the answer is there", { skip }, async () => {
  const link = await startLink(meter);
  const pairs = link.hold("/api/v1/pairs");
  const { page: slow } = await browser.open(link.page);
  // The answer has left the meter, and does not have what comes now.
  await pairs.waiting();
  const asked = slow.waitForResponse((response) => response.url().includes("/api/v1/changes?since="));
  await send(meter, [call(service(1), service(101), 3_000_000_000n)].flatMap((one) => [one.client, one.server]));
  await asked;
  pairs.release();
  await slow.waitForFunction((pair) => document.querySelector(".pairs tbody th")?.textContent === pair, `${service(1)} → ${service(101)}`);
  await closePage(slow);
  await link.close();
});

test("a meter that goes away keeps the last answer in sight, and is followed again when it is back", { skip }, async () => {
  const first = await startMeterAt(`${ownAddress()}:0`);
  const address = new URL(first.page).host;
  await send(first, [call("web", "cart", 5_000_000n)].flatMap((one) => [one.client, one.server]));
  const { page: patient } = await browser.open(first.page);
  await patient.waitForSelector(".pairs tbody tr");
  await first.stop();
  await patient.waitForSelector("#problem:not([hidden])");
  assert.equal(await patient.innerText("#freshness"), "trying again");
  assert.equal(await patient.locator(".pairs tbody tr").count(), 1);
  const second = await startMeterAt(address);
  try {
    await send(second, [call("cart", "redis", 5_000_000n)].flatMap((one) => [one.client, one.server]));
    await patient.waitForSelector("#problem", { state: "hidden" });
    await patient.waitForFunction(() => document.querySelector(".pairs tbody th")?.textContent === "cart → redis");
  } finally {
    await second.stop();
    await patient.close();
  }
});
