// A verdict: who owns the time, what speaks for it and against it, what was cleared, and what nobody looked at.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { CaseState as State, Culprit, Hunt, SheetRow } from "./cases_api";
import { countsWords } from "./counts";
import { expectedWords, type Expected } from "./expected";
import { count, duration, interval, percent } from "./format";
import { Code, Panel, ShareBar } from "./parts";
import { beyondWhole, causeWords, shareWords } from "./verdict_words";
import { legWords } from "./whole_words";

/** Text of what may be a sentence or a value with one. */
function words(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value)) return value.map(words).join("; ");
  if (value === null || typeof value !== "object") return "";
  const entries = Object.entries(value);
  const said = entries.find(([key]) => ["what", "words", "text", "do", "summary"].includes(key));
  return said ? words(said[1]) : entries.map(([key, one]) => `${key.replaceAll("_", " ")}: ${words(one)}`).join(", ");
}

/** What a verdict is, in words. */
const VERDICTS: Record<string, string> = {
  one: "one cause",
  several: "several causes",
  place: "the place, not yet the cause",
  unknown: "not known",
  nothing: "nothing stands out",
};

/** What has less than this share explains nothing: all of that is one line, the rest. */
const LITTLE = 0.01;

/** What many did, each a little, is the machine's own noise, and no culprit. */
const ownerOf = (row: SheetRow) => (row.cause ? `${causeWords(row.cause, row.side)}${row.noise ? ", behind many: noise" : ""}` : row.leg ? legWords(row.leg) : "not explained");

function Sheet({ hunt }: { hunt: Hunt }) {
  const rows = [...(hunt.sheet ?? [])].sort((a, b) => b.share.mid - a.share.mid);
  const shown = rows.filter((row) => Math.abs(row.share.mid) >= LITTLE);
  const little = rows.filter((row) => !shown.includes(row));
  const slow = hunt.question !== "all";
  const mean = hunt.excess?.mean_ns;
  const left = hunt.unexplained;
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Balance sheet">
      <table class="sheet stacks">
        <caption>
          {slow ? "Who has what slow calls take beyond ordinary ones" : "Who has the time of all calls"}
          {mean ? `, ${duration(mean)} of each in the mean` : ""}
        </caption>
        <thead>
          <tr>
            <th scope="col">owner</th>
            <th scope="col">share, and its 90 % interval</th>
            <th scope="col" class="number">
              share
            </th>
            <th scope="col" class="number">
              of a call
            </th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row, at) => (
            <tr key={at} class={row.cause ? "cause" : "place"}>
              <th scope="row">
                {row.cause ? ownerOf(row) : <span class="quiet">nobody named, in {ownerOf(row)}</span>}
                {row.hop ? <span class="quiet"> behind proxy {row.hop}</span> : null}
              </th>
              <td class="barcell">
                <ShareBar {...row.share} name={row.cause ? "" : "unexplained"} />
              </td>
              <td class="number" data-label="share">
                {shareWords(row.share)}
              </td>
              <td class="number" data-label="of a call">
                {duration(row.ns)} <span class="interval">({interval(row.ns, [row.low_ns, row.high_ns])})</span>
              </td>
            </tr>
          ))}
          {little.length > 0 && (
            <tr>
              <th scope="row" class="quiet">
                the rest: {count(little.length)} of less than 1 % each
              </th>
              <td class="barcell" />
              <td class="number quiet" data-label="share">
                {percent(Math.max(0, little.reduce((sum, row) => sum + row.share.mid, 0)))}
              </td>
              <td class="number quiet" data-label="of a call">
                {duration(Math.max(0, little.reduce((sum, row) => sum + row.ns, 0)))}
              </td>
            </tr>
          )}
          {left && (
            <tr class="total">
              <th scope="row">nobody named, in all</th>
              <td class="barcell">
                <ShareBar {...left} name="unexplained" />
              </td>
              <td class="number" data-label="share">
                {shareWords(left)}
              </td>
              <td class="number" />
            </tr>
          )}
        </tbody>
      </table>
    </div>
  );
}

/** Sentences in sight; further ones, such as one for each connection, are folded. */
const MOST_SAID = 3;

/** Sentences, each once: slow calls of one connection rest on the same one. */
function Said({ all = [] }: { all: unknown[] | undefined }) {
  const said = [...new Set(all.map(words))];
  const list = (some: string[]) => (
    <ul>
      {some.map((one) => (
        <li key={one}>{one}</li>
      ))}
    </ul>
  );
  // One alone takes no more room than the word for it.
  if (said.length <= MOST_SAID + 1) return list(said);
  return (
    <>
      {list(said.slice(0, MOST_SAID))}
      <details>
        <summary>{count(said.length - MOST_SAID)} more</summary>
        {list(said.slice(MOST_SAID))}
      </details>
    </>
  );
}

function CulpritView({ culprit, of, expected }: { culprit: Culprit; of: string; expected: Expected | null }) {
  return (
    <div class="culprit">
      <h3>
        {causeWords(culprit.cause, culprit.side)} <span class="quiet">{shareWords(culprit.share)} of {of}</span>
      </h3>
      {culprit.meaning && <p class="meaning">{culprit.meaning.replace(/^./, (first) => first.toUpperCase())}.</p>}
      <div class="for-against">
        {(culprit.for?.length ?? 0) > 0 && (
          <div>
            <h4>for it</h4>
            <Said all={culprit.for} />
          </div>
        )}
        {(culprit.against?.length ?? 0) > 0 && (
          <div>
            <h4>against it</h4>
            <Said all={culprit.against} />
          </div>
        )}
      </div>
      {words(culprit.remedy) !== "" && (
        <p class="remedy">
          <b>Do:</b> <Code text={words(culprit.remedy)} />
          {expected ? ` ${expectedWords(expected)}` : culprit.wins && culprit.wins.p99_ns > 0 && ` Predicted: ${duration(culprit.wins.p99_ns)} less at p99 and ${duration(culprit.wins.p50_ns)} at p50.`}
        </p>
      )}
    </div>
  );
}

type Beside = NonNullable<Hunt["beside"]>[number];

/** What is the same of several connections or hosts is told once, with how often. */
function alike(all: Beside[]): [Beside, number][] {
  const told = new Map<string, [Beside, number]>();
  for (const one of all) {
    const key = JSON.stringify([one.cause, one.side, one.instrument, one.certainty, one.cost_ns, one.note ?? one.missing]);
    told.set(key, [one, (told.get(key)?.[1] ?? 0) + 1]);
  }
  return [...told.values()];
}

/** Rows shown before somebody asks for all of them. */
const FEW = 8;

function Suspects({ cleared, notLooked }: { cleared: NonNullable<Hunt["cleared"]>; notLooked: NonNullable<Hunt["not_looked"]> }) {
  const [all, setAll] = useState(false);
  const needs = new Map<string, string[]>();
  for (const one of notLooked) {
    const key = words(one.needs);
    needs.set(key, [...(needs.get(key) ?? []), causeWords(one.cause, one.side)]);
  }
  const shown = all ? cleared : cleared.slice(0, FEW);
  return (
    <>
      {cleared.length > 0 && (
        <Panel title="Cleared" aside={<span class="quiet">{count(cleared.length)} suspects that would have shown</span>}>
          <div class="scroller" tabIndex={0} role="region" aria-label="Suspects that are cleared">
            <table class="suspects stacks">
              <thead>
                <tr>
                  <th scope="col">suspect</th>
                  <th scope="col">would have shown</th>
                  <th scope="col">seen</th>
                </tr>
              </thead>
              <tbody>
                {shown.map((one, at) => (
                  <tr key={at}>
                    <th scope="row">{causeWords(one.cause, one.side)}</th>
                    <td class="whole-row" data-label="would have shown">
                      {words(one.would_show)}
                    </td>
                    <td class="whole-row cleared" data-label="seen">
                      {words(one.seen)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {cleared.length > FEW && (
            <button type="button" onClick={() => setAll(!all)}>
              {all ? "fewer" : `all ${count(cleared.length)}`}
            </button>
          )}
        </Panel>
      )}
      {needs.size > 0 && (
        <Panel title="Not looked at" aside={<span class="quiet">{count(notLooked.length)} suspects, by what it would take</span>}>
          <dl class="needs">
            {[...needs].map(([need, suspects]) => (
              <div key={need}>
                <dt>
                  <Code text={need || "nothing is known of what it takes"} />
                </dt>
                <dd>{suspects.join(", ")}</dd>
              </div>
            ))}
          </dl>
        </Panel>
      )}
    </>
  );
}

/** `children` stand between the verdict and what it does not rest on; of a case, `expected` is what it predicts of its first culprit's remedy. */
export function HuntView({ hunt, state, expected = null, children }: { hunt: Hunt; state: State; expected?: Expected | null; children?: ComponentChildren }) {
  const cleared = hunt.cleared ?? [];
  const notLooked = hunt.not_looked ?? [];
  const next = hunt.look_next ?? [];
  const experiments = hunt.experiments ?? [];
  const coverage = hunt.coverage;
  const counts = countsWords(hunt);
  const beyond = beyondWhole([...(hunt.culprits ?? []).map((one) => one.share), hunt.place?.share, hunt.unexplained, ...(hunt.sheet ?? []).filter((row) => Math.abs(row.share.mid) >= LITTLE).map((row) => row.share)]);
  const slow = hunt.question !== "all";
  const other = slow ? hunt.questions?.all : hunt.questions?.slow;
  return (
    <>
      <Panel title="Why" aside={<span class="quiet">{VERDICTS[hunt.verdict] ?? hunt.verdict}</span>}>
        {(hunt.culprits ?? []).map((culprit, at) => (
          <CulpritView key={at} culprit={culprit} of={slow ? "the excess" : "the time"} expected={at === 0 ? expected : null} />
        ))}
        {hunt.place && (
          <p>
            No culprit is named, but the place is: <b>{legWords(hunt.place.leg)}</b> has {shareWords(hunt.place.share)} of {slow ? "the excess" : "the time"}.
          </p>
        )}
        {(hunt.culprits ?? []).length === 0 && !hunt.place && <p>{hunt.verdict === "nothing" ? "There is nothing to explain: the calls examined are not slower than ordinary ones." : "The recordings do not show what owns the time."}</p>}
        {(hunt.sheet ?? []).length > 0 && <Sheet hunt={hunt} />}
        {other && (
          <details class="remark">
            <summary>{slow ? "Why everything takes as long as it does" : "Why slow calls are slower than others"}</summary>
            <Code text={other.words} />
          </details>
        )}
        {beyond && <p class="remark">{beyond}</p>}
        {counts && <p class="remark counts">Calls: {counts}</p>}
        {coverage && (
          <p class="remark">
            {coverage.with_legs === undefined ? "" : `${percent(Math.min(1, coverage.with_legs))} of the time of those examined has an owner or a leg. `}Hosts recorded: {(coverage.hosts ?? []).join(" and ") || "none"}.
          </p>
        )}
      </Panel>
      {children}
      {!children && experiments.length > 0 && (
        <Panel title="Experiments">
          <ul class="plain-list">
            {experiments.map((one, at) => (
              <li key={at}>
                <b>{one.lever}</b>
                {one.predicted_ns !== undefined && `: predicted ${duration(one.predicted_ns)}`}
                {one.effect_ns && `, measured ${duration(one.effect_ns.mid)} (${interval(one.effect_ns.mid, [one.effect_ns.low, one.effect_ns.high])})`}
                {one.outcome && ` – ${one.outcome}`}
              </li>
            ))}
          </ul>
        </Panel>
      )}
      {next.length > 0 && (
        <Panel title={state === "unknown" ? "What would tell" : "Where to look next"}>
          <ul class="plain-list">{next.map((one, at) => (
              <li key={at}>
                <Code text={words(one)} />
              </li>
            ))}</ul>
        </Panel>
      )}
      {(cleared.length > 0 || notLooked.length > 0) && <Suspects cleared={cleared} notLooked={notLooked} />}
      {(hunt.beside?.length ?? 0) > 0 && (
        <Panel title="Other instruments" aside={<span class="quiet">of hosts and connections; none of it says which calls it held up</span>}>
          <ul class="plain-list">
            {alike(hunt.beside ?? []).map(([one, times], at) => (
              <li key={at}>
                <b>{causeWords(one.cause, one.side)}</b> <span class="quiet">{[one.instrument ?? "", one.certainty ?? "", one.cost_ns ? duration(one.cost_ns) : "", times > 1 ? `${count(times)} times` : ""].filter((word) => word !== "").join(", ")}</span> {one.note ?? (one.missing ? `not shown: ${one.missing}` : "")}
              </li>
            ))}
          </ul>
        </Panel>
      )}
    </>
  );
}

