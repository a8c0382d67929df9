// A page that was left open while its meter was replaced, and answers that it does not understand.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { accessibilityProblems } from "./axe";
import { CHROMIUM, closePage, launch, type OpenBrowser } from "./browser";
import { send, startMeter, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: meters of other versions in a browser: ${skip}; install the package chromium`);

let meter: RunningMeter;
let browser: OpenBrowser;

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter();
  await send(meter, [call("web", "cart", 5_000_000n)].flatMap((one) => [one.client, one.server]));
  browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

test("a page that its meter no longer serves says so, and loads the new one", { skip }, async () => {
  const { page } = await browser.open("about:blank");
  let tag = '"one"';
  await page.route((url) => url.pathname === "/", (route) => (route.request().method() === "HEAD" ? route.fulfill({ headers: { etag: tag } }) : route.fallback()));
  const first = page.waitForRequest((request) => request.method() === "HEAD");
  await page.goto(meter.page);
  await first;
  await page.waitForSelector(".pairs tbody tr");
  assert.equal(await page.locator("#replaced").count(), 0);
  // The meter goes away, and another one answers.
  tag = '"two"';
  await page.route("**/api/v1/changes*", (route) => route.abort(), { times: 1 });
  // A question that is under way already goes on until there is something new.
  await send(meter, [call("web", "cart", 5_000_000n)].flatMap((one) => [one.client, one.server]));
  await page.waitForSelector("#replaced");
  assert.deepEqual(await accessibilityProblems(page), []);
  tag = '"one"';
  await page.click("#replaced button");
  await page.waitForSelector("#replaced", { state: "detached" });
  await page.waitForSelector(".pairs tbody tr");
  await closePage(page);
});

test("an answer that cannot be drawn takes its view alone, and not the page", { skip }, async () => {
  const { page } = await browser.open("about:blank");
  await page.route("**/api/v1/pairs*", (route) => route.fulfill({ json: { pairs: [{ client: "a", server: "b" }], matching: {} } }));
  await page.goto(meter.page);
  await page.waitForSelector(".failed:has-text('cannot be drawn')");
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.click(".tab:has-text('Hosts')");
  await page.waitForSelector(".empty:has-text('No agent yet')");
  await page.unroute("**/api/v1/pairs*");
  await page.click(".tab:has-text('Fleet')");
  await page.waitForSelector(".pairs tbody tr");
  await closePage(page);
});
