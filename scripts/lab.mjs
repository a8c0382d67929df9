#!/usr/bin/env node
// The lab, many runs at once; as root, with the release build.
//
//   scripts/lab.mjs repeat [N] [NAME...]   every scenario and its near miss N times (20), in a shuffled order: how often
//                                          what had to show showed, how long a run took, what was left behind
//   scripts/lab.mjs pages [NAME...]        docs/lab: a page and a picture of each, from a run of it and of its near miss
//
// SPANGAP names another binary. Ends with 1 when a scenario acts in fewer than 19 of 20 runs, a run takes more than 20 s,
// or something is left behind.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const home = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const spangap = resolve(process.env.SPANGAP ?? join(home, "target/release/spangap"));
const nearMiss = "-near-miss";
const [leastShare, mostSeconds] = [19 / 20, 20];

function fail(why) {
  console.error(`lab: ${why}`);
  process.exit(2);
}
if (!existsSync(spangap)) fail(`${spangap} is missing: run make build`);
if (process.getuid() !== 0) fail("network namespaces need root: run it with sudo");

const work = mkdtempSync(join(tmpdir(), "spangap-lab-runs-"));
const state = join(work, "state");
process.on("exit", () => rmSync(work, { recursive: true, force: true }));
let stopped = false;
process.on("SIGINT", () => (stopped = true));

const listed = JSON.parse(execFileSync(spangap, ["lab", "list", "--json"], { encoding: "utf8" })).scenarios;
const names = listed.map(({ name }) => name);
function chosen(words) {
  const unknown = words.filter((word) => !names.includes(word));
  if (unknown.length > 0) fail(`there is no scenario ${unknown.join(", ")}: expected ${names.join(", ")}`);
  return words.length > 0 ? words : names;
}

/** Makes one run into a separate folder; returns its truth, or why there is none. */
function run(name, out, seed) {
  const began = performance.now();
  const done = spawnSync(spangap, ["lab", "run", name, "--out", out, "--state", state, "--seed", `${seed}`, "--json"], {
    encoding: "utf8",
  });
  const seconds = (performance.now() - began) / 1000;
  let truth = null;
  try {
    truth = JSON.parse(done.stdout);
  } catch {
    // The reason is on standard error.
  }
  return { truth, seconds, error: done.stderr.trim().split("\n").pop() };
}

/** Seeded shuffle: the same number gives the same order. */
function shuffled(list, seed) {
  let number = seed * 2654435761;
  const next = () => ((number = (number * 1103515245 + 12345) % 2 ** 31), number / 2 ** 31);
  return list.map((value) => [next(), value]).sort(([a], [b]) => a - b).map(([, value]) => value);
}

function left() {
  const spaces = execFileSync("ip", ["netns", "list"], { encoding: "utf8" }).split("\n");
  const journals = existsSync(state) ? readdirSync(state) : [];
  // Other people's runs may be in progress; their journals are elsewhere.
  return journals.concat(spaces.filter((space) => journals.some((journal) => space.includes(journal.split(".")[0]))));
}

function repeat(words) {
  const times = /^\d+$/.test(words[0] ?? "") ? Number(words.shift()) : 20;
  const all = chosen(words).flatMap((name) => [name, name + nearMiss]);
  const tally = new Map(all.map((name) => [name, { runs: 0, acted: 0, seconds: [], why: new Map() }]));
  for (let round = 1; round <= times && !stopped; round++) {
    for (const name of shuffled(all, round)) {
      if (stopped) break;
      const out = join(work, "run");
      const { truth, seconds, error } = run(name, out, round);
      const one = tally.get(name);
      one.runs++;
      one.seconds.push(seconds);
      if (truth?.acted) one.acted++;
      const missing = truth ? truth.proof.filter(({ holds }) => !holds) : [{ what: error }];
      for (const { what, measured, expected } of missing) {
        const why = `${what}${expected ? `: ${measured}, expected ${expected}` : ""}`;
        one.why.set(why, (one.why.get(why) ?? 0) + 1);
      }
      rmSync(out, { recursive: true, force: true });
    }
    console.error(`round ${round} of ${times}`);
  }
  let bad = false;
  console.log(`${"SCENARIO".padEnd(34)} ACTED      MEDIAN    LONGEST`);
  for (const [name, { runs, acted, seconds, why }] of tally) {
    if (runs === 0) continue;
    seconds.sort((a, b) => a - b);
    const [median, longest] = [seconds[Math.floor(runs / 2)], seconds[runs - 1]];
    const wrong = acted < Math.ceil(leastShare * runs) || longest > mostSeconds;
    bad ||= wrong;
    const figures = [`${acted} of ${runs}`.padEnd(9), `${median.toFixed(1)} s`.padStart(7), `${longest.toFixed(1)} s`.padStart(10)];
    console.log(`${name.padEnd(34)} ${figures.join(" ")}${wrong ? "  TOO FEW OR TOO LONG" : ""}`);
    for (const [words, count] of why) console.log(`    ${count} x ${words}`);
  }
  const remains = left();
  if (remains.length > 0) console.log(`left behind: ${remains.join(", ")}`);
  process.exitCode = bad || remains.length > 0 ? 1 : 0;
}

/** A page requires a run whose fault acted; on a busy machine, a run gets more than one attempt. */
function acted(name, out) {
  for (let seed = 1; seed <= 3; seed++) {
    rmSync(out, { recursive: true, force: true });
    const { truth, error } = run(name, out, seed);
    if (truth?.acted) return true;
    console.error(`lab: ${name}: ${error}`);
  }
  return false;
}

function pages(words) {
  const docs = join(home, "docs/lab");
  const failed = [];
  for (const name of chosen(words)) {
    if (stopped) break;
    const [bad, good] = [join(work, name), join(work, name + nearMiss)];
    if (acted(name, bad) && acted(name + nearMiss, good)) {
      execFileSync(spangap, ["lab", "page", bad, good, "--write", docs], { stdio: ["ignore", "inherit", "inherit"] });
    } else {
      failed.push(name);
    }
    for (const folder of [bad, good]) rmSync(folder, { recursive: true, force: true });
  }
  const rows = listed
    .filter(({ name }) => existsSync(join(docs, `${name}.md`)))
    .map(({ name, title, culprit, side }) => `| [${name}](${name}.md) | ${title} | \`${culprit}${side ? ` (${side})` : ""}\` |`);
  const head = "# The lab's scenarios\n\nOne page for each, made from real runs: [how the lab works](../lab.md). In the bars of the\npictures, what both sides do at the same time (a response is on its way while its SERVER span goes on) counts\nonce.\n\n";
  writeFileSync(join(docs, "README.md"), `${head}| scenario | what happens | to blame |\n|---|---|---|\n${rows.join("\n")}\n`);
  if (failed.length > 0) {
    console.error(`lab: no page of ${failed.join(", ")}`);
    process.exitCode = 1;
  }
}

const [verb, ...words] = process.argv.slice(2);
if (verb === "repeat") repeat(words);
else if (verb === "pages") pages(words);
else fail(readFileSync(fileURLToPath(import.meta.url), "utf8").split("\n").slice(1, 10).join("\n").replaceAll("// ", ""));
