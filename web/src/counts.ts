// The counts of calls in a verdict as one chain: each a part of the one before it, and said of which set it is.

import type { Hunt } from "./cases_api";
import { count } from "./format";
import { causeWords } from "./verdict_words";

/** A link of the chain. */
export interface Counted {
  n: number;
  words: string;
}

const all = (n: number, of: number) => (n === of ? "all of them" : `${count(n)} of them`);

/** From the calls that were recorded to those that show the cause. What is not known is left out. */
export function countsOf(hunt: Hunt): Counted[] {
  const { coverage, excess, question } = hunt;
  const chain: Counted[] = [];
  const add = (n: number | undefined, words: (n: number, before: number) => string) => {
    if (n !== undefined) chain.push({ n, words: words(n, chain.at(-1)?.n ?? n) });
  };
  add(coverage?.calls, (n) => `${count(n)} calls were recorded, by spans or packets`);
  add(coverage?.captured, (n, before) => `${all(n, before)} with packets`);
  const leftOut: [number | undefined, string][] = [
    [coverage?.without_spans, "without spans at hand, which say more"],
    [coverage?.not_behind_proxies, "not seen behind a proxy"],
    [coverage?.without_recording, "without a recording of their threads"],
  ];
  const why = leftOut.flatMap(([n, words]) => (n ? [`${count(n)} ${words}`] : []));
  add(coverage?.looked_at, (n, before) => `${all(n, before)} examined one by one${n < before && why.length > 0 ? ` (left out: ${why.join(", ")})` : ""}`);
  const others = (excess?.calls ?? 0) - (excess?.slow_calls ?? 0);
  add(excess?.slow_calls, (n, before) => {
    if (question === "all") return `${all(n, before)} in question, since what all calls take is to be explained`;
    return `${all(n, before)} in question${others > 0 ? `: the slow ones, compared with the ${count(others)} others` : ""}`;
  });
  for (const culprit of hunt.culprits ?? []) {
    if (culprit.calls === undefined) continue;
    const of = excess?.slow_calls ?? chain.at(-1)?.n ?? culprit.calls;
    chain.push({ n: culprit.calls, words: `${all(culprit.calls, of)} show ${causeWords(culprit.cause, culprit.side)}` });
  }
  return chain;
}

/** The same as a sentence; null of nothing. */
export function countsWords(hunt: Hunt): string | null {
  const chain = countsOf(hunt);
  return chain.length === 0 ? null : `${chain.map(({ words }) => words).join("; ")}.`;
}
