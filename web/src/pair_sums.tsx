// What all calls of a pair sum up to: distributions, the mean call's legs, and what is counted apart.

import type { LegReport, PairRow, Quantiles } from "./api";
import { count, duration, interval, percent } from "./format";
import { statusHint, statusWord } from "./worst";

/** What clients waited, in all. */
export const waitedNs = (client: Quantiles) => client.mean_ns * client.count;

/** Which part of the time that the client waited lies between the two spans. */
export function lostShare(row: PairRow): number | null {
  const waited = waitedNs(row.client_duration);
  return waited > 0 ? Math.min(1, row.lost_ns_total / waited) : null;
}

interface Distribution {
  label: string;
  hint: string;
  quantiles: Quantiles;
  bound?: LegReport;
}

function distributions(total: PairRow): Distribution[] {
  const rows: Distribution[] = [
    { label: "gap", hint: "client duration minus server duration", quantiles: total.gap },
    { label: "client", hint: "durations of the CLIENT spans", quantiles: total.client_duration },
    { label: "server", hint: "durations of the SERVER spans", quantiles: total.server_duration },
  ];
  const leg = (label: string, hint: string, report: LegReport | undefined) => {
    if (report) rows.push({ label, hint, quantiles: report, bound: report });
  };
  leg("request leg", "client start to server start", total.request_leg);
  leg("response leg", "server end to client end", total.response_leg);
  // Nothing arrives in a file.
  if (total.mate_delay.count > 0) rows.push({ label: "mate delay", hint: "time between the arrivals of the two spans at the meter", quantiles: total.mate_delay });
  return rows;
}

const FIGURES: { label: string; value: (q: Quantiles) => number; ci95?: (q: Quantiles) => [number, number] }[] = [
  { label: "p50", value: (q) => q.p50_ns, ci95: (q) => q.p50_ci95_ns },
  { label: "p90", value: (q) => q.p90_ns },
  { label: "p95", value: (q) => q.p95_ns },
  { label: "p99", value: (q) => q.p99_ns, ci95: (q) => q.p99_ci95_ns },
  { label: "p99.9", value: (q) => q.p999_ns },
  { label: "max", value: (q) => q.max_ns },
  { label: "mean", value: (q) => q.mean_ns },
];

/** `where` tells tables of several pairs on one page apart. */
export function Distributions({ total, where = "" }: { total: PairRow; where?: string }) {
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label={`Distributions${where}`}>
      <table class="distributions">
        <thead>
          <tr>
            <th scope="col">duration</th>
            <th scope="col" class="number">
              calls
            </th>
            {FIGURES.map(({ label }) => (
              <th key={label} scope="col" class="number">
                {label}
              </th>
            ))}
            <th scope="col" class="number" title="how far a figure may be off because the two hosts' clocks differ">
              clocks
            </th>
          </tr>
        </thead>
        <tbody>
          {distributions(total).map(({ label, hint, quantiles: q, bound }) => (
            <tr key={label}>
              <th scope="row" title={hint}>
                {label}
              </th>
              <td class="number">{count(q.count)}</td>
              {FIGURES.map(({ label: figure, value, ci95 }) => (
                <td key={figure} class="number">
                  {q.count === 0 ? "–" : duration(value(q))}
                  {q.count > 0 && ci95 && <span class="interval"> ({interval(value(q), ci95(q))})</span>}
                </td>
              ))}
              {bound && bound.bound_ns > 0 ? (
                <td class="number" title={`each figure is true to within this; on average to within ± ${duration(bound.bound_mean_ns)}`}>
                  ± {duration(bound.bound_ns)}
                </td>
              ) : (
                <td class="number quiet">{label === "mate delay" ? "1 ms steps" : "exact"}</td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function legsRemark(total: PairRow): string {
  const { request_leg: request, response_leg: response } = total;
  if (!request || !response) {
    return "Request and response leg are unknown: a leg needs both hosts' names and enough calls between them to know how far their clocks are apart. The gap itself needs no common clock.";
  }
  const known = request.count < total.calls ? `${count(request.count)} of ${count(total.calls)} calls have legs. ` : "";
  if (request.count === 0) return `${known}No call's clock offset is known.`;
  const apart = Math.abs(request.p50_ns - response.p50_ns);
  if (apart <= 2 * Math.max(request.bound_mean_ns, response.bound_mean_ns)) {
    return `${known}The legs' medians differ by ${duration(apart)}, less than the clocks can resolve: which direction is slower is unknown.`;
  }
  const slower = request.p50_ns > response.p50_ns ? "request" : "response";
  return `${known}In the median the ${slower} leg is the longer one by ${duration(apart)}, more than the clocks' uncertainty.`;
}

/** Mean time of a call in each leg, with what the clocks leave open between them. */
export function Legs({ total }: { total: PairRow }) {
  const { request_leg: request, response_leg: response } = total;
  const server = total.server_duration.mean_ns;
  const legs = request && response && request.count > 0;
  const parts: [string, string, number][] = legs ? [["request", "request leg", request.mean_ns], ["server", "server", server], ["response", "response leg", response.mean_ns]] : [["server", "server", server], ["gap", "gap", total.gap.mean_ns]];
  const whole = Math.max(1, parts.reduce((sum, [, , ns]) => sum + ns, 0));
  const bound = legs ? request.bound_mean_ns : 0;
  let x = 0;
  return (
    <div class="legs">
      <svg viewBox="0 0 1000 26" preserveAspectRatio="none" role="img" aria-label={parts.map(([, label, ns]) => `${label} ${duration(ns)}`).join(", ")}>
        {parts.map(([name, , ns]) => {
          x += (ns / whole) * 1000;
          return <rect key={name} class={`leg-${name}`} x={x - (ns / whole) * 1000} y="3" width={(ns / whole) * 1000} height="20" />;
        })}
        {legs &&
          bound > 0 &&
          [request.mean_ns, request.mean_ns + server].map((at) => {
            const [low, high] = [Math.max(0, at - bound), Math.min(whole, at + bound)];
            return <rect key={at} class="bound" x={(low / whole) * 1000} y="0" width={Math.max(1, ((high - low) / whole) * 1000)} height="26" />;
          })}
      </svg>
      <p class="legs-key">
        Mean call:{" "}
        {parts.map(([name, label, ns]) => (
          <span key={name}>
            <i class={`key leg-${name}`} /> {label} {duration(ns)}
            {name === "request" || name === "response" ? (bound > 0 ? ` ± ${duration(bound)}` : "") : ""}
          </span>
        ))}
        {legs && bound > 0 && (
          <span>
            <i class="key bound" /> where the boundary may lie, as far as the clocks tell
          </span>
        )}
      </p>
      <p class="remark">{legsRemark(total)}</p>
    </div>
  );
}

export function Apart({ total }: { total: PairRow }) {
  const statuses = Object.entries(total.negative_by_status).sort((a, b) => b[1] - a[1]);
  const row = (label: string, n: number, hint: string, indent = false) => (
    <tr key={label} class={indent ? "indent" : ""}>
      <th scope="row" title={hint}>
        {label}
      </th>
      <td class="number">{count(n)}</td>
    </tr>
  );
  return (
    <table class="apart">
      <caption>Calls counted apart</caption>
      <tbody>
        {row("negative gap", total.negative, "the server span was the longer one: timeouts, cancellations, work after the reply")}
        {statuses.map(([status, n]) => row(statusWord(status), n, statusHint(status), true))}
        {row("more than one attempt", total.attempts_over_one, "several SERVER spans under one CLIENT span")}
        {row("large response", total.excluded_large, `excluded because marshalling would count into the gap; the size is known of ${percent(total.size_known_ratio)} of the calls`)}
      </tbody>
    </table>
  );
}
