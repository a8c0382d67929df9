// Ten thousand pairs, a slow link, and a meter that goes away and comes back.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { Coverage } from "../src/api";
import { CHROMIUM, launch, type OpenBrowser } from "./browser";
import { api, send, startMeter, startMeterAt, type RunningMeter } from "./meter";
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
  const { page: slow } = await browser.open("about:blank");
  const cdp = await slow.context().newCDPSession(slow);
  // Its words come before its script, which takes longer.
  await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 600, downloadThroughput: 20_000, uploadThroughput: 20_000 });
  // Noted by the document itself, because nothing can ask it before it has loaded.
  await slow.addInitScript(() => {
    new MutationObserver(() => {
      const isSaid = document.querySelector("#app")?.textContent === "Loading this page…";
      if (isSaid) (window as unknown as { saidSo: boolean }).saidSo = true;
    }).observe(document, { childList: true, subtree: true });
  });
  await slow.goto(meter.page, { waitUntil: "commit" });
  await slow.waitForSelector("#top");
  assert.equal(await slow.evaluate(() => (window as unknown as { saidSo?: boolean }).saidSo), true);
  await slow.waitForFunction(() => !document.body.innerText.includes("Loading this page…"));
  await cdp.send("Network.emulateNetworkConditions", { offline: false, latency: 600, downloadThroughput: 60_000, uploadThroughput: 60_000 });
  await slow.waitForSelector("text=Loading the pairs…");
  await slow.waitForSelector(".pairs tbody tr");
  const before = await slow.getAttribute("main", "data-refreshed");
  // Of a pair that is there already: these are as many as the meter keeps.
  await send(meter, [call(service(0), service(100), 2_000_000_000n)].flatMap((one) => [one.client, one.server]));
  await slow.waitForFunction((pair) => document.querySelector(".pairs tbody th")?.textContent === pair, `${service(0)} → ${service(100)}`);
  assert.notEqual(await slow.getAttribute("main", "data-refreshed"), before);
  await slow.close();
});

test("a meter that goes away keeps the last answer in sight, and is followed again when it is back", { skip }, async () => {
  const first = await startMeter();
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
