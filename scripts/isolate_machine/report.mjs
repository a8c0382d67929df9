// Reads the logs of virtual machines (`CHECKS RUN=LOG ...`), prints which checks hold on which machine, with the
// figures, and fails if one does not. CHECKS is a module with the checks of each case: that of
// scripts/isolate_machine.sh, or of scripts/lab_machine.sh.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { machine } from "./log.mjs";

const [path, ...logs] = process.argv.slice(2);
const { checks } = await import(resolve(path));

const columns = [];
const evidence = [];
let failed = false;
for (const argument of logs) {
  const [run, path] = argument.split("=");
  const found = machine(readFileSync(path, "utf8"));
  const column = { run, release: found.release, verdicts: new Map() };
  evidence.push(`\n== ${run} (${found.release})`);
  if (!found.over) {
    failed = true;
    evidence.push(`FAILED  the machine did not come to its end (${path}): ${found.loose.slice(-3).join(" ")}`);
  }
  for (const complaint of found.complaints.slice(0, 5)) {
    failed = true;
    evidence.push(`FAILED  the kernel complained: ${complaint}`);
  }
  for (const at of found.cases) {
    evidence.push(`-- ${at.name}${at.seconds === undefined ? "" : `, ${at.seconds.toFixed(1)} s`}`);
    for (const [what, check] of checks[at.name] ?? []) {
      let verdict;
      try {
        verdict = check(at, found);
      } catch (error) {
        verdict = [false, error.message];
      }
      // A check that returns nothing does not apply to this machine.
      if (!verdict) continue;
      const [holds, figures] = verdict;
      const word = holds === undefined ? "not run" : holds ? "ok" : "FAILED";
      failed ||= word === "FAILED";
      column.verdicts.set(`${at.name}: ${what}`, word);
      evidence.push(`${word.padEnd(7)} ${what}: ${figures}`);
    }
  }
  columns.push(column);
}

const names = [...new Set(columns.flatMap((column) => [...column.verdicts.keys()]))];
const rows = [
  ["", ...columns.map((column) => column.run)],
  ...names.map((name) => [name, ...columns.map((column) => column.verdicts.get(name) ?? "-")]),
];
const widths = rows[0].map((_, at) => Math.max(...rows.map((row) => row[at].length)));
console.log(evidence.join("\n"));
console.log();
for (const row of rows) console.log(row.map((cell, at) => cell.padEnd(widths[at])).join("  ").trimEnd());
console.log(failed ? "\nFAILED" : "\neverything that should hold does");
process.exit(failed ? 1 : 0);
