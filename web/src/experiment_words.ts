// An experiment in words: its progress, what is in force, and its end.

import type { ExperimentReport, PlanReport } from "./experiment_api";
import { count, duration, span } from "./format";

/** Name of a lever for those who would operate it by hand. */
const LEVERS: Record<string, string> = { "tcp-nodelay": "TCP_NODELAY", isolate: "Isolation of packets" };

export const leverWords = (lever: string) => LEVERS[lever] ?? lever.replaceAll("-", " ");

const MEANS: Record<string, string> = {
  proven: "the remedy has the effect that the verdict predicts",
  refuted: "the remedy has less than half of the effect that the verdict predicts: it is something else",
  undecided: "this experiment says neither",
  running: "under way",
};

export const outcomeWords = (outcome: string) => MEANS[outcome] ?? outcome;

export const isOver = (experiment: ExperimentReport) => experiment.to_unix_ms !== undefined;

/** Finished blocks. */
export const blocksDone = (experiment: ExperimentReport) => experiment.blocks.filter((block) => block.to_unix_ms > 0).length;

/** How long all blocks take, and that it may end before; a meter of before had no first look. */
function takesWords({ blocks, first_look: first, block_ms: ms, takes_ms: takes, design }: PlanReport): string {
  const each = `blocks of ${duration(ms * 1e6)}${design === "halves" ? "" : ", twice each"}`;
  if (!first) return `${count(blocks)} ${each}, about ${span(takes / 1000)}`;
  return `${count(first)} ${each}, about ${span((takes / 1000) * (first / blocks))}, and as long as their spans take to arrive; if the effect is not clear then, ${count(blocks)} blocks, about ${span(takes / 1000)}`;
}

/** Settings of the host, if those are changed. */
const isOfHost = (plan: PlanReport) => (plan.values ?? []).length > 0;

/** What the button starts immediately: one fact per line. */
export function planFacts(plan: PlanReport): [string, string][] {
  const halves = plan.design === "halves";
  const number = plan.connections.length;
  const whose = [...new Set(plan.connections.map((one) => `${one.comm} (${one.pid})`))].join(", ");
  if (isOfHost(plan)) {
    const settings = (plan.values ?? []).map((one) => `${one.place}: ${one.from.trim()} to ${one.to}`).join("; ");
    return [
      ["changes", `packets of ${(plan.interfaces ?? []).join(", ")} are handled on CPU ${plan.net_cpus ?? "?"} of ${plan.host_name || plan.agent}, instead of CPU ${plan.app_cpus ?? "?"}, where the ${plan.side}'s program runs`],
      ["sets", settings],
      ["compares", "stretches with the change and as long ones without, in random order"],
      ["takes", takesWords(plan)],
      ["is undone", "at the end of each stretch; by a process of its own on that host if meter or agent are gone"],
    ];
  }
  return [
    ["changes", `${leverWords(plan.lever)} of ${count(number)} connection${number === 1 ? "" : "s"} of ${whose} with ${plan.server}, on ${plan.host_name || plan.agent} (${plan.side})`],
    ["compares", halves ? "a random half of them with the other half, drawn again for each block" : "stretches with the change and equally long ones without, in random order"],
    ["takes", takesWords(plan)],
    ["is undone", "at the end of each block; by a process of its own on that host if meter or agent are gone"],
    ["leaves alone", `${count(plan.already)} that have it already, ${count(plan.not_readable)} that cannot be reached`],
  ];
}

export interface Undo {
  words: string;
  /** The deadline for a confirmation has passed without one. */
  isOverdue: boolean;
}

const left = (untilMs: number, nowMs: number) => span(Math.max(0, Math.ceil((untilMs - nowMs) / 1000)));
const clockOf = (ms: number) => new Date(ms).toLocaleTimeString([], { hour12: false });

/** The change in force on the host, and until when. */
export function undoWords(experiment: ExperimentReport, nowMs: number): Undo {
  const force = experiment.in_force;
  const over = isOver(experiment);
  if (!force) {
    if (!over) return { words: "Nothing is changed at this moment.", isOverdue: false };
    return experiment.undone ? { words: "Every change is undone: the host has confirmed each.", isOverdue: false } : { words: "The host has not confirmed that every change is undone. Look there: spangap sockets list, spangap isolate status.", isOverdue: true };
  }
  const host = experiment.plan.host_name || "the host";
  const look = isOfHost(experiment.plan) ? "spangap isolate status" : "spangap sockets list";
  const what = isOfHost(experiment.plan) ? `${leverWords(experiment.lever)} is set on ${host}` : `${leverWords(experiment.lever)} is set on ${count(force.connections)} connection${force.connections === 1 ? "" : "s"} of ${host}`;
  if (!over && nowMs < force.until_unix_ms) return { words: `${what}; undone in ${left(force.until_unix_ms, nowMs)}.`, isOverdue: false };
  if (nowMs < force.guard_unix_ms) return { words: `${what}; the undo is not confirmed yet. The host undoes it by itself in ${left(force.guard_unix_ms, nowMs)} at the latest.`, isOverdue: over };
  const late = span(Math.floor((nowMs - force.guard_unix_ms) / 1000));
  return { words: `Undo overdue by ${late}: ${what.replace(" is set on ", " was set on ")}, and nobody has confirmed that it is taken back. The host's guard was to do so by ${clockOf(force.guard_unix_ms)}. Look there: ${look}.`, isOverdue: true };
}

/** Its progress. */
export function progressWords(experiment: ExperimentReport, nowMs: number): string {
  const { blocks, first_look: first, takes_ms: takes } = experiment.plan;
  const done = blocksDone(experiment);
  if (done >= blocks) return "All blocks are over: waiting for the spans of the last calls.";
  const block = `Block ${Math.min(done + 1, blocks)} of ${blocks}`;
  const endMs = experiment.from_unix_ms + takes;
  const rest = nowMs < endMs ? `about ${left(endMs, nowMs)} to go` : "longer than announced";
  if (!first) return `${block}, ${rest}.`;
  const lookMs = experiment.from_unix_ms + takes * (first / blocks);
  if (done < first) return `${block}; the first look is after block ${first}${nowMs < lookMs ? `, in about ${left(lookMs, nowMs)}` : ""}.`;
  return `${block}, ${rest}; sooner if the first look, once all spans of block ${first} are there, leaves no doubt.`;
}

/** What the blocks so far show, and that it is no result. */
export function soFarWords(experiment: ExperimentReport): string {
  const { so_far_ns: soFar } = experiment;
  if (soFar === undefined || isOver(experiment)) return "";
  const blocks = experiment.blocks.filter((block) => block.treated.calls > 0 && block.control.calls > 0).length;
  return `So far ${soFar < 0 ? `calls take ${duration(-soFar)} longer with the remedy` : `the remedy takes about ${duration(soFar)} off a call`}, by ${count(blocks)} block${blocks === 1 ? "" : "s"}: provisional, nothing is concluded from it.`;
}

export const chanceWords = (probability: number) => `p ${probability < 0.001 ? "< 0.001" : `= ${probability.toFixed(3)}`}`;

/** Events on a pair's host, on a time axis. */
export function eventWords(kind: string, lever: string, pair: string): string {
  if (kind === "changed") return `${leverWords(lever)} tried on ${pair}`;
  if (kind === "undone") return `${leverWords(lever)} undone on ${pair}`;
  if (kind === "not_undone") return `${leverWords(lever)} on ${pair}: undo not confirmed`;
  return kind === "fixed" ? `fixed: ${pair}` : `${kind}: ${pair}`;
}
