// A real Chromium, and a page that notes everything it should not have done.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type Page } from "playwright-core";

const PLACES = [process.env["CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Where Chromium is, if it is. */
export const CHROMIUM = PLACES.find((path): path is string => path !== undefined && existsSync(path));

/** A machine under load may pause for seconds; nothing here is judged by how long it takes. */
export const PATIENCE_MS = 120_000;

const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export interface Watched {
  page: Page;
  /** Console errors, uncaught errors and requests to other hosts. */
  complaints: string[];
}

export interface OpenBrowser {
  open: (url: string) => Promise<Watched>;
  close: () => Promise<void>;
}

/**
 * What is cut off or wider than the window, in words or whether there is nothing. A table may scroll in its own box, if the box says so
 * and can be reached by keyboard.
 */
const misfits = (inWords: boolean): string | boolean => {
  const { scrollWidth } = document.documentElement;
  const wrong = scrollWidth > innerWidth ? [`the page is ${scrollWidth} px wide`] : [];
  for (const one of document.querySelectorAll<HTMLElement>("body *")) {
    const { overflowX, textOverflow } = getComputedStyle(one);
    // What is folded away has a size all the same.
    if (!one.checkVisibility() || one.clientWidth <= 1 || one.scrollWidth <= one.clientWidth + 1 || overflowX === "visible" || one.closest(".unseen, svg *, input, select")) continue;
    const what = `${one.tagName.toLowerCase()}.${one.className} is ${one.clientWidth} px wide and holds ${one.scrollWidth} px`;
    if (overflowX === "hidden" || overflowX === "clip") {
      if (textOverflow !== "ellipsis") wrong.push(`${what}, cut off`);
    } else if (!one.matches(".scroller[data-more][tabindex='0']")) wrong.push(`${what}, without a hint`);
  }
  return inWords ? wrong.join("; ") : wrong.length === 0;
};

/** Fails unless everything comes to fit the window: drawings follow a new width a moment later. */
export async function fits(page: Page, where: string): Promise<void> {
  const isSo = page.waitForFunction(misfits, false, { timeout: PATIENCE_MS / 4 });
  await isSo.catch(async () => assert.fail(`${where}: ${await page.evaluate(misfits, true)}`));
}

/** Waits until an element says all of this, thin spaces read as spaces; returns all that it says. */
export async function says(page: Page, selector: string, ...parts: RegExp[]): Promise<string> {
  const patterns = parts.map(({ source, flags }) => [source, flags] as const);
  const isSo = page.waitForFunction(
    ([selector, patterns]) => {
      const text = document.querySelector<HTMLElement>(selector)?.innerText.replace(/\u202f/g, " ");
      return text !== undefined && patterns.every(([source, flags]) => new RegExp(source, flags).test(text));
    },
    [selector, patterns] as const,
    { polling: 50 },
  );
  // What it says instead is worth more than that the time is over.
  await isSo.catch(() => {});
  const text = (await page.innerText(selector)).replace(/\u202f/g, " ");
  for (const part of parts) assert.match(text, part);
  return text;
}

/** Waits until all that stands under a selector, in its order, has these texts. */
export async function become(page: Page, selector: string, wanted: string[]): Promise<void> {
  const texts = () => page.$$eval(selector, (all) => all.map((one) => one.textContent));
  const isSo = page.waitForFunction(([selector, wanted]) => JSON.stringify([...document.querySelectorAll(selector)].map((one) => one.textContent)) === wanted, [selector, JSON.stringify(wanted)] as const, { polling: 50 });
  await isSo.catch(async () => assert.deepEqual(await texts(), wanted, selector));
}

/** Waits until what follows the size of the window, such as a drawing, has followed it. */
export const settled = (page: Page) => page.evaluate(() => new Promise<void>((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));

/** Closes a page; a question that was about to be answered for the meter is let go. */
export async function closePage(page: Page): Promise<void> {
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await page.close();
}

/** Starts Chromium with a new profile. */
export async function launch(executablePath: string, colorScheme: "light" | "dark" = "light"): Promise<OpenBrowser> {
  const profile = await mkdtemp(join(tmpdir(), "spangap-chromium-"));
  const context: BrowserContext = await chromium.launchPersistentContext(profile, {
    executablePath,
    args: FLAGS,
    colorScheme,
    viewport: { width: 1440, height: 1000 },
    permissions: ["clipboard-read", "clipboard-write"],
    // A colour on its way to another one is neither.
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(PATIENCE_MS);
  context.setDefaultNavigationTimeout(PATIENCE_MS);
  // While one works at the page: the one just built, over a binary that holds an older one. Two tests, of the page as the binary serves
  // it, fail then: that it is the one that was built, and that it says that it loads.
  if (process.env["SPANGAP_PAGE"]) {
    const headers = { "content-security-policy": readFileSync("dist/csp.txt", "utf8"), "content-type": "text/html; charset=utf-8" };
    await context.route((asked) => asked.protocol === "http:" && asked.pathname === "/", (route) => route.fulfill({ path: "dist/index.html", headers }));
  }
  return {
    open: async (url) => {
      const page = await context.newPage();
      const complaints: string[] = [];
      page.on("console", (message) => {
        // A meter without cases answers so, and the browser notes every such answer.
        if (/\/api\/v1\/(cases|agents)/.test(message.location().url) && message.text().includes("404")) return;
        if (message.type() === "error" || message.type() === "warning") complaints.push(`console: ${message.text()}`);
      });
      page.on("pageerror", (error) => complaints.push(`uncaught: ${error.message}`));
      page.on("request", (request) => {
        const asked = new URL(request.url());
        if (asked.protocol !== "data:" && asked.origin !== new URL(url).origin) complaints.push(`request to ${request.url()}`);
      });
      await page.goto(url);
      return { page, complaints };
    },
    close: async () => {
      for (const page of context.pages()) await page.unrouteAll({ behavior: "ignoreErrors" });
      await context.unrouteAll({ behavior: "ignoreErrors" });
      await context.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}
