// What sets the slow calls of a pair apart: attributes by how much of the excess the calls that carry them have.

import type { ComponentChildren } from "preact";
import type { Difference, Explanation, Named, Rise } from "./explain_api";
import { count, counted, duration, figure, percent, visible } from "./format";
import { ShareBar, Spark } from "./parts";

/** Values of exactly the same calls that are named; the others are counted. */
const SAME_NAMED = 3;

const named = ({ attribute, value }: Named) => `${attribute} = ${visible(value)}`;

function sameCalls(same: Named[]): string {
  const more = same.length > SAME_NAMED ? ` and ${count(same.length - SAME_NAMED)} more` : "";
  return `the same calls also have ${same.slice(0, SAME_NAMED).map(named).join(", ")}${more}`;
}

/** A value that leads, with those that explain nothing without it. */
interface Group {
  leader: Difference;
  followers: Difference[];
}

/** The meter lists each value that follows behind the one that leads. */
export function grouped(differs: Difference[]): Group[] {
  const groups: Group[] = [];
  for (const one of differs) {
    const last = groups.at(-1);
    if (one.follows && last) last.followers.push(one);
    else groups.push({ leader: one, followers: [] });
  }
  return groups;
}

/** What follows, one line for each attribute. */
function Followers({ of }: { of: Difference[] }) {
  if (of.length === 0) return null;
  const values = new Map<string, Difference[]>();
  for (const one of of) values.set(one.attribute, [...(values.get(one.attribute) ?? []), one]);
  return (
    <details class="follows">
      <summary>explains {of.length === 1 ? "another value" : `${count(of.length)} other values`}</summary>
      <ul>
        {[...values].map(([attribute, all]) => (
          <li key={attribute}>
            {attribute} = {all.map((one) => `${visible(one.value)} (${percent(one.share_of_excess.mid)} of the excess)`).join(", ")}
          </li>
        ))}
      </ul>
    </details>
  );
}

function Row({ group: { leader: row, followers } }: { group: Group }) {
  const { low, mid, high } = row.share_of_excess;
  const same = row.same_calls ?? [];
  return (
    <tr>
      <th scope="row">
        {row.attribute} = <b>{visible(row.value)}</b>
        {same.length > 0 && <span class="follows">{sameCalls(same)}</span>}
        <Followers of={followers} />
      </th>
      <td class="barcell">
        <ShareBar low={low} mid={mid} high={high} />
      </td>
      <td class="number" data-label="of the excess">
        {percent(mid)} <span class="interval">({percent(low)} – {percent(high)})</span>
      </td>
      <td class="number" data-label="of the calls">
        {row.share_of_calls > 0 ? percent(row.share_of_calls) : <span title="none of the calls that were sampled regardless of their gap; the share of all calls is small, but not known to be zero">none sampled</span>}
      </td>
      <td class="number" data-label="median gap, with and without">
        {row.median_gap_ns === null ? "–" : duration(row.median_gap_ns)} <span class="beside">/ {row.median_gap_without_ns === null ? "–" : duration(row.median_gap_without_ns)}</span>
      </td>
    </tr>
  );
}

const QUARTERS = ["smallest quarter", "second", "third", "largest quarter"];

/** Dose and response: the median gap of each quarter of the calls, by the size of the number. */
function Rises({ rises, where }: { rises: Rise[]; where: string }) {
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label={`Numbers that the gap goes with${where}`}>
      <table class="explained rises calls">
        <thead>
          <tr>
            <th scope="col">the gap</th>
            <th scope="col">
              <span class="unseen">drawn</span>
            </th>
            {QUARTERS.map((words) => (
              <th key={words} scope="col" class="number" title="median gap of a quarter of the sampled calls, by the size of the number; below it which numbers these are">
                {words}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rises.map((rise) => (
            <tr key={rise.attribute}>
              <th scope="row">
                {rise.correlation < 0 ? "falls" : "rises"} with <b>{rise.attribute}</b>
              </th>
              <td class="sparkline">
                <Spark values={rise.quarters.map((quarter) => quarter.median_gap_ns)} label={`median gap by quarter: ${rise.quarters.map((quarter) => duration(quarter.median_gap_ns)).join(", ")}`} />
              </td>
              {QUARTERS.map((words, at) => {
                const quarter = rise.quarters[at];
                return (
                  <td key={words} class="number" data-label={words}>
                    {quarter && (
                      <>
                        {duration(quarter.median_gap_ns)} <span class="interval">at {quarter.from === quarter.to ? figure(quarter.from) : `${figure(quarter.from)} to ${figure(quarter.to)}`}</span>
                      </>
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** `slowAsAll` is where to look when no call stands out of the others, because all of them became slower. `of` says which calls were sampled, where it is not all of them; `where` tells several pairs on one page apart. */
export function ExplanationView({ explanation: e, of = " of the last minute", where = "", slowAsAll }: { explanation: Explanation; of?: string; where?: string; slowAsAll?: ComponentChildren | undefined }) {
  const looked = `${counted(e.attributes, "attribute")} of ${counted(e.sampled, "call")}, sampled from ${count(e.calls)}`;
  if (e.sampled === 0) return <p class="quiet">No call{of} is held whole{e.without_spans > 0 ? `: of ${count(e.without_spans)} sampled ones the spans were overwritten` : ""}.</p>;
  const nothing = e.differs.length === 0 && e.rises_with.length === 0;
  // Of what could not be tested nothing is known.
  const isAlike = nothing && slowAsAll !== undefined && e.tested > 0;
  return (
    <>
      {isAlike && <p>{slowAsAll}</p>}
      {nothing && <p class={isAlike ? "quiet" : undefined}>{e.tested === 0 ? "Not known: no attribute differs among enough of these calls to be tested." : "Nothing does: calls with any one value have no more of the excess than as many others, and the gap goes with no number."}</p>}
      {e.differs.length > 0 && (
        <div class="scroller" tabIndex={0} role="region" aria-label={`What sets slow calls apart${where}`}>
          <table class="explained calls">
            <thead>
              <tr>
                <th scope="col">calls with</th>
                <th scope="col">share</th>
                <th scope="col" class="number">
                  of the excess
                </th>
                <th scope="col" class="number">
                  of the calls
                </th>
                <th scope="col" class="number" title="median gap of calls with it, and of those without">
                  median gap with / without
                </th>
              </tr>
            </thead>
            <tbody>
              {grouped(e.differs).map((group) => (
                <Row key={named(group.leader)} group={group} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {e.rises_with.length > 0 && <Rises rises={e.rises_with} where={where} />}
      <p class="remark">
        Excess is what gaps have beyond the median of {duration(e.typical_gap_ns)}: {duration(e.excess_ns)} in all. {looked}
        {e.without_spans > 0 ? `, ${count(e.without_spans)} more were no longer held whole` : ""}; {counted(e.tested, "value")} tested, at most {percent(e.false_discovery_rate)} of what is shown by chance. It says what goes with slow calls, not that it is the reason.
      </p>
    </>
  );
}
