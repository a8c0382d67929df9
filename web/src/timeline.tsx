// What the clients of all pairs shown waited, over a longer stretch than the table: drag over it to choose the table's.

import { useRef, useState } from "preact/hooks";
import type { Hole, Timeline } from "./api";
import { clock, count, counted, dayAndClock, duration, span, stretchWords } from "./format";
import type { Stretch } from "./state";
import { meterNowMs } from "./meter_clock";
import { timeTicks } from "./ticks";
import { Stacked, WaitedKey } from "./waited";

/** Something that happened at a moment, drawn as a tick. */
export interface Annotation {
  unixS: number;
  text: string;
  href?: string;
  /** Services that it is about; of a pair, both. */
  services: [string] | [string, string];
  /** Somebody should look at it. */
  bad?: boolean;
}

interface Props {
  timeline: Timeline;
  shown: Stretch;
  against: Stretch | null;
  holes: Hole[];
  annotations: Annotation[];
  onChoose: (stretch: Stretch) => void;
}

const WIDTH = 1000;
const HEIGHT = 64;
const EDGE = 0.04;
/** A shorter drag is a click. */
const LEAST_DRAG = 6;
/** What happened last is named below the plot; what happened before is there as ticks. */
const NAMED = 6;

export function TimelineView({ timeline, shown, against, holes, annotations, onChoose }: Props) {
  const picture = useRef<SVGSVGElement>(null);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const { step_s: step, points, from_unix_s: from, to_unix_s: to } = timeline;
  const nowS = meterNowMs() / 1000;
  const length = Math.max(1, to - from);
  const x = (unixS: number) => Math.min(WIDTH, Math.max(0, ((unixS - from) / length) * WIDTH));
  const most = points.reduce((a, point) => Math.max(a, point.client_ns_total), 0);
  const at = (event: PointerEvent): number => {
    const box = picture.current?.getBoundingClientRect();
    if (!box || box.width === 0) return from;
    return from + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * length;
  };
  const stretchOf = ([a, b]: [number, number]): Stretch => {
    const [low, high] = [Math.min(a, b), Math.max(a, b)];
    return { from: Math.floor(low / 60) * 60, to: Math.max(Math.ceil(high / 60) * 60, Math.floor(low / 60) * 60 + 60) };
  };
  const ended = (event: PointerEvent) => {
    if (drag) {
      const box = picture.current?.getBoundingClientRect();
      const wide = box ? (Math.abs(drag[1] - drag[0]) / length) * box.width : 0;
      // A click chooses the step it is on.
      const start = Math.floor(at(event) / step) * step;
      onChoose(wide >= LEAST_DRAG ? stretchOf(drag) : { from: start, to: start + step });
    }
    setDrag(null);
  };
  const band = (name: string, stretch: Stretch) => <rect class={name} x={x(stretch.from)} width={Math.max(1.5, x(stretch.to) - x(stretch.from))} y="0" height={HEIGHT} />;
  const point = pointed === null ? undefined : points.find((one) => pointed >= one.unix_s && pointed < one.unix_s + step);
  // A label at an edge would be cut.
  const ticks = timeTicks(from, to, 8).filter((tick) => tick - from > length * EDGE && to - tick > length * EDGE);
  const days = length > 86_400;
  const total = points.reduce((sum, one) => sum + one.client_ns_total, 0);
  const hasUnfinished = points.some((one) => one.unix_s + step > nowS);
  const hasHole = holes.some((hole) => hole.to_unix_s > from && hole.from_unix_s < to);
  const happened = annotations.filter((one) => one.unixS >= from && one.unixS <= to);
  return (
    <div class="timeline">
      <svg
        ref={picture}
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`What clients waited from ${stretchWords({ from, to }, "to")}: ${duration(total)} in all, at most ${duration(most)} in ${span(step)}`}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          picture.current?.setPointerCapture(event.pointerId);
          setDrag([at(event), at(event)]);
        }}
        onPointerMove={(event) => {
          setPointed(at(event));
          if (drag) setDrag([drag[0], at(event)]);
        }}
        onPointerUp={ended}
        onPointerCancel={() => setDrag(null)}
        onPointerLeave={() => setPointed(null)}
      >
        {against && band("against", against)}
        {band("shown", shown)}
        {holes.map((hole) => hole.to_unix_s > from && band("hole", { from: hole.from_unix_s, to: hole.to_unix_s }))}
        {points.map((one) => {
          const height = most > 0 ? Math.max(one.client_ns_total > 0 ? 1 : 0, (one.client_ns_total / most) * (HEIGHT - 6)) : 0;
          const gap = one.client_ns_total > 0 ? Math.min(1, one.lost_ns_total / one.client_ns_total) : 0;
          const inside = one.unix_s + step > shown.from && one.unix_s <= shown.to;
          const name = `bar${inside ? " in" : ""}${one.unix_s + step > nowS ? " unfinished" : ""}`;
          return <Stacked key={one.unix_s} name={name} x={x(one.unix_s) + 0.4} width={Math.max(0.8, (step / length) * WIDTH - 0.8)} bottom={HEIGHT} height={height} gap={gap} />;
        })}
        {happened.map((one) => (
          <path key={`${one.unixS} ${one.text}`} class={one.bad ? "annotation alarm" : "annotation"} d={`M${x(one.unixS)} 0V${HEIGHT}`} />
        ))}
        {drag && band("dragged", stretchOf(drag))}
      </svg>
      <div class="timeline-axis" aria-hidden="true">
        {ticks.map((tick) => (
          <span key={tick} style={{ left: `${((tick - from) / length) * 100}%` }}>
            {days ? dayAndClock(tick).slice(5) : clock(tick)}
          </span>
        ))}
      </div>
      <p class="timeline-said quiet">
        {drag ? (
          `${stretchWords(stretchOf(drag))} (${span(stretchOf(drag).to - stretchOf(drag).from)})`
        ) : pointed !== null ? (
          point ? `${dayAndClock(point.unix_s)}, ${span(step)}: clients waited ${duration(point.client_ns_total)}, ${duration(point.lost_ns_total)} of it in the gap, in ${counted(point.calls, "call")}${point.unix_s + step > nowS ? ", so far" : ""}` : `${dayAndClock(Math.floor(pointed / step) * step)}: no calls`
        ) : (
          <>
            What clients waited {step === 60 ? "in each minute" : `in every ${span(step)}`}, at most {duration(most)}: <WaitedKey />.{hasUnfinished && ` The last bar is of ${step === 60 ? "a minute" : "a step"} that is not over.`}
            {hasHole && " Shaded to the top: nothing was recorded."} Drag to choose a stretch.
          </>
        )}
      </p>
      <Happened all={happened} />
    </div>
  );
}

/** Whether something that happened is about a pair: about both of its services, or about one, whatever part of it. */
export function isAbout({ services }: Annotation, pair: { client: string; server: string }): boolean {
  const is = (name: string, service: string) => name === service || name.startsWith(`${service}@`);
  const [first, second] = services;
  return second === undefined ? is(pair.client, first) || is(pair.server, first) : pair.client === first && pair.server === second;
}

/** What happened, in words: the last few. */
export function Happened({ all }: { all: Annotation[] }) {
  if (all.length === 0) return null;
  return (
    <ul class="annotations" aria-label="What happened">
      {all.length > NAMED && <li class="quiet">{count(all.length - NAMED)} earlier</li>}
      {all.slice(-NAMED).map((one) => (
        <li key={`${one.unixS} ${one.text}`} class={one.bad ? "bad" : ""}>
          {clock(one.unixS)} {one.href ? <a href={one.href}>{one.text}</a> : one.text}
        </li>
      ))}
    </ul>
  );
}
