// The stretch compared with, and why it is that one.

import type { CaseRow } from "./cases_api";
import { againstStretch, type Stretch, type View } from "./state";

/** Since when what is shown is slower, Unix seconds: the pair, or any pair, by cases that are not over. */
export function slowerSince(cases: CaseRow[], { place, pair }: View): number[] {
  const isShown = (one: CaseRow) => place !== "pair" || pair === null || (one.pair.client === pair.client && one.pair.server === pair.server);
  return cases.flatMap((one) => (one.state !== "fixed" && one.usual_until_unix_ms !== undefined && isShown(one) ? [one.usual_until_unix_ms / 1000] : []));
}

/** The stretch compared with: the one before ends before a pair became slower, whose first slow calls would make both look alike. */
export const against = (view: View, nowS: number, cases: CaseRow[]): Stretch | null => againstStretch(view, Math.floor(nowS / 60) * 60, slowerSince(cases, view));

/** Whether it was moved for that. */
export function isMoved(view: View, nowS: number, cases: CaseRow[]): boolean {
  const [plain, moved] = [againstStretch(view, Math.floor(nowS / 60) * 60), against(view, nowS, cases)];
  return plain !== null && moved !== null && plain.to !== moved.to;
}
