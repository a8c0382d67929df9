// What `--html` of host thieves, host stacks and isolate show writes, drawn in a real browser: over machines kept as text, over what
// was seen of a real process whose CPU others took, and over names that would be markup.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { ShowPage } from "../src/report/cpumap_api";
import { flameTree, found, frameAt, place } from "../src/report/flame";
import type { StacksPage } from "../src/report/stacks_api";
import type { ThievesPage } from "../src/report/thieves_api";
import { CHROMIUM, launch, type OpenBrowser, type Watched } from "./browser";
import { drawn, isSound } from "./drawn";
import { binary } from "./meter";
import { differences, rustShapes, typescriptShapes } from "./shapes";
import { HOSTILE } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: pages of hosts in a browser: ${skip}; install the package chromium`);

const plain = (text: string) => text.replace(/\u202f/g, " ");
const recorded = <T>(name: string) => (JSON.parse(readFileSync(`test/recorded/${name}.json`, "utf8")) as { report: T }).report;

let folder: string;
let browser: OpenBrowser;

before(async () => {
  if (!CHROMIUM) return;
  folder = mkdtempSync(join(tmpdir(), "spangap-host-reports-"));
  browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

async function open(data: unknown): Promise<Watched> {
  return await drawn(browser, join(folder, "drawn.html"), data);
}

function shapesAre(typescript: string, ...rust: string[]): void {
  const source = rust.map((file) => readFileSync(`../crates/${file}`, "utf8").split(/^impl \w+Page/m)[0]!).join("");
  const known = source.replaceAll('skip_serializing_if = "Option::is_none"', 'skip_serializing_if = "Option::is_none", default').replaceAll("&'static str", "String").replaceAll("usize", "u64");
  assert.deepEqual(differences(rustShapes(known), typescriptShapes(readFileSync(`src/report/${typescript}`, "utf8"))), []);
}

test("the documents have the shapes that Rust gives them, and no others", () => {
  shapesAre("thieves_api.ts", "host/src/report/thieves/page.rs");
  shapesAre("stacks_api.ts", "host/src/report/flame/page.rs", "host/src/report/flame/groups.rs");
  shapesAre("cpumap_api.ts", "isolate/src/report/show/page.rs");
});

test("folded stacks are a tree whose frames stand on their callers, as wide as their samples", () => {
  const root = flameTree(["a;b;c 3", "a;b 1", "a;d 4", "z 2", "", "no count", "a;b;c x"]);
  assert.deepEqual([root.samples, root.children.map((one) => [one.name, one.samples])], [10, [["a", 8], ["z", 2]]]);
  const at = (all: ReturnType<typeof place>, name: string) => all.find((one) => one.frame.name === name)!;
  const whole = place(root, root);
  assert.deepEqual([at(whole, "b").x, at(whole, "b").width, at(whole, "b").row], [0, 0.4, 2]);
  assert.deepEqual([at(whole, "d").x, at(whole, "d").width], [0.4, 0.4]);
  const zoomed = place(root, frameAt(root, ["a", "b"]));
  assert.deepEqual(zoomed.map((one) => [one.frame.name, one.width, one.below]), [["all", 1, true], ["a", 1, true], ["b", 1, false], ["c", 0.75, false]]);
  assert.deepEqual([found(root, "B"), found(root, "c"), found(root, "q"), found(root, "")], [4, 3, 0, 0]);
  assert.equal(frameAt(root, ["a", "gone"]), root);
});

test("host thieves: who is to blame, its share, and the worst stretches piece by piece", { skip }, async () => {
  const report = recorded<ThievesPage>("thieves");
  const watched = await open({ kind: "thieves", report });
  const { page } = watched;
  const shown = plain(await page.innerText("body"));
  for (const part of [/Who took the CPU from python3 \(pid \d+\)/, /run-queue: dd \(pid \d+\) ran for .* on CPU 1 while python3/, /dd \(pid \d+\) run-queue/, /kept from running for/, /runnable \(waiting for a CPU\)/, /The looking cost/]) assert.match(shown, part);
  for (const taker of report.takers) assert.ok(shown.includes(taker.name), taker.name);
  // Pieces cover their window, and each is as wide as it lasted.
  for (const [at, window] of report.windows.entries()) {
    const drawn = await page.$$eval(`.window:nth-of-type(${at + 1}) .did rect`, (all) => all.map((one) => [Number(one.getAttribute("x")), Number(one.getAttribute("width"))] as [number, number]));
    assert.equal(drawn.length, window.pieces.length);
    window.pieces.forEach((piece, of) => assert.ok(Math.abs(drawn[of]![0] - (piece.from_ns / window.duration_ns) * 1000) < 0.01));
  }
  const first = report.windows[0]!.pieces[0]!;
  await page.locator(".window .did rect").first().click({ force: true });
  assert.ok((await page.locator(".window .chosen").first().innerText()).startsWith(first.who));
  await page.locator(".window summary").first().click();
  assert.ok((await page.locator(".window details li").count()) > 0);
  await isSound(watched);
});

test("host stacks: a flame graph that can be searched and zoomed, and the same in words", { skip }, async () => {
  const report = recorded<StacksPage>("stacks");
  const watched = await open({ kind: "stacks", report });
  const { page } = watched;
  const shown = plain(await page.innerText("body"));
  for (const part of [/Kernel stacks on CPU 1 that are not of python3/, /Who had the rest/, /What came of the samples of each CPU/]) assert.match(shown, part);
  const root = flameTree(report.folded);
  // A frame is as wide as its share, also a narrow one.
  const whole = (await page.locator(".frame.root").boundingBox())!.width;
  // Each is a button by its name; the first of a name is the widest of it.
  const boxes = await page.getByRole("button").evaluateAll((all) => all.map((one) => [one.getAttribute("aria-label") ?? "", one.getBoundingClientRect().width] as const));
  for (const one of place(root, root).slice(0, 60)) {
    const box = boxes.find(([name]) => name.startsWith(`${one.frame.name}: `));
    assert.ok(box, one.frame.name);
    if (one.frame.path.length === 1) assert.ok(Math.abs(box[1] - one.width * whole) <= 1, `${one.frame.name}: ${box[1]} of ${whole}, ${one.width}`);
  }
  const [widest] = [...root.children].sort((a, b) => b.samples - a.samples);
  await page.getByRole("button", { name: new RegExp(`^${widest!.name.replaceAll(/[^\w]/g, ".")}: `) }).first().click();
  assert.ok(Math.abs((await page.locator(".frame:not(.below)").first().boundingBox())!.width - whole) <= 1, "it has all of the width");
  await page.getByRole("button", { name: "all of it" }).click();
  await page.fill("input[type=search]", "user mode");
  assert.ok((await page.locator(".frame.match").count()) > 0);
  assert.match(plain(await page.innerText(".whole-tools")), /% of these samples/);
  await isSound(watched);
  const none = await open({ kind: "stacks", report: { ...report, folded: [], groups: [] } });
  assert.match(await none.page.innerText("body"), /Nothing else used these CPUs/);
  assert.equal(await none.page.locator(".frame").count(), 0);
  await isSound(none);
});

test("isolate show: every CPU of a machine in its place, with what is on it", { skip }, async () => {
  for (const [name, wanted] of [["article-2x24x2", /eth0 q0/], ["kubernetes-exclusive-on-net", /pod q1[^]*only for/], ["boot-isolcpus", /isolated at boot/]] as const) {
    const file = join(folder, "show.html");
    execFileSync(binary(), ["isolate", "show", "--root", `../fixtures/isolate/${name}/machine.txt`, "--html", file], { stdio: ["ignore", "ignore", "inherit"] });
    const data = JSON.parse(/id="data">(.*?)<\/script>/s.exec(readFileSync(file, "utf8"))![1]!) as { report: ShowPage };
    const watched = await open(data);
    const { page } = watched;
    const drawn = await page.$$eval("[data-cpu]", (all) => all.map((one) => Number(one.getAttribute("data-cpu"))));
    assert.deepEqual(drawn, data.report.cpus.map((cpu) => cpu.cpu), name);
    assert.match(plain(await page.innerText("body")), wanted, name);
    await page.locator("[data-cpu='1']").click();
    assert.match(await page.innerText(".chosen"), /^CPU 1[^]*softirqs /);
    assert.equal(await page.locator("table tbody tr").count(), drawn.length);
    await isSound(watched);
  }
});

test("nothing a host says becomes markup", { skip }, async () => {
  const hostile = JSON.stringify(`${HOSTILE}</script>`).slice(1, -1);
  for (const [kind, name, word] of [["thieves", "thieves", "dd"], ["stacks", "stacks", "cc1"]] as const) {
    const text = JSON.stringify(recorded(name)).replaceAll(new RegExp(`\\b${word} `, "g"), `${hostile} `);
    const watched = await open({ kind, report: JSON.parse(text) });
    assert.notEqual(await watched.page.title(), "taken over");
    assert.equal(await watched.page.locator("img").count(), 0);
    assert.ok((await watched.page.innerText("body")).includes(HOSTILE), kind);
    await isSound(watched);
  }
});
