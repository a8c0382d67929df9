// Cases and hosts in a real browser. What the meter answers of them is put in its mouth: the page is what is tested here.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { AgentsReport, CaseReport, CasesReport } from "../src/cases_api";
import type { Explanation } from "../src/explain_api";
import { accessibilityProblems } from "./axe";
import { CHROMIUM, fits, launch, says, type OpenBrowser } from "./browser";
import { send, startMeter, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: cases in a browser: ${skip}; install the package chromium`);

const NOW = Date.now();
const share = (low: number, mid: number, high: number) => ({ low, mid, high });

export const EXPLAINED: CaseReport = {
  id: "c-17",
  pair: { client: "frontend", server: "customer" },
  state: "explained",
  trigger: "baseline",
  opened_unix_ms: NOW - 60_000,
  slow_calls: 814,
  excess_ns: 36.8e9,
  verdict: { verdict: "one", words: "nagle-delayed-ack in the client owns 93 % of what slow calls take beyond ordinary ones", culprit: "nagle-delayed-ack", side: "client", share: share(0.88, 0.93, 0.97) },
  hosts: { client: { agent: "node-a", rule: "k8s.node.name" }, server: { why_not: "no agent on node-b" } },
  time_line: [
    { unix_ms: NOW - 75_000, what: "the first slow call ended" },
    { unix_ms: NOW - 60_000, what: "triggered: the pair left its baseline" },
    { unix_ms: NOW - 52_000, what: "verdict" },
  ],
  hunt: {
    verdict: "one",
    culprits: [{ cause: "nagle-delayed-ack", side: "client", share: share(0.88, 0.93, 0.97), calls: 801, for: ["a small segment waits for an ACK in 801 of 814 slow calls"], against: ["13 slow calls have no hold"], meaning: "the sender wrote a message in pieces", remedy: "set TCP_NODELAY in the client's channel options" }],
    excess: { calls: 1_628, slow_calls: 814, total_ns: 36.8e9, mean_ns: 45.2e6 },
    sheet: [
      { cause: "nagle-delayed-ack", side: "client", ns: 42e6, low_ns: 39.8e6, high_ns: 43.9e6, share: share(0.88, 0.93, 0.97) },
      { leg: "server_app", ns: 1.35e6, low_ns: 1e6, high_ns: 1.8e6, share: share(0.02, 0.03, 0.04) },
    ],
    unexplained: share(0.01, 0.04, 0.08),
    coverage: { calls: 1_628, captured: 1_628, with_legs: 0.98 },
    cleared: [{ cause: "rto", side: "client", would_show: "a segment sent again", seen: "0 of 814 calls" }],
    not_looked: [{ cause: "steal", needs: "a steal counter" }],
    look_next: ["spangap sockets list --pid P on node-a"],
  },
  files: [{ name: "client.pcapng", bytes: 2_400_000 }],
  lacks: ["the server's host has no agent"],
};

const { hosts: _, time_line: __, hunt: ___, files: ____, lacks: _____, ...ROW } = EXPLAINED;
const CASES: CasesReport = {
  cases: [
    { ...ROW, id: "c-18", state: "open", verdict: null, opened_unix_ms: NOW - 2_000 },
    ROW,
    { ...ROW, id: "c-16", state: "unknown", verdict: { verdict: "unknown", words: "not enough was captured" } },
    { ...ROW, id: "c-15", state: "fixed" },
    { ...ROW, id: "c-14", state: "regressed" },
  ],
  events: [
    { unix_ms: NOW - 50_000, case: "c-17", kind: "changed", lever: "tcp-nodelay" },
    { unix_ms: NOW - 40_000, case: "c-17", kind: "undone", lever: "tcp-nodelay" },
    { unix_ms: NOW - 30_000, case: "c-16", kind: "not_undone", lever: "tcp-nodelay" },
    { unix_ms: NOW - 20_000, case: "c-15", kind: "fixed", lever: "" },
  ],
};
/** As of the moment in which it is asked for. */
const agents = (now = Date.now()): AgentsReport => ({
  agents: [
    {
      id: "a1",
      host_name: "node-a",
      connected: true,
      since_unix_ms: now - 86_400_000,
      last_seen_unix_ms: now,
      payload: "headers",
      kernel: "6.12.0",
      version: "0.1.0",
      addresses: ["10.0.0.1"],
      containers: 12,
      rings: [{ instrument: "packets", from_unix_ns: (now - 40_000) * 1e6, to_unix_ns: now * 1e6, bytes: 64 << 20, taken: 812_000, lost: 41, canaries_sent: 60, canaries_seen: 60 }],
      memory_bytes: 180 << 20,
      memory_limit_bytes: 256 << 20,
      cpu_share: 0.011,
      cpu_limit: 0.02,
      given_up: [],
      lacks: ["scheduling events: no BTF on this kernel"],
    },
    // Two network namespaces of one machine have its name.
    { id: "a3", host_name: "node-a", connected: true, since_unix_ms: now - 1_000, last_seen_unix_ms: now, rings: [{ instrument: "host-record", from_unix_ns: (now - 9_000) * 1e6, to_unix_ns: now * 1e6, bytes: 1 << 20, taken: 12_000, lost: 0, canaries_sent: 0, canaries_seen: 0 }] },
    { id: "a2", host_name: "node-c", connected: false, last_seen_unix_ms: now - 300_000 },
  ],
  unmatched: { client: 3, server: 9 },
});

let meter: RunningMeter;
let browser: OpenBrowser;
let page: Page;
let complaints: string[];
let hasCases = true;
let asked: CaseReport = EXPLAINED;
let listed: CasesReport = CASES;

const quarter = (from: number, to: number, ms: number) => ({ from, to, calls: 50, median_gap_ns: ms * 1e6 });
const EXPLANATION: Explanation = {
  client: "frontend",
  server: "customer",
  calls: 2_000,
  sampled: 200,
  without_spans: 0,
  typical_gap_ns: 900_000,
  excess_ns: 4e9,
  attributes: 30,
  tested: 40,
  false_discovery_rate: 0.05,
  differs: [{ attribute: "server: host.name", value: "node-7", share_of_excess: share(0.74, 0.8, 0.88), share_of_calls: 0.06, sampled: 40, median_gap_ns: 44e6, median_gap_without_ns: 900_000, probability: 1e-9 }],
  rises_with: [
    { attribute: "client: rpc.request.size", correlation: 0.7, probability: 1e-9, quarters: [quarter(10, 900, 1), quarter(901, 8_000, 1.1), quarter(8_001, 60_000, 2), quarter(60_001, 1_048_576, 9)] },
    { attribute: "server: weight", correlation: -0.4, probability: 1e-5, quarters: [quarter(0.5, 0.5, 5), quarter(0.75, 2.5, 1)] },
  ],
};

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter();
  await send(meter, Array.from({ length: 20 }, () => call("frontend", "customer", 5_000_000n)).flatMap((one) => [one.client, one.server]));
  browser = await launch(CHROMIUM);
  const watched = await browser.open("about:blank");
  ({ page, complaints } = watched);
  await page.route(/\/api\/v1\/(cases|agents)/, (route) => {
    const { pathname } = new URL(route.request().url());
    if (!hasCases) return route.fulfill({ status: 404, json: { error: "no such page" } });
    if (pathname.endsWith("/agents")) return route.fulfill({ json: agents() });
    return route.fulfill({ json: pathname.endsWith("/cases") ? listed : asked });
  });
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

test("cases are listed with what was found, and counted in the navigation", { skip }, async () => {
  await page.goto(`${meter.page}#view=cases`);
  await says(page, "table.cases", /explained[^]*nagle-delayed-ack \(client\)[^]*93\.0.% \(88\.0.% – 97\.0.%\)/, /being looked into/);
  assert.equal(await page.locator("table.cases tbody tr").count(), 5);
  assert.equal(await page.locator("table.cases .found a").nth(1).getAttribute("href"), await page.locator("table.cases .case-link").nth(1).getAttribute("href"), "the cause leads where the pair does");
  assert.equal(await page.innerText(".tab:has-text('Cases') .tab-count"), String(CASES.cases.filter((one) => one.state !== "fixed").length));
  // The same number as in the list.
  await page.waitForSelector(`[aria-label='In which state'] button:has-text('not fixed ${await page.innerText(".tab:has-text('Cases') .tab-count")}')`);
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("a case says who owns the time, what was cleared, what was not seen, and what to do", { skip }, async () => {
  await page.locator("table.cases .found a").nth(1).click();
  await page.waitForSelector("#case .sheet");
  await says(
    page,
    "#case",
    /nagle-delayed-ack in the client owns 93 %/,
    /The sender wrote a message in pieces\./,
    /set TCP_NODELAY/,
    /Slow since \d+:\d\d:\d\d( [AP]M)? or longer\./,
    /On which node: node-a, the client's\./,
    /13 slow calls have no hold/,
    /nobody named, in all[^]*4\.00 % \(1\.00 % – 8\.00 %\)/,
    /Cleared[^]*rto \(client\)[^]*0 of 814 calls/,
    /Not looked at[^]*a steal counter[^]*steal/,
    /\+15\.0 s/,
    /no agent on node-b/,
    /the server's host has no agent/,
  );
  assert.equal(await page.getAttribute(".files a", "href"), "/api/v1/cases/c-17/files/client.pcapng");
  assert.equal(await page.innerText(".steps [aria-current=step]"), "explained");
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("of many sentences that speak for a culprit the first are in sight, and the others a click away", { skip }, async () => {
  const [culprit] = EXPLAINED.hunt!.culprits!;
  asked = { ...EXPLAINED, id: "c-19", hunt: { ...EXPLAINED.hunt!, culprits: [{ ...culprit!, for: Array.from({ length: 12 }, (_, at) => `connection ${at} shows it`) }] } };
  await page.goto(`${meter.page}#case=c-19`);
  const text = await says(page, ".for-against", /connection 2 shows it\s+9 more/);
  assert.doesNotMatch(text, /connection 3 shows/);
  await page.click(".for-against summary");
  await says(page, ".for-against", /connection 11 shows it/);
  assert.deepEqual(await accessibilityProblems(page), []);
  asked = EXPLAINED;
});

test("a case that is being made is followed, and one without a verdict says so", { skip }, async () => {
  const { hunt: _, verdict: __, ...open } = EXPLAINED;
  asked = { ...open, id: "c-18", state: "open", time_line: EXPLAINED.time_line!.slice(0, 2) };
  await page.goto(`${meter.page}#case=c-18`);
  await page.waitForSelector("text=Looking: this page follows by itself");
  asked = EXPLAINED;
  await send(meter, [call("frontend", "customer", 5_000_000n)].flatMap((one) => [one.client, one.server]));
  await page.waitForSelector("#case .sheet");
  // The least that a meter may answer.
  asked = { id: "c-1", pair: { client: "a", server: "b" }, state: "unknown", trigger: "person", opened_unix_ms: NOW };
  await page.goto(`${meter.page}#case=c-1`);
  await page.waitForSelector("text=No verdict: too little was recorded.");
  await page.keyboard.press("Escape");
  await page.waitForSelector("table.cases");
});

test("a pair shows its cases, and the fleet when they were opened", { skip }, async () => {
  await page.goto(`${meter.page}#client=frontend&server=customer`);
  await page.waitForSelector(".its-cases .state-explained");
  await page.goto(meter.page);
  await page.waitForSelector(".annotations a");
  // The row of the pair says so, and is a click away from its newest case that is not over.
  assert.equal((await page.innerText(".pairs .row-case")).replace(/\s+/g, " "), "open being looked into");
  assert.match((await page.getAttribute(".pairs .row-case", "href")) ?? "", /case=c-18/);
  assert.deepEqual(await accessibilityProblems(page), []);
  // What was changed, undone and fixed stands on the axis too; an undo that nobody confirms is marked.
  const said = await page.$$eval(".annotations li", (all) => all.map((one) => [one.textContent?.replace(/^\d+:\d+ /, ""), one.className]));
  assert.deepEqual(said.filter(([text]) => !text?.startsWith("case ")).slice(-4), [
    ["TCP_NODELAY tried on frontend → customer", ""],
    ["TCP_NODELAY undone on frontend → customer", ""],
    ["TCP_NODELAY on frontend → customer: undo not confirmed", "bad"],
    ["fixed: frontend → customer", ""],
  ]);
  assert.equal(await page.locator(".annotation.alarm").count(), 1);
});

test("a case that is fixed shows before and after, and claims no proof that nobody made", { skip }, async () => {
  const gap = (fromS: number, p50_ns: number, calls: number) => ({ from_unix_ms: NOW - fromS * 1_000, to_unix_ms: NOW - fromS * 1_000 + 60_000, calls, gap: { p50_ns, p99_ns: 2 * p50_ns, mean_ns: p50_ns }, client_duration: { p50_ns: 3 * p50_ns, p99_ns: 4 * p50_ns, mean_ns: 3 * p50_ns }, lost_ns_total: p50_ns * calls });
  asked = { ...EXPLAINED, id: "c-20", state: "fixed", experiments: [], usual: gap(900, 1e6, 600), before: gap(600, 40e6, 300), after: gap(120, 1.1e6, 610) };
  await page.goto(`${meter.page}#case=c-20`);
  await says(page, "#case", /Did it help[^]*the pair before and after/, /gap p50\s+1\.00 ms\s+40\.0 ms\s+1\.10 ms\s+−38\.9 ms/, /lost per second\s+10\.0 ms\s+200 ms\s+11\.2 ms\s+−189 ms/, /usually 1 min\s+when slow 1 min/, /calls in that time\s+600\s+300\s+610/);
  const steps = () => page.$$eval(".steps li", (all) => all.map((one) => [one.textContent, one.className]));
  assert.deepEqual(await steps(), [["open", "done"], ["explained", "done"], ["proven", ""], ["fixed", "now"]]);
  assert.deepEqual(await accessibilityProblems(page), []);
  asked = EXPLAINED;
});

test("of a thousand cases a page is shown, by state and by words, and the address has which", { skip }, async () => {
  const { state: __, ...row } = ROW;
  const states = ["fixed", "explained", "unknown"] as const;
  // A name that would turn round what stands after it, and one of nothing but a space.
  const odd = { client: "\u202eevil", server: " " };
  listed = { cases: Array.from({ length: 1_000 }, (_, at) => ({ ...row, id: `n-${at}`, state: states[at % 3]!, ...(at === 998 ? { pair: odd } : { pair: { client: `web-${at}`, server: "cart" } }) })), events: [] };
  await page.goto("about:blank");
  await page.goto(`${meter.page}#view=cases`);
  await page.waitForSelector("table.cases tbody tr");
  assert.equal(await page.locator("table.cases tbody tr").count(), 50);
  const buttons = await page.$$eval("[aria-label='In which state'] button", (all) => all.map((one) => one.textContent?.replace(/\u202f/g, " ")));
  assert.deepEqual(buttons, ["all 1,000", "not fixed 666", "unknown 333", "explained 333", "fixed 334"]);
  await page.getByRole("button", { name: "older" }).click();
  await page.waitForFunction(() => document.querySelector("table.cases tbody th")?.textContent === "web-50 → cart");
  await page.getByRole("button", { name: "unknown" }).click();
  await page.waitForFunction(() => document.querySelector("table.cases tbody th")?.textContent === "web-2 → cart");
  assert.match(page.url(), /state=unknown/);
  assert.doesNotMatch(page.url(), /cases_page/);
  await page.keyboard.press("/");
  await page.keyboard.type("evil");
  await page.waitForFunction(() => document.querySelectorAll("table.cases tbody tr").length === 1);
  assert.equal(await page.textContent("table.cases tbody th"), "‹U+202E›evil → “ ”");
  await page.reload();
  await page.waitForSelector("table.cases tbody tr");
  assert.equal(await page.locator("table.cases tbody tr").count(), 1);
  assert.equal(await page.inputValue("#search"), "evil");
  assert.deepEqual(await accessibilityProblems(page), []);
  listed = CASES;
});

test("what sets slow calls apart: shares beside their calls, and the gap of each quarter of a number", { skip }, async () => {
  await page.route("**/api/v1/explain?*", (route) => route.fulfill({ json: EXPLANATION }));
  await page.goto(`${meter.page}#client=frontend&server=customer`);
  await page.waitForSelector(".rises tbody tr");
  const text = (selector: string) => page.innerText(selector).then((said) => said.replace(/[\s\u202f]+/g, " "));
  assert.match(await text(".explained:not(.rises) tbody"), /server: host\.name = node-7 80\.0 % \(74\.0 % – 88\.0 %\) 6\.00 % 44\.0 ms \/ 900 us/);
  assert.match(await text(".rises tbody"), /rises with client: rpc\.request\.size 1\.00 ms at 10 to 900 1\.10 ms at 901 to 8,000 2\.00 ms at 8,001 to 60,000 9\.00 ms at 60,001 to 1,048,576/);
  assert.match(await text(".rises tbody"), /falls with server: weight 5\.00 ms at 0\.500/);
  assert.match(await text(".explained ~ .remark, .panel:has(.rises) .remark"), /Excess is what gaps have beyond the median of 900 us: 4\.00 s in all\./);
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.unroute("**/api/v1/explain?*");
});

test("where all calls are slow alike, what sets some apart leads to the case; what could not be tested says nothing", { skip }, async () => {
  let tested = 4;
  await page.route("**/api/v1/explain?*", (route) => route.fulfill({ json: { ...EXPLANATION, differs: [], rises_with: [], excess_ns: 0, tested } }));
  const panel = ".panel:has(h2:text-is('What sets slow calls apart'))";
  await page.goto("about:blank");
  await page.goto(`${meter.page}#client=frontend&server=customer`);
  await says(page, "#pair", /they are slow alike[^]*nagle-delayed-ack \(client\)[^]*Nothing does/);
  assert.match((await page.getAttribute(`${panel} a`, "href")) ?? "", /case=c-17/);
  tested = 0;
  await page.reload();
  await says(page, "#pair", /Not known/);
  assert.equal(await page.locator(`${panel} a`).count(), 0);
  await page.unroute("**/api/v1/explain?*");
});

test("values that explain nothing of their own stand inside the row of the one that does", { skip }, async () => {
  const [node] = EXPLANATION.differs;
  assert.ok(node);
  const follows = { attribute: node.attribute, value: node.value };
  const pods = [1, 2, 3, 4, 5].map((n) => ({ ...node, attribute: "server: k8s.pod.name", value: `shop-7-${n}`, share_of_excess: share(0.1, 0.16, 0.2), follows }));
  const size = { ...node, attribute: "client: size", value: "large" };
  await page.route("**/api/v1/explain?*", (route) => route.fulfill({ json: { ...EXPLANATION, differs: [node, ...pods, size] } }));
  await page.goto(`${meter.page}#client=frontend&server=customer`);
  await page.reload();
  await page.waitForSelector(".explained:not(.rises) tbody tr");
  const leading = await page.$$eval(".explained:not(.rises) tbody th b", (all) => all.map((one) => one.textContent));
  assert.deepEqual(leading, ["node-7", "large"]);
  const inside = page.locator(".explained details");
  assert.equal(await inside.count(), 1);
  await inside.locator("summary").click();
  assert.match((await inside.innerText()).replace(/\u202f/g, " "), /explains 5 other values\s+server: k8s\.pod\.name = shop-7-1 \(16\.0 % of the excess\), shop-7-2/);
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.unroute("**/api/v1/explain?*");
});

test("what sets slow calls apart, on a phone: both medians, a bar beside nothing, and no share where the sample has none", { skip }, async () => {
  const [first] = EXPLANATION.differs;
  assert.ok(first);
  const absent = { ...first, attribute: "client: k8s.pod.name", value: "p0", share_of_excess: share(0.1, 0.2, 0.3), share_of_calls: 0, median_gap_ns: null };
  await page.route("**/api/v1/explain?*", (route) => route.fulfill({ json: { ...EXPLANATION, differs: [first, absent] } }));
  const before = page.viewportSize();
  assert.ok(before);
  await page.setViewportSize({ width: 390, height: 900 });
  await page.goto(`${meter.page}#client=frontend&server=customer`);
  await page.reload();
  await page.waitForSelector(".rises tbody tr");
  const rows = page.locator(".explained:not(.rises) tbody tr");
  const text = async (row: number) => (await rows.nth(row).innerText()).replace(/[\s\u202f]+/g, " ");
  assert.match(await text(0), /44\.0 ms \/ 900 us/, "the label promises both medians");
  // A share of a sample in which nothing has the value is no zero of all calls.
  assert.match(await text(1), /none sampled/);
  assert.doesNotMatch(await text(1), / 0 %/);
  const overlaps = await page.$$eval(".explained:not(.rises) tbody tr", (all) =>
    all.some((row) => {
      const bar = row.querySelector(".barcell svg")!.getBoundingClientRect();
      return [...row.querySelectorAll("td.number")].some((cell) => {
        const box = cell.getBoundingClientRect();
        return bar.left < box.right && box.left < bar.right && bar.top < box.bottom && box.top < bar.bottom;
      });
    }),
  );
  assert.equal(overlaps, false, "a bar lies over a figure");
  await fits(page, "what sets slow calls apart");
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.setViewportSize(before);
  await page.unroute("**/api/v1/explain?*");
});

test("hosts show how far their rings reach, what they cost, and what they lost", { skip }, async () => {
  await page.goto(`${meter.page}#view=hosts`);
  await page.waitForSelector(".agent");
  const parts = [/2 of 3 agents connected/, /3 client and 9 server sides/, /180 MiB of 256 MiB/, /1\.10 % of 2\.00 % of a CPU/, /headers alone/, /packets[^]*40 s[^]*41 \(/, /60 of 60/, /not seen: scheduling events/, /gone, last seen \d+ min/];
  const text = await says(page, "main", ...parts);
  assert.match(text, /node-a · 10\.0\.0\.1[^]*node-a · a3/, "hosts of one name are told apart");
  assert.match(text, /scheduling of threads\s+9 s\s+(now|\d+ s ago)\s+1\.00 MiB\s+12,000\s+0\s+–/, "a ring without canaries has seen none of none");
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("on a phone nothing is wider than the screen", { skip }, async () => {
  await page.setViewportSize({ width: 390, height: 844 });
  asked = EXPLAINED;
  for (const [view, place] of [["view=cases", "cases"], ["case=c-17", "case"], ["view=hosts", "hosts"]] as const) {
    await page.goto(`${meter.page}#${view}`);
    await page.waitForSelector(`main[data-place=${place}] .panel`);
    await fits(page, view);
  }
});

test("without agents each view says how to begin", { skip }, async () => {
  hasCases = false;
  await page.goto("about:blank");
  await page.goto(`${meter.page}#view=hosts`);
  await page.waitForSelector("text=No agent yet");
  const command = `spangap agent --meter ${meter.otlpGrpc}`;
  await page.waitForFunction((wanted) => document.querySelector(".empty")?.textContent?.includes(wanted), command);
  await page.goto(`${meter.page}#view=cases`);
  await page.waitForSelector("text=No case yet");
  assert.ok((await page.innerText(".empty")).includes(command));
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("nothing was complained about", { skip }, () => {
  assert.deepEqual(complaints.filter((text) => !text.startsWith("request to")), []);
});
