// What was measured and what it shows, in words. A sentence appears only if the figures support it.

import { count, duration, percent } from "../format";
import { failed, rate, time, times } from "./figures";
import type { Run, TankReport } from "./report";
import { FIELDS, loadsOf, loadText, passes, spread, sweeps, varying, type Configuration, type Point, type Sweep } from "./sweep";

/** Throughput that grows by less than this share counts as no longer growing. */
const GROWTH = 1.05;
/** p99 at one rate is worth a sentence if it is this many times that of a higher rate. */
const PARADOX = 2;
/** A rate counts as sustained if at least this share of its calls returned OK. */
const KEPT = 0.98;
const MOST_SENTENCES = 8;

const list = (values: string[]): string => [...new Set(values)].join(", ");

/** What was measured. */
export function measured(report: TankReport): string {
  const { runs } = report;
  const [first] = runs;
  if (!first) return "No run was made.";
  const differs = varying(runs).map(([name]) => name);
  const of = (name: string) => list(runs.map(FIELDS.find(([field]) => field === name)?.[1] ?? (() => "")));
  const lengths = [...new Set(runs.map((run) => duration(Math.round(run.duration_s * 10) * 1e8)))];
  const length = lengths.length === 1 ? lengths[0] : `${lengths[0]} and other lengths`;
  const kinds = sweeps(runs).map((sweep) => {
    const all = loadsOf(sweep);
    const [low, high] = [all[0], all.at(-1)];
    if (low === undefined || high === undefined) return "at an unknown load";
    if (low === high) return `at ${loadText(sweep.kind, low)}`;
    return sweep.kind === "rate" ? `at ${rate(low)} to ${rate(high)}` : `with ${low} to ${high} in flight`;
  });
  const points = sweeps(runs).flatMap((sweep) => sweep.configurations.flatMap((one) => one.points));
  const often = [...new Set(points.map((point) => point.runs.length))].sort((a, b) => a - b);
  const most = often.at(-1) ?? 1;
  const repeats = most === 1 ? "once each" : often.length === 1 ? `${most} times each` : `${often[0]} to ${most} times each`;
  const bothWays = points.some((point) => point.direction !== null) ? ", swept both ways" : "";
  const rest = differs.filter((name) => !["stack", "call", "channels", "target"].includes(name)).map((name) => `${name} ${of(name)}`);
  return (
    `${count(runs.length)} run${runs.length === 1 ? "" : "s"} of ${length} against ${of("target")}: ${of("call")} calls by ${of("stack")}, ` +
    `channels ${of("channels")}, ${[...rest, ...kinds].join(", ")}${bothWays}${runs.length > 1 ? `, ${repeats}` : ""}.`
  );
}

interface Known {
  load: number;
  median: number;
  low: number;
  high: number;
}

/** A figure at the loads where all repetitions have it, ascending. */
function known(points: Point[], pick: (run: Run) => number | null): Known[] {
  const all = points.flatMap(({ load, runs }) => {
    const { median, low, high } = spread(runs, pick);
    return median === null || low === null || high === null || Number.isNaN(load) ? [] : [{ load, median, low, high }];
  });
  return all.sort((a, b) => a.load - b.load);
}

const throughput = (run: Run) => run.throughput_per_s;
/** Whether every repetition of one exceeds every repetition of the other. */
const above = (one: Known, other: Known): boolean => one.low > other.high;
const lowest = (all: Known[]): Known | undefined => all.reduce<Known | undefined>((found, one) => (found && found.median <= one.median ? found : one), undefined);
const highest = (all: Known[]): Known | undefined => all.reduce<Known | undefined>((found, one) => (found && found.median >= one.median ? found : one), undefined);
const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** Maximum number of connections that the kernel showed at once; null if it was not asked. */
const opened = (run: Run): number | null => (run.sockets === null ? run.connections : Math.max(run.sockets.most_at_once, run.connections ?? 0));

/** Channels created compared with the connections that the kernel showed, if they differ. */
function connections(configuration: Configuration): string | null {
  const all = configuration.points.flatMap((point) => point.runs);
  const differing = all.filter((run) => opened(run) !== null && opened(run) !== run.channels_made && run.channels !== "per-call");
  const most = differing.reduce<Run | null>((found, run) => (found === null || run.channels_made > found.channels_made ? run : found), null);
  if (!most) return null;
  const n = opened(most);
  return `${most.channels_made} channel${most.channels_made === 1 ? "" : "s"} made, ${n} connection${n === 1 ? "" : "s"} opened`;
}

/** Where throughput stops growing, and how far it is below linear growth; null without at least two loads. */
export function growth(configuration: Configuration): string | null {
  const [pass] = passes(configuration);
  const all = known(pass?.points ?? [], throughput);
  const [first, last, most] = [all[0], all.at(-1), highest(all)];
  if (!first || !last || !most || first.load === last.load || first.median === 0) return null;
  if (most !== first && !above(most, first)) return "repetitions differ too much to tell whether throughput grows";
  const knee = all.find((one) => one.median * GROWTH >= most.median) ?? last;
  const share = last.median / ((first.median / first.load) * last.load);
  const ofLinear = `at ${last.load} it is ${rate(last.median)}, ${percent(share)} of what growth in proportion would give`;
  if (knee.load === last.load) return `throughput still grows at ${last.load} in flight; ${ofLinear}`;
  return `throughput stops growing at ${knee.load} in flight (${rate(knee.median)}); ${ofLinear}`;
}

/** A rate whose p99 is far above that of a higher rate, and the first rate that was not sustained. */
export function overRates(configuration: Configuration): string[] {
  const [pass] = passes(configuration);
  const p99s = known(pass?.points ?? [], (run) => run.latency.p99_ns);
  const found: string[] = [];
  const beyond = (one: Known) => p99s.filter((other) => other.load > one.load && other.median * PARADOX <= one.median && above(one, other));
  const worst = highest(p99s.filter((one) => beyond(one).length > 0));
  const best = worst && lowest(beyond(worst));
  if (worst && best) found.push(`p99 falls as the rate rises: ${time(worst.median)} at ${rate(worst.load)}, ${time(best.median)} at ${rate(best.load)}`);
  const short = known(pass?.points ?? [], throughput).find((one) => one.high < one.load * KEPT);
  if (short) found.push(`of ${rate(short.load)} asked, ${rate(short.median)} returned OK`);
  return found;
}

/** The configuration with the most throughput and the one with the least, at the largest load that all have. */
function apart(sweep: Sweep): string | null {
  if (sweep.kind !== "inflight" || sweep.configurations.length < 2) return null;
  const shared = loadsOf(sweep).filter((load) => sweep.configurations.every((one) => one.points.some((point) => point.load === load)));
  const load = shared.at(-1);
  if (load === undefined) return null;
  const at = sweep.configurations.flatMap((one) => {
    const points = one.points.filter((point) => point.load === load);
    return known(points.slice(0, 1), throughput).map((figure) => ({ label: one.label, runs: points[0]?.runs.length ?? 0, figure }));
  });
  const [best, worst] = [highest(at.map((one) => one.figure)), lowest(at.map((one) => one.figure))];
  const labelOf = (figure: Known) => at.find((one) => one.figure === figure)?.label ?? "";
  if (!best || !worst || at.length < 2 || worst.median === 0 || best.median < worst.median * GROWTH) return null;
  if (!above(best, worst)) return `at ${loadText("inflight", load)} configurations differ no more than their repetitions do`;
  const single = at.every((one) => one.runs === 1) ? "; one run each, so chance is not ruled out" : "";
  return `at ${loadText("inflight", load)} ${labelOf(best)} made ${rate(best.median)}, ${times(best.median / worst.median)} the ${rate(worst.median)} of ${labelOf(worst)}${single}`;
}

/** What the figures show, most significant first. */
export function findings(report: TankReport): string[] {
  const found: string[] = [];
  const errors = report.runs.reduce((sum, run) => sum + failed(run), 0);
  if (errors > 0) found.push(`${count(errors)} of ${count(report.runs.reduce((sum, run) => sum + run.calls, 0))} calls failed`);
  for (const sweep of sweeps(report.runs)) {
    const between = apart(sweep);
    if (between) found.push(capital(between));
    for (const one of sweep.configurations) {
      const own = [connections(one), ...(sweep.kind === "inflight" ? [growth(one)] : overRates(one))].filter((text): text is string => text !== null);
      if (own.length > 0) found.push(one.label === "" ? capital(own.join("; ")) : `${one.label}: ${own.join("; ")}`);
    }
  }
  const all = found.map((text) => `${text}.`);
  if (all.length <= MOST_SENTENCES) return all;
  return [...all.slice(0, MOST_SENTENCES), `${all.length - MOST_SENTENCES} more configurations are in the charts and the table.`];
}
