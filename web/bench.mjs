// `npm run bench`: bundles bench/page.ts and runs it. Arguments go to it.

import { spawnSync } from "node:child_process";
import { build } from "esbuild";

const web = new URL(".", import.meta.url).pathname;
const out = `${web}node_modules/.cache/spangap-bench/page.mjs`;
await build({ entryPoints: [`${web}bench/page.ts`], outfile: out, bundle: true, platform: "node", format: "esm", target: "node20", packages: "external", sourcemap: "inline", logLevel: "warning" });
const run = spawnSync(process.execPath, ["--enable-source-maps", out, ...process.argv.slice(2)], { stdio: "inherit", cwd: web });
process.exitCode = run.status ?? 1;
