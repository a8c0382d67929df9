// A report's page as a file of its own, with a document in it, and what every such page keeps.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { accessibilityProblems, problemsInTheDark } from "./axe";
import { fits, settled, type OpenBrowser, type Watched } from "./browser";

/** Opens the page of reports over this document, written to `file`. */
export async function drawn(browser: OpenBrowser, file: string, data: unknown): Promise<Watched> {
  const json = JSON.stringify(data).replaceAll("<", "\\u003c");
  writeFileSync(file, readFileSync("dist/report.html", "utf8").replace("/*REPORT*/", () => json));
  const watched = await browser.open(`file://${file}`);
  await settled(watched.page);
  return watched;
}

/** It fits every width, reads well in light and dark, and complains of nothing. */
export async function isSound({ page, complaints }: Watched): Promise<void> {
  for (const width of [390, 768, 1280, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme: "light" });
    await fits(page, `at ${width}`);
    assert.deepEqual(await accessibilityProblems(page), [], `at ${width}, light`);
    await page.emulateMedia({ colorScheme: "dark" });
    await fits(page, `at ${width}, dark`);
    assert.deepEqual(await problemsInTheDark(page), [], `at ${width}, dark`);
  }
  assert.deepEqual(complaints, []);
}
