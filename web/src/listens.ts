// Where the meter listens, as whoever looks at its page can reach it.

export interface Listens {
  /** Addresses as bound, `0.0.0.0:4317` for all of them. */
  otlp_grpc: string;
  otlp_http: string;
  http: string;
  tls: boolean;
}

/** What the page is set to. */
export interface PageSettings {
  /** Where a trace is in the user's own trace UI, or null. */
  trace_url: string | null;
  listens: Listens;
}

export interface Endpoint {
  url: string;
  /** Only the meter's own host reaches it, and this browser may be on another one. */
  local: boolean;
}

/** `[::1]:4317` as host and port. */
function split(address: string): [string, string] {
  const colon = address.lastIndexOf(":");
  return [address.slice(0, colon), address.slice(colon + 1)];
}

const EVERY = ["0.0.0.0", "[::]"];
const isLoopback = (host: string) => host === "localhost" || host === "[::1]" || host.startsWith("127.");

/** How to reach a port of the meter. What reaches the page by a name reaches the other ports at that address by it, too. */
export function endpoint(listens: Listens, port: "otlp_grpc" | "otlp_http", page: string = location.hostname): Endpoint {
  const [bound, number] = split(listens[port]);
  const [ofPage] = split(listens.http);
  // Where the page is reached through a proxy, its name may not be the meter's; the port is, at least.
  const byName = page !== "" && (EVERY.includes(bound) || (isLoopback(bound) ? isLoopback(page) : bound === ofPage));
  const host = byName ? page : EVERY.includes(bound) ? "127.0.0.1" : bound;
  return { url: `${listens.tls ? "https" : "http"}://${host}:${number}`, local: isLoopback(bound) && !isLoopback(page) };
}
