// How fast the page is over meters with much in them, in a real Chromium: 10,000 pairs, and 500 pairs over a day. Every load begins
// with an empty cache, and stands beside one of a meter with a single pair, by turns: what the machine and the browser take
// by themselves. Beside times on the clock stands CPU time, which other programs on the machine change little.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import type { CDPSession, Page } from "playwright-core";
import { CHROMIUM, launch, type OpenBrowser } from "../test/browser";
import { binary, send, startMeter, type RunningMeter, type TestSpan } from "../test/meter";
import { call } from "../test/traffic";

const PAIRS = 10_000;
const CALLS_OF_EACH = 4;
const DAY_PAIRS = 500;
const ROUNDS = Number(process.env["ROUNDS"] ?? 7);
const GOALS = { firstRowsMs: 1_000, longTaskMs: 100, bundleBytes: 300 * 1024 };
const FILLER = process.env["METER_BENCH"] ?? "../target/dist/spangap-meter-bench";

interface Row {
  what: string;
  found: string;
  goal: string;
  ok: boolean | null;
}

interface Load {
  rowsMs: number;
  /** CPU time of the page's main thread, and of the meter. */
  pageCpuMs: number;
  meterCpuMs: number;
  longest: Task;
}

/** A task of the page's main thread: by the clock, and of the CPU. */
interface Task {
  ms: number;
  cpuMs: number;
}

const rows: Row[] = [];
const median = (values: number[]) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN;
const ms = (value: number) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;
const kib = (bytes: number) => `${(bytes / 1024).toFixed(1)} KiB`;

function tell(what: string, found: string, goal = "", ok: boolean | null = null): void {
  rows.push({ what, found, goal, ok });
  console.log(`${(ok === null ? "" : ok ? "PASS" : "SHORT").padEnd(6)}${what.padEnd(64)}${found}${goal ? `   (goal ${goal})` : ""}`);
}

/** CPU time of all threads of a process. */
function cpuMs(pid: number): number {
  const folder = `/proc/${pid}/task`;
  return readdirSync(folder).reduce((sum, thread) => sum + Number(readFileSync(`${folder}/${thread}/schedstat`, "utf8").split(" ")[0]) / 1e6, 0);
}

/** Notes, in the page, when rows first stood in it. */
async function watch(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const seen = { rows: 0 };
    Object.assign(window, { seen });
    const note = () => {
      if (seen.rows === 0 && document.querySelector(".pairs tbody tr")) seen.rows = performance.now();
    };
    addEventListener("DOMContentLoaded", () => new MutationObserver(note).observe(document.documentElement, { childList: true, subtree: true }));
  });
}

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  dur?: number;
  tdur?: number;
  args: { name?: string };
}

/** Every task of the page's main thread while something is done. */
async function tasks(cdp: CDPSession, doing: () => Promise<void>): Promise<Task[]> {
  const events: TraceEvent[] = [];
  const collect = ({ value }: { value: unknown[] }) => void events.push(...(value as TraceEvent[]));
  cdp.on("Tracing.dataCollected", collect);
  await cdp.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "__metadata"] } });
  await doing();
  const done = new Promise<void>((resolve) => cdp.once("Tracing.tracingComplete", () => resolve()));
  await cdp.send("Tracing.end");
  await done;
  cdp.off("Tracing.dataCollected", collect);
  const main = new Set(events.filter((one) => one.name === "thread_name" && one.args.name === "CrRendererMain").map((one) => `${one.pid} ${one.tid}`));
  const found = events.filter((one) => one.name.endsWith("RunTask") && one.dur !== undefined && main.has(`${one.pid} ${one.tid}`));
  if (found.length === 0) throw new Error("the browser told no task of the page's main thread");
  return found.map((one) => ({ ms: (one.dur ?? 0) / 1e3, cpuMs: (one.tdur ?? 0) / 1e3 }));
}

const longest = (all: Task[]) => all.reduce((most, one) => (one.ms > most.ms ? one : most), { ms: 0, cpuMs: 0 });
const taskWords = (task: Task) => `${ms(task.ms)}, ${ms(task.cpuMs)} of CPU`;
/** Until the page has painted what it has to: a frame, and one more. */
const painted = (page: Page) => page.evaluate(() => new Promise<void>((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));

/** One load from nothing, until rows are there. */
async function load(browser: OpenBrowser, meter: RunningMeter, hash: string, until: string): Promise<Load> {
  const { page } = await browser.open("about:blank");
  const cdp = await page.context().newCDPSession(page);
  await cdp.send("Network.clearBrowserCache");
  await watch(page);
  const before = cpuMs(meter.pid);
  const all = await tasks(cdp, async () => {
    await page.goto(`${meter.page}${hash}`);
    await page.waitForFunction(() => (window as unknown as { seen: { rows: number } }).seen.rows > 0);
    await page.waitForSelector(until);
    await painted(page);
  });
  const meterCpuMs = cpuMs(meter.pid) - before;
  const rowsMs = await page.evaluate(() => (window as unknown as { seen: { rows: number } }).seen.rows);
  await page.close();
  return { rowsMs, pageCpuMs: all.reduce((sum, one) => sum + one.cpuMs, 0), meterCpuMs, longest: longest(all) };
}

/** Loads of a page and of that of a small meter, by turns. */
async function loads(browser: OpenBrowser, what: string, meter: RunningMeter, small: RunningMeter, hash: string, until: string): Promise<void> {
  const [ours, theirs]: [Load[], Load[]] = [[], []];
  for (let round = 0; round < ROUNDS; round++) {
    ours.push(await load(browser, meter, hash, until));
    theirs.push(await load(browser, small, hash, until));
  }
  const of = (all: Load[], key: "rowsMs" | "pageCpuMs" | "meterCpuMs") => median(all.map((one) => one[key]));
  const first = of(ours, "rowsMs");
  const most = Math.max(...ours.map((one) => one.rowsMs));
  const least = of(theirs, "rowsMs");
  tell(`${what}: first rows, median of ${ROUNDS}`, `${ms(first)}, at most ${ms(most)}; ${(first / least).toFixed(2)} of a meter with one pair (${ms(least)})`, `<= ${ms(GOALS.firstRowsMs)}`, first <= GOALS.firstRowsMs);
  const cpu = (all: Load[]) => `page ${ms(of(all, "pageCpuMs"))}, meter ${ms(of(all, "meterCpuMs"))}`;
  tell(`${what}: CPU time of such a load, median`, `${cpu(ours)}; with one pair: ${cpu(theirs)}`);
  const long = longest(ours.map((one) => one.longest));
  tell(`${what}: longest task while it loads`, taskWords(long), `<= ${ms(GOALS.longTaskMs)}`, long.ms <= GOALS.longTaskMs);
}

/** What a reader does, one thing after the other: how long until it is there, and the longest task of each. */
async function walk(browser: OpenBrowser, what: string, address: string, steps: [string, (page: Page) => Promise<void>][]): Promise<void> {
  const { page } = await browser.open("about:blank");
  const cdp = await page.context().newCDPSession(page);
  await page.goto(address);
  await page.waitForSelector(".pairs tbody tr");
  await painted(page);
  for (const [name, step] of steps) {
    let took = 0;
    const all = await tasks(cdp, async () => {
      const begun = performance.now();
      await step(page);
      await painted(page);
      took = performance.now() - begun;
    });
    const long = longest(all);
    tell(`${what}: ${name}`, `${ms(took)}; longest task ${taskWords(long)}`, `task <= ${ms(GOALS.longTaskMs)}`, long.ms <= GOALS.longTaskMs);
  }
  await page.close();
}

interface Answer {
  status: number;
  bytes: number;
  coding: string;
  tag: string;
  ms: number;
}

/** As it comes over the wire: `fetch` would unpack it. */
function ask(url: string, headers: Record<string, string>): Promise<Answer> {
  const begun = performance.now();
  return new Promise((resolve, reject) => {
    request(url, { headers }, (response) => {
      let bytes = 0;
      response.on("data", (part: Buffer) => (bytes += part.length));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, bytes, coding: response.headers["content-encoding"] ?? "", tag: response.headers["etag"] ?? "", ms: performance.now() - begun }));
    })
      .on("error", reject)
      .end();
  });
}

/** An answer plain, compressed, and asked for again with its tag. */
async function answers(what: string, meter: RunningMeter, path: string): Promise<void> {
  const url = `${meter.page}${path}`;
  const begun = cpuMs(meter.pid);
  const plain = await ask(url, {});
  const cpu = cpuMs(meter.pid) - begun;
  const packed = await ask(url, { "accept-encoding": "gzip, deflate, br, zstd" });
  const again = await ask(url, { "accept-encoding": "gzip, deflate, br, zstd", "if-none-match": packed.tag });
  const ok = plain.status === 200 && packed.coding === "zstd" && again.status === 304 && again.bytes === 0;
  const found = `${kib(plain.bytes)} in ${ms(plain.ms)}, ${ms(cpu)} of CPU; ${packed.coding || "not compressed"} ${kib(packed.bytes)} (1:${(plain.bytes / packed.bytes).toFixed(1)}) in ${ms(packed.ms)}; again ${again.status}, ${again.bytes} B in ${ms(again.ms)}`;
  tell(`${what}: /${path.split("?")[0]}`, found, "compressed; 304 without a body", ok);
}

async function manyPairs(): Promise<RunningMeter> {
  const meter = await startMeter();
  const service = (n: number) => `service-${String(n).padStart(3, "0")}`;
  const at = 500;
  for (let first = 0; first < PAIRS; first += at) {
    const spans: TestSpan[] = [];
    for (let n = first; n < first + at; n++) {
      for (let turn = 0; turn < CALLS_OF_EACH; turn++) {
        const { client, server } = call(service(Math.floor(n / 100)), service(100 + (n % 100)), BigInt(1_000_000 + n * 1_000 * (turn + 1)));
        spans.push(client, server);
      }
    }
    await send(meter, spans);
  }
  return meter;
}

async function dayOfPairs(folder: string): Promise<RunningMeter> {
  const written = spawnSync(FILLER, ["--write-history", folder, "--pairs", String(DAY_PAIRS), "--hours", "24"], { stdio: ["ignore", "ignore", "inherit"] });
  if (written.status !== 0) throw new Error(`${FILLER} wrote no history: build it, or name it in METER_BENCH`);
  return startMeter("--data", folder, "--history-size", "64GiB");
}

async function main(): Promise<void> {
  if (!CHROMIUM) throw new Error("no Chromium on this machine: install the package chromium");
  console.log(`${binary()}; load average ${loadavg().map((one) => one.toFixed(1)).join(" ")} before`);
  const folder = mkdtempSync(join(tmpdir(), "spangap-bench-page-"));
  const running: RunningMeter[] = [];
  const started = async (meter: Promise<RunningMeter>) => (running.push(await meter), running[running.length - 1]!);
  const browser = await launch(CHROMIUM);
  try {
    const small = await started(startMeter());
    const one = call("web", "cart", 5_000_000n);
    await send(small, [one.client, one.server]);
    const sent = await ask(small.page, { "accept-encoding": "gzip" });
    tell("the page itself, compressed as it is sent", kib(sent.bytes), `<= ${kib(GOALS.bundleBytes)}`, sent.coding === "gzip" && sent.bytes <= GOALS.bundleBytes);

    const many = await started(manyPairs());
    await loads(browser, "10,000 pairs", many, small, "", ".pairs tbody tr");
    await walk(browser, "10,000 pairs", many.page, [
      ["the next rows", async (page) => {
        await page.getByRole("button", { name: "later rows" }).click();
        await page.waitForFunction(() => document.querySelector(".pager")?.textContent?.includes("51–100"));
      }],
      ["a search", async (page) => {
        await page.keyboard.press("/");
        await page.keyboard.type("service-042 service-142");
        await page.waitForFunction(() => document.querySelectorAll(".pairs tbody tr").length === 1);
      }],
      ["rows by client", async (page) => {
        await page.goto(`${many.page}#by=client`);
        await page.waitForFunction(() => document.querySelector(".pairs tbody th")?.textContent?.includes("service-099"));
      }],
      ["the map", async (page) => {
        await page.goto(`${many.page}#show=map`);
        await page.waitForSelector(".map .edge");
      }],
      ["compared with the stretch before", async (page) => {
        await page.goto(`${many.page}#against=previous`);
        await page.waitForFunction(() => document.querySelector(".pairs thead")?.textContent?.includes("Change"));
        await page.waitForSelector(".pairs tbody tr");
      }],
    ]);
    for (const path of ["api/v1/pairs?window=15m&top=50&steps=30", "api/v1/pairs?window=15m", "api/v1/timeline?window=1h&steps=120"]) await answers("10,000 pairs", many, path);

    const day = await started(dayOfPairs(folder));
    await loads(browser, "500 pairs, 24 h", day, small, "#window=24h", ".timeline rect");
    await walk(browser, "500 pairs, 24 h", `${day.page}#window=24h`, [
      ["a pair's heatmap", async (page) => {
        await page.locator(".pairs tbody a").first().click();
        await page.waitForSelector("#pair canvas");
      }],
      ["back to all of them", async (page) => {
        await page.goBack();
        await page.waitForSelector(".pairs tbody tr");
      }],
      ["compared with the day before", async (page) => {
        await page.goto(`${day.page}#window=24h&against=previous`);
        await page.waitForFunction(() => document.querySelector(".pairs thead")?.textContent?.includes("Change"));
      }],
    ]);
    const pair = "client=client-service-0&server=server-service-0";
    for (const path of ["api/v1/pairs?window=24h&top=50&steps=30", "api/v1/timeline?window=24h&steps=120", `api/v1/pair?${pair}&window=24h`, `api/v1/worst?${pair}&window=24h&limit=50`]) await answers("500 pairs, 24 h", day, path);
  } finally {
    await browser.close();
    for (const meter of running) await meter.stop();
    rmSync(folder, { recursive: true, force: true });
  }
  console.log(`load average ${loadavg().map((one) => one.toFixed(1)).join(" ")} after`);
  const json = process.argv.indexOf("--json");
  if (json > 0) writeFileSync(process.argv[json + 1] ?? "page.json", JSON.stringify(rows, null, 2));
}

await main();
