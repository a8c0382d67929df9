#!/usr/bin/env node
// `make demo-faults`: `spangap demo --auto` with each fault, one after the other, and a table of what it came to: whether the verdict
// is right, whether its case opened by itself, after how long, and what the experiment showed. As root; --logs keeps what each said.
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

const { values: args, positionals } = parseArgs({
  allowPositionals: true,
  options: { spangap: { type: "string", default: "target/release/spangap" }, logs: { type: "string" } },
});
const FREE_PORTS = ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "--http", "127.0.0.1:0"];

function said(...flags) {
  return new Promise((resolve) => {
    const child = spawn(args.spangap, flags, { stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (piece) => (text += piece));
    child.on("error", (error) => resolve({ code: 1, text: error.message }));
    child.on("close", (code) => resolve({ code, text }));
  });
}

// The faults, as the help names them.
async function faults() {
  const { text } = await said("demo", "--help");
  const list = text.slice(text.indexOf("--fault")).split("Possible values:")[1]?.split("\n\n")[0] ?? "";
  return [...list.matchAll(/^\s*- ([a-z-]+):/gm)].map((match) => match[1]);
}

const first = (text, pattern) => pattern.exec(text)?.[1];

function row(fault, load, { code, text }) {
  const flat = text.replace(/\s+/g, " ");
  const opened = flat.includes("opens by itself.") ? "itself" : flat.includes("is opened on request") ? "request" : "nobody";
  const verdict = first(flat, /The verdict (is right|names the right place|does not name it|is WRONG)/) ?? "none";
  const seconds = first(flat, /to the verdict: ([\d.]+) s/) ?? "-";
  const acts = flat.includes("The fault acts") ? "acts" : "hardly acts";
  const tried = first(flat, /(Proven|Refuted|Undecided): /)?.toLowerCase() ?? "-";
  return [fault, verdict, `${seconds} s`, opened, acts, tried, `exit ${code}`, `load ${load.toFixed(1)}`];
}

const rows = [];
for (const fault of positionals.length > 0 ? positionals : await faults()) {
  const load = loadavg()[0];
  const done = await said("demo", "--auto", "--fault", fault, ...FREE_PORTS);
  if (args.logs) {
    mkdirSync(args.logs, { recursive: true });
    writeFileSync(join(args.logs, `${fault}.txt`), done.text);
  }
  rows.push(row(fault, load, done));
  console.error(rows.at(-1).join(" | "));
}
const widths = rows.reduce((most, one) => one.map((cell, at) => Math.max(cell.length, most[at] ?? 0)), []);
for (const one of rows) console.log(one.map((cell, at) => cell.padEnd(widths[at])).join("  ").trimEnd());
process.exit(rows.length > 0 && rows.every((one) => one[1] === "is right" && one[3] === "itself") ? 0 : 1);
