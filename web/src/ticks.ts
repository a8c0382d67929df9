// Where a time axis is labelled: whole minutes and hours of local time.

const STEPS_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440];

/** How far local time is behind UTC at a moment, in seconds. */
const zoneS = (unixS: number) => new Date(unixS * 1000).getTimezoneOffset() * 60;

/** At most `most` moments between two Unix times, in seconds. */
export function timeTicks(fromS: number, toS: number, most: number): number[] {
  const minutes = (toS - fromS) / 60;
  const stepS = 60 * (STEPS_MIN.find((step) => minutes / step <= Math.max(1, most)) ?? Math.ceil(minutes / most));
  const ticks: number[] = [];
  // In local time, so that midnight stays midnight where clocks change within the stretch; an hour that comes twice is labelled once.
  for (let local = Math.ceil((fromS - zoneS(fromS)) / stepS) * stepS; ; local += stepS) {
    const near = local + zoneS(fromS);
    const at = local + zoneS(near);
    if (at > toS) return ticks;
    if (at >= fromS && at > (ticks.at(-1) ?? -Infinity)) ticks.push(at);
  }
}
