// Where a time axis is labelled: whole minutes and hours of local time.

const STEPS_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];

/** At most `most` moments between two Unix times, in seconds. */
export function timeTicks(fromS: number, toS: number, most: number): number[] {
  const minutes = (toS - fromS) / 60;
  const stepS = 60 * (STEPS_MIN.find((step) => minutes / step <= Math.max(1, most)) ?? Math.ceil(minutes / most));
  const zoneS = new Date(fromS * 1000).getTimezoneOffset() * 60;
  const first = Math.ceil((fromS - zoneS) / stepS) * stepS + zoneS;
  const ticks: number[] = [];
  for (let at = first; at <= toS; at += stepS) ticks.push(at);
  return ticks;
}
