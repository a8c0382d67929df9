// Blocks with and without the remedy on one axis, and the effect next to the predicted one.

import type { Arm, ExperimentReport } from "./experiment_api";
import { isOver } from "./experiment_words";
import { axisDurations, axisLabel, count, duration } from "./format";

const WIDTH = 720;
const LEFT = 74;
const RIGHT = 16;
const ROW = 26;
/** Half of what the longest label of the effect takes on a phone, where letters are large. */
const LABEL_ROOM = 130;

const armWords = (arm: Arm) =>
  arm.calls === 0 ? "no calls" : `median ${duration(arm.p50_ns)}${arm.p50_ci95_ns ? ` (${duration(arm.p50_ci95_ns[0])} to ${duration(arm.p50_ci95_ns[1])})` : ""}, 99th percentile ${duration(arm.p99_ns)}, mean ${duration(arm.mean_ns)}, ${count(arm.calls)} calls`;

function ArmMarks({ arm, x, y, name }: { arm: Arm; x: (ns: number) => number; y: number; name: string }) {
  if (arm.calls === 0) return null;
  const [low, high] = arm.p50_ci95_ns ?? [arm.p50_ns, arm.p50_ns];
  return (
    <g class={`arm ${name}`}>
      <title>{armWords(arm)}</title>
      <line class="to-p99" x1={x(arm.p50_ns)} x2={x(arm.p99_ns)} y1={y} y2={y} />
      <line class="p99" x1={x(arm.p99_ns)} x2={x(arm.p99_ns)} y1={y - 3} y2={y + 3} />
      <line class="ci" x1={x(low)} x2={Math.max(x(high), x(low) + 1)} y1={y} y2={y} />
      <circle cx={x(arm.p50_ns)} cy={y} r="3" />
    </g>
  );
}

/** One row per block: with the remedy above, without it below. The axis is logarithmic. */
export function BlocksChart({ experiment, usualNs }: { experiment: ExperimentReport; usualNs?: number | undefined }) {
  const { blocks } = experiment;
  const arms = blocks.flatMap((block) => [block.treated, block.control]).filter((arm) => arm.calls > 0);
  const ends = arms.flatMap((arm) => [arm.p50_ci95_ns?.[0] ?? arm.p50_ns, arm.p99_ns]);
  if (usualNs) ends.push(usualNs);
  const low = Math.max(1, Math.min(...ends)) * 0.8;
  const high = Math.max(low * 2, Math.max(...ends) * 1.25);
  const x = (ns: number) => LEFT + (Math.log(Math.max(ns, low) / low) / Math.log(high / low)) * (WIDTH - LEFT - RIGHT);
  const bottom = blocks.length * ROW + 6;
  const over = isOver(experiment);
  const now = experiment.in_force?.block;
  return (
    <svg class="blocks" viewBox={`0 0 ${WIDTH} ${bottom + 20}`} role="img" aria-label={`Durations of calls in ${blocks.length} blocks, with the remedy and without; the table below has the same figures`}>
      {arms.length > 0 &&
        axisDurations(low, high, 7).map((ns) => (
          <g key={ns}>
            <line class="grid" x1={x(ns)} x2={x(ns)} y1="0" y2={bottom} />
            <text x={x(ns)} y={bottom + 14} text-anchor="middle">
              {axisLabel(ns)}
            </text>
          </g>
        ))}
      {usualNs !== undefined && arms.length > 0 && (
        <line class="usual" x1={x(usualNs)} x2={x(usualNs)} y1="0" y2={bottom}>
          <title>as usual: {duration(usualNs)} in the mean</title>
        </line>
      )}
      {blocks.map((block, at) => {
        const y = at * ROW + 6;
        const waiting = block.to_unix_ms === 0;
        return (
          <g key={at}>
            {now === at + 1 && !over && <rect class="now" x="0" y={y - 5} width={WIDTH} height={ROW - 2} />}
            <text class={waiting ? "to-come" : ""} x="0" y={y + 12}>
              block {at + 1}
            </text>
            {waiting ? (
              <text class="to-come" x={LEFT} y={y + 12}>
                {now === at + 1 && !over ? "under way" : over ? (experiment.is_early ? "not needed" : "not made") : "to come"}
              </text>
            ) : (
              <>
                <ArmMarks arm={block.treated} x={x} y={y + 4} name="treated" />
                <ArmMarks arm={block.control} x={x} y={y + 14} name="control" />
                {block.treated.calls + block.control.calls === 0 && (
                  <text class="to-come" x={LEFT} y={y + 12}>
                    no calls yet
                  </text>
                )}
              </>
            )}
          </g>
        );
      })}
    </svg>
  );
}

/** The effect as an interval, on an axis that includes zero and the prediction. */
export function EffectChart({ experiment }: { experiment: ExperimentReport }) {
  const { effect_ns: effect, predicted_ns: predicted } = experiment;
  if (!effect || predicted === undefined) return null;
  const least = Math.min(0, effect.low, predicted);
  const most = Math.max(0, effect.high, predicted);
  const room = Math.max(1, most - least) * 0.06;
  const x = (ns: number) => LEFT + ((ns - least + room) / (most - least + 2 * room)) * (WIDTH - LEFT - RIGHT);
  // A label may not run out of the drawing, nor into another one.
  const isCramped = x(predicted) - x(0) < LABEL_ROOM;
  const anchor = (ns: number) => (x(ns) > WIDTH - LABEL_ROOM ? "end" : x(ns) < LEFT + LABEL_ROOM / 2 ? "start" : "middle");
  const mark = (ns: number, name: string, words: string, high: boolean) => (
    <g class={name}>
      <line x1={x(ns)} x2={x(ns)} y1="14" y2="44" />
      <text x={x(ns)} y={high ? 10 : 58} text-anchor={anchor(ns)}>
        {words}
      </text>
    </g>
  );
  return (
    <svg class="effect" viewBox={`0 0 ${WIDTH} 64`} role="img" aria-label={`Effect: ${duration(effect.mid)} off the mean duration of a call, 95 % interval ${duration(effect.low)} to ${duration(effect.high)}; predicted ${duration(predicted)}`}>
      {mark(0, "zero", "no effect", true)}
      {predicted > 0 && !isCramped && mark(predicted / 2, "half", "half of it", false)}
      {mark(predicted, "predicted", `predicted ${duration(predicted)}`, !isCramped)}
      <text x="0" y="33">
        effect
      </text>
      <rect class={`reach ${experiment.outcome}`} x={x(effect.low)} y="24" width={Math.max(2, x(effect.high) - x(effect.low))} height="10" />
      <circle class={experiment.outcome} cx={x(effect.mid)} cy="29" r="5" />
    </svg>
  );
}
