// Experiments on the view of a case: `recorded/experiment*.json` are what a meter answered of a case whose experiment ran on two
// hosts. What it answers later, and to the buttons, is put in its mouth.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import type { Page, Route } from "playwright-core";
import type { CaseReport } from "../src/cases_api";
import type { ExperimentReport, PlanReport } from "../src/experiment_api";
import { planFacts, progressWords, undoWords } from "../src/experiment_words";
import { accessibilityProblems } from "./axe";
import { CHROMIUM, fits, launch, says, type OpenBrowser } from "./browser";
import { startMeter, type RunningMeter } from "./meter";
import { differences, rustShapes, typescriptShapes } from "./shapes";

const recorded = <T>(name: string) => JSON.parse(readFileSync(`test/recorded/${name}.json`, "utf8")) as T;
const PLAN = recorded<PlanReport>("experiment_plan");
/** While its fourth block runs. */
const RUNNING = recorded<CaseReport>("experiment_running");
const PROVEN = recorded<CaseReport>("experiment");
const plain = (text: string) => text.replace(/\u202f/g, " ");
const last = (report: CaseReport): ExperimentReport => report.experiments!.at(-1)!;

/** The same case with its experiment otherwise. */
const having = (report: CaseReport, change: Partial<ExperimentReport>): CaseReport => ({ ...report, experiments: [{ ...last(report), ...change }] });
const BEFORE: CaseReport = (({ experiments: _, ...rest }) => ({ ...rest, state: "explained" as const }))(PROVEN);

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: experiments in a browser: ${skip}; install the package chromium`);

test("experiment_api.ts has every shape of shapes.rs that a browser reads, and no other", () => {
  const RENAMED: Record<string, string> = { ConnectionRow: "Connection", EffectRow: "Effect", ArmRow: "Arm", BlockRow: "Block", InForceRow: "InForce", ValueRow: "Value" };
  let source = readFileSync("../crates/cases/src/experiment/shapes.rs", "utf8").split("impl ArmRow")[0]!;
  source = source.replace(/^\/\/\/ `POST[^]*?^}\n/m, "").replaceAll("Option<[u64; 2]>", "Option<Pair>").replaceAll(/\b(usize|i64)\b/g, "u64");
  for (const [rust, typescript] of Object.entries(RENAMED)) source = source.replaceAll(rust, typescript);
  const typescript = readFileSync("src/experiment_api.ts", "utf8").replaceAll("outcome: Outcome", "outcome: string").replaceAll("[number, number]", "Pair");
  assert.deepEqual(differences(rustShapes(source), typescriptShapes(typescript)), []);
});

test("an undo in words: under way, awaited, confirmed, overdue", () => {
  const running = last(RUNNING);
  const force = running.in_force!;
  const said = (experiment: ExperimentReport, at: number) => {
    const { words, isOverdue } = undoWords(experiment, at);
    return [plain(words), isOverdue];
  };
  assert.deepEqual(said(running, force.since_unix_ms), ["TCP_NODELAY is set on 2 connections of vm; undone in 4 s.", false]);
  assert.deepEqual(said(running, force.until_unix_ms + 1_000), ["TCP_NODELAY is set on 2 connections of vm; the undo is not confirmed yet. The host undoes it by itself in 4 s at the latest.", false]);
  const [words, isOverdue] = said(running, force.guard_unix_ms + 61_000);
  assert.match(String(words), /^Undo overdue by 1 min 1 s: TCP_NODELAY was set on 2 connections of vm, and nobody has confirmed that it is taken back/);
  assert.equal(isOverdue, true);
  const { in_force: _, ...between } = running;
  assert.deepEqual(said(between, force.since_unix_ms), ["Nothing is changed at this moment.", false]);
  assert.deepEqual(said(last(PROVEN), Date.now()), ["Every change is undone: the host has confirmed each.", false]);
  // A meter of before said no more than that.
  assert.equal(said({ ...last(PROVEN), undone: false }, Date.now())[1], true);
  assert.match(plain(progressWords(running, running.from_unix_ms + 14_000)), /^Block 4 of 8, about 18 s to go\.$/);
  assert.equal(progressWords({ ...running, blocks: last(PROVEN).blocks }, 0), "All blocks are over: waiting for the spans of the last calls.");
});

test("a plan names what is changed, for how long, and how it is undone", () => {
  const facts = new Map(planFacts(PLAN).map(([what, words]) => [what, plain(words)]));
  assert.match(facts.get("changes")!, /^TCP_NODELAY of 4 connections of spangap \(\d+\), .* with 10\.88\.0\.2:50051, on vm \(client\)$/);
  assert.match(facts.get("compares")!, /random half/);
  assert.equal(facts.get("takes"), "8 blocks of 4.00 s, about 32 s", "of a meter that had no first look");
  const looks = new Map(planFacts({ ...PLAN, blocks: 10, first_look: 6, block_ms: 2_000, takes_ms: 20_000 }).map(([what, words]) => [what, plain(words)]));
  assert.equal(looks.get("takes"), "6 blocks of 2.00 s, about 12 s, and as long as their spans take to arrive; if the effect is not clear then, 10 blocks, about 20 s");
  assert.match(facts.get("is undone")!, /end of each block/);
  assert.match(new Map(planFacts({ ...PLAN, design: "blocks" })).get("compares")!, /stretches with the change/);
});

test("a change of the host names its settings, and no connections", () => {
  const values = [{ place: "/sys/class/net/eth1/queues/rx-0/rps_cpus", from: "2", to: "1" }];
  const plan = { ...PLAN, lever: "isolate", side: "server", connections: [], design: "blocks", values, interfaces: ["eth1"], net_cpus: "0", app_cpus: "1" };
  const facts = new Map(planFacts(plan).map(([what, words]) => [what, plain(words)]));
  assert.equal(facts.get("changes"), "packets of eth1 are handled on CPU 0 of vm, instead of CPU 1, where the server's program runs");
  assert.equal(facts.get("sets"), "/sys/class/net/eth1/queues/rx-0/rps_cpus: 2 to 1");
  assert.match(facts.get("takes")!, /twice each/);
  const { to_unix_ms: _, ...under } = last(PROVEN);
  const running = { ...under, plan, lever: "isolate", in_force: { block: 0, connections: 0, since_unix_ms: 0, until_unix_ms: 4000, guard_unix_ms: 9000 } };
  assert.match(undoWords(running, 1000).words, /^Isolation of packets is set on vm; undone in 3/);
});

let meter: RunningMeter;
let browser: OpenBrowser;
let page: Page;
let complaints: string[];
let asked: CaseReport = BEFORE;
let standing: object = { needs_token: false };
/** What the buttons asked for. */
let requests: string[] = [];
let answer: (route: Route) => Promise<void>;

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter();
  browser = await launch(CHROMIUM);
  ({ page, complaints } = await browser.open("about:blank"));
  await page.route(/\/api\/v1\/(cases|session)/, (route) => {
    const { pathname } = new URL(route.request().url());
    if (pathname.endsWith("/session")) return route.fulfill({ json: standing });
    if (pathname.endsWith("/experiment")) {
      requests.push(`${route.request().method()} ${route.request().postData() ?? ""}`.trim());
      return answer(route);
    }
    const { hunt: _, files: __, time_line: ___, experiments: ____, ...row } = asked;
    return route.fulfill({ json: pathname.endsWith(asked.id) ? asked : { cases: [row] } });
  });
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

/** Shows the case anew, until its panel says all of this, and returns what that says. */
async function shown(report: CaseReport, ...parts: RegExp[]): Promise<string> {
  asked = report;
  requests = [];
  await page.goto("about:blank");
  await page.goto(`${meter.page}#case=${report.id}`);
  return await says(page, "#experiments", ...parts);
}

test("what it would do is said first; then it is done, followed, and ends proven", { skip }, async () => {
  answer = (route) => route.fulfill(route.request().method() === "GET" ? { json: PLAN } : { status: 202, json: { id: asked.id } });
  await shown(BEFORE, /does the time follow[^]*what would an experiment do\?[^]*nothing is changed yet/);
  assert.deepEqual(requests, [], "nobody is asked before somebody wants it");
  // From the top of the case it is one click to what would be done.
  await page.click(".helped button");
  await says(page, ".announced", /random half of the 4 connections[^]*is undone[^]*do this now[^]*leave it/);
  assert.deepEqual(await accessibilityProblems(page), []);
  assert.deepEqual(requests, ["GET"]);
  const pressedMs = Date.now();
  const moved = last(RUNNING).in_force!;
  const ms = pressedMs - moved.since_unix_ms;
  asked = having(RUNNING, { from_unix_ms: last(RUNNING).from_unix_ms + ms, in_force: { ...moved, since_unix_ms: pressedMs, until_unix_ms: pressedMs + 600_000, guard_unix_ms: pressedMs + 605_000 } });
  await page.click("text=do this now");
  await page.waitForSelector(".experiment.running");
  assert.equal(requests[1], `POST {"plan":"${PLAN.plan}"}`);
  await says(page, "#experiments", /Block 4 of 8/, /is set on 2 connections of vm; undone in (10 min|\d min( \d+ s)?)\./, /stop, and undo now/, /Asked for by/);
  assert.equal(await page.getAttribute("#experiments progress", "value"), "3");
  assert.equal(await page.locator(".blocks .arm.treated").count(), 3);
  assert.equal(await page.locator(".blocks .now").count(), 1);
  assert.deepEqual(await accessibilityProblems(page), []);
  // What the blocks show so far is there at the top as well, and no conclusion.
  asked = having(asked, { so_far_ns: 42.4e6 });
  await says(page, ".helped", /an experiment is under way/, /So far the remedy takes about 42\.4 ms off a call, by 3 blocks: provisional/);
  await says(page, "#experiments .so-far", /provisional, nothing is concluded from it/);
  assert.deepEqual(await accessibilityProblems(page), []);
  // Nobody presses anything: the view follows.
  asked = PROVEN;
  await page.waitForSelector(".experiment.proven");
  assert.equal(await page.innerText(".steps [aria-current=step]"), "proven");
  // Nobody asked again what one would do.
  assert.deepEqual(requests.length, 2, requests.join());
  assert.equal(await page.locator(".announced").count(), 0);
  await says(page, ".helped.proof", /^Did it help: Proven: the remedy takes 42\.9 ms off/);
  await says(page, "#case", /Proven, not mended: the experiment was undone, so calls stay as slow as they were until you deploy the remedy/);
  await says(page, "#experiments", /the remedy has the effect that the verdict predicts/, /95 % interval/, /p = 0\.008/, /of 20\.8 ms predicted/, /Every change is undone: the host has confirmed each\./, /with the remedy[^]*without[^]*difference/, /what would an experiment do\?/);
  const effect = last(PROVEN).effect_ns!;
  const box = async (selector: string) => (await page.locator(selector).boundingBox())!;
  const [reach, zero, predicted] = [await box(".effect .reach"), await box(".effect .zero line"), await box(".effect .predicted line")];
  assert.ok(reach.x > zero.x && predicted.x > zero.x, "right of nothing");
  const scale = (predicted.x - zero.x) / last(PROVEN).predicted_ns!;
  assert.ok(Math.abs(reach.width - Math.max(2, (effect.high - effect.low) * scale)) < 3, "as long as its interval");
  // Equal ratios are equal distances: each median stands where its duration is.
  const medians = await page.$$eval(".blocks .arm circle", (all) => all.map((one) => Number(one.getAttribute("cx"))));
  const durations = last(PROVEN).blocks.flatMap((block) => [block.treated.p50_ns, block.control.p50_ns]);
  assert.equal(medians.length, durations.length);
  const [least, most] = [durations.indexOf(Math.min(...durations)), durations.indexOf(Math.max(...durations))];
  const perRatio = (medians[most]! - medians[least]!) / Math.log(durations[most]! / durations[least]!);
  assert.ok(perRatio > 0);
  durations.forEach((ns, at) => assert.ok(Math.abs(medians[least]! + perRatio * Math.log(ns / durations[least]!) - medians[at]!) < 0.5, `median ${at}`));
  await page.click("#experiments summary");
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("refuted and undecided are said as such", { skip }, async () => {
  const effect = { low: -2.1e6, mid: 0.4e6, high: 2.8e6 };
  const refuted = having(PROVEN, { outcome: "refuted", words: "Refuted: the remedy takes 400 us off.", effect_ns: effect, probability: 0.742 });
  await shown({ ...refuted, state: "unknown" }, /refuted TCP_NODELAY the remedy has less than half of the effect/, /Takes 400 us \(−2\.10 ms to 2\.80 ms, 95 % interval\)/, /p = 0\.742/);
  assert.deepEqual(await accessibilityProblems(page), []);
  const { effect_ns: _, probability: __, predicted_ns: ___, ...none } = last(PROVEN);
  const undecided = { ...none, outcome: "undecided", words: "Undecided: all connections have ended.", blocks: none.blocks.map((block, at) => (at < 2 ? block : { ...block, from_unix_ms: 0, to_unix_ms: 0 })), lacks: ["Block 3: fewer than two of the connections are left."] } as ExperimentReport;
  await shown({ ...PROVEN, state: "explained", experiments: [undecided] }, /this experiment says neither/, /all connections have ended/, /fewer than two of the connections are left/);
  assert.equal(await page.locator(".effect").count(), 0);
  assert.equal(await page.locator(".blocks text:text-is('not made')").count(), 6);
});

test("one that ended at its first look says so, and which blocks were not needed", { skip }, async () => {
  const plan = { ...last(PROVEN).plan, blocks: 10, first_look: 6 };
  const blocks = Array.from({ length: 10 }, (_, at) => ({ ...last(PROVEN).blocks[at % 8]!, ...(at < 6 ? {} : { from_unix_ms: 0, to_unix_ms: 0, treated: { ...last(PROVEN).treated, calls: 0 }, control: { ...last(PROVEN).control, calls: 0 } }) }));
  await shown(having(PROVEN, { plan, blocks, is_early: true, probability: 0.05 }), /on the differences of 6 blocks, at the first of two looks: the interval and p allow for both/, /p = 0\.050/, /Of the 1,895 calls meanwhile, 538 had the remedy, 538 had not, and 819 belong to neither: at the edges of blocks, after the look, or on other connections/);
  assert.equal(await page.locator(".blocks text:text-is('not needed')").count(), 4);
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("an undo that nobody confirms is an alarm until somebody does", { skip }, async () => {
  const { in_force: force } = last(RUNNING);
  const due = Date.now() - 90_000;
  const late = having(PROVEN, { outcome: "undecided", words: "Undecided: the agent did not say that a change is undone.", undone: false, in_force: { ...force!, guard_unix_ms: due, until_unix_ms: due - 5_000 } });
  await shown(late);
  const alarm = await says(page, "#experiments [role=alert]", /^Undo overdue by \d+ min( \d+ s)?: [^]*nobody has confirmed/);
  const [, minutes, , seconds] = /by (\d+) min( (\d+) s)?:/.exec(alarm)!;
  const overdue = Number(minutes) * 60 + Number(seconds ?? 0);
  assert.ok(overdue >= 90 && overdue <= (Date.now() - due) / 1000 + 1, alarm);
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("it is ended from the page, and a refusal is told in the meter's words", { skip }, async () => {
  const force = { ...last(RUNNING).in_force!, until_unix_ms: Date.now() + 600_000, guard_unix_ms: Date.now() + 605_000 };
  answer = (route) => route.fulfill({ status: 202, json: { id: asked.id } });
  await shown(having(RUNNING, { in_force: force }));
  await page.click("text=stop, and undo now");
  await page.waitForSelector("text=ending…");
  assert.deepEqual(requests, ["DELETE"]);
  // That there is no experiment is no fault; that the meter broke is one.
  answer = (route) => route.fulfill({ status: 409, json: { error: "there is no lever for lock; what may help: `spangap tank` makes both runs." } });
  await shown(BEFORE);
  await page.click("#experiments button");
  await page.waitForSelector("#experiments .note[role=status]");
  assert.equal(await page.innerText("#experiments .note[role=status]"), "No experiment: there is no lever for lock; what may help: spangap tank makes both runs.");
  assert.equal(await page.locator("#experiments .failed").count(), 0);
  answer = (route) => route.fulfill({ status: 503, json: { error: "too many requests at once" } });
  await page.click("#experiments button");
  await page.waitForSelector("#experiments .failed:has-text('answered 503: too many requests at once')");
});

test("without the role nothing can be pressed, and the page says what it takes", { skip }, async () => {
  standing = { needs_token: true, role: "view" };
  await shown(PROVEN, /needs a token for change; you are signed in with one for view/);
  assert.equal(await page.locator("#experiments button").count(), 0);
  await shown(having(RUNNING, {}), /Block 4 of 8/);
  await page.waitForFunction(() => document.querySelectorAll("#experiments button").length === 0);
  standing = { needs_token: true, role: "change" };
  await shown(PROVEN);
  await page.waitForSelector("#experiments button");
  standing = { needs_token: false };
});

test("it fits a phone and a tablet, light and dark", { skip }, async () => {
  for (const width of [390, 768, 1280]) {
    await page.setViewportSize({ width, height: 844 });
    for (const scheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const report of [PROVEN, RUNNING]) {
        await shown(report);
        await fits(page, `at ${width}`);
        assert.deepEqual(await accessibilityProblems(page), [], `at ${width}, ${scheme}`);
      }
    }
  }
});

test("nothing was complained about", { skip }, () => {
  assert.deepEqual(complaints.filter((text) => !text.startsWith("request to") && !/status of (409|503)/.test(text)), []);
});
