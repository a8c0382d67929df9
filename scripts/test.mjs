#!/usr/bin/env node
// Runs every test of the workspace, of the page and of the Go programs, all of them even when one fails, and sums up.
// `scripts/test.mjs [WORD...]`: only the parts with one of these words in their name.
//
// `cargo test` runs one test program after the other, but most of them wait: for processes, for spans, for a fault to
// act. So this builds them all first, and then runs several at a time. Those that look at the machine would see what the
// others do to it: they run before these, one after the other, and beside them only what computes.
//
// A test that cannot run on this machine prints a line `not run: WHY`; these are repeated and counted at the end.
// What a part prints is shown when it ends, and stays in target/test-logs.
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, statfsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isRunning, runWithin } from "./within.mjs";

const home = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const logs = `${home}/target/test-logs`;
process.chdir(home);

/** Parts that run alone: these tests of the probes measure who has the CPU. */
const ALONE = /^spangap-host --test (intervals|offcpu)$/;
/**
 * Parts that run one after the other: the binary's own tests start hosts, agents and faults, and compare a machine's state
 * before and after. Those of the binary's that only read files, or talk over loopback, run with the others.
 */
const OF_THE_MACHINE = /^spangap --test /;
const ANYWHERE = /^spangap --test (bench_compare|client|conformance|deploy|dissect|exit_codes|gaps|hunt|isolate_plan|meter|pages|tank_target|target|truth)$/;
/**
 * Parts that take a CPU's time and nothing else: they start no program of ours and change nothing that others look at. One at
 * a time, with one thread, runs beside those of the machine, which wait for more than half of their time and must pass
 * beside a busy neighbour anyway. The longest come first.
 */
const COMPUTES = [
  /^spangap-cases --lib$/,
  /^spangap-meter --test explain$/,
  /^spangap-isolate --lib$/,
  /^spangap-wire --test (source|tcp)$/,
  /^spangap-meter --(lib|test (files|join|walk|worst))$/,
  /^spangap-(diagnose|model|wire) --lib$/,
  /^spangap-wire --test (causes|hops|joined_later|mask|protocols|protocol_streams|read_ahead|strangers)$/,
];
/**
 * Modules whose tests are a part of their own, beside which two other parts run at a time; the rest of their program runs with
 * the others. These two start hosts with a fault and prove a remedy by measurement: they wait for most of their time, and one
 * for the other. More than two beside them might leave the proof undecided.
 */
const BESIDE_TWO = new Map([["spangap --test meter", ["demo_faults::", "experiment::"]]]);
/** Parts that copy machines, thousands of small files each: in memory, where there is room. */
const OF_COPIES = /^spangap(-isolate .*| --test isolate)$/;
const MEMORY = "/dev/shm";
/** Long parts, begun first so that none of them is left over at the end. */
const FIRST = ["spangap --test meter", "page", "spangap-cases --test fleet", "spangap --test conformance", "spangap-bench --lib", "go"];
/** Number of the other parts that run concurrently: most of them wait. */
const AT_ONCE = 2 * availableParallelism();
/** The longest part takes 6 minutes on two idle CPUs, and 15 beside other work: what takes longer than this hangs. */
const MOST_SECONDS = 20 * 60;
/** How often the parts that still run are named: a limit from outside may end this program. */
const NAMED_EVERY_MS = 300_000;
// A counterexample that takes a second a try would be shrunk for half an hour.
process.env.PROPTEST_MAX_SHRINK_TIME ??= "60000";

function freeGiB(path) {
  const { bavail, bsize } = statfsSync(path);
  return (bavail * bsize) / 2 ** 30;
}

/** Builds the test programs; each is a part, named by the arguments with which `cargo test -p` runs it alone. */
function rust() {
  const flags = ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"];
  console.log(`== build: cargo ${flags.join(" ")}`);
  const built = spawnSync("cargo", flags, { stdio: ["ignore", "pipe", "inherit"], maxBuffer: 1 << 30, encoding: "utf8" });
  const messages = built.stdout.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  const tests = messages.filter(({ reason, profile, executable }) => reason === "compiler-artifact" && profile.test && executable);
  const parts = tests.flatMap(({ package_id, manifest_path, target, executable }) => {
    const folder = dirname(manifest_path);
    const crate = /#([^@]+)@/.exec(package_id)?.[1] ?? basename(folder);
    const which = target.kind[0] === "test" || target.kind[0] === "bin" ? `--${target.kind[0]} ${target.name}` : "--lib";
    // --show-output, because a passing test's `not run:` line would otherwise be swallowed.
    const command = [executable, "--show-output"];
    // Folder and variable as under `cargo test`.
    const env = { CARGO_MANIFEST_DIR: folder };
    const name = `${crate} ${which}`;
    if (OF_COPIES.test(name) && existsSync(MEMORY) && freeGiB(MEMORY) >= 1) env.TMPDIR = MEMORY;
    const part = { name, kind: "rust", command, cwd: folder, env };
    const modules = BESIDE_TWO.get(name);
    if (!modules) return [part];
    const but = modules.flatMap((module) => ["--skip", module]);
    return [
      { ...part, name: `${name} -- ${modules.join(" ")}`, command: [...command, ...modules], isBesideTwo: true },
      { ...part, command: [...command, ...but] },
    ];
  });
  return built.status === 0 ? parts : undefined;
}

/** The examples in the documentation, for the whole workspace: single crates would be built with other features. */
const examples = { name: "examples", kind: "rust", command: ["cargo", "test", "--workspace", "--locked", "--doc", "--no-fail-fast", "--", "--show-output"] };
const page = [
  { name: "page-types", kind: "page", command: ["npm", "--prefix", "web", "run", "--silent", "check"] },
  { name: "page", kind: "page", command: ["npm", "--prefix", "web", "run", "--silent", "test"] },
];
function go() {
  if (spawnSync("go", ["-C", "clients/go", "version"]).status !== 0) {
    return [{ name: "go", kind: "go", command: ["echo", "not run: the tests of clients/go need the go that clients/go/go.mod asks for"] }];
  }
  return [
    { name: "go-vet", kind: "go", command: ["go", "-C", "clients/go", "vet", "./..."] },
    // -v, because a passing test's `not run:` line would otherwise be swallowed.
    { name: "go", kind: "go", command: ["go", "-C", "clients/go", "test", "-v", "./..."] },
  ];
}

/** Runs a part to its end; then shows what it printed. */
async function run(part) {
  const file = `${logs}/${part.name.replaceAll(/[ :-]+/g, "-")}.log`;
  const began = performance.now();
  const log = openSync(file, "w");
  const options = { stdio: ["ignore", log, log], cwd: part.cwd ?? home, env: { ...process.env, ...part.env } };
  const how = await runWithin(MOST_SECONDS, part.name, part.command, options);
  closeSync(log);
  part.text = readFileSync(file, "utf8");
  part.seconds = (performance.now() - began) / 1000;
  part.failed = how !== "";
  console.log(`== ${part.name} (${part.seconds.toFixed(1)} s)${part.failed ? `: FAILED, ${how}` : ""}`);
  process.stdout.write(part.text);
}

/** Runs the waiting parts, this many at a time, while it may go on. Takes them from the list, which others may take from as well. */
async function together(waiting, atOnce, goesOn = () => true) {
  const turn = async () => {
    while (waiting.length > 0 && goesOn()) await run(waiting.shift());
  };
  await Promise.all(Array.from({ length: atOnce }, turn));
}

function sum(parts, line, ...fields) {
  const counts = fields.map(() => 0);
  for (const { text } of parts) {
    for (const match of text.matchAll(line)) fields.forEach((field, at) => (counts[at] += field(match)));
  }
  return counts;
}

rmSync(logs, { recursive: true, force: true });
mkdirSync(logs, { recursive: true });

const wanted = process.argv.slice(2);
/** A compiler says of a full disk that its output stream failed; here is how full it is, before and after. */
function room() {
  return `${freeGiB(logs).toFixed(1)} GiB free on the file system of target/`;
}

const before = room();
const built = rust();
if (!built) {
  console.log(`FAILED: the build; ${before} before it, ${room()} now; a build from nothing takes about 8 GiB`);
  process.exit(1);
}
const all = [...built, examples, ...page, ...go()];

const wantedParts = all.filter(({ name }) => wanted.length === 0 || wanted.some((word) => name.includes(word)));
const place = ({ name }) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
const isAlone = ({ name }) => ALONE.test(name);
const isOfTheMachine = ({ name, isBesideTwo }) => OF_THE_MACHINE.test(name) && !ANYWHERE.test(name) && !isBesideTwo;
const alone = wantedParts.filter(isAlone);
const ofTheMachine = wantedParts.filter(isOfTheMachine);
const besideTwo = wantedParts.filter(({ isBesideTwo }) => isBesideTwo);
const computing = ofTheMachine.length === 0 ? [] : COMPUTES.flatMap((pattern) => wantedParts.filter(({ name }) => pattern.test(name)));
computing.forEach((part) => Object.assign(part.env, { RUST_TEST_THREADS: "1" }));
const begun = [...alone, ...ofTheMachine, ...besideTwo, ...computing];
const others = wantedParts.filter((part) => !begun.includes(part)).sort((one, other) => place(one) - place(other));
const parts = [...begun, ...others];
const naming = setInterval(() => console.log(`-- ${isRunning()}`), NAMED_EVERY_MS);
await together(alone, 1);
let isInUse = ofTheMachine.length > 0;
const machine = together(ofTheMachine, 1).then(() => (isInUse = false));
const besideMachine = together(computing, 1, () => isInUse);
await machine;
others.push(...computing);
await Promise.all([besideMachine, together(others, 2), together(besideTwo, 1).then(() => together(others, AT_ONCE - 2))]);
clearInterval(naming);

console.log("\n== summary");
const of = (kind) => parts.filter((part) => part.kind === kind);
// Result lines are `test result: ok. 12 passed; 0 failed; …`.
const rustLine = /^test result: \S+ (\d+) passed; (\d+) failed;/gm;
const [passed, failed] = sum(of("rust"), rustLine, (match) => Number(match[1]), (match) => Number(match[2]));
console.log(`rust: ${passed} passed, ${failed} failed`);
const [goPassed, goFailed] = sum(of("go"), /^--- (PASS|FAIL)/gm, (match) => +(match[1] === "PASS"), (match) => +(match[1] === "FAIL"));
console.log(`go: ${goPassed} passed, ${goFailed} failed`);
const pageLine = /^(?:#|ℹ) (pass|fail) (\d+)/gm;
const [pagePassed, pageFailed] = ["pass", "fail"].map((word) => sum(of("page"), pageLine, (match) => (match[1] === word ? Number(match[2]) : 0))[0]);
console.log(`page: ${pagePassed} passed, ${pageFailed} failed`);
const longest = [...parts].sort((one, other) => other.seconds - one.seconds).slice(0, 8);
console.log(`longest: ${longest.map(({ name, seconds }) => `${name} ${seconds.toFixed(0)} s`).join(", ")}`);
const notRun = new Set(parts.flatMap(({ text }) => [...text.matchAll(/(?:^|[^\p{L}\p{N}`])not run: (.*)/gmu)].map((match) => match[1])));
console.log(`not run: ${notRun.size}`);
for (const why of [...notRun].sort()) console.log(`  ${why}`);
const bad = parts.filter((part) => part.failed);
for (const { name, kind, text } of bad) {
  const tests = [...text.matchAll(/^test (.*) \.\.\. FAILED$|^--- FAIL: (\S+)/gm)].map((match) => match[1] ?? match[2]);
  console.log(`FAILED: ${kind === "rust" && name !== "examples" ? `cargo test -p ${name}` : name}${tests.map((test) => `\n  ${test}`).join("")}`);
}
process.exitCode = bad.length > 0 ? 1 : 0;
if (process.exitCode === 0) console.log("all passed");
