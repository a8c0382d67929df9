// Charts of runs that the reader selects: the quantile spectrum of one load or configuration, one run second by second.

import { el } from "../dom";
import { Chart } from "./chart";
import type { Run } from "./report";
import { seconds, spectrum, type Chosen } from "./single";
import { kindOf, labelOf, loadOf, loadText, nameOf, varying } from "./sweep";

/** A list to choose from, with the effect of the choice; no list if there is nothing to choose. */
function chooser<T>(name: string, choices: { label: string; value: T }[], initial: number, change: (value: T) => void): HTMLElement | null {
  const first = choices[initial];
  if (first) change(first.value);
  if (choices.length < 2) return null;
  const select = el("select", { "aria-label": name }, ...choices.map((choice, i) => el("option", { value: i, selected: i === initial }, choice.label)));
  select.addEventListener("change", () => {
    const chosen = choices[select.selectedIndex];
    if (chosen) change(chosen.value);
  });
  return select;
}

/** The quantile spectrum: all configurations at one load, or one configuration at all loads. Null without any. */
export function loadView(runs: Run[]): HTMLElement | null {
  const with_ = runs.filter((run) => run.spectrum.length > 0);
  if (with_.length === 0) return null;
  const fields = varying(runs);
  const [loads, configurations] = [new Map<string, Run[]>(), new Map<string, Run[]>()];
  const add = (to: Map<string, Run[]>, key: string, run: Run) => to.set(key, [...(to.get(key) ?? []), run]);
  for (const run of [...with_].sort((a, b) => loadOf(a) - loadOf(b))) {
    add(loads, loadText(kindOf(run), loadOf(run)), run);
    add(configurations, labelOf(run, fields), run);
  }
  // Curves of different meaning have different colours; repetitions share one, and are numbered.
  const chosen = (own: Run[], name: (run: Run) => string): Chosen[] => {
    const names = [...new Set(own.map(name))];
    return own.map((run) => {
      const again = own.filter((other) => name(other) === name(run));
      const label = name(run) || "latency";
      return { run, label: again.length > 1 ? `${label}, run ${runs.indexOf(run) + 1}` : label, colour: names.indexOf(name(run)) };
    });
  };
  const byLoad = [...loads].map(([label, own]) => ({ label: `at ${label}`, value: chosen(own, (run) => labelOf(run, fields)) }));
  const byConfiguration = [...configurations].map(([label, own]) => ({
    label: `${label ? `${label}: ` : ""}all loads`,
    value: chosen(own, (run) => loadText(kindOf(run), loadOf(run))),
  }));
  const choices = [...byLoad, ...(byLoad.length > 1 ? byConfiguration : [])];
  const chart = new Chart(320);
  // With one configuration, its loads are compared; with several, the configurations at the largest load.
  const initial = configurations.size === 1 && byLoad.length > 1 ? byLoad.length : byLoad.length - 1;
  const select = chooser("Runs of the spectrum", choices, initial, (those) => {
    const spec = spectrum(those);
    if (spec) chart.update(spec);
  });
  return el("section", { class: "figure wide", id: "spectrum" }, el("div", { class: "head" }, el("h2", {}, "Quantiles, towards the tail"), select), chart.root);
}

/** One run over time. */
export function runView(runs: Run[]): HTMLElement[] {
  const with_ = runs.filter((run) => run.seconds.length > 0);
  if (with_.length === 0) return [];
  const [counts, times] = [new Chart(240), new Chart(240)];
  const select = chooser("Run shown second by second", with_.map((run) => ({ label: nameOf(run, runs), value: run })), with_.length - 1, (run) => {
    const specs = seconds(run);
    if (!specs) return;
    counts.update(specs.throughput);
    times.update(specs.latency);
  });
  return [el("section", { class: "figure wide", id: "seconds" }, el("div", { class: "head" }, el("h2", {}, "Second by second"), select), el("div", { class: "two" }, counts.root, times.root), el("p", { class: "note" }, "The shaded part is the warm-up, which no other figure counts."))];
}
