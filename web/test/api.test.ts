// The page's types are the meter's JSON shapes, one to one.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { differences, rustShapes, typescriptShapes, violations } from "./shapes";

const REPORT = ["mod", "coverage"].map((file) => readFileSync(`../crates/meter/src/report/${file}.rs`, "utf8")).join("\n");
const API = readFileSync("src/api.ts", "utf8");
/** What api.ts has beside the shapes. */
const OWN = ["PairName"];

function typescript(source: string) {
  const shapes = typescriptShapes(source);
  for (const name of OWN) assert.ok(shapes.delete(name), `api.ts no longer has ${name}`);
  return shapes;
}

test("api.ts has every shape of report.rs and no other", () => {
  const rust = rustShapes(REPORT);
  assert.ok(rust.size >= 18, `only ${rust.size} shapes were read`);
  assert.deepEqual(differences(rust, typescript(API)), []);
});

test("explain_api.ts has every shape of an explanation and no other", () => {
  // A share is a share, wherever it is told.
  const rust = rustShapes(readFileSync("../crates/meter/src/explain/mod.rs", "utf8").split("#[cfg(test)]")[0]!.replace(/^pub (?:fn|const)[^]*?;$/gm, ""));
  assert.deepEqual(differences(rust, typescriptShapes(readFileSync("src/explain_api.ts", "utf8"))), []);
});

test("a change on one side alone is found", () => {
  const rust = rustShapes(REPORT);
  const change = (source: string, from: string, to: string) => {
    assert.ok(source.includes(from), from);
    return source.replace(from, to);
  };
  const changedRust: [string, string, string][] = [
    ["pub uptime_s: u64,", "pub uptime_ms: u64,", "Coverage.uptime_ms"],
    ["pub match_ratio: Option<f64>,", "pub match_ratio: f64,", "Coverage.match_ratio"],
    ["pub whole: bool,", "pub whole: String,", "WorstRow.whole"],
    ["pub struct Hole {", "pub struct Blank {", "Blank"],
    ["    #[serde(flatten)]\n    pub call: WorstRow,", "    pub call: WorstRow,", "WorstOfPair"],
  ];
  for (const [from, to, where] of changedRust) {
    const found = differences(rustShapes(change(REPORT, from, to)), typescript(API));
    assert.ok(found.some((text) => text.startsWith(where)), `${to}: ${found.join("; ")}`);
  }
  const changedPage: [string, string, string][] = [
    ["  uptime_s: number;\n", "", "Coverage.uptime_s"],
    ["client_host?: string;", "client_host: string;", "WorstRow.client_host"],
    ["p50_ci95_ns: [number, number];", "p50_ci95_ns: number[];", "Quantiles.p50_ci95_ns"],
  ];
  for (const [from, to, where] of changedPage) {
    const found = differences(rust, typescript(change(API, from, to)));
    assert.ok(found.some((text) => text.startsWith(where)), `${to}: ${found.join("; ")}`);
  }
});

test("JSON that is not of its shape is found", () => {
  const shapes = typescriptShapes(API);
  assert.deepEqual(violations({ from_unix_s: 1, to_unix_s: 2 }, "Hole", shapes), []);
  assert.deepEqual(violations({ from_unix_s: 1, to: 2 }, "Hole", shapes), ["$.to is not in api.ts", "$.to_unix_s is missing"]);
  assert.deepEqual(violations({ file: "-", place: "line 1", reason: "", spans: null }, "Skipped", shapes), []);
  assert.equal(violations({ error: 3 }, "ApiError", shapes).length, 1);
});

test("every key is documented", () => {
  const guide = readFileSync("../docs/api.md", "utf8");
  const missing = [...rustShapes(REPORT)].flatMap(([name, shape]) => [...shape.fields.keys()].filter((key) => !guide.includes(`\`${key}\``)).map((key) => `${name}.${key}`));
  assert.deepEqual(missing, []);
});
