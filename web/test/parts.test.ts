// A meter that keeps the parts of a service apart (--by): each row, group, search and pair's page has the service with its part.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { Page } from "playwright-core";
import { become, CHROMIUM, launch, type OpenBrowser, type Watched } from "./browser";
import { send, startMeter, type RunningMeter } from "./meter";
import { call } from "./traffic";

const skip = CHROMIUM ? false : "no Chromium on this machine";
if (skip) console.log(`not run: parts of services in a browser: ${skip}; install the package chromium`);

const MS = 1_000_000n;
let meter: RunningMeter;
let browser: OpenBrowser;
let watched: Watched;
let page: Page;

const rowsBecome = (wanted: string[]) => become(page, ".pairs tbody th", wanted);

before(async () => {
  if (!CHROMIUM) return;
  meter = await startMeter("--by", "version");
  // The second version of the server loses twice as much; one client does not say which version it is.
  const calls = [
    ...Array.from({ length: 8 }, () => ({ ...call("web", "cart", 10n * MS), versions: ["7", "1"] })),
    ...Array.from({ length: 8 }, () => ({ ...call("web", "cart", 20n * MS), versions: ["7", "2"] })),
    ...Array.from({ length: 4 }, () => ({ ...call("batch", "cart", 5n * MS), versions: [undefined, "2"] })),
  ];
  const said = (version: string | undefined) => (version === undefined ? {} : { version });
  await send(meter, calls.flatMap(({ client, server, versions }) => [{ ...client, ...said(versions[0]) }, { ...server, ...said(versions[1]) }]));
  browser = await launch(CHROMIUM);
  watched = await browser.open(meter.page);
  page = watched.page;
  await page.waitForSelector(".pairs tbody tr");
});

after(async () => {
  await browser?.close();
  await meter?.stop();
});

const ALL = ["web@7 → cart@2", "web@7 → cart@1", "batch@? → cart@2"];

test("rows are services with their versions, a search finds one, and groups sum over the other side", { skip }, async () => {
  await rowsBecome(ALL);
  await page.keyboard.press("/");
  await page.keyboard.type("cart@1");
  await rowsBecome(["web@7 → cart@1"]);
  await page.keyboard.press("Escape");
  await page.goBack();
  await rowsBecome(ALL);
  await page.getByLabel("group by").selectOption("server");
  await rowsBecome(["* → cart@2", "* → cart@1"]);
  await page.getByLabel("group by").selectOption("client");
  await rowsBecome(["web@7 → *", "batch@? → *"]);
  await page.getByLabel("group by").selectOption("kept");
  await rowsBecome(ALL);
});

test("a row opens the page of that version alone", { skip }, async () => {
  await page.locator(".pairs tbody th a", { hasText: "cart@1" }).click();
  await page.waitForFunction(() => document.querySelector("h2")?.textContent?.includes("web@7") && document.querySelector("h2")?.textContent?.includes("cart@1"));
  await page.waitForFunction(() => document.body.innerText.includes("8 calls"));
  assert.deepEqual(watched.complaints, []);
});
