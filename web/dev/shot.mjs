// Development only: screenshots of the mock. node dev/shot.mjs OUT PORT SCHEME WIDTH [pair] [call] [HEIGHT] [window]
import { chromium } from "playwright-core";
import { mkdtempSync } from "node:fs";
const [out, port, scheme, width, pair, call, height = "900", window = "15m"] = process.argv.slice(2);
const b = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
const p = await b.newPage({ colorScheme: scheme, viewport: { width: Number(width), height: Number(height) } });
p.on("console", (m) => console.log("console", m.type(), m.text()));
p.on("pageerror", (e) => console.log("pageerror", e.message));
await p.goto(`http://127.0.0.1:${port}/#window=${window}`);
await p.waitForFunction(() => Number(document.body.dataset.refreshed) > 0 || !document.getElementById("problem").hidden);
if (pair && pair !== "-") { await p.click(`.pair-link >> nth=${pair}`); await p.waitForSelector(".timeseries canvas"); await p.waitForSelector("#pair .content:not([hidden])"); const c = await p.locator(".heatmap .plot canvas").boundingBox(); await p.mouse.move(c.x + c.width * .6, c.y + c.height * .7); }
if (call && call !== "-") { await p.click(`.worst .id >> nth=${call}`); await p.waitForSelector("table.spans"); }
await p.screenshot({ path: out, fullPage: process.env.FULL !== "0" });
await b.close();
