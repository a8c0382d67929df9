// Reads the logs of the virtual machines of scripts/kernels.sh (`RUN=LOG ...`), prints which verb works on which
// kernel, and fails if one does not that should.
import { readFileSync } from "node:fs";

/** Results of the verbs on one machine. */
function entries(log) {
  const found = [];
  const machine = { release: "?", lockdown: "?", over: false, found };
  let entry;
  let part;
  for (const line of log.split(/\r*\n/)) {
    const marker = /^@@ (\w+) ?(.*)$/.exec(line);
    if (!marker) {
      if (entry && part) entry[part].push(line);
      continue;
    }
    const [, word, rest] = marker;
    if (word === "kernel") machine.release = rest;
    else if (word === "lockdown") machine.lockdown = /\[(\w+)\]/.exec(rest)?.[1] ?? "?";
    else if (word === "reader") machine.reader = Number(rest);
    else if (word === "over") machine.over = true;
    else if (word === "time") entry.seconds = rest.split(" ").reduce((began, ended) => ended - began);
    else if (word === "begin") {
      const [who, ...name] = rest.split(" ");
      entry = { who, name: name.join(" "), error: [], output: [], code: undefined };
      part = undefined;
    } else if (word === "code") entry.code = Number(rest);
    else if (word === "error" || word === "output") part = word;
    else if (word === "end") {
      found.push(entry);
      entry = part = undefined;
    }
  }
  return machine;
}

/** All numbers under a key, at any depth. */
function* numbers(value, key) {
  if (Array.isArray(value)) for (const each of value) yield* numbers(each, key);
  else if (value && typeof value === "object") {
    for (const [name, each] of Object.entries(value)) {
      if (name === key && typeof each === "number") yield each;
      else yield* numbers(each, key);
    }
  }
}

const sum = (values) => [...values].reduce((all, value) => all + value, 0);
const frames = (json) => json.stacks.flatMap((stack) => stack.frames);
const ofReader = (json, machine) =>
  json.stacks.some((stack) => stack.context === "process" && stack.current.some((who) => who.pid === machine.reader));

/** Parts of a thread's time, which must sum to all of it. */
const PARTS = ["running", "interrupted", "runnable", "throttled", "stopped", "blocked", "unknown", "unseen"];

/** What must hold if a verb worked: a list of [what is wrong, whether it is so]. */
const wrong = {
  "host offcpu": (json) => {
    const waits = json.groups.flatMap((group) => Object.values(group.waits));
    const { begun_before: _, ...lost } = json.lost;
    return [
      ["no wait was seen", sum(waits.map((kind) => kind.count)) === 0],
      ["the buckets of a histogram do not make up its count",
        waits.some((kind) => sum(kind.buckets.map((bucket) => bucket.count)) !== kind.count)],
      [`lost: ${JSON.stringify(lost)}`, sum(Object.values(lost)) > 0],
    ];
  },
  "host thieves": (json, machine) => [
    ["no thread was seen", json.threads.length === 0],
    ["parts of a thread's time do not make up all of it",
      json.threads.some((thread) => sum(PARTS.map((part) => thread[`${part}_ns`])) !== thread.sum_ns)],
    ["nothing was denied", json.denied_ns === 0],
    ["the reader is not the first culprit", json.takers[0]?.pid !== machine.reader],
  ],
  "host stacks": (json, machine) => [
    ["no samples came", json.samples.received === 0],
    ["functions have no names", json.names_missing !== null],
    ["the reader's way is not seen", !frames(json).includes("vfs_read") || !ofReader(json, machine)],
    ["a sample is in no stack", sum(json.stacks.map((stack) => stack.samples)) !== json.samples.kept],
  ],
  "host stacks --not-pid": (json, machine) => [
    ["the reader is seen", ofReader(json, machine)],
    ["the reader's time is not counted", json.samples.application === 0],
  ],
  "host record": (json) => [
    ["no switches", !(json.kinds.switches > 0)],
    ["no softirqs", !(json.kinds.softirqs > 0)],
    ["no reads of the service", !(json.kinds.reads > 0)],
    ["some are out of order", json.late > 0],
  ],
  agent: (json) => {
    const taken = (ring) => json.rings.find((one) => one.instrument === ring)?.taken ?? 0;
    return [["no packets", taken("capture") === 0], ["no events", taken("host-record") === 0]];
  },
  "sockets list": (json) => [["not the one connection of the service", json.sockets.length !== 1]],
  "sockets set": (json) => [
    ["nothing was changed", json.changes.length !== 1 || json.changes[0].became !== "changed"],
    ["it was not set back", json.undone?.sockets.length !== 1 || json.undone.sockets[0].became !== "changed"],
  ],
};

/** A verb's outcome: [word for the table, what is wrong]. */
function judge(entry, machine) {
  const error = entry.error.filter((line) => line.trim()).join(" ");
  if (entry.who !== "root") {
    // A user who lacks something is told what in one line, or gets what is possible without it.
    if (entry.code === 0) return parse(entry, machine, false);
    const lacked = entry.who === "nobody" ? /^spangap: .*CAP_[A-Z]/ : /^spangap: .*type information/;
    const refused = entry.code === 1 && lacked.test(error);
    return refused ? ["refused", undefined] : ["FAILS", `exit ${entry.code}: ${error}`];
  }
  if (entry.code !== 0) return ["FAILS", `exit ${entry.code}: ${error}`];
  return parse(entry, machine, true);
}

function parse(entry, machine, full) {
  let json;
  try {
    json = JSON.parse(entry.output.join("\n"));
  } catch (error) {
    return ["FAILS", `its output is no JSON: ${error.message}`];
  }
  // The evidence repeats it, and what `host check` could not look at is no event.
  const { evidence: _, ...own } = json;
  const lost = sum(numbers(own, "lost"));
  if (lost > 0) return ["FAILS", `${lost} events were lost`];
  if (full) {
    for (const [what, is] of wrong[entry.name]?.(json, machine) ?? []) if (is) return ["FAILS", what];
  }
  const left = json.lacks ?? [];
  return left.length > 0 ? ["in part", left.map(String).join("; ")] : ["works", undefined];
}

const columns = [];
const notes = [];
let failed = false;
for (const argument of process.argv.slice(2)) {
  const [run, path] = argument.split("=");
  const machine = entries(readFileSync(path, "utf8"));
  const column = { run, release: machine.release, verdicts: new Map() };
  if (!machine.over) {
    failed = true;
    notes.push(`${run}: the machine did not come to its end (${path})`);
  }
  const lockdown = run.split(":")[1] ?? "none";
  if (machine.lockdown !== lockdown) {
    failed = true;
    notes.push(`${run}: lockdown is ${machine.lockdown}, expected ${lockdown}`);
  }
  for (const entry of machine.found) {
    const [word, what] = judge(entry, machine);
    const name = entry.name + { root: "", nobody: ", without root", "no-btf": ", without BTF" }[entry.who];
    column.verdicts.set(name, word);
    if (what) notes.push(`${run}: ${name}: ${what}`);
    failed ||= word === "FAILS";
  }
  columns.push(column);
}

const names = [...new Set(columns.flatMap((column) => [...column.verdicts.keys()]))];
const rows = [
  ["", ...columns.map((column) => column.run)],
  ["", ...columns.map((column) => column.release)],
  ...names.map((name) => [name, ...columns.map((column) => column.verdicts.get(name) ?? "-")]),
];
const widths = rows[0].map((_, at) => Math.max(...rows.map((row) => row[at].length)));
console.log();
for (const row of rows) console.log(row.map((cell, at) => cell.padEnd(widths[at])).join("  ").trimEnd());
if (notes.length > 0) console.log(`\n${notes.join("\n")}`);
console.log(failed ? "\nFAILED" : "\neverything that should work does");
process.exit(failed ? 1 : 0);
