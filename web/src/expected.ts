// What the remedy of a case is expected to give: one figure, with its interval and what it rests on.

import type { CaseReport } from "./cases_api";
import { duration, interval, percent } from "./format";
import { causeWords } from "./verdict_words";

/** Nanoseconds; `low` and `high` are the ends of the share's 90 % interval. */
export interface Expected {
  low: number;
  mid: number;
  high: number;
  /** Whether it is of every call, or of each slow one. */
  each: "call" | "slow call";
  basis: string;
}

/** The culprit's share of what calls take beyond the usual, as an experiment predicts it; without a usual mean, of what slow calls take. */
export function expectedOf(report: CaseReport): Expected | null {
  const { verdict, usual, before, excess_ns: excess, hunt } = report;
  const share = verdict?.share;
  if (!verdict?.culprit || !share) return null;
  const [was, is] = [usual?.client_duration?.mean_ns ?? 0, before?.client_duration?.mean_ns ?? 0];
  const bounded = (part: number) => Math.min(1, Math.max(0, part));
  const times = (ns: number) => ({ low: bounded(share.low) * ns, mid: bounded(share.mid) * ns, high: bounded(share.high) * ns });
  const whose = `the ${percent(bounded(share.mid))} that ${causeWords(verdict.culprit, verdict.side)} has`;
  if (was > 0 && is > was) return { ...times(is - was), each: "call", basis: `${whose} of what a call took beyond the usual: ${duration(is)} instead of ${duration(was)} in the mean` };
  if (!excess) return null;
  if (hunt?.question === "all") return { ...times(excess), each: "call", basis: `${whose} of the ${duration(excess)} that a call took in the mean` };
  return { ...times(excess), each: "slow call", basis: `${whose} of the ${duration(excess)} that a slow call took beyond others of its kind` };
}

export const expectedWords = (expected: Expected) => `Predicted: ${duration(expected.mid)} less for each ${expected.each}, on average (${interval(expected.mid, [expected.low, expected.high])}, 90 % interval): ${expected.basis}.`;

/** A prediction that differs by more was made of other durations. */
const OTHERWISE = 0.1;

/** Why an experiment predicts something else than the case did; null if it does not. */
export function otherwise(predictedNs: number | undefined, expected: Expected | null): string | null {
  if (predictedNs === undefined || expected?.each !== "call" || Math.abs(predictedNs - expected.mid) <= OTHERWISE * expected.mid) return null;
  return `The case predicted ${duration(expected.mid)}; ${duration(predictedNs)} goes by how long calls without the remedy took meanwhile.`;
}
