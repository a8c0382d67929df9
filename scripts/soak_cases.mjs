#!/usr/bin/env node
// `make soak-cases`: whether memory and descriptors of meter and agents stay level while cases come and go. Two hosts (network
// namespaces) with an agent each, three pairs of tank and target; in turn one target is stopped for a tenth of a second at a time,
// for a while, so that cases open by themselves, are fixed and open anew, and a person asks for further ones. Every ten seconds the
// figures of /proc; the table has their medians, tenth by tenth of the time.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values: args } = parseArgs({
  options: {
    spangap: { type: "string", default: "target/release/spangap" },
    minutes: { type: "string", default: "60" },
    // Cases that a person asks for, in a minute.
    asked: { type: "string", default: "2" },
    // Calls a second of each pair.
    rate: { type: "string", default: "40" },
    json: { type: "boolean", default: false },
  },
});
const MS = Number(args.minutes) * 60_000;
const PAIRS = ["cart", "stock", "pay"];
// How long a target is stopped now and then, and how long all are well.
const SICK_MS = 30_000;
const WELL_MS = 90_000;
const SAMPLE_MS = 10_000;
const TENTHS = 10;
// More than this, and more than this share, between the second fifth and the last one is growth.
const GROWTH_BYTES = 16 * 2 ** 20;
const GROWTH = 0.1;

const own = `soak-${process.pid}`;
const [client, server] = [`${own}-c`, `${own}-s`];
const ADDRESS = { [client]: "10.89.0.1", [server]: "10.89.0.2" };
const folder = mkdtempSync(join(tmpdir(), "spangap-soak-"));
const programs = new Map();

const ip = (...words) => execFileSync("ip", words, { stdio: ["ignore", "ignore", "inherit"] });
function hosts() {
  for (const name of [client, server]) ip("netns", "add", name);
  ip("link", "add", "eth0", "netns", client, "type", "veth", "peer", "name", "eth0", "netns", server);
  for (const name of [client, server]) {
    ip("-n", name, "link", "set", "lo", "up");
    ip("-n", name, "addr", "add", `${ADDRESS[name]}/24`, "dev", "eth0");
    ip("-n", name, "link", "set", "eth0", "up");
  }
}

// Starts spangap on a host; resolves when a line of its output has these words.
function start(name, host, words, ...flags) {
  const child = spawn("nsenter", [`--net=/run/netns/${host}`, args.spangap, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  programs.set(name, child);
  child.said = "";
  child.on("exit", (code, signal) => {
    if (!ending) fail(`${name} has ended (${code ?? signal}): ${child.said.slice(-2_000)}`);
  });
  const ready = new Promise((resolve) => {
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        child.said = `${child.said}${line}\n`.slice(-8_000);
        if (words && line.includes(words)) resolve(line);
      });
    }
    if (!words) resolve("");
  });
  return ready;
}

let ending = false;
let failed;
const fail = (why) => (failed ??= new Error(why));

const HTTP = "127.0.0.1:7070";
function api(path, body) {
  const ask = `fetch("http://${HTTP}${path}", ${JSON.stringify(body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {})})
    .then((answer) => answer.text()).then((text) => process.stdout.write(text))`;
  const text = execFileSync("nsenter", [`--net=/run/netns/${client}`, process.execPath, "-e", ask], { encoding: "utf8" });
  return JSON.parse(text);
}

const field = (pid, name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? NaN);
function look() {
  const figures = {};
  for (const name of ["meter", "agent-client", "agent-server"]) {
    const pid = programs.get(name).pid;
    figures[name] = {
      resident_bytes: field(pid, "VmRSS") * 1024,
      descriptors: readdirSync(`/proc/${pid}/fd`).length,
      threads: field(pid, "Threads"),
    };
  }
  return figures;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A tenth of a second, twice a second, out of step with calls at fixed times.
async function sicken(pid, until) {
  while (Date.now() < until && !failed && !ending) {
    process.kill(pid, "SIGSTOP");
    await sleep(100);
    process.kill(pid, "SIGCONT");
    await sleep(410);
  }
}

async function soak() {
  hosts();
  const otlp = `http://${ADDRESS[client]}:4317`;
  await start(
    "meter", client, "ready", "meter", "--otlp-grpc", `${ADDRESS[client]}:4317`, "--otlp-http", "127.0.0.1:4318", "--http", HTTP,
    "--insecure", "--cases", join(folder, "cases"), "--case-bytes", "128MiB", "--case-slices-per-minute", "16",
  );
  for (const [name, host] of [["agent-client", client], ["agent-server", server]]) {
    await start(name, host, "are kept", "agent", "--meter", otlp, "--memory", "128MiB", "--cpu", "90%");
  }
  for (const [at, pair] of PAIRS.entries()) {
    const address = `${ADDRESS[server]}:${50051 + at}`;
    await start(pair, server, "listening on", "target", "--listen", address, "--think", "1ms", "--otlp", otlp, "--service-name", pair);
    await start(`to-${pair}`, client, "", "tank", address, "--rate", args.rate, "--otlp", otlp, "--service-name", `to-${pair}`);
  }
  const [began, samples] = [Date.now(), []];
  let [sickFrom, turn, asked, refused] = [began + 60_000, 0, 0, 0];
  let askAt = began + 60_000;
  while (Date.now() < began + MS && !failed) {
    if (Date.now() >= sickFrom) {
      sickFrom += SICK_MS + WELL_MS;
      // It runs beside the samples.
      sicken(programs.get(PAIRS[turn++ % PAIRS.length]).pid, Date.now() + SICK_MS).catch((error) => fail(error.message));
    }
    if (Date.now() >= askAt) {
      askAt += 60_000 / Number(args.asked);
      const pair = PAIRS[asked % PAIRS.length];
      const answer = api("/api/v1/cases", { pair: { client: `to-${pair}`, server: pair } });
      asked++;
      if (!answer.id) refused++;
    }
    samples.push({ ms: Date.now() - began, ...look() });
    await sleep(SAMPLE_MS);
  }
  if (failed) throw failed;
  const cases = api("/api/v1/cases?limit=1000").cases;
  const agents = api("/api/v1/agents");
  return { minutes: Number(args.minutes), load: loadavg()[0], asked, refused, samples, cases, agents };
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const count = (of) => Object.entries(of.reduce((all, one) => ({ ...all, [one]: (all[one] ?? 0) + 1 }), {})).map(([key, n]) => `${key} ${n}`);

function text({ minutes, load, asked, refused, samples, cases, agents }) {
  const tenth = (at) => samples.slice(Math.floor((at * samples.length) / TENTHS), Math.max(1, Math.floor(((at + 1) * samples.length) / TENTHS)));
  const out = [
    `${minutes} minutes, load ${load.toFixed(1)} at the end; ${cases.length} cases (by state: ${count(cases.map((one) => one.state)).join(", ")}; by what opened them: ${count(cases.map((one) => one.trigger)).join(", ")}); ${asked} asked for, ${refused} of these refused`,
    `named: ${count(cases.map((one) => one.verdict?.culprit ?? "nobody")).join(", ")}`,
    `refused by the meter: ${JSON.stringify(agents.refused)}`,
    "",
    "medians, tenth by tenth: MiB resident, descriptors, threads",
  ];
  let grew = false;
  for (const name of ["meter", "agent-client", "agent-server"]) {
    const row = (of, digits, factor) => Array.from({ length: TENTHS }, (_, at) => (median(tenth(at).map((one) => one[name][of])) * factor).toFixed(digits)).join(" ");
    out.push(`  ${name.padEnd(13)} ${row("resident_bytes", 0, 2 ** -20)}`, `${"".padEnd(16)}${row("descriptors", 0, 1)}`, `${"".padEnd(16)}${row("threads", 0, 1)}`);
    const fifth = (from, of) => median([...tenth(from), ...tenth(from + 1)].map((one) => one[name][of]));
    const [early, late] = [fifth(2, "resident_bytes"), fifth(8, "resident_bytes")];
    const [few, many] = [fifth(2, "descriptors"), fifth(8, "descriptors")];
    if (late > early + GROWTH_BYTES && late > early * (1 + GROWTH)) {
      grew = true;
      out.push(`  ${name} GREW: ${(early / 2 ** 20).toFixed(0)} -> ${(late / 2 ** 20).toFixed(0)} MiB`);
    }
    if (many > few * (1 + GROWTH) + 4) {
      grew = true;
      out.push(`  ${name} KEEPS MORE DESCRIPTORS: ${few} -> ${many}`);
    }
  }
  out.push("", grew ? "Something grew." : "Nothing grew between the second fifth and the last.");
  return [out.join("\n"), grew];
}

function cleanUp() {
  ending = true;
  for (const child of programs.values()) {
    child.kill("SIGCONT");
    child.kill("SIGKILL");
  }
  for (const name of [client, server]) {
    try {
      execFileSync("ip", ["netns", "del", name], { stdio: "ignore" });
    } catch {
      // It was not made.
    }
  }
  rmSync(folder, { recursive: true, force: true });
}

if (process.getuid() !== 0) {
  console.error("not run: make soak-cases needs root, for network namespaces and the probes");
  process.exit(1);
}
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (cleanUp(), process.exit(130)));
let code = 0;
try {
  const report = await soak();
  const [said, grew] = text(report);
  console.log(args.json ? JSON.stringify(report) : said);
  code = Number(grew);
} catch (error) {
  console.error(`soak_cases: ${error.stack}`);
  code = 1;
} finally {
  cleanUp();
}
process.exit(code);
