#!/usr/bin/env node
// `make bench-agent`: cost of an agent to its host. The same load with and without one, in short alternating rounds (without, with,
// with, without), so that other load on the machine affects both alike; in a separate network namespace. On a busy machine, CPU time
// per call is the relevant figure. On a quiet one, the busy host gives the full account: the load of all CPUs with and without an
// agent at the same rates, which includes the kernel's copying of packets. `--beside before=PATH` also runs the agent of another
// binary, in the same rounds; `--floor`, instead of an agent, a packet socket on loopback that keeps nothing, and in other runs
// empty programs where the agent's are: what the kernel charges for handing each packet, and each event, to anybody.
import { execFileSync, spawn } from "node:child_process";
import { cpus, loadavg } from "node:os";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values: args } = parseArgs({
  options: {
    spangap: { type: "string", default: "target/release/spangap" },
    beside: { type: "string", multiple: true, default: [] },
    floor: { type: "boolean", default: false },
    // The program that attaches the empty ones.
    "host-bench": { type: "string", default: "target/release/spangap-host-bench" },
    // Only this load: ping-pong, busy.
    load: { type: "string", default: "" },
    rounds: { type: "string", default: "7" },
    seconds: { type: "string", default: "4" },
    memory: { type: "string", default: "256MiB" },
    // More than any agent takes; with 2%, an agent's default, the figures are those of what it does not give up.
    cpu: { type: "string", default: "90%" },
    // The load runs for so long before each round with an agent, until it keeps to --cpu: a minute or more for 2%.
    settle: { type: "string", default: "0" },
    // Calls a second of the busy host, each of two packets; and trips there and back of a byte between two processes.
    rate: { type: "string", default: "25000" },
    trips: { type: "string", default: "40000" },
    json: { type: "boolean", default: false },
  },
});
const ROUNDS = Number(args.rounds);
const TICKS_PER_S = 100;
const NAMESPACE = `agent-bench-${process.pid}`;
const inside = ["--net=/run/netns/" + NAMESPACE];
const programs = new Set();
// The agents to compare, by name.
const AGENTS = [...args.beside.map((text) => /^([^=]+)=(.+)$/.exec(text)?.slice(1)), ["agent", args.spangap]];
// What stands in for an agent, as the program and its arguments, with what it says once it is there.
const FLOORS = () => [
  ["a packet socket that keeps nothing", ["python3", ["-c", FLOOR], "it listens"]],
  ["empty programs at its tracepoints", [args["host-bench"], ["--floor", "all"], "are attached"]],
];
if (AGENTS.includes(undefined)) {
  console.error("bench_agent: --beside expects NAME=PATH");
  process.exit(2);
}

// Loads: one connection as fast as it goes; a host with 50,000 packets and 200,000 switches a second.
const LOADS = [
  { name: "ping-pong", flags: ["--inflight", "1"], trips: 0, goals: { throughput: 0.95, p99: 1.05 } },
  { name: "busy", flags: ["--rate", args.rate, "--channels", "pool:8"], trips: Number(args.trips), goals: { extra: 0.02 } },
].filter(({ name }) => !args.load || name === args.load);

// Two processes on one CPU that exchange a byte at a fixed rate: switches without packets.
const TRIPS = `
import os, sys, time
per_s, seconds = int(sys.argv[1]), float(sys.argv[2])
there, back = os.pipe(), os.pipe()
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
if os.fork() == 0:
    os.close(there[1])
    while os.read(there[0], 1):
        os.write(back[1], b"x")
    os._exit(0)
begin = time.monotonic()
done = 0
while True:
    passed = time.monotonic() - begin
    if passed >= seconds:
        break
    due = int(passed * per_s)
    while done < due:
        os.write(there[1], b"x")
        os.read(back[0], 1)
        done += 1
    time.sleep(0.001)
print(done / seconds)
`;

// A packet socket whose filter rejects everything, without what leaves by loopback: as the agent's, but for the program.
const FLOOR = `
import ctypes, signal, socket, struct
SO_ATTACH_FILTER, SOL_PACKET, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 26, 263, 23, 3
rejects = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(rejects)))
tap.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
tap.bind(("lo", ETH_P_ALL))
print("it listens", flush=True)
signal.pause()
`;

function trips(perSecond, forSeconds) {
  if (perSecond === 0) return { ended: Promise.resolve(0) };
  const child = spawn("python3", ["-c", TRIPS, String(perSecond), String(forSeconds + 0.2)], { stdio: ["ignore", "pipe", "inherit"] });
  programs.add(child);
  let text = "";
  child.stdout.on("data", (piece) => (text += piece));
  child.ended = new Promise((resolve) => child.on("exit", () => (programs.delete(child), resolve(Number(text)))));
  return child;
}

function start(flags, binary = args.spangap) {
  const child = spawn("nsenter", [...inside, binary, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  programs.add(child);
  child.said = "";
  child.stderr.on("data", (text) => (child.said += text));
  child.ended = new Promise((resolve) => child.on("exit", () => (programs.delete(child), resolve())));
  return child;
}

// The first line of the stream that contains this text.
function line(child, stream, words) {
  return new Promise((resolve, reject) => {
    createInterface({ input: stream }).on("line", (text) => text.includes(words) && resolve(text));
    child.ended.then(() => reject(new Error(`ended before it said ${JSON.stringify(words)}: ${child.said}`)));
  });
}

async function end(child) {
  child.kill("SIGTERM");
  await child.ended;
}

const cpuSeconds = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").pop().split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S;
};
// Run time of a process's eBPF programs in nanoseconds, which the kernel counts only on request.
const BPF_STATS = "/proc/sys/kernel/bpf_stats_enabled";
const probeCounts = (pid) => {
  const found = new Map();
  for (const fd of readdirSync(`/proc/${pid}/fdinfo`)) {
    let text;
    try {
      text = readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8");
    } catch {
      continue; // closed meanwhile
    }
    const [id, tag, ns, runs] = ["prog_id", "prog_tag", "run_time_ns", "run_cnt"].map((key) => new RegExp(`^${key}:\\s*(\\w+)`, "m").exec(text)?.[1]);
    if (id && ns) found.set(id, { tag, ns: Number(ns), runs: Number(runs) });
  }
  return found;
};
const residentBytes = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) * 1024;
const health = () => {
  const ask = 'fetch("http://127.0.0.1:7071/healthz").then((r) => r.text()).then((t) => process.stdout.write(t))';
  return JSON.parse(execFileSync("nsenter", [...inside, process.execPath, "-e", ask], { encoding: "utf8" }));
};
const packets = () => {
  const text = execFileSync("nsenter", [...inside, "cat", "/proc/net/dev"], { encoding: "utf8" });
  return Number(/lo:\s*\d+\s+(\d+)/.exec(text)[1]);
};
// Load of all CPUs as a share of their capacity: neither idle nor waiting for a disk.
const busy = () => {
  const fields = /^cpu +(.*)$/m.exec(readFileSync("/proc/stat", "utf8"))[1].split(" ").map(Number);
  const all = fields.slice(0, 8).reduce((sum, value) => sum + value, 0);
  return { all, busy: all - fields[3] - fields[4] };
};
const switches = () => Number(/^ctxt (\d+)/m.exec(readFileSync("/proc/stat", "utf8"))[1]);

async function load(address, { flags, trips: perSecond, seconds: forSeconds = Number(args.seconds) }) {
  const other = trips(perSecond, forSeconds);
  const [began, before, switched, was] = [performance.now(), packets(), switches(), busy()];
  const tank = start(["tank", address, "--stack", "raw", "--warmup", "200ms", "--duration", `${forSeconds}s`, "--json", ...flags]);
  let text = "";
  tank.stdout.on("data", (piece) => (text += piece));
  await tank.ended;
  const [seconds, is] = [(performance.now() - began) / 1000, busy()];
  await other.ended;
  const run = JSON.parse(text).runs[0];
  return {
    perSecond: run.throughput_per_s,
    p99: run.latency.p99_ns,
    cpu: (run.cpu_client_s + run.cpu_target_s) / run.calls,
    packets: (packets() - before) / seconds,
    switches: (switches() - switched) / seconds,
    busy: (is.busy - was.busy) / (is.all - was.all),
  };
}

async function startAgent(binary) {
  const flags = ["--meter", "http://127.0.0.1:1", "--memory", args.memory, "--cpu", args.cpu, "--health", "127.0.0.1:7071"];
  const agent = start(["agent", ...flags], binary);
  await Promise.any([line(agent, agent.stdout, "are kept"), line(agent, agent.stderr, "are kept")]);
  return agent;
}

const isFloor = (binary) => Array.isArray(binary);

async function besideFloor([program, flags, words], address, load_) {
  const floor = start(flags, program);
  await line(floor, floor.stdout, words);
  const run = await load(address, load_);
  await end(floor);
  return run;
}

async function watched(binary, address, load_) {
  if (isFloor(binary)) return besideFloor(binary, address, load_);
  const agent = await startAgent(binary);
  if (Number(args.settle) > 0) await load(address, { ...load_, seconds: Number(args.settle) });
  const [began, before] = [performance.now(), cpuSeconds(agent.pid)];
  const run = await load(address, load_);
  run.own = ((cpuSeconds(agent.pid) - before) / (performance.now() - began)) * 1000;
  run.resident = residentBytes(agent.pid);
  run.health = health();
  // Its figures may be a second old.
  run.account = run.health.cpu_seconds_of_process / cpuSeconds(agent.pid);
  await end(agent);
  return run;
}

// The agent's figure for its probes against the kernel's count, in a separate round, because counting has a cost, too.
async function account(binary, address, load_) {
  const was = readFileSync(BPF_STATS, "utf8");
  const agent = await startAgent(binary);
  try {
    writeFileSync(BPF_STATS, "1");
    const looks = [];
    const look = setInterval(() => {
      const says = health().cpu_share_of_probes * cpus().length;
      looks.push({ says, at: performance.now(), counts: probeCounts(agent.pid) });
    }, 1000);
    const { perSecond } = await load(address, { ...load_, seconds: 4 * Number(args.seconds) });
    clearInterval(look);
    // Its first figures cover the time before the load.
    const latest = looks.slice(looks.length >> 1);
    const { at: began, counts: before } = latest[0];
    const { at: ended, counts: after } = latest.at(-1);
    const seconds = (ended - began) / 1000;
    const symbols = readFileSync("/proc/kallsyms", "utf8");
    const programs = [...after].map(([id, { tag, ns, runs }]) => {
      const was = before.get(id) ?? { ns: 0, runs: 0 };
      const name = new RegExp(`bpf_prog_${tag}_(\\w+)`).exec(symbols)?.[1] ?? tag;
      const runs_per_s = (runs - was.runs) / seconds;
      return { name, of_one_cpu: (ns - was.ns) / 1e9 / seconds, runs_per_s, runs_per_call: runs_per_s / perSecond, ns_per_run: (ns - was.ns) / (runs - was.runs) };
    });
    programs.sort((a, b) => b.of_one_cpu - a.of_one_cpu);
    return {
      says: latest.reduce((sum, one) => sum + one.says, 0) / latest.length,
      counted: programs.reduce((sum, one) => sum + one.of_one_cpu, 0),
      programs: programs.filter(({ runs_per_s }) => runs_per_s > 0),
    };
  } finally {
    writeFileSync(BPF_STATS, was);
    await end(agent);
  }
}

const sorted = (values) => values.filter(Number.isFinite).sort((a, b) => a - b);
const spread = (values) => {
  const all = sorted(values);
  const half = all.length >> 1;
  const median = all.length % 2 === 1 || all.length === 0 ? all[half] : (all[half - 1] + all[half]) / 2;
  return { median, least: all[0], most: all[all.length - 1] };
};
const percent = ({ median, least, most }) => {
  const one = (ratio) => (ratio === undefined ? "n/a" : `${((ratio - 1) * 100).toFixed(1)} %`);
  return `${one(median)} (${one(least)} to ${one(most)})`;
};

async function bench() {
  execFileSync("ip", ["netns", "add", NAMESPACE]);
  execFileSync("ip", ["-n", NAMESPACE, "link", "set", "lo", "up"]);
  const target = start(["target", "--listen", "127.0.0.1:0", "--stack", "raw"]);
  const address = /listening on (\S+)/.exec(await line(target, target.stdout, "listening on"))[1];
  const report = { load_before: loadavg()[0], cpus: cpus().length, memory: args.memory, rounds: ROUNDS, loads: [] };
  for (const one of LOADS) {
    const { name, goals } = one;
    const arms = [...(args.floor ? FLOORS() : []), ...AGENTS].map(([agent, binary]) => ({ agent, binary, ratios: { cpu: [], perSecond: [], p99: [] }, extra: [], runs: [] }));
    const alone = [];
    for (let round = 0; round < ROUNDS; round++) {
      // Each round has another order, forwards and then backwards.
      const all = [null, ...arms];
      const order = [...all.slice(round % all.length), ...all.slice(0, round % all.length)];
      const taken = [];
      for (const arm of [...order, ...order.toReversed()]) taken.push([arm, await (arm ? watched(arm.binary, address, one) : load(address, one))]);
      alone.push(...taken.filter(([arm]) => !arm).map(([, run]) => run));
      const sum = (of_, key) => taken.filter(([arm]) => arm === of_).reduce((all, [, run]) => all + run[key], 0);
      for (const arm of arms) {
        for (const key of Object.keys(arm.ratios)) arm.ratios[key].push(sum(arm, key) / sum(null, key));
        arm.extra.push((sum(arm, "busy") - sum(null, "busy")) / 2);
        arm.runs.push(...taken.filter(([of_]) => of_ === arm).map(([, run]) => run));
      }
      process.stderr.write(`${name}: round ${round + 1} of ${ROUNDS} done\n`);
    }
    for (const { agent, binary, ratios, extra, runs } of arms) {
      const of = (key) => spread(runs.map((run) => run[key]));
      const ratio = { name, agent, cpu_a_call: spread(ratios.cpu), throughput: spread(ratios.perSecond), p99: spread(ratios.p99) };
      if (isFloor(binary)) {
        report.loads.push({ ...ratio, is_floor: true });
        continue;
      }
      const probes = args.cpu === "90%" ? await account(binary, address, one) : null;
      report.loads.push({
        ...ratio,
        goals,
        extra_of_all_cpus: spread(extra),
        p99_ns: of("p99"),
        p99_alone_ns: spread(alone.map((run) => run.p99)),
        busy_alone_of_all_cpus: spread(alone.map((run) => run.busy)),
        busy_of_all_cpus: of("busy"),
        agent_says_of_all: spread(runs.map((run) => run.health.cpu_share)),
        packets_lost: runs.map((run) => run.health.rings[0]?.lost ?? 0).reduce((sum, lost) => sum + lost, 0),
        ring_reaches_back_s: spread(runs.map((run) => (run.health.rings[0].to_unix_ns - run.health.rings[0].from_unix_ns) / 1e9)),
        calls_per_s: of("perSecond"),
        packets_per_s: of("packets"),
        switches_per_s_of_the_machine: of("switches"),
        agent_cpu_of_one: of("own"),
        agent_says_of_proc: of("account"),
        agent_says_own_of_all: spread(runs.map((run) => run.health.cpu_share_of_process)),
        probes_of_one_cpu: probes,
        agent_says_probes_of_all: spread(runs.map((run) => run.health.cpu_share_of_probes)),
        resident_bytes: of("resident"),
        agent_says_memory_bytes: spread(runs.map((run) => run.health.memory_bytes)),
        given_up: [...new Set(runs.flatMap((run) => run.health.given_up ?? []))],
      });
    }
  }
  report.load_after = loadavg()[0];
  await end(target);
  return report;
}

function text(report) {
  const of = (spread, digits, factor = 1) =>
    spread.median === undefined ? "n/a" : [spread.median, spread.least, spread.most].map((v) => (v * factor).toFixed(digits)).join(" / ");
  const goal = (ratio) => (ratio === undefined ? "" : `   goal: ${ratio > 1 ? "at most +" : "at least "}${((ratio - 1) * 100).toFixed(0)} %`);
  const out = [
    `${report.cpus} CPUs, load ${report.load_before.toFixed(1)} before and ${report.load_after.toFixed(1)} after; --memory ${report.memory} --cpu ${args.cpu}; ${report.rounds} rounds`,
  ];
  for (const one of report.loads) {
    if (one.is_floor) {
      const figures = [["CPU time a call", one.cpu_a_call], ["calls a second", one.throughput], ["p99", one.p99]];
      out.push("", `${one.name}: with ${one.agent} against without, median (least to most)`);
      out.push(...figures.map(([what, ratio]) => `  ${what.padEnd(21)} ${percent(ratio)}`));
      continue;
    }
    out.push(
      "",
      `${one.name}: with ${one.agent} against without, median (least to most)`,
      `  CPU time a call       ${percent(one.cpu_a_call)}`,
      `  calls a second        ${percent(one.throughput)}${goal(one.goals.throughput)}`,
      `  p99                   ${percent(one.p99)}${goal(one.goals.p99)}`,
      `  of all CPUs           ${of(one.extra_of_all_cpus, 2, 100)} % more were busy, by /proc/stat${one.goals.extra ? `   goal: at most ${one.goals.extra * 100} %` : ""}; it says ${of(one.agent_says_of_all, 2, 100)} %`,
      `  without an agent, run by run, median / least / most: how far noise alone goes`,
      `  p99                   ${of(one.p99_alone_ns, 0, 1e-3)} us; all CPUs were busy ${of(one.busy_alone_of_all_cpus, 1, 100)} %`,
      `  while it ran, median / least / most`,
      `  p99                   ${of(one.p99_ns, 0, 1e-3)} us`,
      `  calls a second        ${of(one.calls_per_s, 0)}`,
      `  packets a second      ${of(one.packets_per_s, 0)}, ${one.packets_lost} lost by the ring; switches a second of the machine ${of(one.switches_per_s_of_the_machine, 0)}`,
      `  all CPUs were busy    ${of(one.busy_of_all_cpus, 1, 100)} %; the ring of packets reached back ${of(one.ring_reaches_back_s, 1)} s at the end`,
      `  CPU of the process    ${of(one.agent_cpu_of_one, 2, 100)} % of one CPU, by /proc; of all that it took, it tells ${of(one.agent_says_of_proc, 0, 100)} %`,
      `  CPU of its probes     ${of(one.agent_says_probes_of_all, 2, 100 * report.cpus)} % of one CPU, as it says`,
      ...(one.probes_of_one_cpu ? [`  the same, for longer  ${(one.probes_of_one_cpu.says * 100).toFixed(2)} % as it says, ${(one.probes_of_one_cpu.counted * 100).toFixed(2)} % as the kernel counts them from outside`] : []),
      ...(one.probes_of_one_cpu?.programs ?? []).filter(({ runs_per_call }) => runs_per_call > 0.01).map((program) => `    ${program.name.padEnd(18)} ${(program.of_one_cpu * 100).toFixed(2)} %: ${program.runs_per_call.toFixed(2)} runs a call, ${program.ns_per_run.toFixed(0)} ns a run, ${(program.runs_per_call * program.ns_per_run).toFixed(0)} ns a call`),
      `  memory                ${of(one.resident_bytes, 1, 2 ** -20)} MiB resident; it says ${of(one.agent_says_memory_bytes, 1, 2 ** -20)} MiB with maps of the kernel`,
      ...one.given_up.map((what) => `  given up              ${what}`),
    );
  }
  return out.join("\n");
}

let code = 0;
const cleanUp = () => {
  for (const child of programs) child.kill("SIGKILL");
  try {
    execFileSync("ip", ["netns", "del", NAMESPACE], { stdio: "ignore" });
  } catch {
    // It was never made.
  }
};
process.on("SIGINT", () => (cleanUp(), process.exit(130)));
if (process.getuid() !== 0) {
  console.error("not run: make bench-agent needs root, for a network namespace and the probes");
  process.exit(1);
}
try {
  const report = await bench();
  console.log(args.json ? JSON.stringify(report, null, 2) : text(report));
} catch (error) {
  console.error(`bench_agent: ${error.message}`);
  code = 1;
} finally {
  cleanUp();
}
process.exit(code);
