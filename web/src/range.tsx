// Which stretch of time is shown, and which it is compared with.

import { span, stretchWords } from "./format";
import { START, AGAINST, RANGES, type Go, type Stretch, type View } from "./state";

const two = (n: number) => String(n).padStart(2, "0");

/** As an input of the browser takes a moment: local time to the minute. */
function inputTime(unixS: number): string {
  const at = new Date(unixS * 1000);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}T${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** That clocks change within a stretch, whose ends then are not as far apart as they read. */
export function clockChange({ from, to }: Stretch): string {
  const minutes = new Date(to * 1000).getTimezoneOffset() - new Date(from * 1000).getTimezoneOffset();
  return minutes === 0 ? "" : `; clocks go ${minutes > 0 ? "back" : "forward"} by ${span(Math.abs(minutes) * 60)} in it`;
}

const seconds = (text: string) => Math.floor(new Date(text).getTime() / 1000);

interface Props {
  view: View;
  nowS: number;
  go: Go;
}

export function RangePicker({ view, nowS, go }: Props) {
  return (
    <fieldset id="ranges">
      <legend class="unseen">Time range</legend>
      {RANGES.map((range) => (
        <label key={range.window}>
          <input type="radio" name="range" value={range.window} checked={!view.fixed && range === view.range} onChange={() => go({ ...view, range, fixed: null, cells: null, page: 1 })} />
          <span>{range.label}</span>
        </label>
      ))}
      <label key="fixed">
        <input type="radio" name="range" value="fixed" checked={view.fixed !== null} onChange={() => go({ ...view, fixed: { from: Math.floor(nowS / 60) * 60 - view.range.seconds, to: Math.floor(nowS / 60) * 60 }, page: 1 })} />
        <span>from – to</span>
      </label>
    </fieldset>
  );
}

function Ends({ name, stretch, onChange }: { name: string; stretch: Stretch; onChange: (stretch: Stretch) => void }) {
  const change = (from: number, to: number) => {
    if (Number.isFinite(from) && Number.isFinite(to) && to > from) onChange({ from, to });
  };
  return (
    <span class="ends">
      <input type="datetime-local" aria-label={`${name} from`} value={inputTime(stretch.from)} onChange={(event) => change(seconds(event.currentTarget.value), stretch.to)} />
      {" – "}
      <input type="datetime-local" aria-label={`${name} to`} value={inputTime(stretch.to)} onChange={(event) => change(stretch.from, seconds(event.currentTarget.value))} />
    </span>
  );
}

const NAMES = { previous: "the stretch before", day: "a day earlier", week: "a week earlier" } as const;

/** Fixed ends and the stretch compared with: one line below the header. */
export function RangeLine({ view, nowS, go, against, isMoved }: Props & { against: Stretch | null; isMoved: boolean }) {
  const { fixed } = view;
  const chosen = view.against === null ? "none" : typeof view.against === "string" ? view.against : "fixed";
  const choose = (word: string) => {
    const named = AGAINST.find((one) => one === word);
    const from = fixed?.from ?? Math.floor(nowS / 60) * 60 - view.range.seconds;
    const length = fixed ? fixed.to - fixed.from : view.range.seconds;
    const stretch = against ?? { from: from - length, to: from };
    go({ ...view, against: word === "fixed" ? stretch : (named ?? null), sort: word === "none" && view.sort === "change" ? START.sort : view.sort, page: 1 });
  };
  return (
    <div class="rangeline">
      {fixed && (
        <span>
          <Ends name="shown" stretch={fixed} onChange={(stretch) => go({ ...view, fixed: stretch, page: 1 })} /> ({span(fixed.to - fixed.from)}
          {clockChange(fixed)}){" "}
          <button type="button" class="plain" onClick={() => go({ ...view, fixed: null, cells: null, page: 1 })}>
            back to now
          </button>
        </span>
      )}
      <label>
        compare with{" "}
        <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
          <option value="none">nothing</option>
          {AGAINST.map((one) => (
            <option key={one} value={one}>
              {NAMES[one]}
            </option>
          ))}
          <option value="fixed">from – to …</option>
        </select>
      </label>
      {against && typeof view.against === "string" && (
        <span class="quiet">
          {stretchWords(against)}
          {isMoved && (view.place === "pair" ? ", which ends before this pair became slower" : ", which ends before a pair became slower")}
        </span>
      )}
      {view.against !== null && typeof view.against !== "string" && <Ends name="compared" stretch={view.against} onChange={(stretch) => go({ ...view, against: stretch, page: 1 })} />}
    </div>
  );
}
