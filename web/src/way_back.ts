// Where the reader was in the view that a step back leads to: the focus returns to the row that was followed.

import { pairKey, type View } from "./state";

/** What the row may be called that led to a view, the nearest first: a call, a case, a pair. */
export function rowsBehind({ place, call, caseId, pair }: View): string[] {
  const keys: string[] = [];
  if (place === "call" && call) keys.push(call.traceId);
  if ((place === "call" || place === "case") && caseId) keys.push(caseId);
  if ((place === "call" || place === "pair") && pair) keys.push(pairKey(pair));
  return keys;
}

const DEPTH = { fleet: 0, cases: 0, hosts: 0, pair: 1, case: 1, call: 2 } as const;

/** Whether a view is one that leads to the other. */
export const isBack = (from: View, to: View): boolean => DEPTH[to.place] < DEPTH[from.place];

let watching: (() => void) | null = null;

/** Focuses the first of these rows that is there, now or once the view has its data, unless the reader does something before. */
export function focusRow(keys: string[]): void {
  watching?.();
  watching = null;
  if (keys.length === 0) return;
  const find = () => {
    const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
    const row = keys.map((key) => rows.find((one) => one.dataset["row"] === key)).find((one) => one !== undefined);
    if (!row) return false;
    row.focus();
    return true;
  };
  if (find()) return;
  const main = document.querySelector("main");
  if (!main) return;
  const observer = new MutationObserver(() => {
    if (find()) stop();
  });
  const events = ["keydown", "pointerdown", "wheel"] as const;
  const stop = () => {
    observer.disconnect();
    for (const event of events) removeEventListener(event, stop, true);
  };
  for (const event of events) addEventListener(event, stop, true);
  observer.observe(main, { childList: true, subtree: true });
  watching = stop;
}
