// What `gaps --html` writes, in a real browser: pairs, what sets their slow calls apart, and what was skipped, with names that would be markup.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { GapsDocument } from "../src/report/gaps";
import { CHROMIUM, launch, type OpenBrowser } from "./browser";
import { drawn, isSound } from "./drawn";
import { binary, otlpJson } from "./meter";
import { call, HOSTILE } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: the page of gaps in a browser: ${skip}; install the package chromium`);

const plain = (text: string) => text.replace(/\u202f/g, " ");
const MS = 1_000_000n;
let folder: string;
let browser: OpenBrowser;

before(async () => {
  folder = mkdtempSync(join(tmpdir(), "spangap-gaps-"));
  if (CHROMIUM) browser = await launch(CHROMIUM);
});

after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

function written(name: string, spans: string, ...told: string[]): GapsDocument & { page: string } {
  const [input, file] = [join(folder, `${name}.json`), join(folder, `${name}.html`)];
  writeFileSync(input, spans);
  execFileSync(binary(), ["gaps", ...told, "--html", file, input], { stdio: ["ignore", "ignore", "inherit"] });
  const page = readFileSync(file, "utf8");
  return { ...(JSON.parse(/id="data">(.*?)<\/script>/s.exec(page)?.[1] ?? "") as GapsDocument), page };
}

test("gaps: pairs by time lost, and of each the legs, the attributes, the worst calls", { skip }, async () => {
  // One size of request is slow, in one pair of two.
  const slow = (n: number) => call("front", HOSTILE, (n % 10 === 0 ? 40n : 1n) * MS + BigInt(n) * 1_000n, { "request.class": n % 10 === 0 ? "large" : "small" });
  const calls = [...Array.from({ length: 400 }, (_, n) => slow(n)), ...Array.from({ length: 30 }, () => call("cart", "redis", MS))];
  const { page: text, ...data } = written("pairs", otlpJson(calls.flatMap((one) => [one.client, one.server])), "--explain");
  assert.match(text, /<title>spangap gaps: .*pairs\.json<\/title>/);
  assert.deepEqual(data.report.pairs.map((row) => row.server), [HOSTILE, "redis"]);
  const watched = await drawn(browser, join(folder, "drawn.html"), data);
  const { page } = watched;
  const shown = plain(await page.innerText("body"));
  const lost = calls.reduce((sum, one) => sum + Number(one.gapNs), 0) / 1e9;
  assert.ok(shown.includes(`Clients waited ${lost.toPrecision(3)} s longer than their servers worked, in 430 calls.`), shown.slice(0, 400));
  for (const part of [/2 pairs, most time lost first/, /request\.class = large/, /Mean call:\s+request leg \d/, /860 spans, each in one class/]) assert.match(shown, part);
  assert.ok(shown.includes(`front → ${HOSTILE}`));
  assert.equal(await page.locator("img").count(), 0);
  const worst = [...calls].sort((a, b) => Number(b.gapNs - a.gapNs));
  assert.equal(await page.locator("#pair-1 .worst .id").first().innerText(), worst[0]!.traceId);
  await page.locator(".pairs a").nth(1).click();
  assert.ok(page.url().endsWith("#pair-2"));
  await isSound(watched);
});

test("gaps: a file without a pair, and one that is cut off, say so", { skip }, async () => {
  const none = await drawn(browser, join(folder, "none.html"), written("none", otlpJson([call("a", "b", MS).client])));
  assert.match(await none.page.innerText("body"), /No CLIENT span and SERVER span of the same call were found/);
  await isSound(none);
  const whole = otlpJson([call("a", "b", MS)].flatMap((one) => [one.client, one.server]));
  const cut = await drawn(browser, join(folder, "cut.html"), written("cut", `${whole}\n${whole.slice(0, 200)}`));
  assert.match(plain(await cut.page.innerText("body")), /1 pair, most time lost first[^]*cut\.json, /);
  await isSound(cut);
});
