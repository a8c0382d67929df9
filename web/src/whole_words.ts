// A call in words: which legs its time went to, what held it up, what a thread or a packet did.

import { duration } from "./format";
import type { Found, LegPart, Packet, Piece, WholeCall } from "./whole_api";

const LEGS: Record<string, string> = {
  client_app_out: "client: application to wire",
  client_send: "client: sending the request",
  request_wire: "network: request",
  server_host_in: "server: wire to application",
  server_app: "server: application",
  server_host_out: "server: application to wire",
  server_send: "server: sending the response",
  response_wire: "network: response",
  client_app_in: "client: wire to application",
  no_response: "server: no response",
};

const DOING: Record<string, string> = {
  running: "ran",
  interrupted: "was interrupted",
  runnable: "was runnable and waited for a CPU",
  throttled: "had used up the CPU quota of its cgroup",
  stopped: "was stopped",
  blocked: "waited",
  softirq_late: "had no data yet, although the data had reached the tap",
  unknown: "not seen",
};

/** Legs that cannot be told apart have one name: `server: wire to application … application to wire`. */
export function legWords(leg: string): string {
  const parts = leg.split("+").map((one) => LEGS[one] ?? one.replaceAll("_", " "));
  const [first, last] = [parts[0] ?? leg, parts.at(-1) ?? leg];
  if (parts.length === 1) return first;
  const [place, rest] = last.split(": ");
  return first.startsWith(`${place}: `) ? `${first} … ${rest}` : `${first} … ${last}`;
}

/** Whose time a leg is: what it is drawn in. */
export function legKind(leg: string): "client" | "wire" | "server" | "mixed" {
  const kinds = new Set(leg.split("+").map((one) => (one.endsWith("_wire") ? "wire" : one.startsWith("client") ? "client" : "server")));
  const [only] = kinds;
  return kinds.size === 1 && only ? only : "mixed";
}

export function doingWords(piece: Piece): string {
  const behind = piece.behind ? `; the CPU had ${piece.behind}` : "";
  const wait = piece.waited_for && piece.waited_for !== "unknown" ? ` for ${piece.waited_for.replaceAll("-", " ")}` : "";
  const woken = piece.woken_by ? `; woken by ${piece.woken_by}` : "";
  const cpu = piece.cpu === undefined ? "" : `, CPU ${piece.cpu}`;
  if ((piece.of ?? 1) > 1) return `did ${piece.of} short things in ${duration(piece.to_ns - piece.from_ns)}, the longest: ${DOING[piece.doing] ?? piece.doing}${behind}`;
  return `${DOING[piece.doing] ?? piece.doing}${wait} for ${duration(piece.to_ns - piece.from_ns)}${cpu}${behind}${woken}`;
}

export function packetWords(packet: Packet): string {
  const way = `${packet.from} to ${packet.from === "client" ? "server" : "client"}`;
  const what = [packet.flags, packet.bytes > 0 ? `${packet.bytes} bytes` : "no payload"].filter((word) => word !== "").join(", ");
  const acked = packet.acked_bytes === undefined ? "" : `, acknowledges ${packet.acked_bytes} bytes`;
  const notes = packet.notes.length > 0 ? `: ${packet.notes.join("; ")}` : "";
  return `packet ${packet.packet} of ${packet.seen_at}.pcapng, ${way}, ${what}${acked}${notes}`;
}

export const foundTitle = (found: Found) => `${found.cause}${found.side ? ` (${found.side})` : ""}`;

export const isShown = (found: Found) => found.certainty === "shown";

/** Of the legs, those that say something, the longest first. */
const SHARE_WORTH_SAYING = 0.02;
const BOUND_WORTH_SAYING = 0.002;

/** A bound that no digit of the figure feels is not worth reading. */
export const boundWords = (leg: LegPart) => (leg.bound_ns >= leg.ns * BOUND_WORTH_SAYING && leg.bound_ns > 0 ? ` ± ${duration(leg.bound_ns)}` : "");

/** `105 ms = 100 ms (server: application) + 3.2 ms ± 12 us (network: request) + 1.1 ms (5 other legs)`. */
export function sumWords(call: WholeCall): string {
  const sorted = [...call.legs].sort((a, b) => b.ns - a.ns);
  const said = sorted.filter((leg, at) => at === 0 || leg.ns >= call.duration_ns * SHARE_WORTH_SAYING);
  const rest = sorted.filter((leg) => !said.includes(leg));
  const one = (leg: LegPart) => `${duration(leg.ns)}${boundWords(leg)} (${legWords(leg.leg)})`;
  const others = rest.length > 0 ? ` + ${duration(rest.reduce((sum, leg) => sum + leg.ns, 0))} (${rest.length} other leg${rest.length > 1 ? "s" : ""})` : "";
  return `${duration(call.duration_ns)} = ${said.map(one).join(" + ")}${others}`;
}

/** What held the call up, in a sentence; findings come with the most costly first. */
export function verdictWords(call: WholeCall): string {
  const worth = call.findings.filter((found) => (found.cost_ns ?? 0) >= call.duration_ns * 0.1);
  const shown = worth.filter(isShown);
  const [first] = shown.length > 0 ? shown : worth;
  if (!first) return "Nothing that was recorded shows what held this call up: the legs say where its time passed.";
  const cost = first.cost_ns ?? 0;
  const share = Math.round((100 * cost) / Math.max(1, call.duration_ns));
  const sure = isShown(first) ? "took" : "may have taken";
  return `${foundTitle(first)} ${sure} ${duration(cost)} of it, ${share} %.`;
}
