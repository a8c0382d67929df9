// Bundles every test/*.test.ts and runs them with node's test runner. Arguments name single tests: `npm test -- format`.

import { readdirSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { run } from "node:test";
import { spec, tap } from "node:test/reporters";
import { build } from "esbuild";

const web = new URL("..", import.meta.url).pathname;
const out = `${web}node_modules/.cache/spangap-tests`;
const wanted = process.argv.slice(2);
/** Long ones, begun first so that none of them is left over at the end. */
const FIRST = ["host_reports", "tank", "reports", "cases", "page"].map((name) => `${name}.test.ts`);
const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
const tests = readdirSync(`${web}test`)
  .filter((name) => name.endsWith(".test.ts"))
  .filter((name) => wanted.length === 0 || wanted.some((word) => name.includes(word)));
if (tests.length === 0) throw new Error(`no test/*.test.ts is named like ${wanted.join(" or ")}`);

rmSync(out, { recursive: true, force: true });
await build({
  entryPoints: tests.map((name) => `${web}test/${name}`),
  outdir: out,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  platform: "node",
  format: "esm",
  target: "node20",
  packages: "external",
  loader: { ".md": "text" },
  sourcemap: "inline",
  logLevel: "warning",
});
const files = [...tests].sort((a, b) => place(a) - place(b)).map((name) => `${out}/${name.replace(/\.ts$/, ".mjs")}`);
// Where a failure is in the sources, and what they read, from here.
process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --enable-source-maps`;
process.chdir(web);
/** The longest file takes two minutes on two idle CPUs; a browser that does not answer would be waited for without end. */
const MOST_MS = 900_000;
// Each file has meters and a browser of its own, and waits for them half of its time.
const results = run({ files, concurrency: Math.max(2, availableParallelism()), timeout: MOST_MS });
results.on("test:fail", () => {
  process.exitCode = 1;
});
results.compose(process.stdout.isTTY ? spec : tap).pipe(process.stdout);
