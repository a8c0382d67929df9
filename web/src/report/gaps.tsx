// The report of `spangap gaps --html`: pairs by time lost, and of each what its view on the meter's page has that files can tell.

import type { PairRow, PairsReport, Skipped, SpanCounts } from "../api";
import { ExplanationView } from "../explain";
import { CLASSES } from "../findings";
import { axisLabel, count, duration, percent } from "../format";
import { Apart, Distributions, Legs, lostShare } from "../pair_sums";
import { Figure, PairTitle, Panel, plotRange, titleOf, Whisker } from "../parts";
import { pairKey } from "../state";
import { WorstTable } from "../worst";
import { Report } from "./parts";

export interface GapsDocument {
  /** The files. */
  of: string;
  title: string;
  /** Pairs found; the report may have the first of them. */
  of_pairs: number;
  report: PairsReport;
}

/** What an address within the page leads to. */
const placeOf = (at: number) => `pair-${at + 1}`;

function Pairs({ rows, more }: { rows: PairRow[]; more: number }) {
  const range = plotRange(rows.map((row) => row.gap));
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Pairs">
      <table class="pairs">
        <caption>
          {count(rows.length)} {rows.length === 1 ? "pair" : "pairs"}, most time lost first{more > 0 ? `; ${count(more)} more, see --top` : ""}
        </caption>
        <thead>
          <tr>
            <th scope="col">client → server</th>
            <th scope="col" class="number">
              calls
            </th>
            <th scope="col" class="number" title="sum of all gaps: what a fix could win; next to it, as a share of the client's waiting time">
              time lost
            </th>
            <th scope="col" class="number" title="median of client duration minus server duration, with its 95 % interval">
              gap p50
            </th>
            <th scope="col" class="number" title="99th percentile of the gap, with its 95 % interval">
              gap p99
            </th>
            <th scope="col" class="plotted">
              <span class="unseen">Gap p50 and p99 drawn</span>
              <span>{axisLabel(range[0])}</span>
              <span>log</span>
              <span>{axisLabel(range[1])}</span>
            </th>
            <th scope="col" class="number wide">
              client p99
            </th>
            <th scope="col" class="number wide">
              server p99
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={pairKey(row)}>
              <th scope="row">
                <a href={`#${placeOf(at)}`}>
                  <PairTitle pair={row} />
                </a>
              </th>
              <td class="number" data-label="calls">
                {count(row.calls)}
              </td>
              <td class="number lost" data-label="lost">
                <b>{duration(row.lost_ns_total)}</b> <span class="interval">{percent(lostShare(row))}</span>
              </td>
              <td class="number" data-label="gap p50">
                <Figure ns={row.gap.p50_ns} ci95={row.gap.p50_ci95_ns} calls={row.gap.count} />
              </td>
              <td class="number" data-label="gap p99">
                <Figure ns={row.gap.p99_ns} ci95={row.gap.p99_ci95_ns} calls={row.gap.count} />
              </td>
              <td class="plotted">
                <Whisker gap={row.gap} range={range} />
              </td>
              <td class="number wide">{row.calls > 0 ? duration(row.client_p99_ns) : "–"}</td>
              <td class="number wide">{row.calls > 0 ? duration(row.server_p99_ns) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Pair({ row, at, report }: { row: PairRow; at: number; report: PairsReport }) {
  const explained = report.explain?.find((one) => pairKey(one) === pairKey(row));
  const where = `, ${titleOf(row)}`;
  return (
    <Panel id={placeOf(at)} title={<PairTitle pair={row} />} aside={<span class="quiet">{count(row.calls)} calls lost {duration(row.lost_ns_total)}</span>}>
      <h3>Where a call's time goes</h3>
      <Legs total={row} />
      {explained && (
        <>
          <h3>What sets slow calls apart</h3>
          <ExplanationView explanation={explained} of="" where={where} />
        </>
      )}
      {row.worst.length > 0 && (
        <>
          <h3>Worst calls</h3>
          <div class="worst">
            <WorstTable where={where} calls={row.worst} id={(call) => <code class="id">{call.trace_id}</code>} />
          </div>
        </>
      )}
      <h3>Distributions</h3>
      <Distributions total={row} where={where} />
      <Apart total={row} />
    </Panel>
  );
}

function Read({ spans, skipped }: { spans: SpanCounts; skipped: Skipped[] }) {
  return (
    <Panel title="What was read">
      <p>{count(spans.received)} spans, each in one class:</p>
      <dl class="tiles">
        {CLASSES.filter(({ key }) => spans[key] > 0).map(({ key, label, hint }) => (
          <div key={key} class="tile" title={hint}>
            <dt>{label}</dt>
            <dd>{count(spans[key])}</dd>
          </div>
        ))}
      </dl>
      {skipped.length > 0 && (
        <ul class="plain-list">
          {skipped.map((one, at) => (
            <li key={at} class="bad">
              {one.file}, {one.place}: {one.reason}
              {one.spans === null ? "" : ` (${count(one.spans)} spans)`}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

export function GapsReport({ of, of_pairs: ofPairs, report }: GapsDocument) {
  const rows = report.pairs;
  const lost = rows.reduce((sum, row) => sum + row.lost_ns_total, 0);
  const calls = rows.reduce((sum, row) => sum + row.calls, 0);
  return (
    <Report verb="gaps" of={of} class="gaps">
      <Panel title="Pairs">
        <p class="lead">{rows.length === 0 ? "No CLIENT span and SERVER span of the same call were found." : <>Clients waited <b>{duration(lost)}</b> longer than their servers worked, in {count(calls)} calls.</>}</p>
        {rows.length > 0 && <Pairs rows={rows} more={ofPairs - rows.length} />}
      </Panel>
      {rows.map((row, at) => (
        <Pair key={pairKey(row)} row={row} at={at} report={report} />
      ))}
      <Read spans={report.spans} skipped={report.skipped ?? []} />
    </Report>
  );
}
