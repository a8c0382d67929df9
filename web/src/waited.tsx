// Where clients' time went, step by step: in the servers' spans, and in the gap.

import type { PairPoint } from "./api";
import { clock, dayAndClock, duration, percent, span } from "./format";
import { waitedNs } from "./pair_sums";
import { timeTicks } from "./ticks";

/** The key of both colours. */
export function WaitedKey() {
  return (
    <>
      <span>
        <i class="key leg-server" /> in the server's spans
      </span>
      <span>
        <i class="key leg-gap" /> in the gap
      </span>
    </>
  );
}

/** One bar: the gap upon the server's part. `height` is that of both. */
export function Stacked({ x, width, bottom, height, gap, name }: { x: number; width: number; bottom: number; height: number; gap: number; name: string }) {
  const top = height * gap;
  return (
    <g class={name}>
      <rect class="leg-server" x={x} width={width} y={bottom - height + top} height={height - top} />
      <rect class="leg-gap" x={x} width={width} y={bottom - height} height={top} />
    </g>
  );
}

export interface Step {
  unixS: number;
  clientNs: number;
  gapNs: number;
  calls: number;
  /** It is not over. */
  open: boolean;
}

/** Points of a pair joined to at most so many steps: minutes would be hairlines in a day. */
export function stepsOf(points: PairPoint[], fromS: number, toS: number, most: number): { stepS: number; steps: Step[] } {
  const minutes = Math.max(1, Math.ceil((toS - fromS) / 60));
  const stepS = ([1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440].find((one) => minutes / one <= most) ?? Math.ceil(minutes / most)) * 60;
  const byStart = new Map<number, Step>();
  for (const point of points) {
    const start = Math.floor(point.unix_s / stepS) * stepS;
    if (point.unix_s + 60 <= fromS || point.unix_s >= toS) continue;
    const step = byStart.get(start) ?? { unixS: start, clientNs: 0, gapNs: 0, calls: 0, open: false };
    step.clientNs += waitedNs(point.client_duration);
    step.gapNs += point.lost_ns_total;
    step.calls += point.gap.count;
    step.open ||= point.open;
    byStart.set(start, step);
  }
  return { stepS, steps: [...byStart.values()].sort((a, b) => a.unixS - b.unixS) };
}

const eachWords = (stepS: number) => (stepS === 60 ? "each minute" : `every ${span(stepS)}`);

const WIDTH = 1000;
const HEIGHT = 70;
const MOST_STEPS = 120;

export function WaitedOverTime({ points, fromS, toS }: { points: PairPoint[]; fromS: number; toS: number }) {
  const { stepS, steps } = stepsOf(points, fromS, toS, MOST_STEPS);
  const most = steps.reduce((a, step) => Math.max(a, step.clientNs), 0);
  if (most === 0) return null;
  const start = Math.floor(fromS / stepS) * stepS;
  const length = Math.max(stepS, Math.ceil((toS - start) / stepS) * stepS);
  const x = (unixS: number) => ((unixS - start) / length) * WIDTH;
  const words = (step: Step) => `${dayAndClock(step.unixS)}, ${span(stepS)}${step.open ? ", not over yet" : ""}: ${duration(step.clientNs)} waited, ${duration(step.gapNs)} of it (${percent(Math.min(1, step.gapNs / step.clientNs))}) in the gap`;
  const ticks = timeTicks(start, start + length, 8).filter((tick) => tick - start > length * 0.04 && start + length - tick > length * 0.04);
  const open = steps.some((step) => step.open);
  return (
    <figure class="waited-over-time">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`What clients waited in ${eachWords(stepS)}: at most ${duration(most)}`}>
        {steps.map((step) => (
          <g key={step.unixS}>
            <title>{words(step)}</title>
            <Stacked x={x(step.unixS) + 0.5} width={Math.max(1, (stepS / length) * WIDTH - 1)} bottom={HEIGHT} height={Math.max(1, (step.clientNs / most) * (HEIGHT - 4))} gap={Math.min(1, step.gapNs / Math.max(1, step.clientNs))} name={step.open ? "step unfinished" : "step"} />
          </g>
        ))}
      </svg>
      <div class="timeline-axis" aria-hidden="true">
        {ticks.map((tick) => (
          <span key={tick} style={{ left: `${((tick - start) / length) * 100}%` }}>
            {length > 86_400 ? dayAndClock(tick).slice(5) : clock(tick)}
          </span>
        ))}
      </div>
      <figcaption class="legs-key">
        <span>
          What clients waited in {eachWords(stepS)}, at most {duration(most)}:
        </span>
        <WaitedKey />
        {open && <span>outlined: {stepS === 60 ? "a minute" : "a step"} that is not over</span>}
      </figcaption>
    </figure>
  );
}
