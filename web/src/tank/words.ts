// What was measured and what it shows, in words. A sentence is made only when the figures bear it.

import { count, duration, percent } from "../format";
import { failed, rate, time, times } from "./figures";
import type { Run, TankReport } from "./report";
import { FIELDS, loadsOf, loadText, passes, spread, sweeps, varying, type Configuration, type Point, type Sweep } from "./sweep";

/** Throughput that grows by less than this share is said to have stopped. */
const GROWTH = 1.05;
/** p99 at one rate is worth a sentence when it is this many times that of a higher one. */
const PARADOX = 2;
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
  const repeats = Math.max(...runs.map((run) => run.repeat)) + 1;
  const rest = differs.filter((name) => !["stack", "call", "channels", "target"].includes(name)).map((name) => `${name} ${of(name)}`);
  return (
    `${count(runs.length)} run${runs.length === 1 ? "" : "s"} of ${length} against ${of("target")}: ${of("call")} calls by ${of("stack")}, ` +
    `channels ${of("channels")}, ${[...rest, ...kinds].join(", ")}${repeats > 1 ? `, ${repeats} times each` : ""}.`
  );
}

const throughputOf = (point: Point) => spread(point.runs, (run) => run.throughput_per_s).median;
const latencyOf = (point: Point) => spread(point.runs, (run) => run.latency.p99_ns).median;
const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** Channels made against connections that the kernel showed, where they differ. */
function connections(configuration: Configuration): string | null {
  const shared = configuration.points.flatMap((point) => point.runs).filter((run) => run.connections !== null && run.connections !== run.channels_made);
  const most = shared.reduce<Run | null>((found, run) => (found === null || run.channels_made > found.channels_made ? run : found), null);
  if (!most || most.connections === null) return null;
  return `${most.channels_made} channel${most.channels_made === 1 ? "" : "s"} made, ${most.connections} connection${most.connections === 1 ? "" : "s"} open`;
}

/** Where throughput stops growing, how far that is from linear; null without at least two loads. */
export function growth(configuration: Configuration): string | null {
  const [pass] = passes(configuration);
  const known = (pass?.points ?? []).map((point) => ({ load: point.load, value: throughputOf(point) })).filter((point): point is { load: number; value: number } => point.value !== null && !Number.isNaN(point.load));
  known.sort((a, b) => a.load - b.load);
  const [first, last] = [known[0], known.at(-1)];
  if (!first || !last || first.load === last.load || first.value === 0) return null;
  const most = Math.max(...known.map((point) => point.value));
  const knee = known.find((point) => point.value * GROWTH >= most) ?? last;
  const share = last.value / ((first.value / first.load) * last.load);
  const ofLinear = `at ${last.load} it is ${rate(last.value)}, ${percent(share)} of what growth in proportion would give`;
  if (knee.load === last.load) return `throughput still grows at ${last.load} in flight; ${ofLinear}`;
  return `throughput stops growing at ${knee.load} in flight (${rate(knee.value)}); ${ofLinear}`;
}

/** A rate whose p99 is much above that of a higher rate, and the first rate that was not kept. */
export function overRates(configuration: Configuration): string[] {
  const [pass] = passes(configuration);
  const points = (pass?.points ?? []).filter((point) => !Number.isNaN(point.load)).sort((a, b) => a.load - b.load);
  const known = points.map((point) => ({ load: point.load, p99: latencyOf(point) })).filter((point): point is { load: number; p99: number } => point.p99 !== null);
  const found: string[] = [];
  const high = known.reduce<(typeof known)[number] | null>((worst, point) => {
    const better = known.some((other) => other.load > point.load && other.p99 * PARADOX <= point.p99);
    return better && (worst === null || point.p99 > worst.p99) ? point : worst;
  }, null);
  if (high) {
    const beyond = known.filter((point) => point.load > high.load);
    const low = beyond.reduce((best, point) => (point.p99 < best.p99 ? point : best), high);
    found.push(`p99 falls as the rate rises: ${time(high.p99)} at ${rate(high.load)}, ${time(low.p99)} at ${rate(low.load)}`);
  }
  const short = points.find((point) => (throughputOf(point) ?? Infinity) < point.load * 0.98);
  if (short) found.push(`of ${rate(short.load)} asked, ${rate(throughputOf(short) ?? 0)} returned OK`);
  return found;
}

/** The configuration with the most throughput and the one with the least, at the largest load that all have. */
function apart(sweep: Sweep): string | null {
  if (sweep.kind !== "inflight" || sweep.configurations.length < 2) return null;
  const shared = loadsOf(sweep).filter((load) => sweep.configurations.every((one) => one.points.some((point) => point.load === load)));
  const load = shared.at(-1);
  if (load === undefined) return null;
  const at = sweep.configurations.map((one) => ({ label: one.label, point: one.points.find((point) => point.load === load) }));
  const known = at.map(({ label, point }) => ({ label, runs: point?.runs.length ?? 0, value: point ? throughputOf(point) : null })).filter((one): one is { label: string; runs: number; value: number } => one.value !== null && one.value > 0);
  if (known.length < 2) return null;
  known.sort((a, b) => b.value - a.value);
  const [best, worst] = [known[0], known.at(-1)];
  if (!best || !worst || best.value < worst.value * GROWTH) return null;
  const single = known.every((one) => one.runs === 1) ? "; one run each, so chance is not ruled out" : "";
  return `at ${loadText("inflight", load)} ${best.label} made ${rate(best.value)}, ${times(best.value / worst.value)} the ${rate(worst.value)} of ${worst.label}${single}`;
}

/** What the figures show, most telling first. */
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
