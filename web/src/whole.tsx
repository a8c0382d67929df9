// One call with everything recorded of it, on one axis: both spans, legs, packets at both taps, threads at both ends,
// findings, and the uncertainty of the clocks.

import { Fragment, type RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count, duration } from "./format";
import type { Crossing, Found, Packet, Piece, Stretch, Track, WholeCall } from "./whole_api";
import { doingWords, foundTitle, isShown, legKind, legWords, packetWords } from "./whole_words";

/** The visible part of the axis, nanoseconds since the call began. */
interface Zoom {
  from: number;
  to: number;
}

/** Maximum number of threads drawn per end; those that had the call longest come first. */
const THREADS = 4;
/** Maximum number of findings. */
const FINDINGS = 6;
const ROW = 22;
const LABELS = 182;
/** Characters of a label that fit. */
const LABEL_FITS = 27;
/** Minimum distance of tick marks. */
const TICK_ROOM = 84;
/** Below this width, labels are above their rows. */
const NARROW = 560;

interface Row {
  key: string;
  label: string;
  hint: string;
  kind: "span" | "track" | "tap" | "legs" | "finding";
  side: "client" | "server" | null;
  span?: Stretch;
  track?: Track;
  packets?: Packet[];
  found?: Found;
}

function rowsOf(call: WholeCall, all: boolean): { rows: Row[]; folded: number } {
  const rows: Row[] = [];
  let folded = 0;
  const bound = (ns: number | null) => (ns === null ? "nothing bounds how far its clock is off" : ns === 0 ? "by the clock of the axis" : `its clock may be off by ± ${duration(ns)}`);
  const threads = (side: "client" | "server") => {
    const busy = (track: Track) => track.pieces.reduce((sum, piece) => sum + (piece.doing === "blocked" || piece.doing === "unknown" ? 0 : piece.to_ns - piece.from_ns), 0);
    const of = call.tracks.filter((track) => track.side === side).sort((a, b) => busy(b) - busy(a));
    const shown = all ? of : of.slice(0, THREADS);
    folded += of.length - shown.length;
    for (const track of shown) rows.push({ key: `${side} ${track.tid}`, label: `${track.thread ?? "thread"} ${track.tid}`, hint: `thread ${track.tid} of ${track.host}, ${bound(track.bound_ns)}`, kind: "track", side, track });
  };
  const tap = (side: "client" | "server") => {
    const packets = call.ladder?.packets.filter((packet) => packet.seen_at === side) ?? [];
    if (packets.length > 0) rows.push({ key: `${side} tap`, label: `${side} tap`, hint: `packets where they leave and enter the ${side}'s kernel; above the line those it sent`, kind: "tap", side, packets });
  };
  if (call.client_span) rows.push({ key: "client span", label: "CLIENT span", hint: bound(call.client_span.bound_ns), kind: "span", side: "client", span: call.client_span });
  threads("client");
  tap("client");
  rows.push({ key: "legs", label: "legs", hint: "they add up to the call; hatched: what the clocks leave open", kind: "legs", side: null });
  tap("server");
  threads("server");
  if (call.server_span) rows.push({ key: "server span", label: "SERVER span", hint: bound(call.server_span.bound_ns), kind: "span", side: "server", span: call.server_span });
  // Findings may overlap, so each has its own row.
  call.findings.filter((found) => found.when).slice(0, all ? undefined : FINDINGS).forEach((found, at) => {
    rows.push({ key: `finding ${at}`, label: foundTitle(found), hint: isShown(found) ? "shown" : "possible, not shown", kind: "finding", side: null, found });
  });
  return { rows, folded };
}

/** Tick marks at round times. */
function ticks({ from, to }: Zoom, room: number): number[] {
  const rough = (to - from) / Math.max(2, Math.min(8, room / TICK_ROOM));
  const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  const step = ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10) * power;
  const all = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) all.push(at);
  return all;
}

function useWidth(): [RefObject<HTMLDivElement | null>, number] {
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(1000);
  useEffect(() => {
    const seen = new ResizeObserver(([entry]) => entry && setWidth(Math.max(260, Math.round(entry.contentRect.width))));
    if (place.current) seen.observe(place.current);
    return () => seen.disconnect();
  }, []);
  return [place, width];
}

export function WholeAxis({ call }: { call: WholeCall }) {
  const whole: Zoom = { from: -call.duration_ns * 0.03, to: call.duration_ns * 1.03 };
  const [zoom, setZoom] = useState<Zoom>(whole);
  const [chosen, setChosen] = useState("");
  const [pointed, setPointed] = useState("");
  const [all, setAll] = useState(false);
  const [place, width] = useWidth();
  const drag = useRef<{ x: number; zoom: Zoom } | null>(null);
  const narrow = width < NARROW;
  const left = narrow ? 0 : LABELS;
  const high = narrow ? ROW + 14 : ROW;
  const { rows, folded } = rowsOf(call, all);
  const room = width - left;
  const x = (ns: number) => left + ((ns - zoom.from) / (zoom.to - zoom.from)) * room;
  const clipped = (from: number, to: number, least = 1): { x: number; width: number } | null => {
    if (to < zoom.from || from > zoom.to) return null;
    const [a, b] = [Math.max(left, x(from)), Math.min(width, x(to))];
    return { x: a, width: Math.max(least, b - a) };
  };
  const scale = (by: number, at = (zoom.from + zoom.to) / 2) => {
    const length = Math.min(whole.to - whole.from, Math.max(1_000, (zoom.to - zoom.from) * by));
    const share = (at - zoom.from) / (zoom.to - zoom.from);
    const from = Math.min(whole.to - length, Math.max(whole.from, at - share * length));
    setZoom({ from, to: from + length });
  };
  const move = (by: number) => {
    const length = zoom.to - zoom.from;
    const from = Math.min(whole.to - length, Math.max(whole.from, zoom.from + by * length));
    setZoom({ from, to: from + length });
  };
  const pressed = (event: KeyboardEvent) => {
    const does: Record<string, () => void> = { "+": () => scale(0.5), "=": () => scale(0.5), "-": () => scale(2), ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "0": () => setZoom(whole) };
    const act = does[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  // Only a listener of its own may keep the wheel from scrolling the page, and it does so only with Ctrl or Shift.
  const drawing = useRef<SVGSVGElement>(null);
  const wheeled = useRef<(event: WheelEvent) => void>(() => {});
  wheeled.current = (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const box = drawing.current?.getBoundingClientRect();
    if (box) scale(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, zoom.from + ((event.clientX - box.left - left) / room) * (zoom.to - zoom.from));
  };
  useEffect(() => {
    const turned = (event: WheelEvent) => wheeled.current(event);
    const at = drawing.current;
    at?.addEventListener("wheel", turned, { passive: false });
    return () => at?.removeEventListener("wheel", turned);
  }, []);
  const height = rows.length * high + 18;
  const top = (at: number) => at * high + (narrow ? 14 : 0);
  return (
    <div class="whole" ref={place}>
      <div class="whole-tools" role="group" aria-label="Zoom">
        <button type="button" onClick={() => scale(0.5)} aria-label="zoom in">
          +
        </button>
        <button type="button" onClick={() => scale(2)} aria-label="zoom out">
          −
        </button>
        <button type="button" onClick={() => move(-0.2)} aria-label="earlier">
          ←
        </button>
        <button type="button" onClick={() => move(0.2)} aria-label="later">
          →
        </button>
        <button type="button" onClick={() => setZoom(whole)}>
          all of it
        </button>
        {(folded > 0 || all) && (
          <button type="button" onClick={() => setAll(!all)}>
            {all ? "fewer threads" : `${count(folded)} more threads`}
          </button>
        )}
        <span class="quiet">{matchMedia("(pointer: coarse)").matches ? "+ and − zoom" : "Shift and wheel zoom"}; drag moves</span>
      </div>
      <div class="whole-drawing" tabIndex={0} role="group" aria-label="On one axis. Plus and minus zoom, arrows move, zero shows all of it." onKeyDown={pressed}>
      <svg
        ref={drawing}
        width={width}
        height={height}
        viewBox={`0 0 ${width} ${height}`}
        role="img"
        aria-label={`The call on one axis: ${rows.map((row) => row.label).join(", ")}. Findings and packets stand below as text.`}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, zoom };
        }}
        onPointerLeave={() => setPointed("")}
        onPointerMove={(event) => {
          const under = event.target instanceof Element ? event.target.closest(":has(> title)") : null;
          setPointed(under?.querySelector(":scope > title")?.textContent ?? "");
          const begun = drag.current;
          if (!begun || event.buttons === 0) return;
          const length = begun.zoom.to - begun.zoom.from;
          const by = ((begun.x - event.clientX) / room) * length;
          const from = Math.min(whole.to - length, Math.max(whole.from, begun.zoom.from + by));
          setZoom({ from, to: from + length });
        }}
        onPointerUp={() => {
          drag.current = null;
        }}
      >
        <defs>
          <pattern id="open-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect class="hatch-ground" width="6" height="6" />
            <line class="hatch-line" x1="0" x2="0" y1="0" y2="6" />
          </pattern>
        </defs>
        {ticks(zoom, room).map((at) => (
          <g key={at}>
            <line class="grid" x1={x(at)} x2={x(at)} y1="0" y2={height - 16} />
            <text class="tick" x={Math.min(width - 4, x(at))} y={height - 4} text-anchor={x(at) > width - 30 ? "end" : x(at) < left + 20 ? "start" : "middle"}>
              {duration(at)}
            </text>
          </g>
        ))}
        {rows.map((row, at) => (
          <g key={row.key} class={`row-${row.kind}`}>
            <text class="label" x={narrow ? 2 : LABELS - 8} y={narrow ? at * high + 11 : top(at) + 15} text-anchor={narrow ? "start" : "end"}>
              <title>{row.hint}</title>
              {!narrow && row.label.length > LABEL_FITS ? `${row.label.slice(0, LABEL_FITS - 1)}…` : row.label}
            </text>
            <line class="rule" x1={left} x2={width} y1={at * high + high} y2={at * high + high} />
            {row.kind === "span" && row.span && <SpanBar span={row.span} side={row.side ?? "client"} y={top(at)} clipped={clipped} onChoose={setChosen} />}
            {row.kind === "track" && row.track?.pieces.map((piece, i) => <PieceBar key={i} piece={piece} y={top(at)} clipped={clipped} onChoose={setChosen} label={row.label} />)}
            {row.kind === "tap" && row.packets?.map((packet) => <Tick key={packet.packet} packet={packet} x={x(packet.since_start_ns)} y={top(at)} hidden={packet.since_start_ns < zoom.from || packet.since_start_ns > zoom.to} onChoose={setChosen} />)}
            {row.kind === "legs" && <Legs call={call} y={top(at)} clipped={clipped} onChoose={setChosen} />}
            {row.found && <Finding found={row.found} start={call.axis.start_unix_ns} y={top(at)} clipped={clipped} onChoose={setChosen} />}
          </g>
        ))}
        <Crossings call={call} x={x} zoom={zoom} taps={[rows.findIndex((row) => row.key === "client tap"), rows.findIndex((row) => row.key === "server tap")].map((at) => (at < 0 ? null : top(at) + ROW / 2))} onChoose={setChosen} />
      </svg>
      </div>
      <p class="chosen" role="status">
        {pointed || chosen || "Point at anything to read what it is; a click keeps it here."}
      </p>
      <Key threads={call.tracks.length > 0} />
    </div>
  );
}

type Clip = (from: number, to: number, least?: number) => { x: number; width: number } | null;

function SpanBar({ span, side, y, clipped, onChoose }: { span: Stretch; side: string; y: number; clipped: Clip; onChoose: (words: string) => void }) {
  const bar = clipped(span.from_ns, span.to_ns);
  const words = `${side.toUpperCase()} span: ${duration(span.to_ns - span.from_ns)}, from ${duration(span.from_ns)} on${span.bound_ns ? ` ± ${duration(span.bound_ns)}` : span.bound_ns === null ? "; where it lies is not bounded" : ""}`;
  const edges = span.bound_ns ? [span.from_ns, span.to_ns].map((at) => clipped(at - (span.bound_ns ?? 0), at + (span.bound_ns ?? 0), 0)) : [];
  return (
    <>
      {bar && (
        <rect class={`span-${side}`} x={bar.x} width={bar.width} y={y + 4} height={ROW - 8} onClick={() => onChoose(words)}>
          <title>{words}</title>
        </rect>
      )}
      {edges.map((edge, i) => edge && edge.width >= 1 && <rect key={i} class="open" x={edge.x} width={edge.width} y={y + 2} height={ROW - 4} />)}
    </>
  );
}

function PieceBar({ piece, y, clipped, onChoose, label }: { piece: Piece; y: number; clipped: Clip; onChoose: (words: string) => void; label: string }) {
  const bar = clipped(piece.from_ns, piece.to_ns, 0.5);
  if (!bar) return null;
  const words = `${label} ${doingWords(piece)}, from ${duration(piece.from_ns)} on`;
  const thin = piece.doing === "blocked" || piece.doing === "unknown";
  return (
    <rect class={`doing ${piece.doing}`} x={bar.x} width={bar.width} y={thin ? y + 9 : y + 3} height={thin ? 4 : ROW - 6} onClick={() => onChoose(words)}>
      <title>{words}</title>
    </rect>
  );
}

/** A packet: upwards if this host sent it, downwards if it arrived; a dot marks payload. */
function Tick({ packet, x, y, hidden, onChoose }: { packet: Packet; x: number; y: number; hidden: boolean; onChoose: (words: string) => void }) {
  if (hidden) return null;
  const out = packet.from === packet.seen_at;
  const middle = y + ROW / 2;
  const end = out ? y + 4 : y + ROW - 4;
  const words = packetWords(packet);
  return (
    <g class={`packet from-${packet.from}${packet.stands_out ? " marked" : ""}`} onClick={() => onChoose(words)}>
      <title>{words}</title>
      <rect class="reach" x={x - 3} width="6" y={y} height={ROW} />
      <line x1={x} x2={x} y1={middle} y2={end} />
      {packet.bytes > 0 ? <circle cx={x} cy={end} r="2.6" /> : <circle class="hollow" cx={x} cy={end} r="2" />}
    </g>
  );
}

/** Packets on the way between the taps; a lost one ends in a cross. */
function Crossings({ call, x, zoom, taps: [client, server], onChoose }: { call: WholeCall; x: (ns: number) => number; zoom: Zoom; taps: (number | null)[]; onChoose: (words: string) => void }) {
  const packets = call.ladder?.packets ?? [];
  const drawn = (one: Crossing, at: number) => {
    const [sent, arrived] = [one.sent, one.arrived].map((place) => (place === null ? undefined : packets[place]));
    if (!sent || client == null || server == null || one.way === "unknown") return null;
    const [from, to] = one.from === "client" ? [client, server] : [server, client];
    const [begin, end] = [x(sent.since_start_ns), x((arrived ?? sent).since_start_ns)];
    const isOut = Math.max(sent.since_start_ns, (arrived ?? sent).since_start_ns) < zoom.from || Math.min(sent.since_start_ns, (arrived ?? sent).since_start_ns) > zoom.to;
    if (isOut) return null;
    const y = one.way === "lost" ? from + (to - from) * 0.6 : to;
    const words = one.way === "lost" ? `${packetWords(sent)}: not seen at the ${one.from === "client" ? "server" : "client"}` : `${packetWords(sent)}, on its way`;
    return (
      <g key={at} class={`crossing ${one.way}`} onClick={() => onChoose(words)}>
        <title>{words}</title>
        <line x1={begin} y1={from} x2={end} y2={y} />
        {one.way === "lost" && <path d={`M${end - 4} ${y - 4}l8 8M${end - 4} ${y + 4}l8 -8`} />}
      </g>
    );
  };
  return <>{call.ladder?.crossings?.map(drawn)}</>;
}

function Legs({ call, y, clipped, onChoose }: { call: WholeCall; y: number; clipped: Clip; onChoose: (words: string) => void }) {
  // Without the client's packets, the call begins by another clock than the axis.
  if (call.axis.base === "server") return null;
  let at = 0;
  return (
    <>
      {call.legs.map((leg) => {
        const [from, to] = [at, at + leg.ns];
        at = to;
        const bar = clipped(from, to);
        const open = leg.bound_ns > 0 ? clipped(to - leg.bound_ns, to + leg.bound_ns, 0) : null;
        const words = `${legWords(leg.leg)}: ${duration(leg.ns)} ± ${duration(leg.bound_ns)}`;
        if (!bar || leg.ns <= 0) return null;
        return (
          <g key={leg.leg} onClick={() => onChoose(words)}>
            <title>{words}</title>
            <rect class={`leg ${legKind(leg.leg)}`} x={bar.x} width={bar.width} y={y + 3} height={ROW - 6} />
            {bar.width > 60 && (
              <text class="inside" x={bar.x + 5} y={y + 15}>
                {legWords(leg.leg).slice(0, Math.floor((bar.width - 8) / 6.4))}
              </text>
            )}
            {open && open.width >= 1 && <rect class="open" x={open.x} width={open.width} y={y + 1} height={ROW - 2} />}
          </g>
        );
      })}
    </>
  );
}

function Finding({ found, start, y, clipped, onChoose }: { found: Found; start: number; y: number; clipped: Clip; onChoose: (words: string) => void }) {
  if (!found.when) return null;
  const bar = clipped(found.when.from_unix_ns - start, found.when.to_unix_ns - start, 3);
  if (!bar) return null;
  const words = `${foundTitle(found)}, ${isShown(found) ? "shown" : "possible"}${found.cost_ns ? `, ${duration(found.cost_ns)}` : ""}${found.note ? `: ${found.note}` : ""}`;
  return (
    <g class={`finding ${isShown(found) ? "shown" : "possible"}`} onClick={() => onChoose(words)}>
      <title>{words}</title>
      <rect x={bar.x} width={bar.width} y={y + 4} height={ROW - 8} />
      {bar.width > 70 && (
        <text class="inside" x={bar.x + 5} y={y + 15}>
          {(isShown(found) ? duration(found.cost_ns ?? 0) : "possible").slice(0, Math.floor((bar.width - 8) / 6.4))}
        </text>
      )}
    </g>
  );
}

const KEY: [string, string][] = [
  ["running", "runs"],
  ["runnable", "waits for a CPU"],
  ["stopped", "stopped, or out of quota"],
  ["interrupted", "interrupted"],
  ["blocked", "waits for something"],
];

/** Whose time a span or a leg is. */
const SIDES = [
  ["client", "client"],
  ["wire", "network"],
  ["server", "server"],
] as const;

function Key({ threads }: { threads: boolean }) {
  return (
    <p class="legs-key">
      <span>spans and legs:</span>
      {SIDES.map(([name, words]) => (
        <span key={name}>
          <i class={`key leg-key ${name}`} /> {words}
        </span>
      ))}
      {threads && <span>threads:</span>}
      {threads && KEY.map(([name, words]) => (
        <span key={name}>
          <i class={`key doing-key ${name}`} /> {words}
        </span>
      ))}
      <span>
        <i class="key open-key" /> what the clocks leave open
      </span>
    </p>
  );
}

/** The packets as a table: what the drawing shows, for reading and copying. */
export function Packets({ call, pauses }: { call: WholeCall; pauses?: Map<number, string> }) {
  const ladder = call.ladder;
  const lost = new Set(ladder?.crossings?.filter((one) => one.way === "lost").map((one) => one.sent));
  if (!ladder || ladder.packets.length === 0) return <p class="note">This call's packets could not be read a second time.</p>;
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Packets">
      <table class="packets stacks">
        <caption>
          {ladder.correction_bound_ns === null ? "Seen at one end only, or by clocks that nothing bounds." : `Times of the other tap are moved to the client's clock, which may be off by ± ${duration(ladder.correction_bound_ns)}.`}
          {ladder.left_out > 0 && ` ${count(ladder.left_out)} packets are left out.`}
        </caption>
        <thead>
          <tr>
            <th scope="col" class="number">
              at
            </th>
            <th scope="col">tap</th>
            <th scope="col" class="number">
              packet
            </th>
            <th scope="col">from</th>
            <th scope="col" class="number">
              bytes
            </th>
            <th scope="col">what it is</th>
          </tr>
        </thead>
        <tbody>
          {ladder.packets.map((packet, at) => (
            <Fragment key={`${packet.capture} ${packet.packet}`}>
              {pauses?.has(at) && (
                <tr class="pause">
                  <td class="quiet" colSpan={6}>
                    {pauses.get(at)}
                  </td>
                </tr>
              )}
              <tr>
                <td class="number" data-label="at">{duration(packet.since_start_ns)}</td>
                <td data-label="tap">{packet.seen_at}</td>
                <td class="number" data-label="packet">{packet.packet}</td>
                <td data-label="from">{packet.from}</td>
                <td class="number" data-label="bytes">{packet.bytes}</td>
                <td class="whole-row">{[packet.flags, ...packet.notes, lost.has(at) ? `not seen at the ${packet.seen_at === "client" ? "server" : "client"}` : ""].filter((word) => word !== "").join("; ") || (packet.bytes === 0 ? "acknowledgement" : "data")}</td>
              </tr>
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Findings({ call }: { call: WholeCall }) {
  if (call.findings.length === 0) return null;
  return (
    <ul class="plain-list findings-list">
      {call.findings.map((found, at) => (
        <li key={at}>
          <b>{foundTitle(found)}</b> <span class="quiet">{isShown(found) ? "shown" : "possible"}{found.cost_ns ? `, ${duration(found.cost_ns)}` : ""}</span> {found.note}
        </li>
      ))}
    </ul>
  );
}
