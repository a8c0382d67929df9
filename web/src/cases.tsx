// Cases: what the meter investigated by itself, their progress, and their results.

import type { Agent, CaseGap, CaseReport, CaseRow, CaseState as State } from "./cases_api";
import { useEffect, useState } from "preact/hooks";
import { askCase, askWhole } from "./ask";
import { AgentCommand } from "./empty";
import { isOver } from "./experiment_words";
import { Experiments, isRunning } from "./experiments";
import { expectedOf } from "./expected";
import { bytes, change, count, dayAndClock, duration, span } from "./format";
import { HelpedLine } from "./helped";
import type { Listens } from "./listens";
import { useAnswer } from "./live";
import { Code, Failed, PairTitle, Panel, Search, titleOf, Waiting } from "./parts";
import { toHash, type CaseList, type Go, type View } from "./state";
import { HuntView } from "./verdict";
import { beyondWhole, causeWords, shareWords } from "./verdict_words";
import { boundWords, legWords } from "./whole_words";

const STATES: { state: State; hint: string }[] = [
  { state: "open", hint: "slices are being fetched and read" },
  { state: "explained", hint: "the evidence names what owns the time" },
  { state: "proven", hint: "an experiment had the effect that was predicted, and was undone: calls stay slow until the remedy is deployed" },
  { state: "fixed", hint: "the pair is back where it was" },
];

export function CaseState({ state }: { state: State }) {
  return <span class={`state state-${state}`}>{state}</span>;
}

/** Progress of a case, as steps; the two states without a verdict come last. Many a case is fixed without a proof. */
function Steps({ state, isProven }: { state: State; isProven: boolean }) {
  const aside = state === "unknown" || state === "regressed";
  const reached = aside ? (state === "unknown" ? 0 : STATES.length) : STATES.findIndex((one) => one.state === state);
  return (
    <ol class="steps" aria-label={`state: ${state}`}>
      {STATES.map((one, at) => (
        <li key={one.state} class={at < reached && (one.state !== "proven" || isProven) ? "done" : at === reached && !aside ? "now" : ""} aria-current={at === reached && !aside ? "step" : undefined} title={one.hint}>
          {one.state}
        </li>
      ))}
      {aside && (
        <li class="now aside" aria-current="step">
          {state}
        </li>
      )}
    </ol>
  );
}

export function NoCases({ listens }: { listens: Listens | null }) {
  return (
    <div class="empty panel">
      <h2>No case yet</h2>
      <p>
        A case opens when a pair leaves its baseline, when a call is slower than <code>--case-over</code>, or when you ask for one: <code>spangap hunt 'CLIENT-&gt;SERVER' --meter {location.origin}</code>. It needs an agent on both hosts: <AgentCommand listens={listens} />.
      </p>
    </div>
  );
}

/** Time since the first event: with tenths of a second during the first two minutes. */
export const offset = (seconds: number) => (seconds < 120 ? `${seconds.toFixed(1)} s` : span(seconds));

/** The result, in a word or a sentence. */
export function foundWords(one: CaseRow): string {
  if (one.verdict) return one.verdict.culprit ? causeWords(one.verdict.culprit, one.verdict.side) : one.verdict.words;
  return one.state === "open" ? "being looked into" : "no verdict: too little was recorded";
}

const OPENED: Record<string, string> = { baseline: "slower than usual", threshold: "over --case-over", person: "somebody asked" };

/** Rows per page of the list. */
const CASES_SHOWN = 50;
/** In the order in which they ask for somebody: what is not explained, what is not mended, what is over. */
const ALL_STATES: State[] = ["open", "unknown", "regressed", "explained", "proven", "fixed"];

/** Cases that are not over, which the navigation counts; among the states of the list. */
export const isLive = (one: CaseRow) => one.state !== "fixed";
const LIVE = "live";

/** Cases in the requested state that contain the requested words. */
export function chosenCases(cases: CaseRow[], { state, q }: CaseList): CaseRow[] {
  const words = q.toLowerCase().split(/\s+/);
  const passes = (one: CaseRow) => {
    const said = `${one.pair.client} ${one.pair.server} ${one.method ?? ""} ${foundWords(one)}`.toLowerCase();
    return (state === "" || (state === LIVE ? isLive(one) : one.state === state)) && words.every((word) => said.includes(word));
  };
  return cases.filter(passes);
}

export function CasesView({ view, cases, none, listens, go }: { view: View; cases: CaseRow[] | null; none: boolean; listens: Listens | null; go: Go }) {
  const list = view.cases;
  if (none || cases?.length === 0) return <NoCases listens={listens} />;
  if (!cases) return <Waiting>Loading the cases…</Waiting>;
  const show = (changed: CaseList, inPlace = false) => go({ ...view, cases: changed }, inPlace);
  const found = chosenCases(cases, list);
  const shown = found.slice((list.page - 1) * CASES_SHOWN, list.page * CASES_SHOWN);
  const there = ALL_STATES.map((state): [State, number] => [state, cases.filter((one) => one.state === state).length]).filter(([state, n]) => n > 0 || state === list.state);
  const pages = Math.max(1, Math.ceil(found.length / CASES_SHOWN));
  return (
    <Panel title="Cases" aside={<span class="quiet">newest first</span>}>
      <div class="toolbar">
        <Search label="Search cases" placeholder="search cases" value={list.q} onSearch={(q, inPlace) => show({ ...list, q, page: 1 }, inPlace)} />
        <span class="segmented" role="group" aria-label="In which state">
          <button type="button" aria-pressed={list.state === ""} onClick={() => show({ ...list, state: "", page: 1 })}>
            all {count(cases.length)}
          </button>
          <button type="button" aria-pressed={list.state === LIVE} onClick={() => show({ ...list, state: LIVE, page: 1 })}>
            not fixed {count(cases.filter(isLive).length)}
          </button>
          {there.map(([state, n]) => (
            <button key={state} type="button" aria-pressed={list.state === state} onClick={() => show({ ...list, state, page: 1 })}>
              {state} {count(n)}
            </button>
          ))}
        </span>
      </div>
      {found.length === 0 && <p class="waiting">No case passes.</p>}
      {shown.length > 0 && (
        <div class="scroller" tabIndex={0} role="region" aria-label="Cases">
          <table class="cases stacks">
            <thead>
              <tr>
                <th scope="col">state</th>
                <th scope="col">pair</th>
                <th scope="col">found</th>
                <th scope="col" class="number" title="of what slow calls take beyond ordinary ones, or of all time where everything is slow; with its 90 % interval">
                  its share
                </th>
                <th scope="col" class="number" title="slow calls whose spans were at hand when the case was opened; of the recordings, its view counts the calls">
                  slow calls
                </th>
                <th scope="col" class="number" title="what a slow call takes beyond an ordinary one; or a call, where everything is slow">
                  of a call
                </th>
                <th scope="col" class="number">
                  opened
                </th>
                <th scope="col">because</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((one) => (
                <tr key={one.id}>
                  <td>
                    <CaseState state={one.state} />
                  </td>
                  <th scope="row">
                    <a class="case-link" data-row={one.id} href={toHash({ ...view, place: "case", caseId: one.id })} title={titleOf({ ...one.pair, method: one.method ?? undefined })}>
                      <PairTitle pair={{ ...one.pair, method: one.method ?? undefined }} />
                    </a>
                  </th>
                  <td class="found">
                    <a class={one.verdict ? undefined : "quiet"} href={toHash({ ...view, place: "case", caseId: one.id })}>
                      {foundWords(one)}
                    </a>
                  </td>
                  <td class="number" data-label="its share">
                    {one.verdict?.share ? shareWords(one.verdict.share) : "–"}
                  </td>
                  <td class="number" data-label="slow calls">
                    {one.slow_calls === undefined ? "–" : count(one.slow_calls)}
                  </td>
                  <td class="number" data-label="of a call">
                    {one.excess_ns == null ? "–" : duration(one.excess_ns)}
                  </td>
                  <td class="number" data-label="opened">
                    {dayAndClock(one.opened_unix_ms / 1000)}
                  </td>
                  <td data-label="because">{OPENED[one.trigger] ?? one.trigger}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {(pages > 1 || list.page > 1) && (
        <nav class="pager" aria-label="Pages">
          <button type="button" disabled={list.page <= 1} onClick={() => show({ ...list, page: list.page - 1 })}>
            ‹ newer
          </button>
          <span>
            page {count(list.page)} of {count(pages)}
          </span>
          <button type="button" disabled={list.page >= pages} onClick={() => show({ ...list, page: list.page + 1 })}>
            older ›
          </button>
        </nav>
      )}
    </Panel>
  );
}

function lostPerSecond(row: CaseGap): number | undefined {
  if (row.lost_ns_total === undefined || row.from_unix_ms === undefined || row.to_unix_ms === undefined) return undefined;
  return (row.lost_ns_total * 1000) / Math.max(1, row.to_unix_ms - row.from_unix_ms);
}

function Figures({ report }: { report: CaseReport }) {
  const named: [string, CaseGap | null | undefined][] = [
    ["usually", report.usual],
    ["when slow", report.before],
    ["since it is fixed", report.after],
  ];
  // A period without a call has no figures.
  const columns = named.flatMap(([name, gap]): [string, CaseGap][] => (gap && gap.calls !== 0 ? [[name, gap]] : []));
  if (columns.length === 0) return null;
  const rows: [string, (gap: CaseGap) => number | undefined][] = [
    ["gap p50", (gap) => gap.gap?.p50_ns],
    ["gap p99", (gap) => gap.gap?.p99_ns],
    ["client p50", (gap) => gap.client_duration?.p50_ns],
    ["client p99", (gap) => gap.client_duration?.p99_ns],
    // The two periods differ in length.
    ["lost per second", lostPerSecond],
  ];
  const { before, after } = report;
  const seconds = (gap: CaseGap) => (gap.from_unix_ms === undefined || gap.to_unix_ms === undefined ? "" : span((gap.to_unix_ms - gap.from_unix_ms) / 1000));
  return (
    <Panel title={after ? "Did it help" : "How slow it is"} aside={<span class="quiet">{after ? "the pair before and after" : "the pair against its own past"}</span>}>
      <div class="scroller" tabIndex={0} role="region" aria-label="The pair over time">
        <table class="figures stacks">
          <thead>
            <tr>
              <th scope="col">
                <span class="unseen">figure</span>
              </th>
              {columns.map(([name, gap]) => (
                <th key={name} scope="col" class="number">
                  {name} <span class="interval">{seconds(gap)}</span>
                </th>
              ))}
              {before && after && (
                <th scope="col" class="number">
                  change
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {rows.map(([label, of]) =>
              columns.every(([, gap]) => of(gap) === undefined) ? null : (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {columns.map(([name, gap]) => (
                    <td key={name} class="number" data-label={name}>
                      {of(gap) === undefined ? "–" : duration(of(gap) ?? 0)}
                    </td>
                  ))}
                  {before && after && <td class="number" data-label="change">{of(before) === undefined || of(after) === undefined ? "" : change((of(after) ?? 0) - (of(before) ?? 0))}</td>}
                </tr>
              ),
            )}
            <tr>
              <th scope="row" class="quiet">
                calls in that time
              </th>
              {columns.map(([name, gap]) => (
                <td key={name} class="number quiet" data-label={name}>
                  {gap.calls === undefined ? "–" : count(gap.calls)}
                </td>
              ))}
              {before && after && <td />}
            </tr>
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

/** An agent's id as it appears in the timeline. */
const AGENT_ID = /\b[0-9a-f]{32}(?:-\d+)?\b/g;

function Timeline({ report, agents }: { report: CaseReport; agents: Agent[] }) {
  const events = report.time_line ?? [];
  const first = events[0]?.unix_ms ?? report.opened_unix_ms;
  return (
    <Panel title="Timeline" aside={events.length > 1 ? <span class="quiet">{span(((events.at(-1)?.unix_ms ?? first) - first) / 1000)} in all</span> : undefined}>
      <ol class="time-line">
        {events.map((event, at) => (
          <li key={at}>
            <time dateTime={new Date(event.unix_ms).toISOString()}>{new Date(event.unix_ms).toLocaleTimeString([], { hour12: false })}</time> <span class="quiet">+{offset((event.unix_ms - first) / 1000)}</span> {event.what.replaceAll(AGENT_ID, (id) => agentName(id, agents))}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

const OPENED_BY: Record<string, string> = {
  baseline: "because the pair became slower than it usually is",
  threshold: "because calls took longer than --case-over",
  person: "because somebody asked",
};

/** The host's name, with its first address where another host has the same name. */
export function hostName(agent: Agent, agents: Agent[]): string {
  const isAlone = agents.every((other) => other.id === agent.id || other.host_name !== agent.host_name);
  return isAlone && agent.host_name !== "" ? agent.host_name : [agent.host_name, agent.addresses?.[0] ?? agent.id].filter((part) => part !== "").join(" · ");
}

/** The host's name if its agent is known, else the beginning of its long id. */
export function agentName(id: string, agents: Agent[]): string {
  const agent = agents.find((one) => one.id === id);
  return agent ? hostName(agent, agents) : (id.length > 16 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id);
}

const timeOf = (unixMs: number) => new Date(unixMs).toLocaleTimeString([], { hour12: false });

/**
 * Since when the pair is slow: from what was noted before its case opened, the first slow call and the first unusual window. A call that
 * was slow while the pair was still as usual is told apart.
 */
export function sinceWords({ time_line: events = [], usual, opened_unix_ms: opened }: CaseReport): string | null {
  const noted = events.map((event) => event.unix_ms).filter((ms) => ms < opened).sort((a, b) => a - b);
  const [first] = noted;
  if (first === undefined) return null;
  const usualTo = usual?.to_unix_ms;
  if (usualTo === undefined) return `Slow since ${timeOf(first)} or longer.`;
  if (first >= usualTo) return `Slow since ${timeOf(first)}.`;
  const out = noted.find((ms) => ms >= usualTo) ?? opened;
  return `Slow since some time between ${timeOf(usualTo)} and ${timeOf(out)}; the first slow call ended at ${timeOf(first)}.`;
}

/** What the case lacks, each reason once, and what to do about it. */
function Lacks({ report, listens }: { report: CaseReport; listens: Listens | null }) {
  const words = report.verdict?.words ?? "";
  const said = [...new Set(report.lacks ?? [])].filter((one) => !words.includes(one));
  const without = (["client", "server"] as const).filter((side) => report.hosts && !report.hosts[side]?.agent);
  return (
    <>
      {said.map((one) => (
        <p key={one} class="note">
          {one}
        </p>
      ))}
      {without.length > 0 && report.state !== "open" && (
        <p class="remedy">
          <b>Do:</b>{" "}
          {without.some((side) => report.hosts?.[side]?.of_several) ? (
            <>let the spans name a host that only one agent has: as <code>network.local.address</code> or <code>host.id</code>, or by a <code>host.name</code> of its own.</>
          ) : (
            <>
              run an agent on {without.length === 2 ? "both hosts" : `the host of the ${without[0]}`}: <AgentCommand listens={listens} />.
            </>
          )}{" "}
          The next case of this pair then has packets and threads of {without.length === 2 ? "both ends" : "this end"}. Until then, the pair's own view tells what sets its slow calls apart.
        </p>
      )}
    </>
  );
}

/** Legs that are worth a word. */
const LEG_SHARE = 0.2;

/** On which host the named cause is, if the verdict names a side. */
function NodeOf({ report, agents }: { report: CaseReport; agents: Agent[] }) {
  const side = report.verdict?.side;
  if (!report.verdict?.culprit || (side !== "client" && side !== "server")) return null;
  const agent = report.hosts?.[side]?.agent;
  return (
    <p class="summary leg-of">
      On which node: <b>{agent ? agentName(agent, agents) : "unknown"}</b>, {agent ? `the ${side}'s` : `no agent was found for the ${side}'s host`}.
    </p>
  );
}

/** In which leg the time passed: measured of the first call that the verdict rests on. */
function LegOf({ report, view }: { report: CaseReport; view: View }) {
  const id = report.files?.some((file) => file.name.endsWith(".pcapng")) ? report.hunt?.trace_ids?.[0] : undefined;
  const asked = useAnswer("leg", id ? `${report.id} ${id}` : null, (signal) => askWhole([report.id], id ?? "", signal), 0);
  // Nothing depends on this line: a meter of another version may answer otherwise.
  const call = id ? asked.data?.calls?.[0] : undefined;
  // Its line is there from the beginning, so that nothing below it moves.
  if (id && !asked.data && !asked.isNone && !asked.error) return <p class="summary leg-of">In which leg: <span class="quiet">one of its calls is being read…</span></p>;
  if (!id || !call || call.legs.length === 0) return null;
  const legs = call.legs.filter((leg, at) => leg.ns >= call.duration_ns * LEG_SHARE || (at === 0 && call.legs.length === 1)).sort((a, b) => b.ns - a.ns);
  if (legs.length === 0) return null;
  return (
    <p class="summary leg-of">
      In which leg:{" "}
      {legs.map((leg, at) => (
        <span key={leg.leg}>
          {at > 0 && ", "}
          <b>{legWords(leg.leg)}</b> {duration(leg.ns)}
          {boundWords(leg)}
        </span>
      ))}{" "}
      of the {duration(call.duration_ns)} of <a href={callAddress(report, view, id)}>call {id.slice(0, 8)}</a>.
    </p>
  );
}

const callAddress = (report: CaseReport, view: View, traceId: string) => toHash({ ...view, place: "call", pair: null, caseId: report.id, call: { traceId, clientSpanId: "" } });

/** The calls that the verdict is based on, each with a link. */
function CallsOf({ report, view }: { report: CaseReport; view: View }) {
  const ids = report.hunt?.trace_ids ?? [];
  if (ids.length === 0 || !report.files?.some((file) => file.name.endsWith(".pcapng"))) return null;
  return (
    <p class="summary calls-of">
      Calls it rests on:{" "}
      {ids.map((id) => (
        <a key={id} data-row={id} href={callAddress(report, view, id)} title={id}>
          <code>{id.slice(0, 8)}</code>
        </a>
      ))}
    </p>
  );
}

/** Proven, and nothing of the experiment is left in force. */
const isOnlyProven = ({ state, experiments = [] }: CaseReport) => state === "proven" && experiments.every((one) => isOver(one) && one.in_force === undefined);

/** Polling interval of a case while it changes every second, whether or not spans arrive. */
const FOLLOW_MS = 2_000;

export function CaseView({ view, beat, agents, listens }: { view: View; beat: number; agents: Agent[]; listens: Listens | null }) {
  const id = view.caseId ?? "";
  const [more, setMore] = useState(0);
  const [wanted, setWanted] = useState(false);
  const again = () => setMore((before) => before + 1);
  const asked = useAnswer("case", id, (signal) => askCase(id, signal), beat + more);
  const report = asked.data;
  const moves = isRunning(report) || report?.state === "open";
  useEffect(() => {
    if (!moves) return;
    const timer = setInterval(again, FOLLOW_MS);
    return () => clearInterval(timer);
  }, [moves, id]);
  const hosts = report?.hosts;
  const proof = report?.experiments?.filter((one) => one.outcome === "proven" || one.outcome === "refuted").at(-1);
  const since = report ? sinceWords(report) : null;
  const beyond = beyondWhole([report?.verdict?.share]);
  const expected = report ? expectedOf(report) : null;
  const experiments = report && <Experiments report={report} expected={expected} wanted={wanted} onHeard={() => setWanted(false)} onChange={again} />;
  const lacks = (report?.lacks ?? []).join(" ");
  return (
    <div id="case">
      <div class="view-head">
        <h2 tabIndex={-1}>Case {report ? <PairTitle pair={{ ...report.pair, method: report.method ?? undefined }} /> : id}</h2>
        <a class="close" href={toHash({ ...view, place: "cases", caseId: null })} title="back to all cases (Esc)">
          close
        </a>
      </div>
      {asked.error && <Failed>{asked.error}</Failed>}
      {!report && !asked.error && <Waiting>Loading this case…</Waiting>}
      {report && (
        <div class="content">
          <Steps state={report.state} isProven={proof?.outcome === "proven"} />
          <p class="verdict-words">{report.verdict ? <Code text={report.verdict.words} /> : (report.state === "open" ? "Looking: this page follows by itself." : "No verdict: too little was recorded.")}</p>
          {beyond && <p class="remark">{beyond}</p>}
          <HelpedLine report={report} onTry={() => setWanted(true)} />
          {isOnlyProven(report) && (
            <p class="remedy">
              <b>Proven, not mended:</b> the experiment was undone, so calls stay as slow as they were until you deploy the remedy. The case is fixed once the pair is back where it was.
            </p>
          )}
          <p class="summary">
            {since && `${since} `}Opened {dayAndClock(report.opened_unix_ms / 1000)} {OPENED_BY[report.trigger] ?? `by ${report.trigger}`}. <a href={toHash({ ...view, place: "pair", pair: { ...report.pair, method: report.method ?? report.pair.method ?? undefined }, caseId: null })}>its pair</a>
          </p>
          <Lacks report={report} listens={listens} />
          {hosts && (
            <p class="summary">
              {(["client", "server"] as const).map((side) => {
                const host = hosts[side];
                return (
                  <span key={side} class={host?.agent ? "" : "quiet"}>
                    {side}: {host?.agent ? <span title={`agent ${host.agent}`}>{agentName(host.agent, agents)}{host.rule ? ` (by ${host.rule})` : ""}</span> : `no agent${host?.why_not && !lacks.includes(host.why_not) ? `: ${host.why_not}` : ""}`}.{" "}
                  </span>
                );
              })}
            </p>
          )}
          <CallsOf report={report} view={view} />
          <LegOf report={report} view={view} />
          <NodeOf report={report} agents={agents} />
          {report.hunt ? (
            <HuntView hunt={report.hunt} state={report.state} expected={expected}>
              {experiments}
            </HuntView>
          ) : (
            experiments
          )}
          <Figures report={report} />
          <Timeline report={report} agents={agents} />
          {(report.files ?? []).length > 0 && (
            <Panel title="What it rests on" aside={<span class="quiet">spangap hunt FOLDER reads these</span>}>
              {report.files?.some((file) => file.name.endsWith(".pcapng")) && (
                <p>
                  <a class="button" href={`/api/v1/cases/${encodeURIComponent(report.id)}/perfetto`} download title="the slowest calls, both hosts on one time line: for ui.perfetto.dev or your copy of it">
                    Perfetto
                  </a>
                </p>
              )}
              <ul class="files">
                {report.files?.map((file) => (
                  <li key={file.name}>
                    <a href={`/api/v1/cases/${encodeURIComponent(report.id)}/files/${encodeURIComponent(file.name)}`} download={file.name}>
                      {file.name}
                    </a>{" "}
                    <span class="quiet">{bytes(file.bytes)}</span>
                  </li>
                ))}
              </ul>
            </Panel>
          )}
        </div>
      )}
    </div>
  );
}
