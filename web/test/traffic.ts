// Calls with known gaps: what the page must show of them is known beforehand.

import type { TestSpan } from "./meter";

/** A service's name that would be a script, were it ever taken as markup. */
export const HOSTILE = `<img src=x onerror="document.title='taken over'">`;

const MS = 1_000_000n;

let made = 0;
const id = (digits: number) => (++made).toString(16).padStart(digits, "a");

export interface Call {
  traceId: string;
  gapNs: bigint;
  client: TestSpan;
  server: TestSpan;
}

/** One call that ended a moment ago. A negative gap is a server span longer than its client span. */
export function call(client: string, server: string, gapNs: bigint, attributes: Record<string, string | number> = {}): Call {
  const traceId = id(32);
  const clientSpanId = id(16);
  const serverNs = 20n * MS;
  const startNs = BigInt(Date.now() - 1_000) * MS;
  const half = gapNs / 2n;
  return {
    traceId,
    gapNs,
    client: {
      service: client,
      host: "node-a",
      kind: "CLIENT",
      traceId,
      spanId: clientSpanId,
      startNs,
      durationNs: serverNs + gapNs,
      name: "shop.Basket/Add",
      attributes: { "rpc.system": "grpc", "rpc.method": "Add", "only.client": "<b>bold</b>", shared: "same", differs: "here", ...attributes },
    },
    server: {
      service: server,
      host: "node-b",
      kind: "SERVER",
      traceId,
      spanId: id(16),
      parentSpanId: clientSpanId,
      startNs: startNs + half,
      durationNs: serverNs,
      name: "shop.Basket/Add",
      attributes: { "rpc.system": "grpc", "only.server": "there", shared: "same", differs: "elsewhere" },
    },
  };
}

export interface Traffic {
  spans: TestSpan[];
  /** Pairs as `client → server`, most time lost first. */
  pairs: string[];
  /** Calls of the first pair, largest gap first. */
  worst: Call[];
  negative: number;
  /** Spans that are not halves of a call. */
  duplicates: number;
  malformed: number;
  roots: number;
  lonely: number;
}

/** Traffic of three pairs, with everything that is counted apart. */
export function traffic(): Traffic {
  const slow = Array.from({ length: 120 }, (_, i) => call("front", HOSTILE, BigInt(5 + i) * MS + BigInt(i) * 1_000n));
  const middle = Array.from({ length: 80 }, (_, i) => call("checkout", "payment", 2n * MS + BigInt(i) * 10_000n));
  const fast = Array.from({ length: 50 }, (_, i) => call("cart", "redis", 300_000n + BigInt(i) * 1_000n));
  const negative = Array.from({ length: 3 }, () => call("front", HOSTILE, -15n * MS, { "rpc.grpc.status_code": 4 }));
  const lonely = Array.from({ length: 30 }, () => call("lonely", "nowhere", MS).client);
  const roots = Array.from({ length: 4 }, () => {
    const { parentSpanId: _, ...root } = call("x", "entry", MS).server;
    return root;
  });
  const backwards = Array.from({ length: 2 }, () => ({ ...call("front", "x", MS).client, durationNs: -5n * MS }));
  const duplicates = middle.slice(0, 7).map((one) => one.client);
  const halves = [...slow, ...middle, ...fast, ...negative].flatMap((one) => [one.client, one.server]);
  return {
    spans: [...halves, ...lonely, ...roots, ...backwards, ...duplicates],
    pairs: [`front → ${HOSTILE}`, "checkout → payment", "cart → redis"],
    worst: [...slow].reverse(),
    negative: negative.length,
    duplicates: duplicates.length,
    malformed: backwards.length,
    roots: roots.length,
    lonely: lonely.length,
  };
}
