// Takes the pictures of the page in docs/images, from meters that run and from fixtures:
//
//   npm run pictures -- --fleet http://127.0.0.1:7071/ --case http://127.0.0.1:7070/ [--out FOLDER] [NAME...]
//
// `--fleet` names a meter with several pairs, such as one beside HotROD (docs/hotrod.md), and `--case` one with a proven case, such as
// that of `spangap demo --auto --data DIR`, started again over DIR. Pictures whose meter is not named are left as they are, and so is
// host-stacks.png, which shows a machine of its own. With SPANGAP_PAGE set, it is the page in dist/ that is drawn, over the answers of
// meters that may serve an older one.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const here = (path) => new URL(path, import.meta.url).pathname;
const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = PLACES.find((path) => path && existsSync(path));
if (!executablePath) throw new Error("no Chromium on this machine: install the package chromium");
const spangap = process.env.SPANGAP_BIN ?? here("../target/release/spangap");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { fleet: { type: "string" }, case: { type: "string" }, out: { type: "string", default: here("../docs/images") } },
});
const folder = mkdtempSync(join(tmpdir(), "spangap-pictures-"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });

const MARGIN = 14;

/** One picture of an address: of the window, or of one element. */
async function take(name, address, { width, height, until, element, then }) {
  if (positionals.length > 0 && !positionals.includes(name)) return;
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: "light", reducedMotion: "reduce" });
  if (process.env.SPANGAP_PAGE) {
    const headers = { "content-security-policy": readFileSync(here("dist/csp.txt"), "utf8"), "content-type": "text/html; charset=utf-8" };
    await page.route((asked) => asked.protocol === "http:" && asked.pathname === "/", (route) => route.fulfill({ path: here("dist/index.html"), headers }));
  }
  await page.goto(address);
  await page.waitForSelector(until);
  await then?.(page);
  // Drawings follow the width of their place a frame later.
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done()))));
  const path = join(values.out, `${name}.png`);
  if (element) {
    const box = await page.locator(element).first().boundingBox();
    const clip = { x: box.x - MARGIN, y: box.y, width: box.width + 2 * MARGIN, height: box.height };
    await page.screenshot({ path, clip, fullPage: true });
  } else await page.screenshot({ path });
  console.log(path);
  await page.close();
}

/** A page that a verb writes. */
function written(name, inFolder, ...told) {
  const file = join(folder, `${name}.html`);
  execFileSync(spangap, [...told, "--html", file], { cwd: here(`../fixtures/${inFolder}`), stdio: ["ignore", "ignore", "inherit"] });
  return `file://${file}`;
}

async function ofFleet(meter) {
  await take("page-fleet", meter, { width: 1280, height: 600, until: ".pairs tbody tr" });
  await take("page-phone", meter, { width: 390, height: 870, until: ".pairs tbody tr" });
}

async function ofCase(meter) {
  const { cases } = await (await fetch(`${meter}api/v1/cases`)).json();
  const proven = cases.find((one) => one.state === "proven") ?? cases.find((one) => one.state === "fixed" && one.verdict?.culprit);
  if (!proven) throw new Error(`${meter} has no proven case`);
  const { client, server } = proven.pair;
  const view = `${meter}#case=${encodeURIComponent(proven.id)}`;
  await take("page-case", view, { width: 1280, height: 1150, until: ".leg-of b" });
  await take("page-experiment", view, { width: 1280, height: 1150, until: ".experiment.proven", element: ".experiment.proven" });
  // One whose spans the case has, if there is one.
  const whole = async (page) => {
    for (let at = 0; at < (await page.locator(".calls-of a").count()); at++) {
      await page.locator(".calls-of a").nth(at).click();
      await page.waitForSelector(".whole svg");
      if ((await page.locator(".span-client").count()) > 0) return;
      await page.goBack();
      await page.waitForSelector(".calls-of a");
    }
    await page.locator(".calls-of a").first().click();
    await page.waitForSelector(".whole svg");
  };
  await take("page-call", view, { width: 1280, height: 1150, until: ".calls-of a", then: whole });
  const pair = new URLSearchParams({ client, server });
  await take("page-pair", `${meter}#${pair}`, { width: 768, height: 1180, until: ".worst tbody tr" });
  await take("page-hosts", `${meter}#view=hosts`, { width: 1280, height: 620, until: ".agent" });
}

try {
  if (values.fleet) await ofFleet(values.fleet);
  if (values.case) await ofCase(values.case);
  const captures = ["client", "server"].map((end) => `nagle-client.${end}.pcapng`);
  await take("dissect-ladder", written("dissect", "captures", "dissect", ...captures), { width: 1180, height: 1240, until: ".packet" });
  const machine = ["--interface", "eth0", "--root", "machine.txt"];
  await take("isolate-show", written("show", "isolate/article-2x24x2", "isolate", "show", ...machine), { width: 1280, height: 860, until: "[data-cpu]" });
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
