// What `spangap tank --html` writes, in a real browser, over reports of every shape; and what it says in words.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { rate, time } from "../src/tank/figures";
import { linearOf } from "../src/tank/load";
import type { TankReport } from "../src/tank/report";
import { spectrum } from "../src/tank/single";
import { directions, median, spread, sweeps } from "../src/tank/sweep";
import { findings, growth, measured, overRates } from "../src/tank/words";
import { accessibilityProblems, problemsInTheDark } from "./axe";
import { CHROMIUM, fits, launch, settled, type OpenBrowser, type Watched } from "./browser";
import { differences, rustShapes, structOf, typescriptShapes, violations } from "./shapes";
import { bottleneck, empty, HOSTILE, oneLoad, paradox, report, run, single, troubled } from "./tank_reports";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: the tank's page in a browser: ${skip}; install the package chromium`);

const BENCH = "../crates/bench/src";
const source = (file: string) => readFileSync(`${BENCH}/${file}`, "utf8");
const RUST = source("report/mod.rs") + structOf(source("report/findings/mod.rs"), "RunFinding") + structOf(source("distribution.rs"), "Quantiles") + structOf(source("otlp/mod.rs"), "SpanCounts");
const TYPES = readFileSync("src/tank/report.ts", "utf8");

/** What every instrument says in one shape, for programs that judge: the page has the findings in its own. */
const FOR_PROGRAMS = "#[serde(skip_deserializing)]\n    pub evidence: Testimony,";
assert.ok(RUST.includes(FOR_PROGRAMS));

/** The shapes of JSON that the page reads; Progress, beside them, is none. */
const rust = (text: string) => rustShapes(text.replace(structOf(text, "Progress"), "").replace(FOR_PROGRAMS, ""));

let folder: string;
let browser: OpenBrowser;

/** Opens the page of a report from a file, as users do. */
async function open(name: string, of: TankReport): Promise<Watched> {
  const file = join(folder, `${name}.html`);
  const json = JSON.stringify(of).replaceAll("<", "\\u003c");
  writeFileSync(file, readFileSync("dist/tank.html", "utf8").replace("/*REPORT*/", () => json));
  const watched = await browser.open(`file://${file}`);
  await settled(watched.page);
  return watched;
}

const plain = (text: string | null) => (text ?? "").replace(/\u202f|(?<=\d),(?=\d{3})/g, "");

/** Moves a chart's cursor to a place by keyboard and reads what its legend says. */
async function readChart(page: Page, section: string, at: string): Promise<Map<string, string>> {
  const chart = page.locator(`${section} .chart`).first();
  await chart.locator(".plot").focus();
  await page.keyboard.press("Home");
  for (let i = 0; i < 100 && plain(await chart.locator(".at").textContent()) !== at; i++) await page.keyboard.press("ArrowRight");
  assert.equal(plain(await chart.locator(".at").textContent()), at);
  const entries = await chart.locator(".legend button").evaluateAll((all) => all.map((one) => [one.textContent ?? "", one.querySelector(".value")?.textContent ?? ""] as const));
  return new Map(entries.map(([text, value]) => [plain(text).slice(0, plain(text).length - plain(value).length).trim(), plain(value)]));
}

before(async () => {
  if (!CHROMIUM) return;
  folder = mkdtempSync(join(tmpdir(), "spangap-tank-page-"));
  browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

test("report.ts has every shape of report/mod.rs and no other", () => {
  const shapes = rust(RUST);
  assert.ok(shapes.size >= 12, `only ${shapes.size} shapes were read`);
  assert.deepEqual(differences(shapes, typescriptShapes(TYPES)), []);
  const changed = RUST.replace("pub channels_made: u32,", "pub channels_made: Option<u32>,");
  assert.notEqual(changed, RUST);
  assert.equal(differences(rust(changed), typescriptShapes(TYPES)).length, 1);
});

test("the reports of these tests are of the shape that tank writes", () => {
  const shapes = typescriptShapes(TYPES);
  for (const of of [bottleneck(1), paradox(), troubled(), single(), oneLoad(), empty()]) {
    assert.deepEqual(violations(JSON.parse(JSON.stringify(of)), "TankReport", shapes), []);
  }
});

test("curves go through the medians, bands from the smallest to the largest", { skip }, async () => {
  const made = bottleneck(5);
  const { page, complaints } = await open("bottleneck", made);
  for (const load of [1, 8, 64]) {
    const shown = await readChart(page, "#throughput-inflight", `${load} in flight`);
    const delay = await readChart(page, "#latency-inflight", `${load} in flight`);
    for (const channels of ["shared", "per-worker", "distinct", "local-pool"]) {
      const runs = made.runs.filter((one) => one.channels === channels && one.inflight === load);
      assert.equal(runs.length, 5);
      const sorted = runs.map((one) => one.throughput_per_s).sort((a, b) => a - b);
      assert.equal(shown.get(channels), plain(`${rate(sorted[2]!)} (${rate(sorted[0]!)} – ${rate(sorted[4]!)})`));
      const p99 = runs.map((one) => one.latency.p99_ns!).sort((a, b) => a - b);
      assert.equal(delay.get(`${channels} p99`), plain(`${time(p99[2]!)} (${time(p99[0]!)} – ${time(p99[4]!)})`));
    }
    const floors = made.runs.filter((one) => one.inflight === load).map((one) => one.floor!.throughput_per_s);
    assert.equal(shown.get("raw floor"), plain(rate(median(floors)!)));
  }
  assert.deepEqual(complaints, []);
});

test("the linear line starts at the first point and grows in proportion", { skip }, async () => {
  assert.deepEqual(linearOf([2, 4, 8], [100, 150, 160]), [100, 200, 400]);
  assert.deepEqual(linearOf([1, 2, 4], [null, 100, 150]), [null, 100, 200]);
  const { page } = await open("linear", report([1, 2, 4].map((inflight) => run({ inflight, throughput: 1_000 * inflight ** 0.5 }))));
  const shown = await readChart(page, "#throughput-inflight", "4 in flight");
  assert.deepEqual([shown.get("throughput"), shown.get("throughput, if linear")], ["2000/s", "4000/s"]);
});

test("axes switch by keyboard, curves hide and come back", { skip }, async () => {
  const { page, complaints } = await open("switch", bottleneck(1));
  const section = page.locator("#throughput-inflight");
  const picture = () => section.locator("canvas").evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL());
  const before = await picture();
  await section.getByLabel("logarithmic").focus();
  await page.keyboard.press("ArrowLeft");
  assert.ok(await section.getByLabel("linear axes").isChecked());
  const linear = await picture();
  assert.notEqual(linear, before);
  const button = section.locator(".legend button").first();
  await button.press("Enter");
  assert.equal(await button.getAttribute("aria-pressed"), "false");
  assert.notEqual(await picture(), linear);
  await button.press("Enter");
  assert.equal(await picture(), linear);
  assert.deepEqual(complaints, []);
});

test("sweeps downward and upward are curves of their own", { skip }, async () => {
  assert.deepEqual(directions([4, 2, 1, 2, 4]), ["down", "down", "down", "up", "up"]);
  assert.deepEqual(directions([1, 2, 4, 1, 2, 4]), [null, null, null, null, null, null]);
  const { page, complaints } = await open("paradox", paradox());
  const shown = await readChart(page, "#latency-rate", "10/s");
  for (const name of ["nodelay off p50 ↓", "nodelay off p50 ↑", "nodelay on p50 ↓", "nodelay on p50 ↑"]) assert.match(shown.get(name) ?? "", /^\d/, name);
  assert.match(plain(await page.innerText("#summary")), /nodelay off: p99 falls as the rate rises: 31.9ms at 10\/s, 6.98ms at 1000\/s/);
  assert.match(await page.innerText("#summary .headline"), /^Nagle's algorithm/);
  assert.match(await page.innerText("#summary .shown"), /shown: nagle-delayed-ack \(client\)/);
  await page.locator("#summary .shown summary").focus();
  await page.keyboard.press("Enter");
  assert.match(await page.innerText("#summary .shown"), /off, 10\/s: p50 26\.3 ms[^]*Cleared by a repetition\./);
  assert.match((await readChart(page, "#lateness", "100/s")).get("nodelay on max ↑") ?? "", /^\d/);
  assert.deepEqual(complaints, []);
});

test("texts stay text, unknown figures are n/a", { skip }, async () => {
  const { page, complaints } = await open("troubled", troubled());
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.locator("script").count(), 2);
  const remarks = await page.innerText("#remarks");
  assert.ok(remarks.includes(HOSTILE), remarks);
  for (const part of ["UNAVAILABLE", "no reason given", "ended by signal 9", "stack cpp-sync", "4 rejected by the collector", "1 lost"]) assert.ok(remarks.includes(part), part);
  assert.match(plain(await page.innerText("#summary")), /1207 of 621207 calls failed/);
  const cells = await page.$$eval(".runs tbody tr:last-child td", (all) => all.map((one) => one.textContent));
  assert.ok(cells.filter((text) => text === "n/a").length > 15, cells.join());
  assert.ok(!(await page.innerText("body")).match(/NaN|undefined|Infinity/));
  assert.deepEqual(complaints, []);
});

test("one run has figures and no curve over the load", { skip }, async () => {
  const { page, complaints } = await open("single", single());
  assert.equal(await page.locator("[id^=throughput]").count(), 0);
  assert.match(plain(await page.innerText("#figures-rate")), /At 100\/s[^]*p50\n250us/);
  const shown = await readChart(page, "#seconds", "second to 5 s");
  assert.match(shown.get("OK") ?? "", /^\d+(\.\d+)?\/s$/);
  assert.match((await readChart(page, "#spectrum", "p90")).get("latency") ?? "", /^\d/);
  assert.deepEqual(complaints, []);
});

test("configurations at one load stand side by side", { skip }, async () => {
  const { page, complaints } = await open("one-load", oneLoad());
  assert.equal(await page.locator("#figures-inflight tbody tr").count(), 5);
  assert.match(await page.innerText("#summary"), /one run each, so chance is not ruled out/);
  assert.deepEqual(complaints, []);
});

test("a report without runs says so; a page without a report too", { skip }, async () => {
  const { page, complaints } = await open("empty", empty());
  assert.match(await page.innerText("#summary"), /No run was made/);
  assert.match(await page.innerText("#remarks"), /interrupted/);
  assert.deepEqual(complaints, []);
  const none = await browser.open(`file://${process.cwd()}/dist/tank.html`);
  assert.match(await none.page.innerText("#problem"), /holds no report/);
});

test("the table sorts both ways, unknown last", { skip }, async () => {
  const { page } = await open("sorted", troubled());
  const heading = page.locator(".runs thead th", { has: page.getByText("p99", { exact: true }) });
  const first = () => page.locator(".runs tbody tr:first-child td").nth(1).textContent();
  for (const order of ["descending", "ascending"]) {
    await heading.locator("button").click();
    assert.equal(await heading.getAttribute("aria-sort"), order);
    assert.equal(await first(), "go");
  }
});

test("it fits a telephone, and the dark", { skip }, async () => {
  const { page } = await open("narrow", bottleneck(2));
  await page.setViewportSize({ width: 400, height: 800 });
  await page.emulateMedia({ colorScheme: "dark" });
  await fits(page, "narrow");
  const width = await page.$eval("#throughput-inflight canvas", (canvas) => canvas.getBoundingClientRect().width);
  assert.ok(width > 300 && width <= 400, String(width));
});

test("bands let the curves below them be seen", { skip }, async () => {
  const { page } = await open("bands", bottleneck(5));
  const opaque = () =>
    page.$eval("#latency-inflight canvas", (canvas) => {
      const { data } = (canvas as HTMLCanvasElement).getContext("2d")!.getImageData(0, 0, (canvas as HTMLCanvasElement).width, (canvas as HTMLCanvasElement).height);
      let [opaque, all] = [0, 0];
      for (let at = 3; at < data.length; at += 4) {
        if (data[at]! === 255) opaque++;
        all++;
      }
      return opaque / all;
    });
  await page.waitForFunction(() => document.querySelector("#latency-inflight canvas") !== null);
  // Lines, points and letters are thin.
  assert.ok((await opaque()) < 0.06, String(await opaque()));
});

test("a screen reader and every width find nothing wrong with it", { skip }, async () => {
  for (const [name, data] of [["sound", bottleneck(2)], ["sound-single", single()]] as const) {
    const { page } = await open(name, data);
    for (const width of [390, 768, 1280, 1920]) {
      await page.setViewportSize({ width, height: 900 });
      await page.emulateMedia({ colorScheme: "light" });
      await fits(page, `${name} at ${width}`);
      assert.deepEqual(await accessibilityProblems(page), [], `${name} at ${width}, light`);
      await page.emulateMedia({ colorScheme: "dark" });
      await fits(page, `${name} at ${width}, dark`);
      assert.deepEqual(await problemsInTheDark(page), [], `${name} at ${width}, dark`);
    }
  }
});

test("sentences say what the figures bear, and no more", () => {
  const sweep = (throughputs: number[]) => sweeps(throughputs.map((throughput, i) => run({ inflight: 2 ** i, throughput })))[0]!.configurations[0]!;
  assert.match(growth(sweep([1_000, 1_900, 2_000, 2_010]))!, /stops growing at 4 in flight .*; at 8 it is .*, 25\.1.% of/);
  assert.match(growth(sweep([1_000, 1_900, 3_600]))!, /still grows at 4 in flight/);
  assert.equal(growth(sweep([1_000])), null);
  assert.equal(growth(sweep([0, 0])), null);
  const noisy = [1, 2, 4].flatMap((inflight) => [500, 1_500].map((throughput, repeat) => run({ inflight, repeat, throughput: throughput + inflight })));
  assert.match(growth(sweeps(noisy)[0]!.configurations[0]!)!, /differ too much/);
  const rivals = ["shared", "distinct"].flatMap((channels, i) => [900, 1_500].map((throughput, repeat) => run({ channels, inflight: 4, repeat, throughput: throughput + 200 * i })));
  assert.match(findings(report(rivals)).join(" "), /At 4 in flight configurations differ no more than their repetitions do/);
  const rates = (p50s: number[]) => sweeps(p50s.map((p50, i) => run({ ratePerS: 10 ** (i + 1), p50, tail: 1 })))[0]!.configurations[0]!;
  assert.deepEqual(overRates(rates([100_000, 90_000, 80_000])), []);
  assert.equal(overRates(rates([40_000_000, 90_000, 80_000])).length, 1);
  const short = run({ ratePerS: 1_000, throughput: 700 });
  assert.match(overRates(sweeps([run({ ratePerS: 10 }), short])[0]!.configurations[0]!).join(), /asked.*700\/s returned OK/);
  const shared = report([run({ inflight: 1, channels: "per-worker" }), run({ inflight: 4, channels: "per-worker", channelsMade: 4, connections: 1 })]);
  assert.match(findings(shared).join(" "), /4 channels made, 1 connection opened/);
  assert.match(measured(paradox()), /, swept both ways, once each\.$/);
  assert.match(measured(bottleneck(5)), /, 5 times each\.$/);
  assert.match(measured(shared), /^2 runs of 10.*by cpp-async, channels per-worker, with 1 to 4 in flight, once each\.$/);
});

test("repetitions without a figure have no median", () => {
  const [a, b] = [run({ repeat: 0 }), run({ repeat: 1 })];
  assert.deepEqual(spread([a, { ...b, cpu_target_s: null }], (one) => one.cpu_target_s), { median: null, low: null, high: null });
  assert.equal(spectrum([{ run: { ...a, spectrum: [] }, label: "", colour: 0 }]), null);
});
