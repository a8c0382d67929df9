// Cases: what the meter looked into by itself, how far it is, and what it found.

import type { CaseGap, CaseReport, CaseRow, CaseState as State, Culprit, Hunt, Share } from "./cases_api";
import { askCase } from "./ask";
import { bytes, change, count, dayAndClock, duration, interval, percent, span } from "./format";
import { useAnswer } from "./live";
import { Failed, PairTitle, Panel, ShareBar, Waiting } from "./parts";
import { toHash, type View } from "./state";

const STATES: { state: State; hint: string }[] = [
  { state: "open", hint: "slices are being fetched and read" },
  { state: "explained", hint: "the evidence names what owns the time" },
  { state: "proven", hint: "an experiment had the effect that was predicted" },
  { state: "fixed", hint: "the pair is back where it was" },
];

export function CaseState({ state }: { state: State }) {
  return <span class={`state state-${state}`}>{state}</span>;
}

/** How far a case is, as steps; the two that lead off the path stand at its end. */
function Steps({ state }: { state: State }) {
  const aside = state === "unknown" || state === "regressed";
  const reached = aside ? (state === "unknown" ? 0 : STATES.length) : STATES.findIndex((one) => one.state === state);
  return (
    <ol class="steps" aria-label={`state: ${state}`}>
      {STATES.map((one, at) => (
        <li key={one.state} class={at < reached ? "done" : at === reached && !aside ? "now" : ""} aria-current={at === reached && !aside ? "step" : undefined} title={one.hint}>
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

/** Text of what may be a sentence or a value with one. */
function words(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return value.map(words).join("; ");
  if (value === null || typeof value !== "object") return "";
  const entries = Object.entries(value);
  const said = entries.find(([key]) => ["what", "words", "text", "do", "summary"].includes(key));
  return said ? words(said[1]) : entries.map(([key, one]) => `${key.replaceAll("_", " ")}: ${words(one)}`).join(", ");
}

const shareWords = (share: Share) => `${percent(share.mid)} (${percent(share.low)} – ${percent(share.high)})`;

const causeWords = (cause: string | null | undefined, side: string | null | undefined) => `${cause ?? "?"}${side ? ` (${side})` : ""}`;

export function NoCases() {
  return (
    <div class="empty panel">
      <h2>No case yet</h2>
      <p>
        A case opens when a pair leaves its baseline, when a call is slower than <code>--case-over</code>, or when you ask for one: <code>spangap hunt 'CLIENT-&gt;SERVER' --meter {location.origin}</code>. It needs an agent on both hosts: <code>spangap agent --meter http://{location.hostname}:4317</code>.
      </p>
    </div>
  );
}

export function CasesView({ view, cases, none }: { view: View; cases: CaseRow[] | null; none: boolean }) {
  if (none || cases?.length === 0) return <NoCases />;
  if (!cases) return <Waiting>Loading the cases…</Waiting>;
  return (
    <Panel title="Cases" aside={<span class="quiet">newest first</span>}>
      <div class="scroller" tabIndex={0} role="region" aria-label="Cases">
        <table class="cases">
          <thead>
            <tr>
              <th scope="col">state</th>
              <th scope="col">pair</th>
              <th scope="col">found</th>
              <th scope="col" class="number">
                of the excess
              </th>
              <th scope="col" class="number">
                slow calls
              </th>
              <th scope="col" class="number">
                excess
              </th>
              <th scope="col" class="number">
                opened
              </th>
              <th scope="col">by</th>
            </tr>
          </thead>
          <tbody>
            {cases.map((one) => (
              <tr key={one.id}>
                <td>
                  <CaseState state={one.state} />
                </td>
                <th scope="row">
                  <a href={toHash({ ...view, place: "case", caseId: one.id })}>
                    <PairTitle pair={{ ...one.pair, method: one.method ?? undefined }} />
                  </a>
                </th>
                <td class="found">{one.verdict ? (one.verdict.culprit ? causeWords(one.verdict.culprit, one.verdict.side) : one.verdict.words) : <span class="quiet">being looked into</span>}</td>
                <td class="number">{one.verdict?.share ? shareWords(one.verdict.share) : "–"}</td>
                <td class="number">{one.slow_calls === undefined ? "–" : count(one.slow_calls)}</td>
                <td class="number">{one.excess_ns == null ? "–" : duration(one.excess_ns)}</td>
                <td class="number">{dayAndClock(one.opened_unix_ms / 1000)}</td>
                <td>{one.trigger}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Sheet({ hunt }: { hunt: Hunt }) {
  const rows = hunt.sheet ?? [];
  const total = hunt.excess?.total_ns ?? rows.reduce((sum, row) => sum + row.ns, 0);
  const of = (ns: number) => (total > 0 ? ns / total : 0);
  const name = (row: (typeof rows)[number]) => [row.cause ? causeWords(row.cause, row.side) : null, row.leg].filter(Boolean).join(" in ");
  const sorted = [...rows].sort((a, b) => b.ns - a.ns);
  const left = hunt.unexplained;
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Balance sheet">
      <table class="sheet">
        <caption>Of what slow calls take beyond ordinary ones{total > 0 ? `, ${duration(total)} in all,` : ""} each owner has</caption>
        <thead>
          <tr>
            <th scope="col">owner</th>
            <th scope="col">share</th>
            <th scope="col" class="number">
              share, 95 % interval
            </th>
            <th scope="col" class="number">
              time
            </th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((row, at) => (
            <tr key={at} class={row.cause ? "cause" : ""}>
              <th scope="row">{name(row) || "?"}</th>
              <td class="barcell">
                <ShareBar low={of(row.low_ns)} mid={of(row.ns)} high={of(row.high_ns)} />
              </td>
              <td class="number">{shareWords({ low: of(row.low_ns), mid: of(row.ns), high: of(row.high_ns) })}</td>
              <td class="number">{duration(row.ns)}</td>
            </tr>
          ))}
          {left && (
            <tr>
              <th scope="row" class="quiet">
                not explained
              </th>
              <td class="barcell">
                <ShareBar {...left} name="unexplained" />
              </td>
              <td class="number">{shareWords(left)}</td>
              <td class="number" />
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

function CulpritView({ culprit }: { culprit: Culprit }) {
  return (
    <div class="culprit">
      <h3>
        {causeWords(culprit.cause, culprit.side)} <span class="quiet">{shareWords(culprit.share)} of the excess{culprit.calls === undefined ? "" : `, on ${count(culprit.calls)} calls`}</span>
      </h3>
      <div class="for-against">
        {(culprit.for?.length ?? 0) > 0 && (
          <div>
            <h4>for it</h4>
            <ul>{culprit.for?.map((one, at) => <li key={at}>{words(one)}</li>)}</ul>
          </div>
        )}
        {(culprit.against?.length ?? 0) > 0 && (
          <div>
            <h4>against it</h4>
            <ul>{culprit.against?.map((one, at) => <li key={at}>{words(one)}</li>)}</ul>
          </div>
        )}
      </div>
      {words(culprit.remedy) !== "" && (
        <p class="remedy">
          <b>Do:</b> {words(culprit.remedy)}
        </p>
      )}
    </div>
  );
}

function HuntView({ hunt, state }: { hunt: Hunt; state: State }) {
  const cleared = hunt.cleared ?? [];
  const notLooked = hunt.not_looked ?? [];
  const next = hunt.look_next ?? [];
  const experiments = hunt.experiments ?? [];
  const coverage = hunt.coverage;
  return (
    <>
      <Panel title="Why" aside={<span class="quiet">verdict: {hunt.verdict}</span>}>
        {(hunt.culprits ?? []).map((culprit, at) => (
          <CulpritView key={at} culprit={culprit} />
        ))}
        {hunt.place && (
          <p>
            No culprit is named, but the place is: <b>{hunt.place.leg}</b> has {shareWords(hunt.place.share)} of the excess.
          </p>
        )}
        {(hunt.culprits ?? []).length === 0 && !hunt.place && <p>{hunt.verdict === "nothing" ? "There is nothing to explain: the calls looked at are not slower than ordinary ones." : "What owns the time could not be told from what was recorded."}</p>}
        {(hunt.sheet ?? []).length > 0 && <Sheet hunt={hunt} />}
        {coverage && (
          <p class="remark">
            It rests on {count(coverage.calls ?? 0)} calls, {count(coverage.captured ?? 0)} of them seen on the wire, {count(coverage.with_legs ?? 0)} with legs.
          </p>
        )}
      </Panel>
      {experiments.length > 0 && (
        <Panel title="Experiments">
          <ul class="plain-list">
            {experiments.map((one, at) => (
              <li key={at}>
                <b>{one.lever}</b>
                {one.predicted_ns !== undefined && `: predicted ${duration(one.predicted_ns)}`}
                {one.effect_ns && `, measured ${duration(one.effect_ns.mid)} (${interval(one.effect_ns.mid, [one.effect_ns.low, one.effect_ns.high])})`}
                {one.outcome && ` – ${one.outcome}`}
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {next.length > 0 && (
        <Panel title={state === "unknown" ? "What would tell" : "Where to look next"}>
          <ul class="plain-list">{next.map((one, at) => <li key={at}>{words(one)}</li>)}</ul>
        </Panel>
      )}
      {(cleared.length > 0 || notLooked.length > 0) && (
        <Panel title="Suspects" aside={<span class="quiet">{count(cleared.length)} cleared, {count(notLooked.length)} not looked at</span>}>
          <div class="scroller" tabIndex={0} role="region" aria-label="Suspects">
            <table class="suspects">
              <thead>
                <tr>
                  <th scope="col">suspect</th>
                  <th scope="col">judged</th>
                  <th scope="col">what would show it</th>
                  <th scope="col">what was seen</th>
                </tr>
              </thead>
              <tbody>
                {cleared.map((one, at) => (
                  <tr key={`c${at}`}>
                    <th scope="row">{causeWords(one.cause, one.side)}</th>
                    <td class="cleared">cleared</td>
                    <td>{words(one.would_show)}</td>
                    <td>{words(one.seen)}</td>
                  </tr>
                ))}
                {notLooked.map((one, at) => (
                  <tr key={`n${at}`}>
                    <th scope="row">{causeWords(one.cause, one.side)}</th>
                    <td class="quiet">not looked at</td>
                    <td colSpan={2}>needs {words(one.needs)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </Panel>
      )}
    </>
  );
}

function lostPerSecond(row: CaseGap): number | undefined {
  if (row.lost_ns_total === undefined || row.from_unix_ms === undefined || row.to_unix_ms === undefined) return undefined;
  return (row.lost_ns_total * 1000) / Math.max(1, row.to_unix_ms - row.from_unix_ms);
}

function BeforeAfter({ before, after }: { before: CaseGap; after: CaseGap }) {
  const rows: [string, number | undefined, number | undefined][] = [
    ["gap p50", before.gap?.p50_ns, after.gap?.p50_ns],
    ["gap p99", before.gap?.p99_ns, after.gap?.p99_ns],
    // The two stretches may be of different lengths.
    ["time lost per second", lostPerSecond(before), lostPerSecond(after)],
  ];
  return (
    <Panel title="Did it help" aside={<span class="quiet">before and after</span>}>
      <table>
        <tbody>
          {rows.map(([label, a, b]) =>
            a === undefined || b === undefined ? null : (
              <tr key={label}>
                <th scope="row">{label}</th>
                <td class="number">{duration(a)}</td>
                <td>→</td>
                <td class="number">
                  <b>{duration(b)}</b>
                </td>
                <td class="number quiet">{change(b - a)}</td>
              </tr>
            ),
          )}
        </tbody>
      </table>
    </Panel>
  );
}

function TimeLine({ report }: { report: CaseReport }) {
  const events = report.time_line ?? [];
  const first = events[0]?.unix_ms ?? report.opened_unix_ms;
  return (
    <Panel title="Time line" aside={events.length > 1 ? <span class="quiet">{span(((events.at(-1)?.unix_ms ?? first) - first) / 1000)} in all</span> : undefined}>
      <ol class="time-line">
        {events.map((event, at) => (
          <li key={at}>
            <time dateTime={new Date(event.unix_ms).toISOString()}>{new Date(event.unix_ms).toLocaleTimeString([], { hour12: false })}</time> <span class="quiet">+{((event.unix_ms - first) / 1000).toFixed(1)} s</span> {event.what}
          </li>
        ))}
      </ol>
    </Panel>
  );
}

export function CaseView({ view, beat }: { view: View; beat: number }) {
  const id = view.caseId ?? "";
  const asked = useAnswer("case", id, (signal) => askCase(id, signal), beat);
  const report = asked.data;
  const hosts = report?.hosts;
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
          <Steps state={report.state} />
          <p class="verdict-words">{report.verdict?.words ?? (report.state === "open" ? "Looking: this page follows by itself." : "No verdict.")}</p>
          <p class="summary">
            Opened {dayAndClock(report.opened_unix_ms / 1000)} by {report.trigger}
            {report.slow_calls !== undefined && `, ${count(report.slow_calls)} slow calls`}
            {report.excess_ns != null && `, ${duration(report.excess_ns)} more than ordinary ones`}. <a href={toHash({ ...view, place: "pair", pair: { ...report.pair, method: report.method ?? report.pair.method ?? undefined }, caseId: null })}>its pair</a>
          </p>
          {(report.lacks ?? []).map((one, at) => (
            <p key={at} class="note">
              {one}
            </p>
          ))}
          {hosts && (
            <p class="summary">
              {(["client", "server"] as const).map((side) => {
                const host = hosts[side];
                return (
                  <span key={side} class={host?.agent ? "" : "quiet"}>
                    {side}: {host?.agent ? `${host.agent}${host.rule ? ` (by ${host.rule})` : ""}` : `no agent${host?.why_not ? `: ${host.why_not}` : ""}`}.{" "}
                  </span>
                );
              })}
            </p>
          )}
          {report.hunt && <HuntView hunt={report.hunt} state={report.state} />}
          {report.before && report.after && <BeforeAfter before={report.before} after={report.after} />}
          <TimeLine report={report} />
          {(report.files ?? []).length > 0 && (
            <Panel title="What it rests on" aside={<span class="quiet">spangap hunt FOLDER reads these</span>}>
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
