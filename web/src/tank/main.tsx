// The page of `spangap tank --html`: reads the report embedded in it, and draws it within the frame common to all reports.
// It is a page of its own because its charts need a library that the other reports do without.

import { render } from "preact";
import { byId, el } from "../dom";
import { dayAndClock } from "../format";
import { Mounted } from "../parts";
import { Report } from "../report/parts";
import { markScrollers } from "../scrollers";
import { Chart } from "./chart";
import { latency, lateness, throughput, wantsLog } from "./load";
import { loadView, runView } from "./choice";
import { remarks, shown } from "./remarks";
import type { Run, TankReport } from "./report";
import { runsTable } from "./runs";
import { loadsOf, sweeps, type Sweep } from "./sweep";
import { tiles } from "./tiles";
import { findings, measured } from "./words";

const MILLION = 1e6;

function radio(name: string, choices: [string, boolean][], chosen: boolean, change: (value: boolean) => void): HTMLElement {
  return el(
    "fieldset",
    { class: "switch" },
    el("legend", { class: "unseen" }, "Axes"),
    ...choices.map(([label, value]) => {
      const input = el("input", { type: "radio", name });
      input.checked = value === chosen;
      input.addEventListener("change", () => change(value));
      return el("label", {}, input, el("span", {}, label));
    }),
  );
}

/** Throughput and latency over the load. */
function overLoad(sweep: Sweep): HTMLElement[] {
  const [flow, delay] = [new Chart(360), new Chart(360)];
  const draw = (log: boolean) => {
    flow.update(throughput(sweep, log));
    delay.update(latency(sweep, log));
  };
  draw(wantsLog(sweep));
  const axes = radio(`axes-${sweep.kind}`, [["linear axes", false], ["logarithmic", true]], wantsLog(sweep), draw);
  const load = sweep.kind === "rate" ? "rate" : "calls in flight";
  return [
    el("section", { class: "figure", id: `throughput-${sweep.kind}` }, el("div", { class: "head" }, el("h2", {}, `Throughput against ${load}`), axes), flow.root, note(sweep)),
    el("section", { class: "figure", id: `latency-${sweep.kind}` }, el("div", { class: "head" }, el("h2", {}, `Latency against ${load}`)), delay.root),
  ];
}

/** Lateness of calls, if calls had due times. */
function late(sweep: Sweep): HTMLElement[] {
  const spec = lateness(sweep);
  if (!spec) return [];
  const chart = new Chart(260);
  chart.update(spec);
  return [el("section", { class: "figure wide", id: "lateness" }, el("div", { class: "head" }, el("h2", {}, "Lateness: how long after its due time a call was sent")), chart.root)];
}

function note(sweep: Sweep): HTMLElement | null {
  const texts = [sweep.kind === "inflight" ? "If linear: the smallest load's throughput per call in flight, times the calls in flight." : ""];
  if (sweep.configurations.some((one) => one.points.some((point) => point.runs.length > 1))) texts.push("Curves are the median of the repetitions, bands reach from the smallest to the largest.");
  if (sweep.configurations.some((one) => one.points.some((point) => point.direction !== null))) texts.push("↑ was swept from less to more, ↓ from more to less (hollow points).");
  const text = texts.filter((one) => one !== "").join(" ");
  return text === "" ? null : el("p", { class: "note" }, text);
}

function when(runs: Run[]): string {
  const starts = runs.flatMap((run) => (run.start_unix_ns === null ? [] : [run.start_unix_ns]));
  return starts.length === 0 ? "" : `measured ${dayAndClock(Math.min(...starts) / (1000 * MILLION))}`;
}

/** The sections of the page, from top to bottom. */
function sections(report: TankReport): HTMLElement[] {
  const { runs } = report;
  const all = sweeps(runs);
  const swept = all.filter((sweep) => loadsOf(sweep).length > 1);
  const still = all.filter((sweep) => loadsOf(sweep).length <= 1);
  const verdict = report.verdict ? el("p", { class: "headline" }, report.verdict) : null;
  const found = el("ul", { class: "found" }, ...findings(report).map((text) => el("li", {}, text)));
  const made = [el("section", { id: "summary" }, verdict, el("p", { class: "lead measured" }, measured(report)), shown(report), found)];
  // A load that was not swept yields no curve: its figures are shown side by side.
  made.push(...still.map((sweep) => tiles(sweep)), ...swept.flatMap(overLoad));
  if (runs.length > 0) {
    const spectrum = loadView(runs);
    made.push(...(spectrum ? [spectrum] : []), ...runView(runs), ...swept.flatMap(late));
    made.push(el("section", { id: "runs" }, el("h2", {}, "All runs"), runsTable(runs)));
  }
  return [...made, remarks(report)];
}

function TankPage({ report }: { report: TankReport }) {
  return (
    <Report verb="tank" of={when(report.runs)} class="tank">
      {sections(report).map((section, at) => (
        <Mounted key={at} root={section} class="mounted" />
      ))}
    </Report>
  );
}

const app = byId("app");
markScrollers(app);
try {
  render(<TankPage report={JSON.parse(byId("data").textContent ?? "") as TankReport} />, app);
} catch (error) {
  console.error(error);
  app.replaceChildren(el("p", { id: "problem", role: "alert" }, `This page holds no report that can be drawn: ${error instanceof Error ? error.message : String(error)}`));
}
