// Bundles every test/*.test.ts and runs them with node's test runner. Arguments name single tests: `npm test -- format`.

import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const web = new URL("..", import.meta.url).pathname;
const out = `${web}node_modules/.cache/spangap-tests`;
const wanted = process.argv.slice(2);
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
  sourcemap: "inline",
  logLevel: "warning",
});
const files = tests.map((name) => `${out}/${name.replace(/\.ts$/, ".mjs")}`);
const run = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { stdio: "inherit", cwd: web });
process.exitCode = run.status ?? 1;
