#!/usr/bin/env node
// `make soak-cases`: whether memory and descriptors of meter and agents stay level while cases come and go. Two hosts (network
// namespaces) with an agent each, three pairs of tank and target; in turn one target is stopped for a tenth of a second at a time,
// for a while, so that cases open by themselves, are fixed and open anew, and a person asks for further ones. Every ten seconds the
// figures of /proc; the table has their medians, tenth by tenth of the time. With `--on-off MINUTES`, the agents run for so long, are
// ended for as long, and so on; then it also has what calls cost and how long they took, with and without agents.
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
    // Minutes of a stretch with agents, and of one without them; 0: they run all the time.
    "on-off": { type: "string", default: "0" },
    json: { type: "boolean", default: false },
  },
});
const MS = Number(args.minutes) * 60_000;
const PAIRS = ["cart", "stock", "pay"];
// How long a target is stopped now and then, and how long all are well.
const SICK_MS = 30_000;
const WELL_MS = 90_000;
const SAMPLE_MS = 10_000;
const TICKS_PER_S = 100;
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
    const pid = programs.get(name)?.pid;
    if (!pid) continue;
    figures[name] = {
      resident_bytes: field(pid, "VmRSS") * 1024,
      descriptors: readdirSync(`/proc/${pid}/fd`).length,
      threads: field(pid, "Threads"),
    };
  }
  return figures;
}

// CPU time of the load: tanks and targets, seconds.
function loadSeconds() {
  const ticks = (pid) => {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").pop().split(" ");
    return Number(fields[11]) + Number(fields[12]);
  };
  return PAIRS.flatMap((pair) => [pair, `to-${pair}`]).reduce((sum, name) => sum + ticks(programs.get(name).pid), 0) / TICKS_PER_S;
}

const AGENTS = { "agent-client": client, "agent-server": server };
async function startAgents(otlp) {
  for (const [name, host] of Object.entries(AGENTS)) {
    await start(name, host, "are kept", "agent", "--meter", otlp, "--memory", "128MiB", "--cpu", "90%");
  }
}

async function endAgents() {
  for (const name of Object.keys(AGENTS)) {
    const agent = programs.get(name);
    programs.delete(name);
    agent.removeAllListeners("exit");
    const ended = new Promise((resolve) => agent.once("exit", (...how) => resolve(how)));
    agent.kill("SIGTERM");
    const [code, signal] = await ended;
    if (code !== 0) fail(`${name} did not end well (${code ?? signal}): ${agent.said}`);
  }
}

// Of a stretch: CPU time for each call due in it; of its whole minutes, which the meter knows, the calls and the gaps (medians of the pairs').
function stretch({ on, from, to, cpu }) {
  const [first, last] = [Math.ceil(from / 60_000) * 60, Math.floor(to / 60_000) * 60 - 1];
  const pairs = last > first ? api(`/api/v1/pairs?from=${first}&to=${last}`).pairs.filter(({ client }) => client.startsWith("to-")) : [];
  const calls = pairs.reduce((sum, pair) => sum + pair.calls, 0);
  const of = (quantile) => median(pairs.map(({ gap }) => gap[quantile]));
  const called = (Number(args.rate) * PAIRS.length * (to - from)) / 1000;
  return { on, minutes: (to - from) / 60_000, calls, cpu_a_call_s: cpu / called, gap_p50_ns: of("p50_ns"), gap_p99_ns: of("p99_ns") };
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
  await startAgents(otlp);
  for (const [at, pair] of PAIRS.entries()) {
    const address = `${ADDRESS[server]}:${50051 + at}`;
    await start(pair, server, "listening on", "target", "--listen", address, "--think", "1ms", "--otlp", otlp, "--service-name", pair);
    await start(`to-${pair}`, client, "", "tank", address, "--rate", args.rate, "--otlp", otlp, "--service-name", `to-${pair}`);
  }
  const [began, samples] = [Date.now(), []];
  let [sickFrom, turn, asked, refused] = [began + 60_000, 0, 0, 0];
  let askAt = began + 60_000;
  const stretches = [];
  let now = { on: true, from: began, cpu: loadSeconds() };
  const turnAt = Number(args["on-off"]) * 60_000;
  const over = () => stretches.push(stretch({ ...now, to: Date.now(), cpu: loadSeconds() - now.cpu }));
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
    if (turnAt > 0 && Date.now() >= now.from + turnAt) {
      over();
      await (now.on ? endAgents() : startAgents(otlp));
      now = { on: !now.on, from: Date.now(), cpu: loadSeconds() };
    }
    samples.push({ ms: Date.now() - began, ...look() });
    await sleep(SAMPLE_MS);
  }
  if (failed) throw failed;
  if (turnAt > 0) over();
  const cases = api("/api/v1/cases?limit=1000").cases;
  const agents = api("/api/v1/agents");
  return { minutes: Number(args.minutes), load: loadavg()[0], asked, refused, samples, cases, agents, stretches };
}

const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
const count = (of) => Object.entries(of.reduce((all, one) => ({ ...all, [one]: (all[one] ?? 0) + 1 }), {})).map(([key, n]) => `${key} ${n}`);

function text({ minutes, load, asked, refused, samples, cases, agents, stretches }) {
  const between = (from, to) => samples.slice(Math.floor((from * samples.length) / TENTHS), Math.max(1, Math.floor((to * samples.length) / TENTHS)));
  const out = [
    `${minutes} minutes, load ${load.toFixed(1)} at the end; ${cases.length} cases (by state: ${count(cases.map((one) => one.state)).join(", ")}; by what opened them: ${count(cases.map((one) => one.trigger)).join(", ")}); ${asked} asked for, ${refused} of these refused`,
    `named: ${count(cases.map((one) => one.verdict?.culprit ?? "nobody")).join(", ")}`,
    `refused by the meter: ${JSON.stringify(agents.refused)}`,
    "",
    "medians, tenth by tenth: MiB resident, descriptors, threads",
  ];
  let grew = false;
  for (const name of ["meter", "agent-client", "agent-server"]) {
    // An agent has no figures while it does not run.
    const middle = (from, to, of) => median(between(from, to).flatMap((one) => one[name]?.[of] ?? []));
    const cell = (value, factor, digits) => (value === undefined ? "-" : (value * factor).toFixed(digits));
    const row = (of, digits, factor) => Array.from({ length: TENTHS }, (_, at) => cell(middle(at, at + 1, of), factor, digits)).join(" ");
    out.push(`  ${name.padEnd(13)} ${row("resident_bytes", 0, 2 ** -20)}`, `${"".padEnd(16)}${row("descriptors", 0, 1)}`, `${"".padEnd(16)}${row("threads", 0, 1)}`);
    const [early, late] = [2, 8].map((from) => middle(from, from + 2, "resident_bytes"));
    const [few, many] = [2, 8].map((from) => middle(from, from + 2, "descriptors"));
    if (late > early + GROWTH_BYTES && late > early * (1 + GROWTH)) {
      grew = true;
      out.push(`  ${name} GREW: ${(early / 2 ** 20).toFixed(0)} -> ${(late / 2 ** 20).toFixed(0)} MiB`);
    }
    if (many > few * (1 + GROWTH) + 4) {
      grew = true;
      out.push(`  ${name} KEEPS MORE DESCRIPTORS: ${few} -> ${many}`);
    }
  }
  if (stretches.length > 0) out.push("", "in turn with and without agents: CPU time a call of tanks and targets, gaps (medians of the pairs)");
  for (const { on, minutes, calls, cpu_a_call_s, gap_p50_ns, gap_p99_ns } of stretches) {
    const gaps = gap_p50_ns === undefined ? "no whole minute" : `p50 ${(gap_p50_ns / 1e3).toFixed(0)} us, p99 ${(gap_p99_ns / 1e6).toFixed(2)} ms`;
    out.push(`  ${on ? "with   " : "without"} ${minutes.toFixed(1).padStart(5)} min  ${String(calls).padStart(8)} calls  ${(cpu_a_call_s * 1e6).toFixed(0).padStart(5)} us  ${gaps}`);
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
