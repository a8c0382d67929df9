// The fleet in a real browser over a real meter: search, filters, groups, comparing, the map, choosing stretches, keys.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import type { PairsReport, WorstReport } from "../src/api";
import { accessibilityProblems } from "./axe";
import { become, CHROMIUM, fits, launch, PATIENCE_MS, says, type OpenBrowser, type Watched } from "./browser";
import { api, send, startMeter, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: the fleet in a browser: ${skip}; install the package chromium`);

const MS = 1_000_000n;
/** A name as long as the meter keeps any. */
const LONG = `payments-${"very-".repeat(48)}long`.slice(0, 255);
const SERVICES: [string, string, number][] = [
  ["web", "checkout", 40],
  ["checkout", "payment", 30],
  ["checkout", "cart", 20],
  ["cart", "redis", 12],
  ["web", LONG, 11],
];
let meter: RunningMeter;
let browser: OpenBrowser;
let watched: Watched;
let page: Page;

const rowsBecome = (wanted: string[]) => become(page, ".pairs tbody th", wanted);
const hashHas = (part: string) => page.waitForFunction((text) => decodeURIComponent(location.hash).includes(text), part);

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter();
  const calls = SERVICES.flatMap(([client, server, n]) => Array.from({ length: n }, (_, i) => call(client, server, BigInt(n + i) * MS)));
  await send(meter, calls.flatMap((one) => [one.client, one.server]));
  browser = await launch(CHROMIUM);
  watched = await browser.open(meter.page);
  page = watched.page;
  await page.waitForSelector(".pairs tbody tr");
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

const ALL = ["web → checkout", "checkout → payment", "checkout → cart", "cart → redis", `web → ${LONG}`];

test("a search narrows the pairs, is in the address, and is undone by going back", { skip }, async () => {
  await rowsBecome(ALL);
  await page.keyboard.press("/");
  await page.keyboard.type("CHECKOUT pay");
  await rowsBecome(["checkout → payment"]);
  await hashHas("q=CHECKOUT+pay");
  await says(page, ".pairs caption", /1 row of 5 pass the filters/);
  // Going on with a search, after a pause, is no step of its own.
  await page.keyboard.type("ment");
  await hashHas("q=CHECKOUT+payment");
  await page.keyboard.press("Escape");
  await page.goBack();
  await rowsBecome(ALL);
  await page.waitForFunction(() => document.querySelector<HTMLInputElement>("#search")?.value === "");
});

test("a pair that is slower than usual says how much, where and since when, and the table by what it is ordered", { skip }, async () => {
  await says(page, ".pairs caption", /most time lost in the gap first: no pair shown has a case/);
  assert.equal(await page.locator(".pairs td.beyond").count(), 0);
  const asked = "**/api/v1/pairs?*";
  await page.route(asked, async (route) => {
    assert.match(route.request().url(), /sort=beyond/);
    const answer = await route.fetch();
    const report = (await answer.json()) as PairsReport;
    const last = report.pairs.at(-1)!;
    const all = last.client_duration.mean_ns * last.client_duration.count;
    last.beyond = { client_ns_total: all / 2, gap_ns_total: 0, since_unix_ms: report.to_unix_s * 1000 - 60_000 };
    await route.fulfill({ response: answer, json: report });
  });
  await page.reload();
  await says(page, ".pairs caption", /those first whose clients wait longest beyond the usual.*s\/s: seconds of waiting per second/s);
  await says(page, ".pairs thead", /Beyond usual since its case.*Client time whole range/s);
  await says(page, ".pairs tbody tr:last-child td.beyond.much", /s\/s shows in the server's span since \d\d:\d\d/);
  assert.equal(await page.locator(".pairs td.beyond.much").count(), 1);
  assert.deepEqual(await accessibilityProblems(page), []);
  // On the map it is the wide and red one, although its gaps are the least.
  await page.keyboard.press("m");
  await says(page, ".map figcaption", /the longer its clients wait beyond the usual/);
  assert.equal(await page.locator(".map a.slow").count(), 1);
  const wide = (which: string) => page.locator(which).evaluateAll((all) => all.map((one) => Number(one.getAttribute("stroke-width"))));
  const [slow, others] = [await wide(".map a.slow .edge"), await wide(".map a:not(.slow) .edge")];
  assert.ok(others.every((one) => one < slow[0]!), `${others.join()} against ${slow.join()}`);
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.keyboard.press("m");
  await page.unroute(asked);
  await page.reload();
  await rowsBecome(ALL);
});

test("filters by service and node hold together and can be taken off", { skip }, async () => {
  await page.getByRole("button", { name: "filter" }).click();
  await page.getByLabel("service", { exact: true }).fill("checkout");
  await page.keyboard.press("Enter");
  await rowsBecome(ALL.slice(0, 3));
  await page.keyboard.press("Escape");
  assert.equal(await page.getByLabel("node", { exact: true }).count(), 0, "Escape closes the filters, and keeps them");
  await page.getByRole("button", { name: "filter (1)" }).click();
  await page.getByLabel("node", { exact: true }).fill("node-nowhere");
  await page.keyboard.press("Enter");
  await page.waitForSelector("text=No pair passes the filters");
  await page.getByRole("button", { name: "remove the filter node" }).click();
  await rowsBecome(ALL.slice(0, 3));
  await page.getByRole("button", { name: "clear" }).click();
  await rowsBecome(ALL);
});

test("rows are grouped by client, and a group opens into its pairs", { skip }, async () => {
  await page.selectOption(".toolbar select", "client");
  await rowsBecome(["checkout → *", "web → *", "cart → *"].sort((a, b) => lostOf(b) - lostOf(a)));
  await page.locator(".pairs a", { hasText: "checkout → *" }).click();
  await rowsBecome(["checkout → payment", "checkout → cart"]);
  await page.goBack();
  await page.goBack();
  await rowsBecome(ALL);
});

/** What a client's calls lost, from how they were made. */
function lostOf(group: string): number {
  const client = group.split(" ")[0];
  return SERVICES.filter(([name]) => name === client).reduce((sum, [, , n]) => sum + n * n + (n * (n - 1)) / 2, 0);
}

test("the map has every service, and leads to pairs", { skip }, async () => {
  await page.keyboard.press("m");
  await page.waitForSelector(".map .node");
  assert.equal(await page.locator(".map .node").count(), 6);
  assert.equal(await page.locator(".map .edge").count(), 5);
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.locator(".map a", { hasText: "web → checkout" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector("#pair .content");
  assert.equal(await page.innerText("#pair h2"), "web → checkout");
  await page.keyboard.press("Escape");
  await page.waitForSelector(".map .node");
  await page.keyboard.press("m");
  await rowsBecome(ALL);
});

test("comparing shows what is new, and in the pair how sure a difference is", { skip }, async () => {
  await page.selectOption(".rangeline select", "previous");
  await page.waitForSelector(".pairs thead th:has-text('Change')");
  // This meter did not run then: what came since is not said to be new.
  await page.waitForSelector(".note:has-text('Nothing was recorded in the stretch compared with')");
  assert.equal(await page.locator(".pairs tbody td:has-text('new')").count(), 0);
  await page.route("**/api/v1/coverage*", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), uptime_s: 86_400 } });
  });
  await page.reload();
  await page.waitForFunction(() => [...document.querySelectorAll(".pairs tbody tr")].filter((row) => /new/.test(row.textContent ?? "")).length === 5);
  assert.equal(await page.locator(".pairs tbody td:has-text('new')").count(), 5);
  await page.unrouteAll({ behavior: "wait" });
  await hashHas("against=previous");
  // The same minutes on both sides: nothing differs.
  const report = (await api(meter, "pairs", { window: "15m" })) as PairsReport;
  const [from, to] = [report.to_unix_s - 600, report.to_unix_s + 120];
  await page.goto(`${meter.page}#client=web&server=checkout&from=${from}&to=${to}&against=${from}-${to}`);
  await page.waitForSelector(".versus-table");
  await become(page, ".versus-table tbody tr:nth-child(-n + 4) td:last-child", Array<string>(4).fill("not told apart"));
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("a stretch is chosen by dragging over the plot, and given up again", { skip }, async () => {
  await page.goto(meter.page);
  await page.waitForSelector(".timeline svg");
  const box = (await page.locator(".timeline svg").boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.9, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.95, box.y + 20, { steps: 4 });
  await page.mouse.move(box.x + box.width, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await hashHas("from=");
  await rowsBecome(ALL);
  assert.equal(await page.locator("#ranges input[value=fixed]").isChecked(), true);
  await page.getByRole("button", { name: "back to now" }).click();
  await page.waitForFunction(() => !location.hash.includes("from="));
});

test("cells chosen in the heatmap show their calls, by mouse and by key", { skip }, async () => {
  await page.goto(`${meter.page}#client=web&server=checkout`);
  await page.waitForSelector(".heatmap .plot canvas[aria-label*='of 40 calls']");
  await page.waitForSelector(".worst tbody tr");
  const all = await page.locator(".worst tbody tr").count();
  await page.focus(".heatmap .plot canvas");
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("Enter");
  await hashHas("cells=");
  await page.waitForSelector(".chosen-cells");
  await page.waitForSelector(".brushed:not([hidden])");
  await page.keyboard.press("Escape");
  await page.waitForSelector(".chosen-cells", { state: "detached" });
  const box = (await page.locator(".heatmap .plot canvas").boundingBox())!;
  await page.mouse.move(box.x + 64, box.y + 10);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width - 22, box.y + box.height - 30, { steps: 5 });
  await page.mouse.up();
  await page.waitForSelector(".chosen-cells");
  await page.waitForFunction((rows) => document.querySelectorAll(".worst tbody tr").length === rows, all);
  await page.getByRole("button", { name: "show all" }).click();
  await page.waitForSelector(".chosen-cells", { state: "detached" });
});

test("the cursor of the heatmap is that of the quantiles", { skip }, async () => {
  await page.focus(".heatmap .plot canvas");
  await page.keyboard.press("ArrowUp");
  await page.waitForFunction(() => [...document.querySelectorAll(".u-legend .u-value")].some((value) => /ms/.test(value.textContent ?? "")));
});

test("keys: a list of them, rows, views, and the theme, which stays", { skip }, async () => {
  await page.goto(meter.page);
  await rowsBecome(ALL);
  await page.keyboard.press("?");
  await page.waitForSelector("dialog[open] kbd");
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowDown");
  await page.waitForFunction((row) => document.activeElement?.textContent === row, ALL[1]);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#pair h2");
  await page.keyboard.press("f");
  await rowsBecome(ALL);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  // The first one is seen.
  await page.keyboard.press("t");
  await page.waitForFunction((was) => getComputedStyle(document.body).backgroundColor !== was, before);
  assert.deepEqual(await accessibilityProblems(page), [], "in the dark");
  await page.reload();
  await rowsBecome(ALL);
  assert.notEqual(await ground(), before);
  await page.keyboard.press("t");
  await page.keyboard.press("t");
  await page.waitForFunction((was) => getComputedStyle(document.body).backgroundColor === was, before);
});

test("who steps back goes on from the row that was followed", { skip }, async () => {
  const isOn = (row: string) => page.waitForFunction((text) => document.activeElement?.textContent === text, row);
  await page.goto(meter.page);
  await rowsBecome(ALL);
  await page.locator(".pairs .pair-link", { hasText: "checkout → cart" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector("#pair .worst tbody .id");
  const trace = await page.locator(".worst .id").nth(2).textContent();
  await page.locator(".worst .id").nth(2).click();
  await page.waitForSelector("#call table.spans");
  await page.keyboard.press("Escape");
  await isOn(trace ?? "");
  await page.keyboard.press("Escape");
  await isOn("checkout → cart");
  await page.keyboard.press("j");
  await isOn("cart → redis");
  // On the map as well, and by the browser's own button.
  await page.keyboard.press("m");
  await page.locator(".map a", { hasText: "web → checkout" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForSelector("#pair h2");
  await page.goBack();
  await page.waitForFunction(() => document.activeElement?.matches(".map a") && document.activeElement.querySelector("title")?.textContent?.startsWith("web → checkout"));
  await page.keyboard.press("m");
  await rowsBecome(ALL);
});

test("nothing moves for whoever wants no motion", { skip }, async () => {
  const moving = () => page.evaluate(() => [...document.querySelectorAll("*")].filter((one) => /[1-9]/.test(getComputedStyle(one).transitionDuration + getComputedStyle(one).animationDuration)).map((one) => one.tagName.toLowerCase()));
  assert.deepEqual(await moving(), []);
  await page.emulateMedia({ reducedMotion: "no-preference" });
  assert.ok((await moving()).includes("tr"), "a row under the pointer changes its ground softly for all others");
  await page.emulateMedia({ reducedMotion: "reduce" });
});

test("a call links to the trace UI that was set here, and can be taken along", { skip }, async () => {
  await page.goto(`${meter.page}#client=web&server=checkout`);
  await page.locator(".worst .id").first().click();
  await page.waitForSelector("table.spans");
  await page.getByRole("button", { name: "link to your trace UI" }).click();
  await page.getByLabel("Address of a trace").fill("https://traces.example/");
  assert.equal(await page.getByRole("button", { name: "save" }).isDisabled(), true);
  await page.getByLabel("Address of a trace").fill("https://traces.example/t/{trace_id}?span={span_id}");
  await page.getByRole("button", { name: "save" }).click();
  const href = await page.getAttribute("a.out", "href");
  const shown = new URLSearchParams(new URL(page.url()).hash.slice(1));
  assert.equal(href, `https://traces.example/t/${shown.get("trace_id")}?span=${shown.get("client_span_id")}`);
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "download JSON" }).click()]);
  assert.equal(download.suggestedFilename(), `call-${shown.get("trace_id")}.json`);
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("nothing is wider than the screen, from a phone to a desk, however long the names", { skip }, async () => {
  const views = [
    ["", ".pairs tbody tr"],
    ["show=map", ".map .node"],
    ["against=previous", ".pairs tbody tr"],
    [`client=web&server=${LONG}`, ".worst tbody tr"],
    ["client=web&server=checkout&against=previous", ".worst tbody tr"],
    ["view=cases", ".panel"],
    ["view=hosts", ".panel"],
  ] as const;
  for (const width of [1920, 1280, 768, 390]) {
    await page.setViewportSize({ width, height: 844 });
    for (const [view, shown] of views) {
      await page.goto("about:blank");
      await page.goto(`${meter.page}#${view}`);
      await page.waitForSelector(shown);
      await fits(page, `${width} px, #${view}`);
    }
    await page.goto(`${meter.page}#`);
    await rowsBecome(ALL);
    assert.deepEqual(await accessibilityProblems(page), [], `${width} px`);
  }
});

test("the hosts of the worst calls are in sight on a tablet", { skip }, async () => {
  await page.setViewportSize({ width: 768, height: 900 });
  await page.goto("about:blank");
  await page.goto(`${meter.page}#client=web&server=checkout`);
  await page.waitForSelector(".worst tbody tr");
  const hidden = () => page.$eval(".worst .scroller", (box) => box.scrollWidth - box.clientWidth);
  await page.waitForFunction(() => [...document.querySelectorAll(".worst .scroller")].every((box) => box.scrollWidth <= box.clientWidth), undefined, { timeout: PATIENCE_MS / 4 }).catch(async () => assert.fail(`${await hidden()} px are out of sight`));
  // What is cut in the table is whole in the title, and what "copy" takes.
  const id = page.locator(".worst .id").first();
  assert.equal(await id.getAttribute("title"), await id.textContent());
});

test("the pair's bars and the fleet's show where clients' time went, and mark the step that is not over", { skip }, async () => {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto("about:blank");
  await page.goto(meter.page);
  await says(page, ".timeline-said", /What clients waited in each minute, at most [^:]*:\s+in the server's spans\s+in the gap/);
  // As high as their sums: of each bar, both parts.
  const heights = (selector: string) => page.$$eval(selector, (all) => all.reduce((sum, one) => sum + Number(one.getAttribute("height")), 0));
  const [server, gap] = [await heights(".timeline .bar .leg-server"), await heights(".timeline .bar .leg-gap")];
  const report = (await api(meter, "pairs", { window: "1h" })) as PairsReport;
  const lost = report.pairs.reduce((sum, row) => sum + row.lost_ns_total, 0);
  const waited = report.pairs.reduce((sum, row) => sum + row.client_duration.mean_ns * row.client_duration.count, 0);
  assert.ok(Math.abs(gap / (gap + server) - lost / waited) < 0.05, `${gap} of ${gap + server}, ${lost} of ${waited}`);
  assert.ok((await page.locator(".pairs .spark .leg-gap").count()) > 0);
  // Steps of a day, so that none ends while this looks.
  await page.route("**/api/v1/timeline?*", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), step_s: 86_400 } });
  });
  await page.route("**/api/v1/pairs?*", async (route) => {
    const answer = await route.fetch();
    const pairs = (await answer.json()) as PairsReport;
    for (const row of pairs.pairs) row.client_ns_by_step![row.client_ns_by_step!.length - 1] = 1e9;
    await route.fulfill({ response: answer, json: pairs });
  });
  await page.reload();
  await says(page, ".timeline-said", /The last bar is of a step that is not over\./);
  assert.ok((await page.locator(".timeline .bar.unfinished").count()) >= 1);
  assert.equal(await page.locator(".pairs .spark .unfinished").count(), await page.locator(".pairs .spark").count());
  await page.unrouteAll({ behavior: "wait" });
  await page.goto(`${meter.page}#client=web&server=checkout`);
  await says(page, ".waited-over-time", /What clients waited in each minute, at most/, /in the server's spans[^]*in the gap/);
  assert.ok((await page.locator(".waited-over-time .step").count()) >= 1);
  assert.deepEqual(await accessibilityProblems(page), []);
});

test("hosts of one name are told apart by their addresses", { skip }, async () => {
  await page.route("**/api/v1/worst?*", async (route) => {
    const answer = await route.fetch();
    const worst = (await answer.json()) as WorstReport;
    for (const one of worst.calls) Object.assign(one, { client_host: "vm", server_host: "vm", client_address: "10.88.0.1", server_address: "10.88.0.2" });
    await route.fulfill({ response: answer, json: worst });
  });
  await page.goto("about:blank");
  await page.goto(`${meter.page}#client=web&server=checkout`);
  await says(page, ".worst tbody tr:first-child .hosts", /vm · 10\.88\.0\.1 → vm · 10\.88\.0\.2/);
  await says(page, ".nodes tbody tr:first-child", /vm · 10\.88\.0\.1\s+→\s+vm · 10\.88\.0\.2/);
  await page.unrouteAll({ behavior: "wait" });
});

test("the help has the terms of the glossary", { skip }, async () => {
  await page.keyboard.press("?");
  await page.click("dialog .terms summary >> text=Spans and gaps");
  await says(page, "dialog .terms[open]", /gap[^]*The duration of a CLIENT span minus the duration of its SERVER span/);
  assert.deepEqual(await accessibilityProblems(page), []);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelector("dialog") === null);
});

test("a grey stretch of the plot has a word beside it, and none without one", { skip }, async () => {
  await page.goto("about:blank");
  await page.goto(meter.page);
  await page.waitForSelector(".timeline-said");
  assert.doesNotMatch(await page.innerText(".timeline-said"), /nothing was recorded/);
  await page.route("**/api/v1/coverage*", async (route) => {
    const answer = await route.fetch();
    const now = Math.floor(Date.now() / 1000);
    await route.fulfill({ response: answer, json: { ...(await answer.json()), holes: [{ from_unix_s: now - 600, to_unix_s: now - 300 }] } });
  });
  await page.reload();
  await page.waitForSelector(".timeline .hole");
  await says(page, ".timeline-said", /Shaded to the top: nothing was recorded\./);
  await page.unrouteAll({ behavior: "wait" });
});

test("nothing was complained about", { skip }, () => {
  assert.deepEqual(watched.complaints, []);
});
