// A link between a browser and a meter whose answers arrive when a test lets them: what a page shows meanwhile can be looked at for as
// long as that takes.

import { createServer, request, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { RunningMeter } from "./meter";

/** Answers that wait. */
export interface Held {
  /** Until this many have come from the meter. */
  waiting: (number?: number) => Promise<void>;
  /** Lets them go, and all that come later. */
  release: () => void;
}

export interface Link {
  /** Address of the page by this link, with its last slash. */
  page: string;
  /** Holds the answers of a path from `after` on, or whole, until they are released. */
  hold: (path: string, after?: string) => Held;
  close: () => Promise<void>;
}

interface Gate {
  path: string;
  after: string;
  arrived: () => void;
  released: Promise<void>;
}

async function read(answer: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of answer) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

export async function startLink(meter: RunningMeter): Promise<Link> {
  const { hostname, port } = new URL(meter.page);
  const gates: Gate[] = [];
  const server = createServer((asked, answer) => {
    const path = new URL(asked.url ?? "/", meter.page).pathname;
    // Uncompressed, so that a place in the text is one in the answer.
    const headers = { ...asked.headers, host: `${hostname}:${port}`, "accept-encoding": "identity" };
    const onward = request({ hostname, port, path: asked.url, method: asked.method, headers }, (given) => {
      const pass = async () => {
        const body = await read(given);
        const gate = gates.filter((one) => one.path === path).at(-1);
        const { "transfer-encoding": _, ...kept } = given.headers;
        answer.writeHead(given.statusCode ?? 502, kept);
        const at = gate?.after ? body.indexOf(gate.after) : 0;
        if (at < 0) throw new Error(`${path} does not have ${gate?.after}`);
        if (at > 0) answer.write(body.subarray(0, at));
        gate?.arrived();
        await gate?.released;
        answer.end(body.subarray(at));
      };
      // A reader that has gone needs no answer.
      pass().catch(() => answer.destroy());
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    asked.pipe(onward);
  });
  await new Promise<void>((ready) => server.listen(0, "127.0.0.1", ready));
  // A test that fails before it closes the link must not keep its process from ending.
  server.unref();
  return {
    page: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    hold: (path, after = "") => {
      let release = () => {};
      const released = new Promise<void>((letGo) => (release = letGo));
      let here = 0;
      const watchers = new Set<() => void>();
      const arrived = () => {
        here += 1;
        watchers.forEach((look) => look());
      };
      gates.push({ path, after, arrived, released });
      const waiting = (number = 1) =>
        new Promise<void>((there) => {
          const look = () => {
            if (here < number) return;
            watchers.delete(look);
            there();
          };
          watchers.add(look);
          look();
        });
      return { waiting, release };
    },
    close: async () => {
      server.closeAllConnections();
      await new Promise<void>((closed) => server.close(() => closed()));
    },
  };
}
