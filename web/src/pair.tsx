// One pair: over time, as distributions, by leg, its worst calls, and what is not in the distributions.

import { useEffect, useMemo } from "preact/hooks";
import type { Coverage, PairBefore, PairOverTime, PairPoint, PairRow, Quantiles } from "./api";
import { askBeside, askExplanation, askPair, askWorst } from "./ask";
import { against } from "./against";
import type { CaseRow } from "./cases_api";
import { CaseState, foundWords } from "./cases";
import { recordedFrom, recordedSeconds } from "./empty";
import { ExplanationView } from "./explain";
import { difference, direction } from "./fleet";
import { change, clock, counted, duration, interval, percent, rate, stretchWords } from "./format";
import { HeatmapView } from "./heatmap";
import { useAnswer } from "./live";
import { Failed, Mounted, PairTitle, Panel, titleOf, Waiting } from "./parts";
import { Apart, Distributions, Legs, lostShare, waitedNs } from "./pair_sums";
import { rangeWords, shownStretch, toHash, type Cells, type Go, type View } from "./state";
import { Happened, isAbout, type Annotation } from "./timeline";
import { minutesPerPoint, TimeSeriesView } from "./timeseries";
import { WaitedOverTime } from "./waited";
import { NodesView, WorstView } from "./worst";

const LEAST_CHART_S = 300;
const WORST_SHOWN = 20;
const WORST_FOR_NODES = 400;

/** What cannot be said of this pair. */
function unsaid(total: PairRow): string {
  const parts: string[] = [];
  if (total.size_known_ratio !== null && total.size_known_ratio < 0.5) {
    const known = total.size_known_ratio === 0 ? "No span says how large a response was: large ones" : `Only ${percent(total.size_known_ratio)} of the calls have spans that say how large the response was: large ones among the others`;
    parts.push(`${known} are not left out.`);
  }
  return parts.join(" ");
}

/** The charts leave out the time before the meter ran, unless its history has calls there. */
export function chartStart(points: PairPoint[], fromS: number, toS: number, uptimeS: number): number {
  const recorded = Math.min(toS - uptimeS, points[0]?.unix_s ?? toS);
  return Math.max(fromS, Math.min(recorded, toS - LEAST_CHART_S));
}

function Versus({ row: now, seconds, isRecorded }: { row: PairRow | undefined; seconds: [number, number]; isRecorded: boolean }) {
  const before = now?.before;
  if (!isRecorded) return <p class="quiet">Nothing was recorded then: there is nothing to compare with.</p>;
  if (!now || !before || before.calls === 0) return <p class="quiet">The pair had no calls then: there is nothing to compare with.</p>;
  const figures: [string, (row: PairRow | PairBefore) => Quantiles, "p50" | "p99"][] = [
    ["gap p50", (row) => row.gap, "p50"],
    ["gap p99", (row) => row.gap, "p99"],
    ["client p99", (row) => row.client_duration, "p99"],
    ["server p99", (row) => row.server_duration, "p99"],
  ];
  const value = (q: Quantiles, at: "p50" | "p99") => (at === "p50" ? q.p50_ns : q.p99_ns);
  const ends = (q: Quantiles, at: "p50" | "p99") => (at === "p50" ? q.p50_ci95_ns : q.p99_ci95_ns);
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Compared">
      <table class="versus-table">
        <thead>
          <tr>
            <th scope="col">compared</th>
            <th scope="col" class="number">
              before
            </th>
            <th scope="col" class="number">
              now
            </th>
            <th scope="col" class="number">
              difference
            </th>
            <th scope="col">so</th>
          </tr>
        </thead>
        <tbody>
          {figures.map(([label, of, at]) => {
            const [a, b] = [of(before), of(now)];
            if (a.count === 0 || b.count === 0) return null;
            const apart = difference(ends(b, at), ends(a, at));
            const went = direction(apart);
            return (
              <tr key={label}>
                <th scope="row">{label}</th>
                <td class="number">
                  {duration(value(a, at))} <span class="interval">({interval(value(a, at), ends(a, at))})</span>
                </td>
                <td class="number">
                  {duration(value(b, at))} <span class="interval">({interval(value(b, at), ends(b, at))})</span>
                </td>
                <td class="number">
                  {change(value(b, at) - value(a, at))}{" "}
                  <span class="interval">
                    ({change(apart[0])} to {change(apart[1])})
                  </span>
                </td>
                <td class={`went-${went}`}>{went === "open" ? "not told apart" : went === "up" ? "slower" : "faster"}</td>
              </tr>
            );
          })}
          <tr>
            <th scope="row">client time per second</th>
            <td class="number">{rate(waitedNs(before.client_duration), seconds[1])}</td>
            <td class="number">{rate(waitedNs(now.client_duration), seconds[0])}</td>
            <td class="number">{change(waitedNs(now.client_duration) / seconds[0] - waitedNs(before.client_duration) / seconds[1])}/s</td>
            <td class="quiet">sums have no interval</td>
          </tr>
          <tr>
            <th scope="row">time lost per second</th>
            <td class="number">{rate(before.lost_ns_total, seconds[1])}</td>
            <td class="number">{rate(now.lost_ns_total, seconds[0])}</td>
            <td class="number">{change(now.lost_ns_total / seconds[0] - before.lost_ns_total / seconds[1])}/s</td>
            <td class="quiet">sums have no interval</td>
          </tr>
        </tbody>
      </table>
    </div>
  );
}

interface Props {
  view: View;
  nowS: number;
  beat: number;
  coverage: Coverage | null;
  cases: CaseRow[];
  annotations: Annotation[];
  go: Go;
}

export function PairView({ view, nowS, beat, coverage, cases, annotations, go }: Props) {
  // Drawn by hand, and kept as long as the view is.
  const heatmap = useMemo(() => new HeatmapView(), []);
  const series = useMemo(() => new TimeSeriesView(), []);
  useEffect(() => () => [heatmap, series].forEach((drawing) => drawing.destroy()), []);
  const pair = view.pair ?? { client: "", server: "" };
  const { cells } = view;
  const key = toHash({ ...view, place: "pair", call: null, cells: null, against: null });
  const over = useAnswer("pair", key, (signal) => askPair(view, pair, signal), beat);
  const besides = against(view, nowS, cases);
  const before = useAnswer("before", besides ? key + JSON.stringify(besides) : null, (signal) => askBeside(view, pair, besides ?? shownStretch(view, nowS), signal), Math.floor(beat / 4));
  const worst = useAnswer("worst", key + JSON.stringify(cells), (signal) => askWorst(view, pair, cells, WORST_SHOWN, signal), beat);
  const sample = useAnswer("sample", key, (signal) => askWorst(view, pair, null, WORST_FOR_NODES, signal), Math.floor(beat / 4));
  const explained = useAnswer("explained", JSON.stringify(pair), (signal) => askExplanation(pair, signal), Math.floor(beat / 3));
  heatmap.onMoment = (unixS) => series.pointAt(unixS);
  heatmap.onCells = (chosen) => go({ ...view, cells: chosen });
  const { data } = over;
  const title = titleOf(pair);
  const shown = shownStretch(view, nowS);
  const happened = annotations.filter((one) => isAbout(one, pair) && one.unixS >= shown.from && one.unixS <= shown.to);
  useEffect(() => {
    if (!data) return;
    const start = view.fixed ? shown.from : chartStart(data.points, shown.from, shown.to, coverage?.uptime_s ?? Infinity);
    series.update(data.points, start, shown.to);
    heatmap.update(data.heatmap, start, shown.to, happened);
    heatmap.choose(cells);
  }, [data, cells, coverage === null, happened.length]);
  const mine = cases.filter((one) => one.pair.client === pair.client && one.pair.server === pair.server);
  const culprit = mine.find((one) => one.state !== "fixed" && one.verdict?.culprit);
  const minutes = minutesPerPoint(shown.from, shown.to);
  const begins = recordedFrom(coverage, nowS) ?? 0;
  const seconds: [number, number] = [recordedSeconds(coverage, nowS, shown), besides ? recordedSeconds(coverage, nowS, besides) : 1];
  return (
    <div id="pair">
      <div class="view-head">
        <h2 tabIndex={-1} title={title}>
          <PairTitle pair={pair} />
        </h2>
        <a class="close" href={toHash({ ...view, place: "fleet", pair: null, cells: null })} title="back to all pairs (Esc)">
          close
        </a>
      </div>
      {!data && over.isNone && <Waiting>No calls of this pair {rangeWords(view)}. Another time range may have some.</Waiting>}
      {!data && over.error && !over.isNone && <Failed>{over.error}</Failed>}
      {!data && !over.error && <Waiting>Loading this pair…</Waiting>}
      {data && (
        <div class={over.stale ? "content stale" : "content"}>
          <Summary data={data} view={view} />
          {mine.length > 0 && (
            <p class="its-cases">
              Cases:{" "}
              {mine.slice(0, 5).map((one) => (
                <a key={one.id} data-row={one.id} href={toHash({ ...view, place: "case", caseId: one.id })}>
                  <CaseState state={one.state} /> <span class="quiet">{clock(one.opened_unix_ms / 1000)}</span> {one.verdict?.words ?? foundWords(one)}
                </a>
              ))}
            </p>
          )}
          {besides && (
            <Panel title="Compared" aside={<span class="quiet">with {stretchWords(besides)}; intervals of 95 %</span>}>
              {before.data ? <Versus row={before.data.pairs[0]} seconds={seconds} isRecorded={besides.to > begins} /> : before.error ? <Failed>{before.error}</Failed> : <Waiting>Loading the stretch compared with…</Waiting>}
            </Panel>
          )}
          <div class="charts">
            <Panel title="Gap over time" aside={<span class="quiet">drag over it to see the calls in a part</span>}>
              <Mounted root={heatmap.root} />
              <Happened all={happened} />
            </Panel>
            <Panel title="Quantiles" aside={<span class="quiet">{minutes === 1 ? "a point is a minute" : `a point is the median of ${minutes} minutes' figures`}</span>}>
              <Mounted root={series.root} />
            </Panel>
          </div>
          <Panel title="Where a call's time goes">
            <WaitedOverTime points={data.points} fromS={view.fixed ? shown.from : chartStart(data.points, shown.from, shown.to, coverage?.uptime_s ?? Infinity)} toS={shown.to} />
            <Legs total={data.total} />
            {culprit && (
              <p class="remark">
                These parts are those of the spans, and a SERVER span may begin before all of its request is there. Packets and threads tell more: the pair's case names{" "}
                <a href={toHash({ ...view, place: "case", caseId: culprit.id })}>{foundWords(culprit)}</a>.
              </p>
            )}
          </Panel>
          <Panel title="What sets slow calls apart" aside={<span class="quiet">of the last minute, among all attributes of both spans</span>}>
            {explained.data ? <ExplanationView
                explanation={explained.data}
                slowAsAll={
                  culprit === undefined ? undefined : (
                    <>
                      No attribute sets some of its calls apart: as far as these samples show, they are slow alike. Why is told by the pair's case: <a href={toHash({ ...view, place: "case", caseId: culprit.id })}>{foundWords(culprit)}</a>.
                    </>
                  )
                }
              /> : explained.error ? <Failed>{explained.error}</Failed> : <Waiting>Looking at the samples…</Waiting>}
          </Panel>
          <Panel title="Worst calls" aside={<span class="quiet">largest gap first</span>}>
            {worst.data ? <WorstView view={view} report={worst.data} keptFromMs={coverage?.kept?.from_unix_ms ?? null} cells={cells} onCells={(chosen: Cells | null) => go({ ...view, cells: chosen })} /> : worst.error ? <Failed>{worst.error}</Failed> : <Waiting>Loading the worst calls…</Waiting>}
          </Panel>
          <Panel title="Distributions" aside={<span class="quiet">with the 95 % interval of p50 and p99</span>}>
            <Distributions total={data.total} />
            <div class="lower">
              <Apart total={data.total} />
              {sample.data && <NodesView calls={sample.data.calls} view={view} />}
            </div>
          </Panel>
        </div>
      )}
    </div>
  );
}

function Summary({ data, view }: { data: PairOverTime; view: View }) {
  const { total } = data;
  if (total.calls === 0) return <p class="summary">No calls of this pair {rangeWords(view)} are in the distributions.</p>;
  return (
    <p class="summary">
      {counted(total.calls, "call")} {rangeWords(view)} lost <b>{duration(total.lost_ns_total)}</b> between client and server: {percent(lostShare(total))} of what the client waited. {unsaid(total)}
    </p>
  );
}
