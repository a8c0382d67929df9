// The meter's ports, as a reader of its page can reach them.

export interface Listens {
  /** Addresses as bound; `0.0.0.0:4317` means all of them. */
  otlp_grpc: string;
  otlp_http: string;
  http: string;
  tls: boolean;
}

/** The page's settings. */
export interface PageSettings {
  /** Address of a trace in the user's own trace UI, or null. */
  trace_url: string | null;
  listens: Listens;
}

export interface Endpoint {
  url: string;
  /** Reachable only from the meter's own host, and this browser may be on another one. */
  local: boolean;
}

/** `[::1]:4317` as host and port. */
function split(address: string): [string, string] {
  const colon = address.lastIndexOf(":");
  return [address.slice(0, colon), address.slice(colon + 1)];
}

const EVERY = ["0.0.0.0", "[::]"];
const isLoopback = (host: string) => host === "localhost" || host === "[::1]" || host.startsWith("127.");

/** How to reach a port of the meter. The name by which the browser reached the page serves for other ports of the same address. */
export function endpoint(listens: Listens, port: "otlp_grpc" | "otlp_http", page: string = location.hostname): Endpoint {
  const [bound, number] = split(listens[port]);
  const [ofPage] = split(listens.http);
  // If the page is reached through a proxy, its name may not be the meter's; the port at least is right.
  const byName = page !== "" && (EVERY.includes(bound) || (isLoopback(bound) ? isLoopback(page) : bound === ofPage));
  const host = byName ? page : EVERY.includes(bound) ? "127.0.0.1" : bound;
  return { url: `${listens.tls ? "https" : "http"}://${host}:${number}`, local: isLoopback(bound) && !isLoopback(page) };
}
