// What `--html` of dissect and hunt writes, in a real browser, as files of their own: over captures of real traffic, and over
// names that would be markup.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Hunt } from "../src/cases_api";
import type { DissectPage } from "../src/report/dissect_api";
import { CHROMIUM, launch, type OpenBrowser, type Watched } from "./browser";
import { drawn, isSound } from "./drawn";
import { binary } from "./meter";
import { differences, rustShapes, structOf, typescriptShapes } from "./shapes";
import type { GradeReport, GradeShare, Row } from "../src/report/grade_api";
import { HOSTILE } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: pages of reports in a browser: ${skip}; install the package chromium`);

const captures = (name: string) => ["client", "server"].map((end) => `../fixtures/captures/${name}.${end}.pcapng`);
const plain = (text: string) => text.replace(/\u202f/g, " ");

let folder: string;
let browser: OpenBrowser;

before(async () => {
  if (!CHROMIUM) return;
  folder = mkdtempSync(join(tmpdir(), "spangap-reports-"));
  browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/** Has the binary write a page, over which the page's script and style are those just built. */
function written(name: string, ...told: string[]): { file: string; data: unknown } {
  const file = join(folder, `${name}.html`);
  execFileSync(binary(), [...told, "--html", file], { stdio: ["ignore", "ignore", "inherit"] });
  const json = /id="data">(.*?)<\/script>/s.exec(readFileSync(file, "utf8"))?.[1];
  assert.ok(json, "the page has its document");
  return { file, data: JSON.parse(json) };
}

/** Opens a page that holds this document. */
async function open(name: string, data: unknown): Promise<Watched> {
  return await drawn(browser, join(folder, `${name}.drawn.html`), data);
}

test("dissect_api.ts has every shape of page.rs and no other", () => {
  let source = readFileSync("../crates/wire/src/report/page.rs", "utf8").split("impl DissectPage")[0]!;
  source += structOf(readFileSync("../crates/report/src/page.rs", "utf8"), "TablePage");
  // Shapes without a name of their own in TypeScript, and tuples, are compared as words.
  source = source.replaceAll('skip_serializing_if = "Option::is_none"', 'skip_serializing_if = "Option::is_none", default').replaceAll("&'static str", "String").replaceAll("usize", "u64").replaceAll("[String; 3]", "Three").replaceAll("[String; 4]", "Four").replaceAll("(u64, String)", "Pause").replaceAll("CallReport", "DissectedCall");
  const rust = rustShapes(source);
  const typescript = typescriptShapes(readFileSync("src/report/dissect_api.ts", "utf8").replaceAll("[string, string, string, string]", "Four").replaceAll("[string, string, string]", "Three").replaceAll("[number, string]", "Pause"));
  assert.deepEqual(differences(rust, typescript), []);
});

test("dissect: what took the time, the call packet by packet, sums, what was read", { skip }, async () => {
  const { file, data } = written("nagle", "dissect", ...captures("nagle-client"));
  const text = readFileSync(file, "utf8");
  assert.match(text, /<title>9 of the 10 slowest calls waited for a delayed ACK/);
  assert.ok(text.length < 300_000, `${text.length}`);
  const watched = await open("nagle", data);
  const { page } = watched;
  assert.equal(await page.locator(".packet").count(), 10);
  assert.equal(await page.locator(".crossing.crossed").count(), 5);
  assert.equal(await page.locator(".finding.shown").count(), 1);
  await page.click("summary");
  const shown = plain(await page.innerText("body"));
  for (const part of [
    /9 of the 10 slowest calls waited for a delayed ACK, 41\.8 ms to 46\.1 ms/,
    /Set TCP_NODELAY on the client's sockets/,
    /Possible, not shown: 1 of the 10 slowest calls/,
    /The slowest call: \/spangap\.ping\.v1\.Ping\/Ping, 47\.0 ms, OK/,
    /10\.77\.0\.1:47904 -> 10\.77\.0\.2:50051, connection 1, stream 3 · request 5 B, response 5 B/,
    /trace 223ea66da08d0ff5f74999e82b11d022/,
    /client: sending the request\s+46\.1 ms\s+98 %/,
    /network: request\s+1\.69 us ± 1\.70 us/,
    /acknowledged after 46.1 ms, by a bare ACK/,
    /46\.1 ms without a packet/,
    /The server's times are by its own clock (plus|minus) /,
    /The 10 slowest of 12 calls/,
    /12 calls · p50 42\.9 ms · p99 46\.8 ms · max 47\.0 ms · 518 ms together/,
    /nagle-delayed-ack, client side\s+511 ms\s+99 %\s+11 calls, possible in 1 more/,
    /85 packets in 1\.15 s from 2026-11-21 16:44:03\.335845 UTC; none dropped/,
    /Clocks: that of .*nagle-client\.server\.pcapng is between 901 ns behind and 2\.92 us ahead/,
    /spangap dissect \.\.\/fixtures\/captures\/nagle-client\.client\.pcapng/,
  ]) {
    assert.match(shown, part);
  }
  // The bar of the first leg is as long as its share; the whisker of the second as its bound.
  const width = Number(await page.getAttribute(".legbar .leg.client", "width"));
  assert.ok(Math.abs(width - 98) < 1, `${width}`);
  await isSound(watched);
});

test("dissect: a packet that was lost ends in a cross, and calls through proxies have their hops", { skip }, async () => {
  const lost = await open("rto", written("rto", "dissect", ...captures("rto-request")).data);
  assert.ok((await lost.page.locator(".crossing.lost path").count()) >= 1);
  await lost.page.click("summary");
  assert.match(await lost.page.innerText("body"), /not seen at the (server|client)/);
  await isSound(lost);
  const taps = ["client", "in", "out", "server"].map((tap) => `../fixtures/proxies/nginx-grpc.${tap}.pcapng.zst`);
  const hops = await open("hops", written("hops", "dissect", ...taps).data);
  assert.match(await hops.page.innerText("body"), /Over its hops: [^]*proxy/);
  await isSound(hops);
});

test("dissect: of dozens of things that threads did in a leg, the longest are shown and the others folded", { skip }, async () => {
  const { data } = written("parts", "dissect", ...captures("nagle-client"));
  const { report } = data as { report: DissectPage };
  const parts = Array.from({ length: 30 }, (_, at) => `${30 - at} us could run, waited behind task ${at}`);
  report.calls[0]!.hosts = [{ title: "client: sending the request, 44.2 ms", parts }];
  const watched = await open("parts", data);
  const { page } = watched;
  assert.equal(await page.getByText("waited behind task 5").isVisible(), true);
  assert.equal(await page.getByText("waited behind task 20").isVisible(), false);
  await page.click("text=24 shorter ones");
  assert.equal(await page.getByText("waited behind task 29").isVisible(), true);
  await isSound(watched);
});

test("dissect: nothing a capture says becomes markup, and a page of nothing says so", { skip }, async () => {
  const { data } = written("hostile", "dissect", ...captures("nagle-client"));
  const text = JSON.stringify(data).replaceAll("/spangap.ping.v1.Ping/Ping", JSON.stringify(HOSTILE).slice(1, -1)).replaceAll("client.pcapng", JSON.stringify(`${HOSTILE}</script>`).slice(1, -1));
  const watched = await open("hostile", JSON.parse(text));
  assert.notEqual(await watched.page.title(), "taken over");
  assert.equal(await watched.page.locator("img").count(), 0);
  assert.ok((await watched.page.innerText("body")).includes(HOSTILE));
  await isSound(watched);
  const nothing: DissectPage = { title: "", kicker: "", headline: "No call was found", also: [], calls: [], sums: [], notes: [], limits: [] };
  const empty = await open("empty", { kind: "dissect", report: nothing });
  assert.match(await empty.page.innerText("body"), /No call was found/);
  await isSound(empty);
});

test("grade_api.ts has every shape of a grading and no other", () => {
  const folder = "../crates/lab/src/grade";
  const score = readFileSync(`${folder}/score.rs`, "utf8");
  const report = readFileSync(`${folder}/report/mod.rs`, "utf8");
  const structs = ["Share", "Cell", "Matrix", "CulpritScore", "Score"].map((name) => structOf(score, name)).concat(["Row", "Counts", "Setting", "GradeReport"].map((name) => structOf(report, name)));
  const source = structs.join("\n").replace("    #[serde(skip)]\n    judged: Option<JudgedRun>,\n", "").replaceAll(/\b(Share)\b/g, "GradeShare").replaceAll("PathBuf", "String").replaceAll("outcome: Outcome", "outcome: String").replaceAll(/skip_serializing_if = "(Option::is_none|Vec::is_empty)"/g, 'skip_serializing_if = "$1", default');
  assert.deepEqual(differences(rustShapes(source), typescriptShapes(readFileSync("src/report/grade_api.ts", "utf8"))), []);
});

const share = (count: number, of: number): GradeShare => ({ count, of, share: of === 0 ? null : count / of, low: 0.1, high: 0.9 });
const row = (run: string, more: Partial<Row>): Row => ({ run, scenario: run, near_miss: false, repeat: 1, seed: 1, outcome: "judged", ...more });

/** Four verdicts, two of them right, and runs without one. */
const GRADED: GradeReport = {
  judge: "./judge.sh",
  blind: true,
  seed: 7,
  repeats: 1,
  interrupted: true,
  runs: { planned: 8, graded: 7, judged: 4, did_not_act: 1, unavailable: 1, failed: 0, judge_failed: 0, judge_timed_out: 1 },
  right: share(2, 4),
  unknown: share(1, 4),
  legs: share(1, 1),
  false_alarms: share(1, 2),
  culprits: [{ culprit: "rto", recall: share(1, 1), precision: share(1, 1), unknown: 0 }, { culprit: "server-app", recall: share(0, 1), precision: share(0, 0), unknown: 1 }],
  matrix: { rows: ["none", "rto", "server-app"], columns: ["none", "rto", "tail-loss", "unknown"], cells: [[{ runs: 1, right: 1 }, { runs: 0, right: 0 }, { runs: 1, right: 0 }, { runs: 0, right: 0 }], [{ runs: 0, right: 0 }, { runs: 1, right: 1 }, { runs: 0, right: 0 }, { runs: 0, right: 0 }], [{ runs: 0, right: 0 }, { runs: 0, right: 0 }, { runs: 0, right: 0 }, { runs: 1, right: 0 }]] },
  rows: [
    row("healthy", { truth: "none", verdict: "none", right: true, false_alarm: false, why: "it <looked> like that" }),
    row("rto-near-miss", { scenario: "rto", near_miss: true, looks_like: "rto", truth: "none", verdict: "tail-loss", right: false, false_alarm: true }),
    row("rto", { truth: "rto", also_right: ["tail-loss"], verdict: "rto (client)", leg: "request_wire", verdict_leg: "request_wire", leg_right: true, right: true, judged_as: "r1" }),
    row("slow-server", { truth: "server-app", leg: "server_app", verdict: "unknown", right: false }),
    row("flood", { outcome: "unavailable", error: "no NAPI thread <here>" }),
    row("stop", { outcome: "did-not-act" }),
    row("nagle-client", { outcome: "judge-timed-out", error: "killed" }),
  ],
};

test("lab grade: figures with intervals, truths against verdicts, each run with its folder", { skip }, async () => {
  const watched = await open("grade", { kind: "grade", title: "2 of 4 verdicts are right", links: [null, null, "./rto%20%26%20co/", null, null, null, null], report: GRADED });
  const { page } = watched;
  const shown = plain(await page.innerText("body"));
  for (const part of [
    /judge \.\/judge\.sh, blind · seed 7 · ended before its end/,
    /2 of 4 verdicts are right/,
    /Right\s+50 % 2 of 4 · 10–90 %/,
    /False alarms, healthy and near-miss runs\s+50 % 1 of 2/,
    /7 of 8 runs: 4 judged; not judged: 1 whose fault did not act, 1 not available here, 0 that could not be made; the judge failed on 0 and took too long on 1\./,
    /near miss of rto, looks like rto 0 of 1 right/,
    /tail-loss ✗ false alarm/,
    /rto \(client\) ✓ right\s+✓ network: request/,
    /or tail-loss/,
    /unknown cannot tell\s+not named; it is server: application/,
    /no NAPI thread <here>/,
    /its fault did not act/,
    /the judge took too long\s+killed/,
  ]) {
    assert.match(shown, part);
  }
  assert.equal(await page.getAttribute("a:has-text('rto 1')", "href"), "./rto%20%26%20co/");
  // Reasons are sentences: on a phone they have a line of their own.
  await page.setViewportSize({ width: 390, height: 844 });
  const reason = await page.locator(".graded td:has-text('it <looked> like that')").boundingBox();
  assert.ok(reason!.width > 250, `${reason!.width} px`);
  assert.equal(await page.getAttribute(".matrix .right[title^='rto']", "title"), "rto, said to be rto: 1 of 1");
  assert.deepEqual(await page.locator(".matrix .cell").evaluateAll((all) => all.map((one) => one.className.replace("cell ", ""))), ["right", "wrong", "right", "cannot"]);
  await isSound(watched);
});

test("hunt: the verdict with its sheet, what speaks for it, what was cleared, what nobody looked for", { skip }, async () => {
  const { file, data } = written("hunt", "hunt", ...captures("nagle-client").flatMap((one) => ["--capture", one]));
  assert.match(readFileSync(file, "utf8"), /<title>One culprit: nagle-delayed-ack \(client\)<\/title>/);
  const { report: hunt } = data as { report: Hunt };
  const watched = await open("hunt", data);
  const { page } = watched;
  await page.click("text=all 19");
  const shown = plain(await page.innerText("body"));
  for (const part of [/One culprit: nagle-delayed-ack \(client\)/, /10\.77\.0\.1->10\.77\.0\.2:50051/, /11 of the 12 calls show it, for 42\.6 ms each/, /1 of the 12 calls do not show it/, /Set TCP_NODELAY/, /Predicted: 2\.25 ms less at p99 and 42\.0 ms at p50/, /90 % interval/]) assert.match(shown, part);
  for (const one of hunt.cleared ?? []) assert.ok(shown.includes(one.would_show ?? "?"), one.would_show);
  for (const one of hunt.not_looked ?? []) assert.ok(shown.includes((one.needs ?? "?").replaceAll("`", "")), one.needs);
  for (const id of hunt.trace_ids ?? []) assert.ok(shown.includes(id), id);
  assert.equal(await page.locator(".suspects tbody tr").count(), hunt.cleared?.length);
  await isSound(watched);
});

test("hunt: a real verdict over both hosts has what other instruments saw, and noise by its name", { skip }, async () => {
  const { hunt } = JSON.parse(readFileSync("test/recorded/experiment_running.json", "utf8")) as { hunt: Hunt };
  const watched = await open("case", { kind: "hunt", of: "a case", title: "One culprit", report: hunt });
  const shown = plain(await watched.page.innerText("body"));
  assert.match(shown, /nagle-delayed-ack \(client\) sockets, possible/);
  const beside = await watched.page.locator(".panel:has(h2:text('Other instruments')) li").allInnerTexts();
  assert.equal(new Set(beside).size, beside.length, "what several connections say alike is told once");
  assert.match(beside.join("\n"), /\d times/);
  if (hunt.sheet?.some((row) => row.noise && Math.abs(row.share.mid) >= 0.01)) assert.match(shown, /behind many: noise/);
  await isSound(watched);
});
