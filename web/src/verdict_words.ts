// Shares and causes of a verdict in words.

import type { Share } from "./cases_api";
import { percent } from "./format";

/** An interval may reach below zero, and says so. */
function signed(share: number): string {
  // Less than a hundredth of a percent has no sign that matters.
  if (Math.abs(share) < 0.0001) return percent(0);
  return share < 0 ? `−${percent(-share)}` : percent(share);
}

export const shareWords = (share: Share) => `${signed(share.mid)} (${signed(share.low)} – ${signed(share.high)})`;

export const causeWords = (cause: string | null | undefined, side: string | null | undefined) => `${cause ?? "?"}${side ? ` (${side})` : ""}`;

/** Why an interval reaches past the whole, or below nothing; null if none of these does. */
export function beyondWhole(shares: (Share | null | undefined)[]): string | null {
  const told = shares.flatMap((share) => (share ? [share] : []));
  const [over, under] = [told.some((share) => share.high > 1), told.some((share) => share.low < 0)];
  if (!over && !under) return null;
  const past = [over ? "past 100 %" : "", under ? "below 0 %" : ""].filter((one) => one !== "").join(" or ");
  const means = [over ? "it may be all of it" : "", under ? "it may be none of it" : ""].filter((one) => one !== "").join(", or ");
  return `Shares are estimates from calls that vary: where an interval reaches ${past}, ${means}.`;
}
