// Figures as text: three significant digits, the unit beside them.

const UNITS: [number, string][] = [
  [86_400e9, "d"],
  [3_600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "us"],
  [1, "ns"],
];

const THIN = "\u202f";

/** A whole number such as `1,234,567`, as the meter writes it in its sentences. */
const thousands = (value: number) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");

/** Three significant digits without an exponent; whole digits are never rounded away. */
export function significant(value: number): string {
  if (value === 0) return "0";
  // Rounded first: 9.996 has the digits of 10.0.
  const size = Math.abs(Number(value.toPrecision(3)));
  if (size >= 100) return thousands(value);
  return value.toFixed(size >= 10 ? 1 : size >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(size))));
}

function unitOf(ns: number): [number, string] {
  const size = Math.abs(ns);
  // A value that would read 1000 of one unit is one of the next.
  for (const [factor, name] of UNITS) {
    const digits = factor <= 1e9 ? 0.9995 : 1;
    if (size >= factor * digits) return [factor, name];
  }
  return [1, "ns"];
}

function inUnit(ns: number, factor: number): string {
  // Below a nanosecond nothing is measured.
  return factor === 1 ? Math.round(ns).toString() : significant(ns / factor);
}

/** A duration such as `9.81 ms`, `1.25 s`, `42.0 min`. */
export function duration(ns: number): string {
  if (!Number.isFinite(ns)) return "–";
  if (ns === 0) return "0";
  const [factor, name] = unitOf(ns);
  return `${inUnit(ns, factor).replace("-", "−")}${THIN}${name}`;
}

/** Below this part of its value's unit, an end of an interval has a unit of its own. */
const OWN_UNIT_BELOW = 0.01;
const OWN_UNIT_ABOVE = 10_000;

/** An interval in the unit of its value, without it: `9.10–10.6` beside `9.81 ms`. Ends far from it have their own. */
export function interval(valueNs: number, [lowNs, highNs]: [number, number]): string {
  const [factor] = unitOf(valueNs);
  const far = (ns: number) => ns !== 0 && (ns < factor * OWN_UNIT_BELOW || ns >= factor * OWN_UNIT_ABOVE);
  if (far(lowNs) || far(highNs)) return [lowNs, highNs].map(duration).join(lowNs < 0 ? " to " : "–");
  const ends = [lowNs, highNs].map((ns) => inUnit(ns, factor).replace("-", "−"));
  // A dash between negative figures would read as one of their signs.
  return ends.join(lowNs < 0 ? " to " : "–");
}

/** A difference with its sign: `+46.0 ms`, `−1.20 s`, `±0`. */
export function change(ns: number): string {
  if (ns === 0) return "±0";
  return `${ns > 0 ? "+" : "−"}${duration(Math.abs(ns))}`;
}

/** What is lost in each second of time: `0.46 s/s`. */
export function rate(ns: number, seconds: number): string {
  return `${duration(ns / Math.max(1, seconds))}/s`;
}

/** What has no shape of its own, or turns round what stands beside it; joiners are part of words and of emoji. */
const UNSEEN = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A name as one can see it: characters without a shape are spelt out, and a name of spaces stands in quotes. */
export function visible(name: string): string {
  const spelt = name.replace(UNSEEN, (one) => `‹U+${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}›`);
  return spelt.trim() === "" ? `“${spelt}”` : spelt;
}

/** A number of any kind: whole ones as counts, others with three significant digits. */
export const figure = (value: number): string => (Number.isInteger(value) && value >= 0 ? count(value) : significant(value).replace("-", "−"));

/** A count such as `1,234,567`. */
export const count = thousands;

/** A count with what is counted: `1 call`, `1,234 calls`. */
export const counted = (value: number, what: string): string => `${count(value)} ${what}${value === 1 ? "" : "s"}`;

/** A count in little room: `12.3 k`, `4.56 M`. */
export function shortCount(value: number): string {
  if (value < 10_000) return count(value);
  for (const [factor, name] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (value >= factor * 0.9995) return `${significant(value / factor)}${THIN}${name}`;
  }
  return count(value);
}

/** A share such as `99.8 %`; never `100 %` or `0 %` unless it is exactly that. */
export function percent(share: number | null): string {
  if (share === null || !Number.isFinite(share)) return "–";
  const value = share * 100;
  if (value === 0 || value === 100) return `${value}${THIN}%`;
  // The end of an interval may lie above the whole.
  if (value > 100) return `${value.toFixed(value < 101 ? 1 : 0)}${THIN}%`;
  if (value > 99) {
    // Rounded down, so that the last missing spans stay visible.
    const digits = value > 99.99 ? 3 : value > 99.9 ? 2 : 1;
    return `${(Math.floor(value * 10 ** digits) / 10 ** digits).toFixed(digits)}${THIN}%`;
  }
  if (value < 0.01) return `<${THIN}0.01${THIN}%`;
  return `${value >= 10 ? value.toFixed(1) : value.toFixed(2)}${THIN}%`;
}

/** A size such as `1.25 GiB`. */
export function bytes(value: number): string {
  for (const [factor, name] of [
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
  ] as const) {
    if (value >= factor) return `${significant(value / factor)}${THIN}${name}`;
  }
  return `${value}${THIN}B`;
}

/** A length of time in two units at most: `3 h 12 min`. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  const parts: [number, string][] = [
    [Math.floor(s / 86_400), "d"],
    [Math.floor(s / 3_600) % 24, "h"],
    [Math.floor(s / 60) % 60, "min"],
    [s % 60, "s"],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return `0${THIN}s`;
  return parts
    .slice(first, first + 2)
    .filter(([n]) => n > 0)
    .map(([n, unit]) => `${n}${THIN}${unit}`)
    .join(" ");
}

const two = (n: number) => String(n).padStart(2, "0");

/** Time of day, local: `14:05`. */
export function clock(unixS: number): string {
  const at = new Date(unixS * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** Day and time of day, local: `2026-03-01 14:05`. */
export function dayAndClock(unixS: number): string {
  const at = new Date(unixS * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(unixS)}`;
}

/** A stretch, with its day once if it is one: `2026-03-01 14:05 – 14:20`. */
export function stretchWords({ from, to }: { from: number; to: number }, between = "–"): string {
  const [first, last] = [dayAndClock(from), dayAndClock(to)];
  return `${first} ${between} ${first.slice(0, 10) === last.slice(0, 10) ? clock(to) : last}`;
}

/** A moment to the microsecond, local: `14:05:09.123456`. */
export function moment(unixNs: bigint): string {
  const at = new Date(Number(unixNs / 1_000_000n));
  const micros = String((unixNs / 1_000n) % 1_000_000n).padStart(6, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${micros}`;
}

/** Durations that a logarithmic axis is labelled with, between two values. */
export function axisDurations(lowNs: number, highNs: number, most: number): number[] {
  const decades = Math.log10(highNs / lowNs);
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    if (decades * steps.length > most && steps.length > 1) continue;
    const ticks: number[] = [];
    for (let power = Math.floor(Math.log10(lowNs)); power <= Math.ceil(Math.log10(highNs)); power++) {
      for (const step of steps) {
        const tick = step * 10 ** power;
        if (tick >= lowNs && tick <= highNs) ticks.push(tick);
      }
    }
    const every = Math.max(1, Math.ceil(ticks.length / most));
    return ticks.filter((_, i) => i % every === 0);
  }
  return [];
}

/** An axis label: round values without trailing zeros, `10 ms`, `500 us`. */
export function axisLabel(ns: number): string {
  const [factor, name] = unitOf(ns);
  return `${Number((ns / factor).toPrecision(3))}${THIN}${name}`;
}
