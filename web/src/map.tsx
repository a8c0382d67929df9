// The service map: who calls whom, and how much time is lost between them. Limited to the pairs that lose the most.

import type { PairRow, PairsReport } from "./api";
import { CaseState, foundWords } from "./cases";
import type { CaseRow } from "./cases_api";
import { count, duration, visible } from "./format";
import { place } from "./layout";
import { titleOf } from "./parts";
import { pairKey, toHash, type View } from "./state";

/** Maximum number of pairs on a map. */
export const EDGES = 40;

/** Arrows labelled with what is lost. */
const LABELS = 12;

/** Where on an arrow its label stands, if not at its beginning. */
const LATE = 0.72;
const BEFORE_PX = 60;

const cubic = (t: number, a: number, b: number, c: number, d: number) => (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t ** 2 * c + t ** 3 * d;

const WIDE = { width: 168, height: 30, gapX: 120, gapY: 16, letters: 22 };
/** On a phone: two services beside each other. */
const NARROW = { ...WIDE, width: 132, gapX: 62, letters: 16 };

/** Cuts between characters as displayed: half of one is unreadable. */
const shorten = (name: string, letters: number) => {
  const all = [...visible(name)];
  const end = Math.floor(letters * 0.36);
  return all.length > letters ? `${all.slice(0, letters - end - 1).join("")}…${all.slice(-end).join("")}` : all.join("");
};

/** What clients wait beyond the usual of a pair; nothing where no case says that it is slower. */
const beyondOf = (row: PairRow) => row.beyond?.client_ns_total ?? 0;

/** `caseFor` finds a pair's case that is not over. */
export function MapView({ report, view, caseFor }: { report: PairsReport; view: View; caseFor: (row: PairRow) => CaseRow | undefined }) {
  const rows = report.pairs;
  if (rows.length === 0) return <p class="waiting">No pair passes the filters.</p>;
  const NODE = matchMedia("(max-width: 720px)").matches ? NARROW : WIDE;
  const spots = place(rows.map((row) => ({ from: row.client, to: row.server })));
  const layers = [...spots.values()].reduce((most, spot) => Math.max(most, spot.layer + 1), 1);
  const perLayer = new Map<number, number>();
  for (const { layer } of spots.values()) perLayer.set(layer, (perLayer.get(layer) ?? 0) + 1);
  const tallest = Math.max(...perLayer.values());
  const width = layers * NODE.width + (layers - 1) * NODE.gapX + 20;
  const height = tallest * (NODE.height + NODE.gapY) + 24;
  const corner = (name: string): [number, number] => {
    const spot = spots.get(name) ?? { layer: 0, row: 0 };
    const free = (tallest - (perLayer.get(spot.layer) ?? 1)) * (NODE.height + NODE.gapY);
    return [10 + spot.layer * (NODE.width + NODE.gapX), 18 + free / 2 + spot.row * (NODE.height + NODE.gapY)];
  };
  // Where pairs are slower than usual, these are what matters; else the gaps are.
  const byBeyond = rows.some((row) => beyondOf(row) > 0);
  const weight = (row: PairRow) => (byBeyond ? beyondOf(row) : row.lost_ns_total);
  const most = rows.reduce((a, row) => Math.max(a, weight(row)), 1);
  const withCases = rows.flatMap((row): [PairRow, CaseRow][] => {
    const its = caseFor(row);
    return its ? [[row, its]] : [];
  });
  const cased = new Map(withCases);
  const lost = new Map<string, number>();
  for (const row of rows) lost.set(row.server, (lost.get(row.server) ?? 0) + row.lost_ns_total);
  // Only the widest arrows have labels, closer to the caller where an arrow turns back.
  const labelled = new Set(rows.filter((row) => weight(row) > 0).sort((a, b) => weight(b) - weight(a)).slice(0, LABELS));
  const all = report.matching?.pairs ?? rows.length;
  const ends = (name: "client" | "server") => rows.reduce((all, row) => all.set(row[name], (all.get(row[name]) ?? 0) + 1), new Map<string, number>());
  const [leaving, arriving] = [ends("client"), ends("server")];
  return (
    <figure class="map">
      <div class="scroller" tabIndex={0} role="region" aria-label="Service map">
        <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="group" aria-label={`${count(rows.length)} pairs of ${count(spots.size)} services`}>
          {rows.map((row) => {
            const [[x1, y1], [x2, y2]] = [corner(row.client), corner(row.server)];
            const back = x2 <= x1;
            const [fromX, fromY, toX, toY] = [x1 + NODE.width, y1 + NODE.height / 2, back ? x2 + NODE.width : x2, y2 + NODE.height / 2];
            const bend = back ? 60 : Math.max(40, (toX - fromX) / 2);
            const share = weight(row) / most;
            const wide = 1 + 6 * Math.sqrt(share);
            // The tip is wider than its line, and the line ends inside it.
            const [length, half] = [(back ? -1 : 1) * (6 + wide), 3 + 0.8 * wide];
            const endX = toX - length + Math.sign(length);
            const path = `M${fromX} ${fromY}C${fromX + bend} ${fromY} ${back ? toX + bend : toX - bend} ${toY} ${endX} ${toY}`;
            const tip = `M${toX} ${toY}L${toX - length} ${toY - half}V${toY + half}Z`;
            // Where many arrows leave one service, each has its label at its other end.
            const isLate = (leaving.get(row.client) ?? 1) >= (arriving.get(row.server) ?? 1);
            // One that passes behind other services has it before them.
            const at = toX - fromX > NODE.gapX ? BEFORE_PX / (3 * bend) : isLate ? LATE : 1 - LATE;
            const [labelX, labelY] = [cubic(at, fromX, fromX + bend, toX - bend, toX), cubic(at, fromY, fromY, toY, toY)];
            const opacity = 0.35 + 0.65 * Math.sqrt(share);
            const its = cased.get(row);
            const slower = beyondOf(row) > 0 ? `, clients waited ${duration(beyondOf(row))} beyond the usual` : "";
            const words = `${titleOf(row)}: ${duration(row.lost_ns_total)} lost in the gap by ${count(row.calls)} calls${slower}${its ? `; case ${its.state}: ${foundWords(its)}` : ""}`;
            const mark = beyondOf(row) > 0 ? "slow" : its ? "has-case" : undefined;
            return (
              <a key={pairKey(row)} data-row={pairKey(row)} class={mark} href={toHash({ ...view, place: "pair", pair: { client: row.client, server: row.server, method: row.method }, cells: null })}>
                <title>{words}</title>
                <path class="reach" d={path} />
                <g opacity={opacity}>
                  <path class="edge" d={path} stroke-width={wide} />
                  <path class="arrowhead" d={tip} />
                </g>
                {labelled.has(row) && !back && (
                  <text class="edge-label" aria-hidden="true" x={labelX} y={labelY - 4 - wide / 2} text-anchor="middle">
                    {duration(weight(row))}
                  </text>
                )}
              </a>
            );
          })}
          {[...spots.keys()].map((name) => {
            const [x, y] = corner(name);
            const words = `${visible(name)}: ${duration(lost.get(name) ?? 0)} lost on calls to it`;
            return (
              <a key={name} href={toHash({ ...view, filters: { ...view.filters, service: name }, page: 1 })}>
                <title>{`${words}; shows its pairs`}</title>
                <rect class="node" x={x} y={y} width={NODE.width} height={NODE.height} rx="6" />
                <text class="node-name" aria-hidden="true" x={x + NODE.width / 2} y={y + NODE.height / 2 + 4} text-anchor="middle">
                  {shorten(name, NODE.letters)}
                </text>
              </a>
            );
          })}
        </svg>
      </div>
      {withCases.length > 0 && (
        <ul class="annotations" aria-label="Cases of these pairs">
          {withCases.map(([row, its]) => (
            <li key={its.id}>
              <CaseState state={its.state} /> {titleOf(row)}: <a href={toHash({ ...view, place: "case", caseId: its.id })}>{foundWords(its)}</a>
            </li>
          ))}
        </ul>
      )}
      <figcaption class="quiet">
        {all > rows.length ? `The ${count(rows.length)} of ${count(all)} pairs that lose most. ` : ""}An arrow goes from caller to called;{" "}
        {byBeyond ? "the wider it is, the longer its clients wait beyond the usual, wherever the time passes. Red: slower than usual" : "the wider it is, the more time is lost in the gap, between the two spans"}
        {rows.some((row) => cased.has(row) && beyondOf(row) === 0) ? `${byBeyond ? "; y" : ". Y"}ellow: has a case` : ""}. A service shows its pairs, an arrow its pair.
      </figcaption>
    </figure>
  );
}
