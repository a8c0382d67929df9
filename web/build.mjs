// Builds self-contained files, each with a Content-Security-Policy that allows exactly its script and its style:
// dist/index.html, the meter's page, whose policy is dist/csp.txt; dist/tank.html and dist/report.html, what `--html` of
// `spangap tank` and of the other verbs writes, with their policy inside and /*REPORT*/ where the JSON belongs. The binary
// embeds them.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = (path) => new URL(path, import.meta.url).pathname;
/** What a browser has to fetch of a page; it comes compressed. */
const LIMIT_GZIP_BYTES = 120 * 1024;
/** What a report weighs on disk, whose page is written out with every one. */
const LIMIT_REPORT_BYTES = 150 * 1024;

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
    loader: { ".md": "text" },
    logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
}

const sha256 = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** A page with its script and style inside, and the sources that its policy allows. */
async function assemble(folder, entry, frame = folder) {
  const [script, style] = await Promise.all([bundle(`${folder}/${entry}`), bundle(`${folder}/style.css`)]);
  if (/<\/script|<!--/i.test(script)) throw new Error(`${folder}: the script cannot be inlined: it holds </script or <!--`);
  if (/<\/style/i.test(style)) throw new Error(`${folder}: the style cannot be inlined: it holds </style`);
  const page = readFileSync(here(`${frame}/index.html`), "utf8")
    .replace("/*STYLE*/", () => style)
    .replace("/*SCRIPT*/", () => script);
  return { page, sources: [`script-src ${sha256(script)}`, `style-src ${sha256(style)}`] };
}

function write(name, page, bytes, limit) {
  if (bytes > limit) throw new Error(`${name} has ${bytes} bytes: more than its limit of ${limit}`);
  writeFileSync(here(`dist/${name}`), page);
  console.log(`dist/${name} ${(Buffer.byteLength(page) / 1024).toFixed(1)} KiB, compressed ${(gzipSync(page).length / 1024).toFixed(1)} KiB`);
}

const [meter, tank, report] = await Promise.all([assemble("src", "main.tsx"), assemble("src/tank", "main.tsx", "src/report"), assemble("src/report", "main.tsx")]);
mkdirSync(here("dist"), { recursive: true });

const strict = ["img-src data:", "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'"];
writeFileSync(
  here("dist/csp.txt"),
  ["default-src 'none'", ...meter.sources, "connect-src 'self'", ...strict, "frame-ancestors 'none'"].join("; "),
);
write("index.html", meter.page, gzipSync(meter.page).length, LIMIT_GZIP_BYTES);

for (const [name, built] of [["tank.html", tank], ["report.html", report]]) {
  // A policy in the page itself cannot say who may frame it.
  const policy = ["default-src 'none'", ...built.sources, ...strict].join("; ");
  const page = built.page.replace("/*POLICY*/", () => policy);
  if (page.split("/*REPORT*/").length !== 2) throw new Error(`${name} needs one place, and one only, for its report`);
  if (page.split("<title>spangap</title>").length !== 2) throw new Error(`${name} needs one title that the binary can replace`);
  write(name, page, Buffer.byteLength(page), LIMIT_REPORT_BYTES);
}
