// New versions of services, on the time line of the fleet.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Annotations } from "../src/api";
import { CHROMIUM, launch, type OpenBrowser } from "./browser";
import { api, send, startMeter, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: versions in a browser: ${skip}; install the package chromium`);

let meter: RunningMeter;
let browser: OpenBrowser;

before(async () => {
  meter = await startMeter();
  if (CHROMIUM) browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

const deployed = async (version: string, host: string) => {
  const { client, server } = call("frontend", "customer", 5_000_000n);
  await send(meter, [{ ...client, version: "9" }, { ...server, version, host }]);
};

test("a version that was not there before is told, once, and the first is none", async () => {
  const begun = Date.now();
  await deployed("1.41", "node-a");
  await deployed("1.41", "node-b");
  await deployed("1.42", "node-a");
  await deployed("1.42", "node-b");
  const { versions } = (await api(meter, "annotations")) as Annotations;
  assert.deepEqual(versions.map(({ service, version, before }) => [service, version, before]), [["customer", "1.42", "1.41"]]);
  assert.ok(versions[0]!.unix_ms >= begun - 1_000 && versions[0]!.unix_ms <= Date.now() + 1_000, `${versions[0]!.unix_ms}`);
});

test("the time line of the fleet has a tick for it", { skip }, async () => {
  const { page } = await browser.open(meter.page);
  await page.waitForSelector(".annotations a:has-text('customer 1.41 → 1.42')");
  assert.equal(await page.locator("path.annotation").count(), 1);
  await page.click(".annotations a:has-text('customer 1.41 → 1.42')");
  await page.waitForFunction(() => location.hash.includes("service=customer"));
});

test("a pair has a tick and a line for what happened to its services, and none for others", { skip }, async () => {
  const { client, server } = call("frontend", "driver", 5_000_000n);
  await send(meter, [{ ...client, version: "9" }, server]);
  const { page } = await browser.open(`${meter.page}#client=frontend&server=customer`);
  await page.waitForSelector("#pair .annotations a:has-text('customer 1.41 → 1.42')");
  const ticks = () => {
    const canvas = document.querySelector<HTMLCanvasElement>(".heatmap .plot canvas")!;
    const probe = document.createElement("canvas").getContext("2d")!;
    const swatch = document.body.appendChild(document.createElement("i"));
    swatch.style.color = "var(--client)";
    probe.fillStyle = getComputedStyle(swatch).color;
    swatch.remove();
    probe.fillRect(0, 0, 1, 1);
    const wanted = new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
    // A tick crosses the whole plot: it is in its topmost row of pixels, where no call is.
    const row = new Uint32Array(canvas.getContext("2d")!.getImageData(0, Math.round(12 * devicePixelRatio), canvas.width, 1).data.buffer);
    return row.filter((one) => one === wanted).length;
  };
  await page.waitForFunction(ticks);
  await page.goto(`${meter.page}#client=frontend&server=driver`);
  await page.waitForSelector("#pair h2:has-text('driver')");
  await page.waitForSelector(".heatmap .plot canvas[aria-label*='of 1 calls']");
  assert.equal(await page.locator("#pair .annotations").count(), 0);
  assert.equal(await page.evaluate(ticks), 0);
});
