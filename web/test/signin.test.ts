// A meter that demands tokens, in a real browser: signing in, what it opens, signing out.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { accessibilityProblems } from "./axe";
import { CHROMIUM, launch } from "./browser";
import { startMeter } from "./meter";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: signing in, in a browser: ${skip}; install the package chromium`);

const VIEW = "view-view-view-view";

test("somebody unknown signs in with a token, sees the page, and signs out", { skip }, async () => {
  const folder = await mkdtemp(join(tmpdir(), "spangap-tokens-"));
  const tokens = join(folder, "tokens");
  await writeFile(tokens, `view ${VIEW}\ningest ingest-ingest-ingest\n`);
  const meter = await startMeter("--token-file", tokens);
  const browser = await launch(CHROMIUM!);
  try {
    const { page, complaints } = await browser.open(`${meter.page}#view=cases`);
    await page.waitForSelector("#sign-in");
    assert.deepEqual(await accessibilityProblems(page), []);
    for (const [token, said] of [["nobody-knows-this-one", "unknown token"], ["ingest-ingest-ingest", "for sending spans"]] as const) {
      await page.fill("#sign-in input", token);
      await page.click("#sign-in button");
      await page.waitForFunction((words) => document.querySelector("#sign-in-said")?.textContent?.includes(words), said);
    }
    await page.fill("#sign-in input", VIEW);
    await page.click("#sign-in button");
    await page.waitForSelector("main[data-place=cases]");
    assert.equal(await page.$("#sign-in"), null);
    assert.equal(await page.evaluate(() => document.cookie), "", "no script sees the cookie");
    await page.click("button[aria-label=settings]");
    await page.waitForFunction(() => document.querySelector("#signed-in")?.textContent?.includes("view: may look."));
    await page.click("#signed-in button");
    await page.waitForSelector("#sign-in");
    // The browser itself notes every refusal; nothing else may have gone wrong.
    assert.deepEqual(complaints.filter((one) => !/status of 40[13]/.test(one)), []);
  } finally {
    await browser.close();
    await meter.stop();
    await rm(folder, { recursive: true });
  }
});
