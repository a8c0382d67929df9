// Development only: serves the built page with made-up figures in the API's shapes.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
const dist = (n) => readFileSync(new URL(`../dist/${n}`, import.meta.url));
const mode = process.env.MODE ?? "full";
let seed = 7;
const rnd = () => ((seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff);
const gauss = () => Math.sqrt(-2 * Math.log(rnd() + 1e-9)) * Math.cos(6.2831853 * rnd());
const idx = (ns) => Math.ceil(Math.log2(ns / 1e9) * 16) - 1;
const ub = (i) => 2 ** ((i + 1) / 16) * 1e9;
function quantiles(list) {
  const s = [...list].sort((a, b) => a - b); const n = s.length;
  if (!n) return { count: 0, p50_ns: 0, p90_ns: 0, p95_ns: 0, p99_ns: 0, p999_ns: 0, max_ns: 0, mean_ns: 0, p50_ci95_ns: [0, 0], p99_ci95_ns: [0, 0] };
  const q = (p) => Math.round(s[Math.min(n - 1, Math.max(0, Math.floor(p * n)))]);
  const ci = (p) => { const d = 1.96 * Math.sqrt(p * (1 - p) / n); return [Math.round(ub(idx(q(Math.max(0, p - d))) - 1)), Math.round(ub(idx(q(Math.min(1, p + d)))))]; };
  return { count: n, p50_ns: q(.5), p90_ns: q(.9), p95_ns: q(.95), p99_ns: q(.99), p999_ns: q(.999), max_ns: Math.round(s[n - 1]), mean_ns: Math.round(s.reduce((a, b) => a + b, 0) / n), p50_ci95_ns: ci(.5), p99_ci95_ns: ci(.99) };
}
const hex = (n) => Array.from({ length: n }, () => Math.floor(rnd() * 16).toString(16)).join("");
const defs = [["checkout", "payment", 9e5, 2.2, 500, 6e6], ["frontend", "checkout", 4e5, 1.2, 600, 3e7], ["frontend", "productcatalog", 2.1e5, .7, 900, 2e6], ["checkout", "cart", 3e5, .9, 300, 1e6], ["recommendation", "productcatalog", 2.4e5, .5, 250, 1.6e6], ["frontend", "recommendation", 3.3e5, .6, 200, 5e6], ["frontend", "ads", 5e5, 1.0, 120, 8e6], ["checkout", "shipping", 2.5e5, .5, 80, 4e6], ["checkout", "email", 1.1e6, .8, 20, 9e7], ["checkout", "currency", 1.7e5, .4, 240, 3e5], ["cart", "redis-proxy", 1.2e5, .3, 500, 2e5], ["shipping", "<img src=x onerror=alert(1)>", 2e6, .5, 7, 4e6]];
const now = () => Math.floor(Date.now() / 1000);
const cache = new Map();
function pairData(d, secs) {
  const key = d[0] + d[1] + secs; if (cache.has(key)) return cache.get(key);
  const [client, server, base, sigma, rate, work] = d;
  const to = now(), minutes = secs / 60; const points = []; const cols = []; const all = [[], [], []]; const worst = [];
  const per = Math.max(10, Math.min(rate, Math.floor(60000 / minutes)));
  for (let m = 0; m < minutes; m++) {
    const t = (Math.floor(to / 60) - minutes + 1 + m) * 60;
    if (minutes > 20 && m > minutes * .3 && m < minutes * .36) continue;
    const bad = m > minutes * .55 && m < minutes * .7;
    const g = [], c = [], s = [];
    for (let i = 0; i < per; i++) {
      let x = base * Math.exp(gauss() * sigma * .4);
      if (rnd() < (bad ? .12 : .012)) x += 4e7 * Math.exp(gauss() * .05);
      const w = work * Math.exp(gauss() * .6);
      g.push(x); s.push(w); c.push(x + w); worst.push([x, w, t + rnd() * 60]);
    }
    const h = new Map(); for (const x of g) h.set(idx(x), (h.get(idx(x)) ?? 0) + 1);
    cols.push([t, h]);
    points.push({ unix_s: t, open: m === minutes - 1, gap: quantiles(g), client_duration: quantiles(c), server_duration: quantiles(s), lost_ns_total: Math.round(g.reduce((a, b) => a + b, 0)) });
    all[0].push(...g); all[1].push(...c); all[2].push(...s);
  }
  const lo = cols.reduce((a, [, h]) => Math.min(a, ...h.keys()), 1e9), hi = cols.reduce((a, [, h]) => Math.max(a, ...h.keys()), -1e9);
  const heatmap = { scale: 4, first_index: lo, upper_bounds_ns: Array.from({ length: hi - lo + 1 }, (_, i) => ub(lo + i)), unix_s: cols.map((c) => c[0]), counts: cols.map(([, h]) => Array.from({ length: hi - lo + 1 }, (_, i) => h.get(lo + i) ?? 0)) };
  worst.sort((a, b) => b[0] - a[0]);
  const gap = quantiles(all[0]), cd = quantiles(all[1]), sd = quantiles(all[2]);
  const leg = (f) => ({ ...quantiles(all[0].map((x) => x * f)), bound_ns: 61000, bound_mean_ns: 38000 });
  const total = { client, server, calls: all[0].length, gap, client_duration: cd, server_duration: sd, client_p99_ns: cd.p99_ns, server_p99_ns: sd.p99_ns, lost_ns_total: Math.round(all[0].reduce((a, b) => a + b, 0)), negative: server === "payment" ? 23 : 0, negative_by_status: server === "payment" ? { DEADLINE_EXCEEDED: 17, CANCELLED: 6 } : {}, attempts_over_one: server === "payment" ? 41 : 0, excluded_large: server === "productcatalog" ? 12 : 0, mate_delay: quantiles(all[0].map(() => 1e9 * (1 + 4 * rnd()))), client_match_ratio: client === "shipping" ? .62 : .9991, server_match_ratio: .998, worst: [] };
  if (server !== "email") { total.request_leg = leg(.82); total.response_leg = leg(.18); }
  total.worst = worst.slice(0, 10).map(([g, w, t], i) => ({ trace_id: hex(32), client_span_id: hex(16), gap_ns: Math.round(g), client_ns: Math.round(g + w), server_ns: Math.round(w), start_unix_ns: Math.round(t * 1e9), status: i === 3 ? "DEADLINE_EXCEEDED" : "OK", client_host: "node-a17", server_host: "node-b04", whole: i !== 2 }));
  const r = { total, points, heatmap }; cache.set(key, r); return r;
}
const secsOf = (w) => ({ "15m": 900, "1h": 3600, "6h": 21600, "24h": 86400 })[w] ?? 900;
const spans = { received: 4718302, joined: 4402118, pending: 31022, expired_client_only: 118204, expired_server_only: 2210, evicted: 0, duplicate: 812, extra_attempts: 1204, root: 88120, other_kind: 74590, malformed: 22 };
const zero = Object.fromEntries(Object.keys(spans).map((k) => [k, 0]));
const q0 = quantiles([]);
const sp = (k, n, s, e, attrs, res, extra = {}) => ({ resource: { attributes: res.map(([key, v]) => ({ key, value: { stringValue: v } })) }, span: { traceId: "", spanId: hex(16), name: n, kind: k, startTimeUnixNano: String(s), endTimeUnixNano: String(e), attributes: attrs.map(([key, v]) => ({ key, value: typeof v === "number" ? { intValue: String(v) } : { stringValue: v } })), ...extra } });
function api(u) {
  const p = u.searchParams, secs = secsOf(p.get("window"));
  if (mode === "error") return [503, { error: "the history database is locked by another process (/var/lib/spangap/history.db)" }];
  if (u.pathname === "/api/v1/coverage") return [200, mode === "empty" ? { spans: zero, match_ratio: null, malformed: { bad_id: 0, end_before_start: 0, no_time: 0, too_long: 0 }, mate_delay: q0, services: [], pending_bytes: 0, pending_bytes_limit: 2 ** 30, whole_bytes: 0, whole_span_horizon_ms: 0, refused_requests: 0, invalid_requests: 0, calls_in_other: 0, calls_without_legs: 0, uptime_s: 12, holes: [], notes: [] } : { spans, match_ratio: .9734, malformed: { bad_id: 3, end_before_start: 19, no_time: 0, too_long: 0 }, mate_delay: pairData(defs[0], 900).total.mate_delay, services: defs.slice(0, 9).map((d, i) => ({ service: d[i % 2], client_joined: 210000 + i, client_unmatched: i === 4 ? 118204 : 30, server_joined: 200000, server_unmatched: 40 })), pending_bytes: 2.1e6, pending_bytes_limit: 2 ** 30, whole_bytes: 48 * 2 ** 20, whole_span_horizon_ms: 41000, refused_requests: 0, invalid_requests: 0, calls_in_other: 0, calls_without_legs: 20110, uptime_s: 11520, holes: [{ from_unix_s: now() - 50000, to_unix_s: now() - 48600 }], notes: ["The last run ended without closing its history: its last minute may be incomplete."] }];
  if (u.pathname === "/api/v1/pairs") return [200, { from_unix_s: now() - secs, to_unix_s: now(), pairs: mode === "empty" ? [] : defs.map((d) => pairData(d, secs).total), spans }];
  const d = defs.find((x) => x[0] === p.get("client") && x[1] === p.get("server"));
  if (u.pathname === "/api/v1/pair") return d ? [200, pairData(d, secs)] : [404, { error: "no such pair" }];
  if (u.pathname === "/api/v1/worst") return [200, { calls: pairData(d, secs).total.worst.map((w) => ({ client: d[0], server: d[1], ...w })) }];
  if (u.pathname === "/api/v1/call") for (const x of defs) for (const s of [900, 3600, 21600, 86400]) { const w = cache.get(x[0] + x[1] + s)?.total.worst.find((w) => w.trace_id === p.get("trace_id")); if (w) {
    const t = BigInt(w.start_unix_ns), c = BigInt(w.client_ns), n = BigInt(w.server_ns), off = BigInt(Math.round(w.gap_ns * .8));
    return [200, { client: x[0], server: x[1], ...w, client_span: sp(3, "oteldemo.PaymentService/Charge", t, t + c, [["rpc.system", "grpc"], ["rpc.service", "oteldemo.PaymentService"], ["rpc.method", "Charge"], ["rpc.grpc.status_code", 0], ["server.address", "payment"], ["server.port", 50051]], [["service.name", x[0]], ["k8s.node.name", "node-a17"], ["k8s.pod.name", "checkout-5d9f7-x2x9k"], ["telemetry.sdk.language", "go"]], { events: [{ timeUnixNano: String(t + 120000n), name: "message", attributes: [{ key: "rpc.message.type", value: { stringValue: "SENT" } }] }] }), server_span: w.whole ? sp(2, "oteldemo.PaymentService/Charge", t + off, t + off + n, [["rpc.system", "grpc"], ["rpc.service", "oteldemo.PaymentService"], ["rpc.method", "Charge"], ["rpc.grpc.status_code", 0], ["client.address", "10.4.17.22"], ["app.payment.card_type", "visa"], ["note", "<b>not markup</b>"]], [["service.name", x[1]], ["k8s.node.name", "node-b04"], ["k8s.pod.name", "payment-7c4d-qk2wp"], ["telemetry.sdk.language", "nodejs"]]) : null }]; } }
  return [404, { error: `no call with trace_id ${p.get("trace_id")} is held` }];
}
createServer((q, r) => {
  const u = new URL(q.url, "http://x");
  if (u.pathname === "/") { r.writeHead(200, { "content-type": "text/html; charset=utf-8", "content-security-policy": dist("csp.txt").toString() }); return r.end(dist("index.html")); }
  const [c, b] = api(u); r.writeHead(c, { "content-type": "application/json" }); r.end(JSON.stringify(b));
}).listen(Number(process.env.PORT ?? 8099), "127.0.0.1", function () { console.log("listening", this.address().port); });
