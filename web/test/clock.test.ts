// Clocks and calendars that are not as one expects: a browser an hour off, a change to winter time, a range before the history.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { Coverage } from "../src/api";
import type { CaseReport } from "../src/cases_api";
import { clock } from "../src/format";
import { ahead, clockWords } from "../src/meter_clock";
import { clockChange } from "../src/range";
import { timeTicks } from "../src/ticks";
import { accessibilityProblems } from "./axe";
import { CHROMIUM, closePage, launch, says, type OpenBrowser } from "./browser";
import { api, eventually, send, startMeter, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: odd clocks in a browser: ${skip}; install the package chromium`);

const HOUR_MS = 3_600_000;
const plain = (text: string) => text.replace(/\u202f/g, " ");
let meter: RunningMeter;
let browser: OpenBrowser;

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter();
  await send(meter, Array.from({ length: 40 }, () => call("web", "cart", 5_000_000n)).flatMap((one) => [one.client, one.server]));
  browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

/** A page whose clock is off by so much. */
async function offBy(ms: number): Promise<Page> {
  const { page } = await browser.open("about:blank");
  await page.addInitScript((by) => {
    const Real = Date;
    class Off extends Real {
      constructor(...given: number[]) {
        super(...((given.length === 0 ? [Real.now() + by] : given) as [number]));
      }
      static override now(): number {
        return Real.now() + by;
      }
    }
    Object.assign(window, { Date: Off });
  }, ms);
  return page;
}

test("two clocks differ by no more than answers prove", () => {
  const date = 1_700_000_000_000;
  assert.equal(ahead(date, date + 100, date + 900), 0, "an answer within its second");
  assert.equal(ahead(date, date - 4_000, date + 200), 0, "one that took long");
  assert.equal(ahead(date, date + HOUR_MS + 100, date + HOUR_MS + 140), HOUR_MS - 900);
  assert.equal(ahead(date, date - HOUR_MS - 40, date - HOUR_MS), -HOUR_MS);
  assert.equal(clockWords(5_000), null);
  assert.match(plain(clockWords(HOUR_MS) ?? ""), /clock is 1 h ahead of the meter's/);
  assert.match(plain(clockWords(-HOUR_MS) ?? ""), /clock is 1 h behind the meter's/);
});

for (const [way, ms] of [["ahead", HOUR_MS], ["behind", -HOUR_MS]] as const) {
  test(`a browser whose clock is an hour ${way} shows the meter's time, and says so`, { skip }, async () => {
    const page = await offBy(ms);
    await page.goto(meter.page);
    await page.waitForSelector(`#clock-off:has-text('${way}')`);
    await page.waitForSelector(".timeline .bar.in");
    assert.deepEqual(await accessibilityProblems(page), []);
    // What is drawn ends now, and what came a moment ago is in it.
    await page.goto(`${meter.page}#client=web&server=cart`);
    await page.waitForSelector(".heatmap .plot canvas[aria-label*='of 40 calls']");
    await page.focus(".heatmap .plot canvas");
    await page.keyboard.press("ArrowUp");
    await says(page, ".heatmap .tip", /[1-9]\d* of 40 calls/);
    await closePage(page);
  });
}

test("on a browser an hour ahead, an undo that is due in minutes is not overdue", { skip }, async () => {
  const report = JSON.parse(readFileSync("test/recorded/experiment_running.json", "utf8")) as CaseReport;
  const experiment = report.experiments!.at(-1)!;
  const now = Date.now();
  experiment.in_force = { ...experiment.in_force!, since_unix_ms: now, until_unix_ms: now + 600_000, guard_unix_ms: now + 605_000 };
  const page = await offBy(HOUR_MS);
  await page.route(`**/api/v1/cases/${report.id}`, (route) => route.fulfill({ json: report }));
  await page.goto(`${meter.page}#case=${report.id}`);
  await says(page, ".undo", /undone in (10|\d) min/);
  assert.equal(await page.locator(".undo.bad").count(), 0);
  await closePage(page);
});

test("a range before the history shows the plot, and where the history begins", { skip }, async () => {
  const folder = await mkdtemp(join(tmpdir(), "spangap-history-"));
  // What a meter has is in its history when it ends, however short its minute was.
  const before = await startMeter("--data", folder);
  await send(before, Array.from({ length: 40 }, () => call("web", "cart", 5_000_000n)).flatMap((one) => [one.client, one.server]));
  await before.stop();
  const meter = await startMeter("--data", folder);
  try {
    const coverage = async () => (await api(meter, "coverage")) as Coverage;
    await eventually(coverage, ({ history }) => history!.steps.some((step) => step.from_unix_s !== null));
    const { page, complaints } = await browser.open(`${meter.page}#from=1000000000&to=1000003600`);
    await says(page, "#pairs .waiting", /No calls from 2001-\d\d-\d\d.*The history begins at 20/);
    await page.waitForSelector(".timeline svg");
    assert.equal(await page.locator(".empty").count(), 0, "that nobody sends is not what is wrong");
    await page.goto(`${meter.page}#client=web&server=cart&from=1000000000&to=1000003600`);
    await page.waitForSelector("#pair .waiting:has-text('No calls of this pair')");
    await page.getByRole("button", { name: "back to now" }).click();
    await page.waitForSelector("#pair .worst tbody tr");
    assert.deepEqual(complaints.filter((one) => !one.includes("404")), []);
    await closePage(page);
  } finally {
    await meter.stop();
    await rm(folder, { recursive: true });
  }
});

test("an axis over a change of clocks is labelled at whole hours of local time on both sides", () => {
  const zone = process.env["TZ"];
  process.env["TZ"] = "Europe/Berlin";
  try {
    // Clocks go back at 03:00 on 25 October 2026, and forward at 02:00 on 29 March.
    for (const day of [Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 2, 28, 23)]) {
      const from = day / 1000;
      const labels = timeTicks(from, from + 2 * 86_400, 8).map(clock);
      assert.ok(labels.length >= 7, labels.join(" "));
      assert.ok(labels.every((label) => ["00:00", "06:00", "12:00", "18:00"].includes(label)), labels.join(" "));
    }
    const week = Date.UTC(2026, 9, 21, 22) / 1000;
    assert.deepEqual(new Set(timeTicks(week, week + 7 * 86_400, 8).map(clock)), new Set(["00:00"]));
    const stretch = (from: number, to: number) => plain(clockChange({ from: from / 1000, to: to / 1000 }));
    assert.match(stretch(Date.UTC(2026, 9, 24, 22), Date.UTC(2026, 9, 25, 12)), /clocks go back by 1 h/);
    assert.match(stretch(Date.UTC(2026, 2, 28, 22), Date.UTC(2026, 2, 29, 12)), /clocks go forward by 1 h/);
    assert.equal(stretch(Date.UTC(2026, 5, 1), Date.UTC(2026, 5, 2)), "");
    const ticks = timeTicks(Date.UTC(2026, 9, 24, 23, 30) / 1000, Date.UTC(2026, 9, 25, 3) / 1000, 8);
    assert.ok(ticks.every((tick, at) => at === 0 || tick > ticks[at - 1]!), ticks.join(" "));
  } finally {
    if (zone === undefined) delete process.env["TZ"];
    else process.env["TZ"] = zone;
  }
});
