// What the figures alone do not tell: errors, warnings, noise, claims that cannot be made, runs that were not made.

import { el } from "../dom";
import { count, duration } from "../format";
import { time } from "./figures";
import type { Noise, Run, TankReport } from "./report";
import { nameOf } from "./sweep";

/** A text in which what stands in backticks is set as code. */
const codes = (text: string) => text.split("`").map((piece, at) => (at % 2 === 1 ? el("code", {}, piece) : piece));

function bullets(texts: string[], wrong = false): HTMLElement | null {
  return texts.length === 0 ? null : el("ul", { class: "findings" }, ...texts.map((text) => el("li", { class: wrong ? "wrong" : null }, ...codes(text))));
}

const titled = (title: string, content: HTMLElement | null) => (content ? [el("h3", {}, title), content] : []);

/** Warnings of the report and of its runs; one that several runs share appears once. */
export function warnings(report: TankReport): string[] {
  const byText = new Map<string, Run[]>();
  for (const run of report.runs) {
    for (const text of [...run.warnings, ...(run.client_error === null ? [] : [`the client ended badly: ${run.client_error}`])]) byText.set(text, [...(byText.get(text) ?? []), run]);
  }
  const ofRuns = [...byText].map(([text, runs]) => {
    if (report.runs.length === 1) return text;
    return `${text} (${runs.length === report.runs.length ? "every run" : runs.map((run) => nameOf(run, report.runs)).join("; ")})`;
  });
  return [...report.warnings, ...ofRuns];
}

function errors(runs: Run[]): HTMLElement | null {
  const rows = runs.flatMap((run) =>
    Object.entries(run.errors).map(([status, n]) =>
      el("tr", {}, el("td", {}, nameOf(run, runs)), el("td", {}, status), el("td", { class: "number" }, count(n)), el("td", { class: "reason" }, run.error_reasons[status] ?? "no reason given")),
    ),
  );
  if (rows.length === 0) return null;
  const heads = ["Run", "Status", "Calls", "The last reason"].map((text, i) => el("th", { scope: "col", class: i === 2 ? "number" : null }, text));
  return el("div", { class: "scroller" }, el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)));
}

function noiseTexts(noise: Noise): string[] {
  const timer = noise.timer_lateness;
  const slack = noise.timer_slack_ns === null ? "timer slack unknown" : `timer slack ${duration(noise.timer_slack_ns)}`;
  return [
    timer.max_ns === null
      ? "The lateness of timers was not measured."
      : `A sleep of 1 ms ends ${time(timer.p50_ns)} late at p50, ${time(timer.p99_ns)} at p99, ${time(timer.max_ns)} at most (${slack}).`,
    noise.watched_ns === 0
      ? "Pauses of a thread that never sleeps were not watched."
      : `A thread that never sleeps was not running for ${duration(noise.longest_pause_ns)} at the longest, in ${duration(noise.watched_ns)}.`,
    `Reading the clock takes ${time(noise.clock_read_ns)}; its step is ${time(noise.clock_step_ns)}. The client had ${noise.cpus} CPU${noise.cpus === 1 ? "" : "s"}.`,
  ];
}

function beside(report: TankReport): string[] {
  const { spans, slow_log: log } = report;
  const found: string[] = [];
  if (spans) {
    const lost = [[spans.rejected, "rejected by the collector"], [spans.dropped_queue_full, "dropped because the queue was full"], [spans.dropped_unsent, "not delivered in time"]] as const;
    found.push([`${count(spans.exported)} of ${count(spans.recorded)} spans exported`, ...lost.filter(([n]) => n > 0).map(([n, why]) => `${count(n)} ${why}`)].join(", "));
  }
  if (log) found.push(`Slow calls: ${count(log.written)} lines in ${log.path}${log.dropped > 0 ? `, ${count(log.dropped)} lost` : ""}`);
  return found;
}

/** What the runs show, each with its basis; null if no cause stands out. */
export function shown(report: TankReport): HTMLElement | null {
  // Reports of older versions lack them.
  const found = report.findings ?? [];
  if (found.length === 0) return null;
  const items = found.map((finding) =>
    el(
      "li",
      {},
      el("strong", {}, `${finding.standing}: ${finding.cause}${finding.side === null ? "" : ` (${finding.side})`}. `),
      finding.says,
      el("details", {}, el("summary", {}, "What it rests on, and what would clear it"), bullets([...finding.rests_on, `Cleared by ${finding.cleared_by}.`])),
    ),
  );
  return el("ul", { class: "shown" }, ...items);
}

/** The section; it always includes the noise. */
export function remarks(report: TankReport): HTMLElement {
  return el(
    "section",
    { id: "remarks" },
    ...titled("Warnings", bullets(warnings(report), true)),
    ...titled("Errors", errors(report.runs)),
    ...titled("What cannot be claimed on this machine", bullets(report.noise.cannot_claim)),
    ...titled("Noise of this machine", bullets(noiseTexts(report.noise))),
    ...titled("Not run", bullets(report.not_run.map((one) => `${one.what}: ${one.why}`))),
    ...titled("Spans and slow calls", bullets(beside(report))),
  );
}
