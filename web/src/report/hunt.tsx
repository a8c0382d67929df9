// The report of `spangap hunt --html`: the verdict as in a case, with the calls it is based on.

import type { CaseState, Hunt } from "../cases_api";
import { Panel } from "../parts";
import { HuntView } from "../verdict";
import { Report } from "./parts";

export interface HuntDocument {
  of: string;
  title: string;
  report: Hunt;
}

/** The state that a case with this verdict would be in. */
const stateOf = (hunt: Hunt): CaseState => (hunt.verdict === "one" || hunt.verdict === "several" ? "explained" : "unknown");

export function HuntReport({ of, title, report }: HuntDocument) {
  const pair = typeof report.excess?.pair === "string" ? `, ${report.excess.pair}` : "";
  const ids = report.trace_ids ?? [];
  return (
    <Report verb="hunt" of={`${of}${pair}`}>
      <section class="panel">
        <p class="headline">{title}</p>
        {report.words && <p class="lead">{report.words}</p>}
      </section>
      <HuntView hunt={report} state={stateOf(report)} />
      {ids.length > 0 && (
        <Panel title="Calls that it rests on">
          <p class="calls-of">
            {ids.map((id) => (
              <code key={id}>{id}</code>
            ))}
          </p>
        </Panel>
      )}
    </Report>
  );
}
