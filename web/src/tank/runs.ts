// The table of all runs, with everything; sortable.

import { el } from "../dom";
import { count, dayAndClock, duration } from "../format";
import { cpuPerCallUs, digits, failed, floorRatio, perCall, rate, time, times, whole } from "./figures";
import type { Run } from "./report";
import { kindOf, loadOf, loadText, varying } from "./sweep";

interface Column {
  name: string;
  title: string;
  /** What is sorted by; null sorts last. */
  key: (run: Run, index: number) => number | string | null;
  text: (run: Run, index: number) => string;
  left?: boolean;
}

const quantity = (name: string, title: string, key: (run: Run) => number | null, text: (value: number | null) => string): Column => ({ name, title, key, text: (run) => text(key(run)) });

const FIGURES: Column[] = [
  { name: "Load", title: "Calls in flight at any time, or calls due per second", key: loadOf, text: (run) => loadText(kindOf(run), loadOf(run)), left: true },
  quantity("Repeat", "Which repetition", (run) => run.repeat + 1, whole),
  quantity("OK/s", "OK calls per second", (run) => run.throughput_per_s, (value) => rate(value ?? 0)),
  quantity("p50", "Latency of OK calls", (run) => run.latency.p50_ns, time),
  quantity("p90", "Latency of OK calls", (run) => run.latency.p90_ns, time),
  quantity("p99", "Latency of OK calls", (run) => run.latency.p99_ns, time),
  quantity("p99.9", "Latency of OK calls", (run) => run.latency.p999_ns, time),
  quantity("p99.99", "Latency of OK calls", (run) => run.latency.p9999_ns, time),
  quantity("Max", "Latency of OK calls", (run) => run.latency.max_ns, time),
  quantity("Mean", "Latency of OK calls", (run) => run.latency.mean_ns, time),
  quantity("Send p50", "From the actual send to the response", (run) => run.latency_from_send.p50_ns, time),
  quantity("Send p99", "From the actual send to the response", (run) => run.latency_from_send.p99_ns, time),
  quantity("Late p50", "From the due time to the send; n/a in a closed loop", (run) => run.lateness?.p50_ns ?? null, time),
  quantity("Late p99", "From the due time to the send; n/a in a closed loop", (run) => run.lateness?.p99_ns ?? null, time),
  quantity("Late max", "From the due time to the send; n/a in a closed loop", (run) => run.lateness?.max_ns ?? null, time),
  quantity("Due", "Calls due: made and skipped", (run) => run.scheduled, whole),
  quantity("Calls", "Calls made, whatever came of them", (run) => run.calls, whole),
  quantity("Failed", "Calls made that did not return OK", failed, whole),
  quantity("Skipped", "Calls not made: as many as allowed were waiting", (run) => run.skipped_overload, whole),
  { name: "Slow", title: "Calls that took longer than the threshold from their send", key: (run) => run.slow, text: (run) => `${count(run.slow)} over ${duration(run.slow_over_ns)}` },
  quantity("Warm-up failed", "Calls of the warm-up that did not return OK", (run) => run.warmup_errors, whole),
  quantity("Channels", "Channels that the client made", (run) => run.channels_made, whole),
  quantity("Connections", "TCP connections at the end, by the kernel's count", (run) => run.connections, whole),
  quantity("At once", "Most connections established at once", (run) => run.sockets?.most_at_once ?? null, whole),
  quantity("Seen", "Different connections seen", (run) => run.sockets?.seen ?? null, whole),
  { name: "TCP_NODELAY", title: "Connections with it on and off, at the end", key: (run) => run.sockets?.nodelay_on ?? null, text: nodelay },
  quantity("Min RTT", "Smallest round trip that TCP saw", (run) => run.sockets?.min_rtt_ns ?? null, time),
  quantity("Resent", "Segments sent again", (run) => run.sockets?.retransmitted_segments ?? null, whole),
  { name: "Congestion", title: "Congestion control", key: (run) => run.sockets?.congestion_control ?? null, text: (run) => run.sockets?.congestion_control ?? "n/a" },
  { name: "Stream limit", title: "SETTINGS_MAX_CONCURRENT_STREAMS of the target", key: (run) => run.streams?.limit_per_connection ?? null, text: (run) => (run.streams ? (run.streams.limit_per_connection === null ? "none" : count(run.streams.limit_per_connection)) : "n/a") },
  quantity("Queued by it", "Calls in flight that have to wait for a stream", (run) => run.streams?.queued_by_limit ?? null, whole),
  quantity("Target peak", "Most calls that the target handled at once", (run) => run.streams?.target_peak_in_progress ?? null, whole),
  quantity("CPU client", "CPU microseconds per call, client's process", (run) => cpuPerCallUs(run.cpu_client_s, run), (us) => `${digits(us)}${us === null ? "" : " us"}`),
  quantity("CPU target", "CPU microseconds per call, target's process", (run) => cpuPerCallUs(run.cpu_target_s, run), (us) => `${digits(us)}${us === null ? "" : " us"}`),
  quantity("Switches", "Context switches per call, client", (run) => perCall(run.context_switches, run), digits),
  quantity("… target", "Context switches per call, target", (run) => perCall(run.context_switches_target, run), digits),
  quantity("Floor/s", "Raw ping-pong over loopback under the same load", (run) => run.floor?.throughput_per_s ?? null, (value) => (value === null ? "n/a" : rate(value))),
  quantity("Floor p50", "Raw ping-pong over loopback under the same load", (run) => run.floor?.latency.p50_ns ?? null, time),
  quantity("p50 / floor", "Latency p50 over that of the raw floor", floorRatio, times),
  quantity("Records lost", "Records of calls that found no room in the client", (run) => run.records_dropped, whole),
  quantity("Length", "Measured time", (run) => run.duration_s, (s) => `${digits(s)} s`),
  { name: "Began", title: "Beginning of the measured phase, local time", key: (run) => run.start_unix_ns, text: (run) => (run.start_unix_ns === null ? "never" : dayAndClock(run.start_unix_ns / 1e9)) },
  { name: "Library", title: "Library that made the calls", key: (run) => run.library, text: (run) => run.library, left: true },
  { name: "Target stack", title: "Stack that served, by the target's own account", key: (run) => run.target_stack, text: (run) => run.target_stack ?? "n/a", left: true },
  { name: "Target library", title: "Library that served", key: (run) => run.target_library, text: (run) => run.target_library ?? "n/a", left: true },
];

function nodelay(run: Run): string {
  const { sockets } = run;
  if (!sockets || sockets.nodelay_on === null || sockets.nodelay_off === null) return "n/a";
  return `${sockets.nodelay_on} on, ${sockets.nodelay_off} off${sockets.nodelay_forced ? ", set live" : ""}`;
}

/** The table of these runs. */
export function runsTable(runs: Run[]): HTMLElement {
  const asked = varying(runs).map(([name, of]): Column => ({ name: name.charAt(0).toUpperCase() + name.slice(1), title: `What was asked: ${name}`, key: of, text: of, left: true }));
  const columns: Column[] = [{ name: "Run", title: "In the order in which they ran", key: (_run, i) => i, text: (_run, i) => String(i + 1) }, ...asked, ...FIGURES];
  const body = el("tbody");
  let [by, descending] = [0, false];
  const headings = columns.map((column, i) => {
    const button = el("button", { type: "button", title: column.title }, column.name);
    button.addEventListener("click", () => {
      [by, descending] = i === by ? [by, !descending] : [i, !column.left && i > 0];
      draw();
    });
    return el("th", { scope: "col", class: column.left ? null : "number" }, button);
  });
  function draw(): void {
    const key = columns[by]?.key;
    const order = runs.map((run, i) => ({ run, i, key: key ? key(run, i) : i }));
    order.sort((a, b) => compare(a.key, b.key, descending) || a.i - b.i);
    headings.forEach((heading, i) => (i === by ? heading.setAttribute("aria-sort", descending ? "descending" : "ascending") : heading.removeAttribute("aria-sort")));
    body.replaceChildren(...order.map(({ run, i }) => el("tr", {}, ...columns.map((column) => el("td", { class: column.left ? null : "number" }, column.text(run, i))))));
  }
  draw();
  return el("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": "All runs" }, el("table", { class: "runs" }, el("thead", {}, el("tr", {}, ...headings)), body));
}

/** What is not known comes last, whichever way is sorted. */
function compare(a: number | string | null, b: number | string | null, descending: boolean): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order = typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b)) : a - b;
  return descending ? -order : order;
}
