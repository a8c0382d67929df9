// The report of `spangap lab grade --html`: verdicts against truth, by culprit and by run.

import { Code, Panel, ShareBar } from "../parts";
import { legWords } from "../whole_words";
import { Report } from "./parts";
import type { Cell, GradeReport, GradeShare, Row } from "./grade_api";

export interface GradeDocument {
  title: string;
  /** Folder of each row. */
  links: (string | null)[];
  report: GradeReport;
}

const whole = (share: number) => `${(share * 100).toFixed(0)} %`;

/** `75 % 3 of 4 · 30–95 %` */
function Figure({ value }: { value: GradeShare }) {
  if (value.share === null) return <>–</>;
  return (
    <>
      <b>{whole(value.share)}</b>{" "}
      <small class="quiet">
        {value.count} of {value.of} · {(value.low * 100).toFixed(0)}–{whole(value.high)}
      </small>
    </>
  );
}

function Opening({ title, report }: GradeDocument) {
  const { runs } = report;
  const named: [string, GradeShare][] = [
    ["Right", report.right],
    ["Cannot tell", report.unknown],
    ["Leg right, where named", report.legs],
    ["False alarms, healthy and near-miss runs", report.false_alarms],
  ];
  return (
    <section class="panel">
      <p class="headline">{title}</p>
      <dl class="meters">
        {named.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Figure value={value} />
            </dd>
          </div>
        ))}
      </dl>
      <p class="summary">
        {runs.graded} of {runs.planned} runs: {runs.judged} judged; not judged: {runs.did_not_act} whose fault did not act, {runs.unavailable} not available here, {runs.failed} that could not be made; the judge failed on {runs.judge_failed} and took too long on {runs.judge_timed_out}. Behind a figure in small print: its 95 % interval (Wilson).
      </p>
    </section>
  );
}

function MatrixCell({ cell, all, row, column }: { cell: Cell; all: number; row: string; column: string }) {
  if (cell.runs === 0) return <td />;
  const kind = cell.right > 0 ? "right" : column === "unknown" ? "cannot" : "wrong";
  return (
    <td class={`cell ${kind}`} title={`${row}, said to be ${column}: ${cell.runs} of ${all}`}>
      {/* How strong the colour is says which share of its row it has. */}
      <svg viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">
        <rect width="1" height="1" fill-opacity={0.1 + 0.35 * (cell.runs / Math.max(1, all))} />
      </svg>
      {cell.right > 0 ? "✓ " : ""}
      {cell.runs}
    </td>
  );
}

function Matrix({ report }: { report: GradeReport }) {
  const { rows, columns, cells } = report.matrix;
  return (
    <Panel title="What was the matter, and what was said of it">
      <p class="summary">A row for each truth, a column for each verdict. The stronger the colour, the larger the share of its row; cells with ✓ are right, also by another name.</p>
      <div class="scroller" tabIndex={0} role="region" aria-label="Truths and verdicts">
        <table class="matrix">
          <thead>
            <tr>
              <th scope="col">it is</th>
              {columns.map((column) => (
                <th key={column} scope="col" class="number">
                  {column}
                </th>
              ))}
              <th scope="col" class="number">
                runs
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row, y) => {
              const all = (cells[y] ?? []).reduce((sum, cell) => sum + cell.runs, 0);
              return (
                <tr key={row}>
                  <th scope="row">{row}</th>
                  {(cells[y] ?? []).map((cell, x) => (
                    <MatrixCell key={x} cell={cell} all={all} row={row} column={columns[x] ?? ""} />
                  ))}
                  <td class="number">{all}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const bar = (value: GradeShare) => (value.share === null ? null : <ShareBar low={value.low} mid={value.share} high={value.high} />);

function Culprits({ report }: { report: GradeReport }) {
  return (
    <Panel title="Each culprit">
      <div class="scroller" tabIndex={0} role="region" aria-label="Each culprit">
        <table>
          <thead>
            <tr>
              <th scope="col">culprit</th>
              <th scope="col" colSpan={2}>
                found, where it was to blame (recall)
              </th>
              <th scope="col" colSpan={2}>
                right, where it was named (precision)
              </th>
              <th scope="col" class="number">
                unknown
              </th>
            </tr>
          </thead>
          <tbody>
            {report.culprits.map((one) => (
              <tr key={one.culprit}>
                <th scope="row">{one.culprit}</th>
                <td class="barcell short">{bar(one.recall)}</td>
                <td>
                  <Figure value={one.recall} />
                </td>
                <td class="barcell short">{bar(one.precision)}</td>
                <td>
                  <Figure value={one.precision} />
                </td>
                <td class="number">{one.unknown === 0 ? "" : one.unknown}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const WITHOUT: Record<string, string> = {
  "did-not-act": "its fault did not act",
  unavailable: "not available here",
  failed: "could not be made",
  "judge-timed-out": "the judge took too long",
  "judge-failed": "the judge failed",
};

function Said({ row }: { row: Row }) {
  if (row.outcome !== "judged" || row.verdict === undefined) return <span class="quiet">{WITHOUT[row.outcome] ?? row.outcome}</span>;
  const [name, mark] = row.right ? ["cleared", "✓ right"] : row.false_alarm ? ["bad", "✗ false alarm"] : row.verdict === "unknown" ? ["quiet", "cannot tell"] : ["bad", "✗ wrong"];
  return (
    <>
      {row.verdict} <small class={name}>{mark}</small>
    </>
  );
}

function legOf(row: Row): string {
  const { leg_right: right } = row;
  const [leg, said] = [row.leg, row.verdict_leg].map((one) => (one === undefined ? undefined : legWords(one)));
  if (leg !== undefined && said !== undefined && right === false) return `✗ ${said}; it is ${leg}`;
  if (said !== undefined) return right ? `✓ ${said}` : said;
  return leg === undefined ? "" : `not named; it is ${leg}`;
}

function Runs({ report, links }: GradeDocument) {
  const groups = new Map<string, [Row, number][]>();
  report.rows.forEach((row, at) => {
    const key = `${row.scenario} ${row.near_miss}`;
    groups.set(key, [...(groups.get(key) ?? []), [row, at]]);
  });
  const sorted = [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, rows]) => rows.sort(([a], [b]) => (a.repeat ?? 0) - (b.repeat ?? 0)));
  const title = (rows: [Row, number][]) => {
    const [first] = rows[0] ?? [];
    const like = rows.find(([row]) => row.looks_like !== undefined)?.[0].looks_like;
    if (!first?.near_miss) return first?.scenario ?? "";
    return `near miss of ${first.scenario}${like === undefined ? "" : `, looks like ${like}`}`;
  };
  return (
    <Panel title="Each run">
      <div class="scroller" tabIndex={0} role="region" aria-label="Each run">
        <table class="graded stacks">
          <thead>
            <tr>
              <th scope="col">run</th>
              <th scope="col">it is</th>
              <th scope="col">said to be</th>
              <th scope="col">leg</th>
              <th scope="col">reasons</th>
            </tr>
          </thead>
          {sorted.map((rows, at) => (
            <tbody key={at}>
              <tr class="group">
                <th colSpan={5} scope="rowgroup">
                  {title(rows)}{" "}
                  <small class="quiet">
                    {rows.filter(([row]) => row.right).length} of {rows.filter(([row]) => row.outcome === "judged").length} right
                  </small>
                </th>
              </tr>
              {rows.map(([row, of]) => {
                const name = row.repeat === undefined ? row.run : `${row.run} ${row.repeat}`;
                const link = links[of];
                return (
                  <tr key={of}>
                    <td class="whole-row">
                      {link ? <a href={link}>{name}</a> : name} {row.judged_as && <small class="quiet">{row.judged_as}</small>}
                    </td>
                    <td data-label="it is">
                      {row.truth} {row.also_right && row.also_right.length > 0 && <small class="quiet">or {row.also_right.join(", ")}</small>}
                    </td>
                    <td data-label="said to be">
                      <Said row={row} />
                    </td>
                    <td data-label="leg">{legOf(row)}</td>
                    <td class="whole-row"><Code text={row.why ?? row.error ?? ""} /></td>
                  </tr>
                );
              })}
            </tbody>
          ))}
        </table>
      </div>
    </Panel>
  );
}

export function GradePage(held: GradeDocument) {
  const { report } = held;
  const of = [`judge ${report.judge}${report.blind ? ", blind" : ""}`, `seed ${report.seed}`, report.interrupted ? "ended before its end" : ""];
  return (
    <Report verb="lab grade" of={of.filter((part) => part !== "").join(" · ")}>
      <Opening {...held} />
      {report.runs.judged > 0 && <Matrix report={report} />}
      {report.runs.judged > 0 && <Culprits report={report} />}
      <Runs {...held} />
    </Report>
  );
}
