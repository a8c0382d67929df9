// What the page says of counts, predictions, shares and terms.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { against, isMoved, slowerSince } from "../src/against";
import type { PairPoint } from "../src/api";
import type { CaseReport, CaseRow, Hunt } from "../src/cases_api";
import { countsOf, countsWords } from "../src/counts";
import { expectedOf, expectedWords, otherwise } from "../src/expected";
import type { ExperimentReport } from "../src/experiment_api";
import { progressWords, soFarWords } from "../src/experiment_words";
import { glossary } from "../src/glossary";
import { START, type View } from "../src/state";
import { beyondWhole } from "../src/verdict_words";
import { stepsOf } from "../src/waited";

const recorded = <T>(name: string) => JSON.parse(readFileSync(`test/recorded/${name}.json`, "utf8")) as T;
const plain = (text: string | null) => (text ?? "").replace(/\u202f/g, " ");
const CASE = recorded<CaseReport>("case");
const RUNNING = recorded<CaseReport>("experiment_running").experiments!.at(-1)!;

test("the counts of a case are one chain, each a part of the one before", () => {
  assert.equal(
    plain(countsWords(CASE.hunt!)),
    "600 calls were recorded, by spans or packets; all of them with packets; all of them examined one by one; all of them in question, since what all calls take is to be explained; 77 of them show stopped (server).",
  );
  const hunt: Hunt = { verdict: "one", question: "slow", coverage: { calls: 1_200, captured: 1_048, looked_at: 1_040, without_spans: 8 }, excess: { calls: 1_040, slow_calls: 48 }, culprits: [{ cause: "rto", side: null, share: { low: 0.9, mid: 1, high: 1.1 }, calls: 46 }] };
  assert.equal(plain(countsWords(hunt)), "1,200 calls were recorded, by spans or packets; 1,048 of them with packets; 1,040 of them examined one by one (left out: 8 without spans at hand, which say more); 48 of them in question: the slow ones, compared with the 992 others; 46 of them show rto.");
  const numbers = countsOf(hunt).map(({ n }) => n);
  assert.deepEqual([...numbers].sort((a, b) => b - a), numbers);
  assert.equal(countsWords({ verdict: "unknown" }), null);
});

test("one prediction, with its interval and what it rests on", () => {
  const share = { low: 0.91, mid: 0.99, high: 1.07 };
  const gap = (mean_ns: number) => ({ client_duration: { p50_ns: 0, p99_ns: 0, mean_ns } });
  const report = { ...CASE, verdict: { ...CASE.verdict!, share }, usual: gap(1e6), before: gap(41e6) } as CaseReport;
  const expected = expectedOf(report)!;
  // No more than all of it can be won.
  assert.deepEqual([expected.low, expected.mid, expected.high, expected.each], [0.91 * 40e6, 0.99 * 40e6, 40e6, "call"]);
  assert.equal(plain(expectedWords(expected)), "Predicted: 39.6 ms less for each call, on average (36.4–40.0, 90 % interval): the 99.0 % that stopped (server) has of what a call took beyond the usual: 41.0 ms instead of 1.00 ms in the mean.");
  const { usual: _, ...unknown } = report;
  assert.equal(expectedOf({ ...unknown, excess_ns: 10e6, hunt: { ...CASE.hunt!, question: "slow" } })!.each, "slow call");
  assert.equal(expectedOf({ ...report, verdict: null }), null);
  // An experiment that predicts the same needs no word; another one says why.
  assert.equal(otherwise(39e6, expected), null);
  assert.match(plain(otherwise(20e6, expected)), /^The case predicted 39\.6 ms; 20\.0 ms goes by how long calls without the remedy took meanwhile\.$/);
});

test("an interval past the whole is explained, and none needs no word", () => {
  assert.equal(beyondWhole([{ low: 0.1, mid: 0.5, high: 1 }, null]), null);
  assert.match(beyondWhole([{ low: 0.91, mid: 0.99, high: 1.07 }])!, /past 100 %, it may be all of it\.$/);
  assert.match(beyondWhole([{ low: -0.1, mid: 0.02, high: 0.1 }, { low: 0.9, mid: 1, high: 1.1 }])!, /past 100 % or below 0 %, it may be all of it, or it may be none of it\.$/);
});

test("while an experiment runs, what it shows so far is called provisional, and its looks are named", () => {
  const plan = { ...RUNNING.plan, blocks: 10, first_look: 6, block_ms: 2_000, takes_ms: 20_000 };
  const running: ExperimentReport = { ...RUNNING, plan, so_far_ns: 42.4e6 };
  assert.equal(plain(soFarWords(running)), "So far the remedy takes about 42.4 ms off a call, by 3 blocks: provisional, nothing is concluded from it.");
  assert.match(plain(soFarWords({ ...running, so_far_ns: -1e6 })), /^So far calls take 1\.00 ms longer with the remedy/);
  assert.equal(soFarWords({ ...running, to_unix_ms: 1 }), "");
  assert.equal(plain(progressWords(running, running.from_unix_ms + 7_000)), "Block 4 of 10; the first look is after block 6, in about 5 s.");
  const more = { ...running, blocks: Array.from({ length: 10 }, (_, at) => ({ ...running.blocks[0]!, to_unix_ms: at < 6 ? 1 : 0 })) };
  assert.equal(plain(progressWords(more, running.from_unix_ms + 13_000)), "Block 7 of 10, about 7 s to go; sooner if the first look, once all spans of block 6 are there, leaves no doubt.");
});

test("the stretch before ends before the pair became slower", () => {
  const one = (state: CaseRow["state"], server: string, untilS: number) => ({ id: "c", state, pair: { client: "web", server }, trigger: "baseline", opened_unix_ms: 0, usual_until_unix_ms: untilS * 1000 }) as CaseRow;
  const [from, to] = [1_700_000_100, 1_700_000_700];
  const view: View = { ...START, place: "pair", pair: { client: "web", server: "cart" }, fixed: { from, to }, against: "previous" };
  const cases = [one("explained", "cart", from - 50), one("explained", "db", from - 400), one("fixed", "cart", from - 300)];
  // Slow since 50 s before what is shown: that minute, and what follows it, is in neither.
  assert.deepEqual(against(view, to, cases), { from: from - 60 - 600, to: from - 60 });
  assert.equal(isMoved(view, to, cases), true);
  assert.deepEqual(slowerSince(cases, { ...view, place: "fleet", pair: null }), [from - 50, from - 400]);
  assert.deepEqual(against(view, to, []), { from: from - 600, to: from });
  assert.equal(isMoved(view, to, []), false);
  // A change within what is shown, or long before both, moves nothing; nor does it a stretch chosen by hand.
  assert.deepEqual(against(view, to, [one("open", "cart", from + 50), one("open", "cart", from - 5_000)]), { from: from - 600, to: from });
  assert.deepEqual(against({ ...view, against: { from: 0, to: 60 } }, to, cases), { from: 0, to: 60 });
});

test("what clients waited adds up over steps, and the one that is not over is marked", () => {
  const point = (unix_s: number, open = false) => ({ unix_s, open, lost_ns_total: 2e6, gap: { count: 4 }, client_duration: { count: 4, mean_ns: 5e6 } }) as PairPoint;
  const from = 1_700_000_400;
  const points = Array.from({ length: 10 }, (_, at) => point(from + at * 60, at === 9));
  const minutes = stepsOf(points, from, from + 600, 120);
  assert.deepEqual([minutes.stepS, minutes.steps.length, minutes.steps.filter((step) => step.open).length], [60, 10, 1]);
  const fewer = stepsOf(points, from, from + 600, 2);
  assert.ok(fewer.steps.length <= 3 && fewer.stepS > 60, `${fewer.stepS}`);
  for (const { steps } of [minutes, fewer]) {
    assert.equal(steps.reduce((sum, step) => sum + step.clientNs, 0), 200e6);
    assert.equal(steps.reduce((sum, step) => sum + step.gapNs, 0), 20e6);
  }
});

test("the glossary has the words of the page, and no markup", () => {
  const sections = glossary();
  const named = sections.flatMap((section) => section.terms.flatMap((term) => term.names));
  for (const word of ["pair", "gap", "lost", "leg", "culprit", "verdict", "shown", "beyond usual", "excess", "experiment", "look", "guard"]) assert.ok(named.includes(word), `${word} of ${named.join()}`);
  for (const { names, meaning } of sections.flatMap((section) => section.terms)) {
    assert.ok(names.length > 0 && meaning.length > 10, names.join());
    assert.doesNotMatch(meaning, /\]\(|<a |\*\*/, names.join());
  }
});
