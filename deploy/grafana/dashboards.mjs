#!/usr/bin/env node
// The dashboards, in few words: `deploy/grafana/dashboards.mjs` writes one JSON file for each into the chart, where the links
// beside this script lead; `--check` says whether those files are what it would write. Import the JSON in Grafana 9 or later; nothing else needs this script.
import { readFileSync, writeFileSync } from "node:fs";

const PROMETHEUS = { type: "prometheus", uid: "${datasource}" };
const HEIGHT = 8;

/** A panel: its title, what it says to whoever hovers, its unit, its queries as [expression, legend]. */
const panel = (type, title, description, unit, queries, width = 12, more = {}) => ({
  type,
  title,
  description,
  width,
  datasource: PROMETHEUS,
  targets: queries.map(([expr, legendFormat], i) => ({
    datasource: PROMETHEUS,
    refId: String.fromCharCode(65 + i),
    expr,
    legendFormat,
    ...(more.target ?? {}),
  })),
  fieldConfig: { defaults: { unit, ...(more.defaults ?? {}) }, overrides: more.overrides ?? [] },
  options: more.options ?? {},
  ...(more.transformations ? { transformations: more.transformations } : {}),
});
const lines = (title, description, unit, queries, width, more) =>
  panel("timeseries", title, description, unit, queries, width, {
    options: { legend: { displayMode: "table", placement: "bottom", calcs: ["mean", "max"] }, tooltip: { mode: "multi", sort: "desc" } },
    ...more,
    target: { exemplar: more?.exemplars ?? false },
  });
const figure = (title, description, unit, expr, more) => panel("stat", title, description, unit, [[expr, ""]], 4, more);
const red = (steps) => ({ defaults: { thresholds: { mode: "absolute", steps: [{ color: "green", value: null }, ...steps] } } });

/** A table of instant queries, one row per label set. */
const table = (title, description, columns, keys, width = 24) => ({
  ...panel("table", title, description, "short", columns.map(([expr]) => [expr, ""]), width, {
    target: { format: "table", instant: true },
    overrides: columns.map(([, name, unit]) => ({
      matcher: { id: "byName", options: name },
      properties: [{ id: "unit", value: unit }],
    })),
    transformations: [
      { id: "merge", options: {} },
      {
        id: "organize",
        options: {
          excludeByName: { Time: true },
          indexByName: Object.fromEntries([...keys, ...columns.map((_, i) => `Value #${String.fromCharCode(65 + i)}`)].map((name, i) => [name, i])),
          renameByName: Object.fromEntries(columns.map(([, name], i) => [`Value #${String.fromCharCode(65 + i)}`, name])),
        },
      },
    ],
    options: { sortBy: [{ displayName: columns[0][1], desc: true }] },
  }),
});

const variable = (name, query, more = {}) => ({
  name,
  type: "query",
  datasource: PROMETHEUS,
  query: { query, refId: name },
  definition: query,
  refresh: 2,
  sort: 1,
  includeAll: false,
  multi: false,
  ...more,
});
const ALL = { includeAll: true, multi: true, current: { text: "All", value: "$__all" }, allValue: ".*" };

const PAIR = '{client=~"$client", server=~"$server"}';
const quantile = (q, metric) => `histogram_quantile(${q}, sum by (le) (rate(${metric}_bucket${PAIR}[$__rate_interval])))`;

const dashboards = {
  fleet: {
    title: "spangap / Fleet",
    description: "Where the time between clients and servers is lost, over all pairs of services. Needs the recording rules.",
    variables: [],
    panels: [
      figure("Time lost", "Seconds that callers spend waiting for something other than their servers' own work, per second.", "s", "sum(spangap:gap_seconds:rate5m)"),
      figure("Calls", "Calls whose two spans were joined, per second.", "cps", "sum(spangap:calls:rate5m)"),
      figure("Pairs", "Pairs of services with calls.", "short", "count(spangap:calls:rate5m > 0)"),
      figure("Pairs over their SLO", "Pairs of which more than 1 % of the calls lost over 31 ms in the last hour.", "short", "count(spangap:gap_over_slo:ratio_rate1h > 0.01) or vector(0)", red([{ color: "red", value: 1 }])),
      figure("Share of the callers' time", "What part of the time that callers wait is gap.", "percentunit", "sum(spangap:gap_seconds:rate5m) / (sum(rate(spangap_client_duration_seconds_sum[5m])) > 0)"),
      figure("Spans without a mate", "Share of the spans that found no other end.", "percentunit", '(sum(rate(spangap_service_spans_total{outcome="unmatched"}[5m])) or vector(0)) / (sum(rate(spangap_service_spans_total[5m])) > 0)', red([{ color: "orange", value: 0.2 }])),
      lines("Time lost, by pair", "What a fix of each pair can win: the ten largest.", "s", [["topk(10, spangap:gap_seconds:rate5m)", "{{client}} -> {{server}}"]]),
      lines("p99 of the gap, by pair", "Call by call, which is not the difference of two p99s.", "s", [["topk(10, spangap:gap_p99_seconds:rate5m)", "{{client}} -> {{server}}"]]),
      table(
        "Pairs by time lost",
        "The client's p99, the server's p99 and the gap's p99 are of the same calls; they do not add up.",
        [
          ["topk(50, spangap:gap_seconds:rate5m)", "lost per second", "s"],
          ["spangap:calls:rate5m", "calls per second", "cps"],
          ["spangap:gap_p50_seconds:rate5m", "gap p50", "s"],
          ["spangap:gap_p99_seconds:rate5m", "gap p99", "s"],
          ["spangap:client_p99_seconds:rate5m", "client p99", "s"],
          ["spangap:server_p99_seconds:rate5m", "server p99", "s"],
          ["spangap:gap_over_slo:ratio_rate1h", "over the SLO, 1 h", "percentunit"],
          ["spangap:left_out:ratio_rate5m", "left out", "percentunit"],
        ],
        ["client", "server"],
      ),
    ],
  },
  pair: {
    title: "spangap / Pair",
    description: "One pair of services: its gap, its legs, what its distributions leave out, its SLO.",
    variables: [variable("client", "label_values(spangap_gap_seconds_count, client)", ALL), variable("server", 'label_values(spangap_gap_seconds_count{client=~"$client"}, server)', ALL)],
    panels: [
      lines("Gap", "Client span minus server span, call by call. The dots are the worst calls: each leads to its trace.", "s", [[quantile(0.5, "spangap_gap_seconds"), "p50"], [quantile(0.9, "spangap_gap_seconds"), "p90"], [quantile(0.99, "spangap_gap_seconds"), "p99"]], 12, { exemplars: true }),
      lines("Both ends", "p99 of the same calls as their clients and as their servers saw them.", "s", [[quantile(0.99, "spangap_client_duration_seconds"), "client p99"], [quantile(0.99, "spangap_server_duration_seconds"), "server p99"], [quantile(0.99, "spangap_gap_seconds"), "gap p99"]]),
      panel("heatmap", "Gap, all calls", "Two modes are two kinds of calls: look at them apart.", "s", [[`sum by (le) (rate(spangap_gap_seconds_bucket${PAIR}[$__rate_interval]))`, "{{le}}"]], 12, { target: { format: "heatmap" }, options: { calculate: false, yAxis: { unit: "s" }, color: { scheme: "Oranges", mode: "scheme" } } }),
      lines("Legs", "Client start to server start, and server end to client end, where the clocks are known well enough.", "s", [[quantile(0.99, "spangap_request_leg_seconds"), "request p99"], [quantile(0.99, "spangap_response_leg_seconds"), "response p99"], [`max(spangap_leg_bound_mean_seconds${PAIR})`, "true to within (mean)"]]),
      lines("Calls", "Joined, and those in no distribution.", "cps", [[`sum(rate(spangap_gap_seconds_count${PAIR}[$__rate_interval]))`, "measured"], [`sum by (status) (rate(spangap_negative_calls_total${PAIR}[$__rate_interval]))`, "server span longer, status {{status}}"], [`sum(rate(spangap_attempts_over_one_calls_total${PAIR}[$__rate_interval]))`, "several attempts"], [`sum(rate(spangap_excluded_large_calls_total${PAIR}[$__rate_interval]))`, "large responses"]]),
      lines("Burn of the SLO's budget", "1 is what the budget of 1 % allows for; 14.4 pages.", "short", [["5m", "1h"], ["30m", "6h"], ["2h", "1d"]].flatMap(([short, long]) => [[`max(spangap:gap_over_slo:ratio_rate${short}${PAIR}) / 0.01`, short], [`max(spangap:gap_over_slo:ratio_rate${long}${PAIR}) / 0.01`, long]])),
      lines("Arrival of the second span", "How long after the first span of a call the second one came. Near the meter's --join-ttl calls are missed.", "s", [[quantile(0.5, "spangap_mate_delay_seconds"), "p50"], [quantile(0.99, "spangap_mate_delay_seconds"), "p99"]]),
    ],
  },
  hosts: {
    title: "spangap / Hosts",
    description: "The agents: how far back each can look, what it lost, what it costs.",
    variables: [variable("instance", "label_values(spangap_agent_memory_bytes, instance)", ALL)],
    panels: [
      lines("How far back", "The time that each ring covers. Under 30 s, a slow call may be gone when the meter asks for it.", "s", [['spangap_agent_ring_seconds{instance=~"$instance"}', "{{instance}} {{instrument}}"]]),
      lines("Lost", "Packets and events that found no room, of those taken.", "percentunit", [['rate(spangap_agent_ring_lost_total{instance=~"$instance"}[$__rate_interval]) / (rate(spangap_agent_ring_taken_total{instance=~"$instance"}[$__rate_interval]) > 0)', "{{instance}} {{instrument}}"]]),
      lines("Canaries seen", "One packet a second that the agent sends itself: 1 is all of them.", "percentunit", [['rate(spangap_agent_ring_canaries_seen_total{instance=~"$instance"}[$__rate_interval]) / (rate(spangap_agent_ring_canaries_sent_total{instance=~"$instance"}[$__rate_interval]) > 0)', "{{instance}} {{instrument}}"]]),
      lines("CPU", "Of the agent and its probes, as a share of all CPUs.", "percentunit", [['spangap_agent_cpu_share{instance=~"$instance"}', "{{instance}}"]]),
      lines("Memory", "Against what it may have.", "bytes", [['spangap_agent_memory_bytes{instance=~"$instance"}', "{{instance}}"], ['max(spangap_agent_memory_limit_bytes{instance=~"$instance"})', "limit"]]),
      lines("Attached", "1: the meter can ask it. Instruments given up: what the agent no longer records, to keep within its budget.", "short", [['spangap_agent_attached{instance=~"$instance"}', "{{instance}} attached"], ['spangap_agent_given_up{instance=~"$instance"}', "{{instance}} given up"]]),
      lines("Taken", "Packets and events per second.", "short", [['rate(spangap_agent_ring_taken_total{instance=~"$instance"}[$__rate_interval])', "{{instance}} {{instrument}}"]]),
    ],
  },
  meter: {
    title: "spangap / Meter",
    description: "The meter's own health: whether every span is counted, what it costs, which limit is near.",
    variables: [variable("instance", "label_values(spangap_build_info, instance)", ALL)],
    panels: [
      figure("Up for", "Since its counts began.", "s", 'max(spangap_uptime_seconds{instance=~"$instance"})'),
      figure("Spans", "Accepted per second.", "cps", 'sum(rate(spangap_spans_received_total{instance=~"$instance"}[5m]))'),
      figure("Accounting", "0: every span is in exactly one class.", "short", 'sum(abs(sum without (class) (spangap_spans_total{instance=~"$instance"}) + spangap_spans_pending{instance=~"$instance"} - spangap_spans_received_total{instance=~"$instance"}))', red([{ color: "red", value: 1 }])),
      figure("CPU per span", "With everything else that the process does.", "s", 'max(spangap:cpu_seconds_per_span:rate5m{instance=~"$instance"})'),
      figure("Memory", "Resident.", "bytes", 'max(process_resident_memory_bytes{instance=~"$instance"})'),
      figure("Rows waiting for the disk", "Above 0 for long: the disk refuses.", "short", 'max(spangap_history_waiting_rows{instance=~"$instance"})', red([{ color: "orange", value: 1 }])),
      lines("Spans by class", "Each span is in exactly one.", "cps", [['sum by (class) (rate(spangap_spans_total{instance=~"$instance"}[$__rate_interval]))', "{{class}}"]]),
      lines("Spans that find their mate", "By service and role, the ten worst.", "percentunit", [["bottomk(10, spangap:matched_spans:ratio_rate5m)", "{{service}} as {{role}}"]]),
      lines("Requests turned away", "Each sender was told to try again, but for invalid ones.", "reqps", ["refused", "invalid", "slow", "displaced"].map((what) => [`sum(rate(spangap_${what}_requests_total{instance=~"$instance"}[$__rate_interval]))`, what])),
      lines("Limits", "What is used of each.", "percentunit", [['max by (limit) (spangap_limit_used{instance=~"$instance"} / (spangap_limit{instance=~"$instance"} > 0))', "{{limit}}"]]),
      lines("Memory", "By what it is for.", "bytes", [["pending", "whole", "request", "history"].map((what) => [`sum(spangap_${what}_bytes{instance=~"$instance"})`, what]), [['sum(process_resident_memory_bytes{instance=~"$instance"})', "resident"]]].flat()),
      lines("Connections", "Open, by port, and closed by the meter.", "short", [['sum by (port) (spangap_connections{instance=~"$instance"})', "{{port}}"], ['sum by (reason) (rate(spangap_closed_connections_total{instance=~"$instance"}[$__rate_interval]))', "closed per second: {{reason}}"]]),
    ],
  },
};

function laidOut(panels) {
  let [x, y, rowHeight] = [0, 0, 0];
  return panels.map(({ width, ...panel }, i) => {
    const h = panel.type === "stat" ? 4 : panel.type === "table" ? 12 : HEIGHT;
    if (x + width > 24) [x, y, rowHeight] = [0, y + rowHeight, 0];
    const gridPos = { x, y, w: width, h };
    x += width;
    rowHeight = Math.max(rowHeight, h);
    return { id: i + 1, ...panel, gridPos };
  });
}

const documentOf = (name, { title, description, variables, panels }) =>
  `${JSON.stringify(
    {
      uid: `spangap-${name}`,
      title,
      description,
      tags: ["spangap"],
      schemaVersion: 38,
      editable: true,
      time: { from: "now-3h", to: "now" },
      refresh: "1m",
      links: [{ type: "dashboards", title: "spangap", tags: ["spangap"], asDropdown: true, keepTime: true }],
      templating: { list: [{ name: "datasource", type: "datasource", query: "prometheus", label: "Prometheus" }, ...variables] },
      panels: laidOut(panels),
    },
    null,
    1,
  )}\n`;

let stale = 0;
for (const [name, dashboard] of Object.entries(dashboards)) {
  const file = new URL(`../helm/spangap/files/${name}.json`, import.meta.url);
  const text = documentOf(name, dashboard);
  if (process.argv[2] !== "--check") writeFileSync(file, text);
  else if (readFileSync(file, "utf8") !== text) {
    console.error(`deploy/grafana/${name}.json is not what deploy/grafana/dashboards.mjs writes: run it`);
    stale = 1;
  }
}
process.exitCode = stale;
