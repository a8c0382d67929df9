// What axe-core finds wrong with a page, in words.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";

const SOURCE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Axe {
  run(options: { resultTypes: string[]; runOnly?: string[] }): Promise<{ violations: { id: string; help: string; nodes: { target: unknown[]; html: string }[] }[] }>;
}

/** Rules that look at colours. */
const OF_COLOURS = ["color-contrast", "link-in-text-block"];

/** Every rule broken, with the first elements that break it; empty when there is none. */
export async function accessibilityProblems(page: Page, runOnly?: string[]): Promise<string[]> {
  // The page's own policy forbids scripts; a debugger's evaluation is not one of the page.
  if (await page.evaluate(() => !("axe" in window))) await page.evaluate(SOURCE);
  return page.evaluate(async (only) => {
    // What passes need not be described.
    const { violations } = await (window as unknown as { axe: Axe }).axe.run({ resultTypes: ["violations"], ...only });
    return violations.map((found) => `${found.id}: ${found.help}: ${found.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
  }, runOnly ? { runOnly } : {});
}

/** The same of a page that was looked at in light: the dark changes nothing but its colours. */
export const problemsInTheDark = (page: Page): Promise<string[]> => accessibilityProblems(page, OF_COLOURS);
