// Experiments of a case: what one would do, said before it is done; the blocks as they come; what it showed; what is undone.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiProblem, endExperiment, planExperiment, startExperiment } from "./ask";
import type { CaseReport } from "./cases_api";
import type { Arm, ExperimentReport, PlanReport } from "./experiment_api";
import { BlocksChart, EffectChart } from "./experiment_chart";
import { blocksDone, chanceWords, isOver, leverWords, outcomeWords, planFacts, progressWords, soFarWords, undoWords } from "./experiment_words";
import { otherwise, type Expected } from "./expected";
import { change, count, dayAndClock, duration, interval } from "./format";
import { inWords } from "./live";
import { meterNowMs } from "./meter_clock";
import { Code, Failed, Panel, Waiting } from "./parts";
import { useStanding } from "./signin";

/** The meter's time, looked at every second as long as somebody needs it. */
function useSeconds(active: boolean): number {
  const [now, setNow] = useState(meterNowMs);
  useEffect(() => {
    if (!active) return;
    setNow(meterNowMs());
    const timer = setInterval(() => setNow(meterNowMs()), 1_000);
    return () => clearInterval(timer);
  }, [active]);
  return now;
}

export const isRunning = (report: CaseReport | null) => report?.experiments?.some((one) => !isOver(one)) === true;

const figure = (arm: Arm, of: (arm: Arm) => number) => (arm.calls === 0 ? "–" : duration(of(arm)));

/** With and without the remedy, beside the pair as it was before it got slow. */
function Arms({ experiment, report }: { experiment: ExperimentReport; report: CaseReport }) {
  const { treated, control } = experiment;
  if (treated.calls + control.calls === 0) return null;
  const usual = report.usual?.client_duration;
  const rows: [string, (arm: Arm) => number, number | undefined][] = [
    ["mean", (arm) => arm.mean_ns, usual?.mean_ns || undefined],
    ["p50", (arm) => arm.p50_ns, usual?.p50_ns],
    ["p99", (arm) => arm.p99_ns, usual?.p99_ns],
  ];
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="With and without the remedy">
      <table class="figures">
        <caption>Durations of client spans meanwhile</caption>
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">figure</span>
            </th>
            <th scope="col" class="number">
              <i class="key arm-treated" /> with the remedy
            </th>
            <th scope="col" class="number">
              <i class="key arm-control" /> without
            </th>
            <th scope="col" class="number">
              difference
            </th>
            {usual && (
              <th scope="col" class="number">
                usually
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map(([label, of, before]) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              <td class="number">{figure(treated, of)}</td>
              <td class="number">{figure(control, of)}</td>
              <td class="number">{treated.calls === 0 || control.calls === 0 ? "–" : change(of(treated) - of(control))}</td>
              {usual && <td class="number">{before === undefined ? "–" : duration(before)}</td>}
            </tr>
          ))}
          <tr>
            <th scope="row" class="quiet">
              calls in the blocks
            </th>
            <td class="number quiet">{count(treated.calls)}</td>
            <td class="number quiet">{count(control.calls)}</td>
            <td />
            {usual && <td class="number quiet">{report.usual?.calls === undefined ? "–" : count(report.usual.calls)}</td>}
          </tr>
        </tbody>
      </table>
    </div>
  );
}

function BlockTable({ experiment }: { experiment: ExperimentReport }) {
  const cell = (arm: Arm, connections: number) => (
    <td class="number">{arm.calls === 0 ? "–" : `${duration(arm.mean_ns)} · ${duration(arm.p50_ns)} · ${duration(arm.p99_ns)} · ${count(arm.calls)}${connections > 0 ? ` on ${count(connections)}` : ""}`}</td>
  );
  return (
    <details>
      <summary>the same in figures</summary>
      <div class="scroller" tabIndex={0} role="region" aria-label="Blocks in figures">
        <table class="figures">
          <caption>mean · p50 · p99 · calls, on how many connections</caption>
          <thead>
            <tr>
              <th scope="col">block</th>
              <th scope="col" class="number">
                with the remedy
              </th>
              <th scope="col" class="number">
                without
              </th>
            </tr>
          </thead>
          <tbody>
            {experiment.blocks.map((block, at) => (
              <tr key={at}>
                <th scope="row">{at + 1}</th>
                {cell(block.treated, block.treated_connections)}
                {cell(block.control, block.control_connections)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}

interface TriedProps {
  experiment: ExperimentReport;
  report: CaseReport;
  expected: Expected | null;
  nowMs: number;
  mayEnd: boolean;
  onEnded: () => void;
}

function Tried({ experiment, report, expected, nowMs, mayEnd, onEnded }: TriedProps) {
  const [problem, setProblem] = useState<string | null>(null);
  const [ending, setEnding] = useState(false);
  const over = isOver(experiment);
  const undo = undoWords(experiment, nowMs);
  const effect = experiment.effect_ns;
  const end = () => {
    setEnding(true);
    endExperiment(report.id).then(onEnded, (error: unknown) => {
      setEnding(false);
      setProblem(inWords(error));
    });
  };
  const differs = otherwise(experiment.predicted_ns, expected);
  const counted = experiment.blocks.filter((block) => block.to_unix_ms > 0).length;
  const soFar = soFarWords(experiment);
  const seen = blocksDone(experiment) > 0 || experiment.in_force !== undefined;
  return (
    <article class={`experiment ${experiment.outcome}`}>
      <h3>
        <span class={`outcome ${experiment.outcome}`}>{experiment.outcome}</span> {leverWords(experiment.lever)}{" "}
        <span class="quiet">
          {over ? outcomeWords(experiment.outcome) : progressWords(experiment, nowMs)}
        </span>
      </h3>
      {over && <p>{experiment.words}</p>}
      {!over && <progress aria-label="blocks that are over" value={blocksDone(experiment)} max={experiment.plan.blocks} />}
      {soFar && <p class="summary so-far">{soFar}</p>}
      <p class={undo.isOverdue ? "undo bad" : "undo"} role={undo.isOverdue ? "alert" : undefined}>
        {undo.words}
      </p>
      {!over && mayEnd && (
        <p>
          <button type="button" class="danger" disabled={ending} onClick={end}>
            {ending ? "ending…" : "stop, and undo now"}
          </button>
        </p>
      )}
      {problem && <Failed>{problem}</Failed>}
      {effect && (
        <p class="summary">
          Takes <b>{duration(effect.mid)}</b> ({interval(effect.mid, [effect.low, effect.high])}, 95 % interval) off the mean duration of a call
          {experiment.probability === undefined ? "" : `; chance alone would do as much with ${chanceWords(experiment.probability)}`}
          . Tested with Wilcoxon's signed-rank test on the differences of {count(counted)} blocks{experiment.plan.first_look ? `, at ${experiment.is_early ? "the first of two" : "the last of two"} looks: the interval and p allow for both` : ""}. {differs}
        </p>
      )}
      <EffectChart experiment={experiment} />
      <Arms experiment={experiment} report={report} />
      {seen && (
        <figure>
          <BlocksChart experiment={experiment} usualNs={report.usual?.client_duration?.mean_ns || undefined} />
          <figcaption class="legs-key">
            <span>
              <i class="key arm-treated" /> with the remedy
            </span>
            <span>
              <i class="key arm-control" /> without
            </span>
            <span>point and bar: median with its 95 % interval; thin line: up to the 99th percentile{report.usual ? "; dashed: the usual mean" : ""}</span>
          </figcaption>
        </figure>
      )}
      {seen && <BlockTable experiment={experiment} />}
      {experiment.lacks.map((one, at) => (
        <p key={at} class="note">
          {one}
        </p>
      ))}
      <p class="remark">
        Asked for by {experiment.asked_by}, {dayAndClock(experiment.from_unix_ms / 1000)}.{experiment.calls_of_neither > 0 && ` Of the ${count(experiment.treated.calls + experiment.control.calls + experiment.calls_of_neither)} calls meanwhile, ${count(experiment.treated.calls)} had the remedy, ${count(experiment.control.calls)} had not, and ${count(experiment.calls_of_neither)} belong to neither: at the edges of blocks, ${experiment.is_early ? "after the look, " : ""}or on other connections.`}
        {over && ` What was announced: ${experiment.plan.words}`}
      </p>
    </article>
  );
}

function Announced({ plan, onStart, onLeave, busy }: { plan: PlanReport; onStart: () => void; onLeave: () => void; busy: boolean }) {
  return (
    <div class="announced" role="group" aria-label="What the experiment would do">
      <p>{plan.words}</p>
      <dl class="plan">
        {planFacts(plan).map(([what, words]) => (
          <div key={what}>
            <dt>{what}</dt>
            <dd>{words}</dd>
          </div>
        ))}
      </dl>
      <p class="actions">
        <button type="button" class="danger" disabled={busy} onClick={onStart}>
          {busy ? "starting…" : "do this now"}
        </button>
        <button type="button" disabled={busy} onClick={onLeave}>
          leave it
        </button>
      </p>
    </div>
  );
}

/** A case for which there is no experiment is no fault: the meter says why, and what else may help. */
const reasonOf = (error: unknown): string | null => (error instanceof ApiProblem && error.status === 409 ? error.said : null);

type Doing = "asking" | "starting" | null;

/** The way to an experiment: first what it would do, then whether to do it. */
function Offer({ id, wanted, onHeard, onStarted }: { id: string; wanted: boolean; onHeard: () => void; onStarted: () => void }) {
  const [plan, setPlan] = useState<PlanReport | null>(null);
  const [doing, setDoing] = useState<Doing>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [reason, setReason] = useState<string | null>(null);
  const run = (what: Exclude<Doing, null>, asked: Promise<unknown>, done: (answer: unknown) => void) => {
    setDoing(what);
    setProblem(null);
    setReason(null);
    const failed = (error: unknown) => {
      const why = reasonOf(error);
      if (why === null) setProblem(inWords(error));
      else setReason(why);
    };
    asked.then(done, failed).finally(() => setDoing(null));
  };
  const look = () => run("asking", planExperiment(id), (answer) => setPlan(answer as PlanReport));
  const place = useRef<HTMLDivElement>(null);
  // Wanted at the top of the case: it is asked here, and shown.
  useEffect(() => {
    if (!wanted) return;
    onHeard();
    look();
    place.current?.scrollIntoView({ block: "center" });
  }, [wanted]);
  const start = (shown: PlanReport) =>
    run("starting", startExperiment(id, shown.plan), () => {
      setPlan(null);
      onStarted();
    });
  return (
    <div ref={place}>
      {plan ? (
        <Announced plan={plan} busy={doing === "starting"} onStart={() => start(plan)} onLeave={() => setPlan(null)} />
      ) : (
        <p class="actions">
          <button type="button" disabled={doing !== null} onClick={look}>
            what would an experiment do?
          </button>
          <span class="quiet">The host is asked what there is to change; nothing is changed yet.</span>
        </p>
      )}
      {doing === "asking" && <Waiting>Asking the host…</Waiting>}
      {reason && (
        <p class="note" role="status">
          No experiment: <Code text={reason} />
        </p>
      )}
      {problem && <Failed>{problem}</Failed>}
    </div>
  );
}

/** Whether a browser may change hosts, as far as it knows: without tokens the meter decides by where one comes from. */
export function useMayChange(): { may: boolean; why: string | null } {
  const standing = useStanding();
  if (!standing?.needs_token || standing.role === "change") return { may: true, why: null };
  return { may: false, why: `Experiments change a host for a few seconds, which needs a token for change; ${standing.role ? `you are signed in with one for ${standing.role}` : "you are not signed in"}.` };
}

/** Without a verdict there is nothing to prove. */
export const isOffered = (report: CaseReport) => !isRunning(report) && report.verdict != null && report.state !== "open";

interface ExperimentsProps {
  report: CaseReport;
  expected: Expected | null;
  /** Somebody asked elsewhere what one would do; until that is heard here. */
  wanted: boolean;
  onHeard: () => void;
  onChange: () => void;
}

export function Experiments({ report, expected, wanted, onHeard, onChange }: ExperimentsProps) {
  const tried = [...(report.experiments ?? [])].reverse();
  const running = isRunning(report);
  const owing = tried.some((one) => one.in_force !== undefined);
  const nowMs = useSeconds(running || owing);
  const { may, why } = useMayChange();
  const canTry = isOffered(report);
  if (tried.length === 0 && !canTry) return null;
  const aside = tried.length === 0 ? "does the time follow when the suspect's lever is moved?" : running ? "follows by itself" : "the latest first";
  return (
    <Panel title="Experiments" id="experiments" aside={<span class="quiet">{aside}</span>}>
      {tried.map((one) => (
        <Tried key={one.plan.plan} experiment={one} report={report} expected={expected} nowMs={nowMs} mayEnd={may} onEnded={onChange} />
      ))}
      {canTry && (may ? <Offer id={report.id} wanted={wanted} onHeard={onHeard} onStarted={onChange} /> : <p class="note">{why}</p>)}
    </Panel>
  );
}
