// What keeps the page up to date: it waits at the meter for changes, and whoever shows something asks again then.

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiProblem, askChanges } from "./ask";
import { meterNowMs } from "./meter_clock";
import { isReplaced } from "./page_version";

/** A change is waited for this long; then the meter is asked anew, and so known to be there. */
const WAIT_S = 20;
/** Between two rounds, however much changes. */
const REST_MS = 4_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000];
/** A meter may be replaced between two questions without anybody noticing. */
const REPLACED_EVERY_MS = 60_000;

export interface Pulse {
  /** Grows whenever something may have changed. */
  beat: number;
  /** When the meter last answered. */
  heard: Date | null;
  /** Why it does not; null while it does. */
  problem: string | null;
  paused: boolean;
  /** Whether the meter has come to serve another page than this one. */
  replaced: boolean;
}

type Listener = (pulse: Pulse) => void;

let pulse: Pulse = { beat: 0, heard: null, problem: null, paused: false, replaced: false };
const listeners = new Set<Listener>();

function set(changed: Partial<Pulse>): void {
  pulse = { ...pulse, ...changed };
  for (const listener of listeners) listener(pulse);
}

/** What the user is told; a fault of the page itself also goes to the console. */
export function inWords(error: unknown): string {
  if (!(error instanceof ApiProblem)) console.error(error);
  return error instanceof Error ? error.message : String(error);
}

const rest = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  set({ paused: true });
  return new Promise((resolve) => {
    const seen = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", seen);
      set({ paused: false });
      resolve();
    };
    document.addEventListener("visibilitychange", seen);
  });
}

/** Runs as long as the page does. */
export async function keepUpToDate(): Promise<never> {
  let version: string | null = null;
  let failures = 0;
  let looked = -Infinity;
  for (;;) {
    await visible();
    try {
      const found = await askChanges(version, WAIT_S, new AbortController().signal);
      const isNew = found.version !== version || pulse.problem !== null;
      version = found.version;
      if (failures > 0 || performance.now() - looked > REPLACED_EVERY_MS) {
        looked = performance.now();
        void isReplaced().then((replaced) => set({ replaced }));
      }
      failures = 0;
      set({ heard: new Date(meterNowMs()), problem: null, beat: pulse.beat + (isNew ? 1 : 0) });
      await rest(REST_MS);
    } catch (error) {
      set({ problem: inWords(error) });
      await rest(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? REST_MS);
      failures += 1;
      version = null;
    }
  }
}

export function usePulse(): Pulse {
  const [now, setNow] = useState(pulse);
  useEffect(() => {
    setNow(pulse);
    listeners.add(setNow);
    return () => void listeners.delete(setNow);
  }, []);
  return now;
}

export interface Asked<T> {
  data: T | null;
  /** Why there is no answer to the question as it now stands. */
  error: string | null;
  /** Whether the meter has nothing of what was asked for: not a fault. */
  isNone: boolean;
  /** What is shown answers the question before. */
  stale: boolean;
}

interface Held<T> {
  key: string;
  data: T | null;
  error: string | null;
  isNone?: boolean;
}

/**
 * Asks whenever the question changes, and again with every beat. The answer to the question before stays until the new
 * one is there, as long as `family` is the same.
 */
export function useAnswer<T>(family: string, key: string | null, ask: (signal: AbortSignal) => Promise<T>, beat: number): Asked<T> {
  const [held, setHeld] = useState<Held<T> & { family: string }>({ family, key: "", data: null, error: null });
  const asking = useRef(ask);
  asking.current = ask;
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    const mine = new AbortController();
    let underWay = false;
    let isOld = false;
    const run = async () => {
      if (key === null) return;
      // On a slow link an answer takes longer than a beat: it is waited for, and asked for once more, as it may be of before the beat.
      isOld = underWay;
      if (underWay) return;
      underWay = true;
      try {
        const data = await asking.current(mine.signal);
        if (!mine.signal.aborted) setHeld({ family, key, data, error: null });
      } catch (error) {
        if (mine.signal.aborted) return;
        const words = inWords(error);
        const lost = error instanceof ApiProblem && error.status === 0;
        // The meter being away takes nothing from what it said.
        setHeld((before) => ({ family, key, data: lost && before.family === family ? before.data : null, error: words, isNone: error instanceof ApiProblem && error.status === 404 }));
      } finally {
        underWay = false;
        if (isOld && !mine.signal.aborted) void run();
      }
    };
    again.current = () => void run();
    void run();
    return () => mine.abort();
  }, [family, key]);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) again.current();
    first.current = false;
  }, [beat]);
  const same = held.family === family;
  return { data: same ? held.data : null, error: same && held.key === key ? held.error : null, isNone: same && held.key === key && held.isNone === true, stale: held.key !== key };
}
