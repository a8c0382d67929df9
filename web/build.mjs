// Builds the page to one self-contained file, dist/index.html, and to dist/csp.txt the Content-Security-Policy
// that allows exactly its script and its style. The server embeds both.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const here = (path) => new URL(path, import.meta.url).pathname;
const LIMIT_BYTES = 150 * 1024;

/** Bundles one entry point and returns the text of its only output. */
async function bundle(entry) {
  const result = await build({
    entryPoints: [here(entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
}

const sha256 = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

const [script, style] = await Promise.all([bundle("src/main.ts"), bundle("src/style.css")]);
if (/<\/script|<!--/i.test(script)) throw new Error("the bundled script cannot be inlined: it holds </script or <!--");
if (/<\/style/i.test(style)) throw new Error("the bundled style cannot be inlined: it holds </style");

const page = readFileSync(here("src/index.html"), "utf8")
  .replace("/*STYLE*/", () => style)
  .replace("/*SCRIPT*/", () => script);
const policy = [
  "default-src 'none'",
  `script-src ${sha256(script)}`,
  `style-src ${sha256(style)}`,
  "connect-src 'self'",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join("; ");

const bytes = Buffer.byteLength(page);
if (bytes > LIMIT_BYTES) throw new Error(`the page has ${bytes} bytes: more than its limit of ${LIMIT_BYTES}`);
mkdirSync(here("dist"), { recursive: true });
writeFileSync(here("dist/csp.txt"), policy);
writeFileSync(here("dist/index.html"), page);
console.log(`dist/index.html ${(bytes / 1024).toFixed(1)} KiB`);
