// Did it help: one line at the top of a case, from nothing tried to proven, with the way to the experiment.

import type { CaseReport } from "./cases_api";
import { isOver, progressWords, soFarWords } from "./experiment_words";
import { isOffered, useMayChange } from "./experiments";
import { meterNowMs } from "./meter_clock";

export function HelpedLine({ report, onTry }: { report: CaseReport; onTry: () => void }) {
  const { may, why } = useMayChange();
  const last = report.experiments?.at(-1);
  if (last && !isOver(last)) {
    return (
      <p class="summary helped" role="status">
        Did it help: <b>an experiment is under way</b>. {progressWords(last, meterNowMs())} {soFarWords(last)}
      </p>
    );
  }
  const told = report.experiments?.filter((one) => one.outcome === "proven" || one.outcome === "refuted").at(-1) ?? last;
  if (told) {
    return (
      <p class={`summary helped ${told.outcome === "proven" || told.outcome === "refuted" ? "proof" : ""}`}>
        Did it help: {told.words}
      </p>
    );
  }
  if (report.after) return <p class="summary helped">Did it help: the pair is back to its usual figures; below, before and after.</p>;
  if (!isOffered(report) || (!report.verdict?.culprit && !report.hunt?.place)) return null;
  if (!may) return <p class="summary helped">Did it help: nothing was tried yet. {why}</p>;
  return (
    <p class="summary helped">
      Did it help: nothing was tried yet.{" "}
      <button type="button" onClick={onTry}>
        try the remedy…
      </button>{" "}
      <span class="quiet">It says first what it would do.</span>
    </p>
  );
}
