// Axes of the charts: their ranges and labels.

import { axisDurations, axisLabel, shortCount } from "../format";
import type { Axis } from "./chart";

type Values = (number | null)[];

const known = (values: Values[]): number[] => values.flat().filter((value): value is number => value !== null && Number.isFinite(value));

/** From 0 to slightly above the largest. */
export function linear(values: Values[], label: (value: number) => string): Axis {
  const most = Math.max(0, ...known(values)) || 1;
  return { log: false, range: [0, most * 1.06], ticks: roundTicks, label };
}

/** With a margin at both ends, and at least a factor of four between them; zeros cannot be shown. */
export function logarithmic(values: Values[], label: (value: number) => string, spare = 1.25): Axis {
  const positive = known(values).filter((value) => value > 0);
  if (positive.length === 0) return { log: true, range: [1, 10], ticks: axisDurations, label };
  const [low, high] = [Math.min(...positive), Math.max(...positive)];
  const room = Math.max(spare, Math.sqrt(4 / (high / low)));
  return { log: true, range: [low / room, high * room], ticks: axisDurations, label };
}

/** Durations, logarithmic. */
export const durations = (values: Values[]): Axis => logarithmic(values, (ns) => (ns ? axisLabel(ns) : ""));

/** Loads: labelled at their points, as far as there is room. */
export function loads(x: number[], log: boolean, label: (value: number) => string): Axis {
  const base = log ? logarithmic([x], label, 1.15) : linear([x], label);
  const place = (value: number) => {
    const [low, high] = base.range;
    return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  };
  const ticks = (_low: number, _high: number, most: number): number[] => {
    const chosen: number[] = [];
    // From the right: the largest load matters most.
    for (const value of [...x].reverse()) {
      const next = chosen[0];
      if (next === undefined || place(next) - place(value) >= 0.75 / most) chosen.unshift(value);
    }
    return chosen;
  };
  return { ...base, ticks };
}

/** Steps of 1, 2 or 5 times a power of ten. */
export function roundTicks(low: number, high: number, most: number): number[] {
  const rough = (high - low) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5].find((n) => n * power >= rough) ?? 10) * power;
  const ticks: number[] = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

/** Short form of counts. */
export const shortLabel = (value: number): string => (value < 1 && value !== 0 ? String(Number(value.toPrecision(2))) : (Number.isInteger(value) || value >= 1_000 ? shortCount(value) : String(Number(value.toPrecision(3)))).replace(/\.0+(?=\D|$)/, ""));
