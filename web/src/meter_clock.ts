// The meter's clock, as this browser can know it. Calls, cases and undo times carry the meter's time; a laptop whose clock is an hour
// off would look for "the last 15 min" where there is nothing, and call an undo overdue that is not due yet.

import { span } from "./format";

/** The browser's clock minus the meter's, milliseconds: nearest to zero of what the answers allow. */
let aheadMs = 0;

/** The `Date` of an answer has no fractions. */
const DATE_STEP_MS = 1_000;
/** An answer that took longer says little: a long poll is dated when it ends. */
const LONGEST_MS = 5_000;
/** Less than this nobody sees, and the network may have caused it. */
const LEAST_MS = 2_000;
/** From here on the reader is told. */
const TOLD_MS = 60_000;

/** How far a clock is ahead of another, which read `date` at some moment between the two readings of the first. */
export function ahead(dateMs: number, sentMs: number, receivedMs: number): number {
  const [low, high] = [sentMs - dateMs - DATE_STEP_MS, receivedMs - dateMs];
  const nearest = low > 0 ? low : high < 0 ? high : 0;
  return Math.abs(nearest) < LEAST_MS ? 0 : nearest;
}

/** Notes the date of an answer that the meter gave between two readings of this browser's clock. */
export function heardDate(date: string | null, sentMs: number, receivedMs: number): void {
  const dateMs = Date.parse(date ?? "");
  if (Number.isFinite(dateMs) && receivedMs - sentMs <= LONGEST_MS) aheadMs = ahead(dateMs, sentMs, receivedMs);
}

/** What the meter's clock reads now. */
export const meterNowMs = (): number => Date.now() - aheadMs;

/** That the two clocks differ, in words; nothing if they hardly do. */
export function clockWords(byMs: number = aheadMs): string | null {
  if (Math.abs(byMs) < TOLD_MS) return null;
  return `This browser's clock is ${span(Math.abs(byMs) / 1000)} ${byMs > 0 ? "ahead of" : "behind"} the meter's. Times on this page are the meter's.`;
}
