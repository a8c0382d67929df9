// The report of `spangap host thieves --html`: who took the CPU, what the threads did, the worst periods.

import { useState } from "preact/hooks";
import { duration } from "../format";
import { Panel, ShareBar } from "../parts";
import { Conclusions, Remarks, Report } from "./parts";
import type { DidPage, PiecePage, TakerPage, ThievesPage, WindowPage } from "./thieves_api";

/** Meaning of the colours, in the order of a legend. */
const DOING: [string, string][] = [
  ["running", "running"],
  ["interrupted", "interrupted by a softirq or an interrupt"],
  ["runnable", "runnable behind a task"],
  ["behind-interrupt", "runnable behind a softirq or an interrupt"],
  ["throttled", "out of CPU quota"],
  ["stopped", "stopped"],
  ["blocked", "blocked"],
  ["unknown", "not known"],
];
/** Time marks below a window. */
const MARKS = 5;
/** Maximum number of parts of a window listed. */
const LISTED = 200;

function Legend({ windows }: { windows: WindowPage[] }) {
  const used = new Set(windows.flatMap((window) => window.pieces.map((piece) => piece.doing)));
  return (
    <p class="legs-key">
      {DOING.filter(([name]) => used.has(name)).map(([name, words]) => (
        <span key={name}>
          <i class={`key doing ${name}`} /> {words}
        </span>
      ))}
    </p>
  );
}

const pieceWords = (piece: PiecePage) => `${piece.who}: ${duration(piece.ns)}, from ${duration(piece.from_ns)} on`;

function Window({ window }: { window: WindowPage }) {
  const [chosen, setChosen] = useState<PiecePage | null>(null);
  const all = Math.max(1, window.duration_ns);
  const x = (ns: number) => (ns / all) * 1000;
  return (
    <figure class="window">
      <figcaption>
        {window.words}. Longest: {window.longest || "nobody"}.
      </figcaption>
      <svg class="did" viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" aria-label={`${window.words}; ${window.longest}`}>
        {window.pieces.map((piece, at) => (
          <rect key={at} class={`doing ${piece.doing}`} x={x(piece.from_ns)} width={Math.max(0.3, x(piece.ns))} y={0} height={40} onClick={() => setChosen(piece)} onPointerEnter={() => setChosen(piece)}>
            <title>{pieceWords(piece)}</title>
          </rect>
        ))}
      </svg>
      <div class="marks" aria-hidden="true">
        {Array.from({ length: MARKS }, (_, at) => (
          <span key={at}>{at === 0 ? "0" : duration((all * at) / (MARKS - 1))}</span>
        ))}
      </div>
      <p class="chosen">{chosen ? pieceWords(chosen) : "Point at a piece to read what it is."}</p>
      <details>
        <summary>{window.pieces.length === 1 ? "The one piece" : `The ${Math.min(LISTED, window.pieces.length)} ${window.pieces.length > LISTED ? `of ${window.pieces.length} pieces that come first` : "pieces"}`} as text</summary>
        <ol class="plain-list">
          {window.pieces.slice(0, LISTED).map((piece, at) => (
            <li key={at}>{pieceWords(piece)}</li>
          ))}
        </ol>
      </details>
    </figure>
  );
}

function Did({ did }: { did: DidPage[] }) {
  let from = 0;
  return (
    <Panel title="What its threads did">
      <svg class="did short" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">
        {did.map((part) => {
          const x = from;
          from += part.share * 1000;
          return <rect key={part.doing} class={`doing ${part.doing}`} x={x} width={part.share * 1000} y={0} height={20} />;
        })}
      </svg>
      <div class="scroller" tabIndex={0} role="region" aria-label="What its threads did">
        <table>
          <thead>
            <tr>
              <th scope="col">doing</th>
              <th scope="col" class="number">
                total
              </th>
              <th scope="col" class="number">
                of all time
              </th>
              <th scope="col" class="number">
                of the time a CPU was wanted
              </th>
            </tr>
          </thead>
          <tbody>
            {did.map((part) => (
              <tr key={part.doing}>
                <th scope="row">
                  <i class={`key doing ${part.doing}`} /> {part.words}
                </th>
                <td class="number">{part.time}</td>
                <td class="number">{part.of_all}</td>
                <td class="number">{part.of_wanted}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const FIGURES: [keyof TakerPage, string, string][] = [
  ["of_wanted", "share", "of the time in which a thread wanted a CPU"],
  ["time", "total", ""],
  ["count", "count", "waits in which it had the CPU, and interruptions"],
  ["longest", "longest", "the most in one of these"],
  ["waited", "while it waited", "while a thread was runnable behind it"],
  ["ran", "while it ran", "while a thread nominally ran"],
];

function Takers({ takers, more }: { takers: TakerPage[]; more: string | undefined }) {
  return (
    <Panel title="Who had the CPU meanwhile">
      <div class="scroller" tabIndex={0} role="region" aria-label="Who had the CPU meanwhile">
        <table class="takers">
          <thead>
            <tr>
              <th scope="col">who</th>
              <td />
              {FIGURES.map(([key, head, hint]) => (
                <th key={key} scope="col" class="number" title={hint}>
                  {head}
                </th>
              ))}
              <th scope="col">CPU</th>
            </tr>
          </thead>
          <tbody>
            {takers.map((taker, at) => (
              <tr key={at}>
                <th scope="row">
                  {taker.name} {taker.blamed_for && <small class="bad">{taker.blamed_for}</small>}
                </th>
                <td class="barcell short">
                  <ShareBar low={taker.share} mid={taker.share} high={taker.share} name={taker.blamed_for ? "blamed" : ""} />
                </td>
                {FIGURES.map(([key]) => (
                  <td key={key} class="number">
                    {taker[key]}
                  </td>
                ))}
                <td>{taker.cpus}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {more && <p class="remark">{more}</p>}
    </Panel>
  );
}

export function ThievesReport({ report }: { report: ThievesPage }) {
  return (
    <Report verb="host thieves" of={report.facts}>
      <section class="panel">
        <p class="headline">{report.title}</p>
        <Conclusions of={report.conclusions} />
      </section>
      {report.windows.length > 0 && (
        <Panel title="Worst stretches of time">
          <Legend windows={report.windows} />
          {report.windows.map((window, at) => (
            <Window key={at} window={window} />
          ))}
        </Panel>
      )}
      {report.did.length > 0 && <Did did={report.did} />}
      {report.takers.length > 0 && <Takers takers={report.takers} more={report.more_takers} />}
      <Remarks of={[...report.notes.map((note) => `${note}.`), ...(report.cost ? [report.cost] : [])]} />
    </Report>
  );
}
