// The report of `spangap dissect --html`: what took the time, calls packet by packet, totals, and the input.

import { Code, Panel } from "../parts";
import { Packets, WholeAxis } from "../whole";
import type { WholeCall } from "../whole_api";
import { legKind } from "../whole_words";
import type { CallPage, DissectPage, SumsPage } from "./dissect_api";
import { Report, Table } from "./parts";

/** The call on its own axis: by the clock of the end where it begins. */
function drawn(call: CallPage): WholeCall {
  const { report } = call;
  const ladder = report.ladder;
  const fromClient = ladder?.packets.some((packet) => packet.seen_at === "client") ?? true;
  return { ...report, tracks: [], axis: { base: fromClient ? "client" : "server", start_unix_ns: report.start_unix_ns, correction_ns: null, correction_bound_ns: null } };
}

/** The legs as rows: each begins where the previous one ends, with a whisker for its bound. */
function Legs({ call }: { call: CallPage }) {
  const whole = Math.max(1, call.report.duration_ns);
  const x = (ns: number) => Math.min(100, Math.max(0, (ns / whole) * 100));
  let at = 0;
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label="Legs of the call">
      <table class="legs-of stacks">
        <caption>Legs, in order: they add up to the call. Whiskers: what the clocks leave open.</caption>
        <thead>
          <tr>
            <th scope="col">leg</th>
            <th scope="col">when</th>
            <th scope="col" class="number">
              time
            </th>
            <th scope="col" class="number">
              share
            </th>
          </tr>
        </thead>
        <tbody>
          {call.legs.map((leg, row) => {
            const part = call.report.legs[row];
            const [from, ns, bound] = [at, part?.ns ?? 0, part?.bound_ns ?? 0];
            at += ns;
            const [left, right] = [x(Math.min(from, from + ns)), x(Math.max(from, from + ns))];
            return (
              <tr key={row}>
                <th scope="row" title={part?.leg}>
                  {leg.words}
                </th>
                <td class="barcell">
                  <svg class="legbar" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">
                    <rect class={`leg ${legKind(part?.leg ?? "")}`} x={left} width={Math.max(0.3, right - left)} y="2" height="10" />
                    {bound > 0 && <path class="whisker" d={`M${x(from + ns - bound)} 3v8M${x(from + ns - bound)} 7H${x(from + ns + bound)}M${x(from + ns + bound)} 3v8`} />}
                  </svg>
                </td>
                <td class="number" data-label="time">{leg.time}</td>
                <td class="number" data-label="share">{leg.share}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** What threads did in a leg before the rest is unfolded: the longest come first, and a busy machine has dozens. */
const PARTS_SHOWN = 6;

function Parts({ of }: { of: string[] }) {
  const list = (parts: string[]) => <ul class="plain-list">{parts.map((part, at) => <li key={at}>{part}</li>)}</ul>;
  if (of.length <= PARTS_SHOWN + 1) return list(of);
  return (
    <>
      {list(of.slice(0, PARTS_SHOWN))}
      <details class="more-parts">
        <summary>{of.length - PARTS_SHOWN} shorter ones</summary>
        {list(of.slice(PARTS_SHOWN))}
      </details>
    </>
  );
}

function CallSection({ call }: { call: CallPage }) {
  const { report } = call;
  const whole = drawn(call);
  const packets = report.ladder?.packets.length ?? 0;
  return (
    <Panel title={call.title}>
      <p class="facts quiet">{call.facts}</p>
      {report.trace_id && (
        <p class="facts">
          trace <code>{report.trace_id}</code>
        </p>
      )}
      {call.by_shape && <p class="facts quiet">{call.by_shape}</p>}
      <Legs call={call} />
      {call.hops && (
        <>
          <p class="facts">Over its hops: {call.hops.way}</p>
          <ul class="plain-list">
            {call.hops.rows.map(([words, time, share], at) => (
              <li key={at}>
                {time} ({share}) {words}
              </li>
            ))}
          </ul>
        </>
      )}
      {call.hosts.map((host, at) => (
        <div key={at}>
          <p class="facts">{host.title}</p>
          <Parts of={host.parts} />
        </div>
      ))}
      {packets > 0 && <WholeAxis call={whole} />}
      {call.findings.map((finding, at) => (
        <div key={at} class={finding.is_shown ? "also" : "also quiet"}>
          <h3>{finding.title}</h3>
          {finding.missing && <p>{finding.missing}</p>}
          {finding.note !== "" && <p>{finding.note}</p>}
          <table class="evidence">
            <tbody>
              {finding.evidence.map((row, y) => (
                <tr key={y}>
                  {row.map((cell, column) => (
                    <td key={column} class={column === 1 || column === 2 ? "number" : ""}>
                      {cell}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      ))}
      {packets > 0 && (
        <details>
          <summary>{packets} packets</summary>
          <p class="remark">Times are since the call began. {call.times}</p>
          <Packets call={whole} pauses={new Map(call.pauses)} />
        </details>
      )}
      {call.doubts.map((doubt, at) => (
        <p key={at} class="note">
          {doubt}
        </p>
      ))}
    </Panel>
  );
}

function Sums({ sums }: { sums: SumsPage }) {
  return (
    <>
      <h3>{sums.title}</h3>
      <p class="facts quiet">{sums.facts}</p>
      <div class="scroller" tabIndex={0} role="region" aria-label={`Time by leg and cause, ${sums.title}`}>
        <table class="legs-of stacks">
          <thead>
            <tr>
              <th scope="col">leg or cause</th>
              <th scope="col" class="number">
                time
              </th>
              <th scope="col" class="number">
                share
              </th>
              <th scope="col">
                <span class="unseen">share, drawn; calls of a cause</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {sums.legs.map((leg) => (
              <tr key={leg.leg}>
                <th scope="row">{leg.words}</th>
                <td class="number" data-label="time">{leg.time}</td>
                <td class="number" data-label="share">{leg.percent}</td>
                <td class="barcell">
                  <svg class="legbar" viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">
                    <rect class={`leg ${legKind(leg.leg)}`} x="0" y="2" width={Math.min(100, Math.max(0.2, leg.share * 100))} height="10" />
                  </svg>
                </td>
              </tr>
            ))}
            {sums.causes.map(([cause, cost, share, calls], at) => (
              <tr key={`cause ${at}`}>
                <th scope="row">
                  <b>{cause}</b>
                </th>
                <td class="number" data-label="time">{cost}</td>
                <td class="number" data-label="share">{share}</td>
                <td>{calls}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

export function DissectReport({ report }: { report: DissectPage }) {
  return (
    <Report verb="dissect" of={report.kicker}>
      <section class="panel">
        <p class="headline">{report.headline}</p>
        {report.lead && <p class="lead">
          <Code text={report.lead} />
        </p>}
        {report.also.map((one, at) => (
          <p key={at} class={one.is_quiet ? "also quiet" : "also"}>
          <Code text={one.words} />
        </p>
        ))}
      </section>
      {report.calls.map((call, at) => (
        <CallSection key={at} call={call} />
      ))}
      {report.table && (
        <Panel title={report.table.title}>
          <Table table={report.table} label="Calls" />
        </Panel>
      )}
      {report.sums.length > 0 && (
        <Panel title="Where the time of all calls went">
          {report.sums.map((sums, at) => (
            <Sums key={at} sums={sums} />
          ))}
          {report.connections && (
            <>
              <h3>{report.connections.title}</h3>
              <Table table={report.connections} label="Connections" />
            </>
          )}
          {report.notes.map((note, at) => (
            <p key={at} class="remark">
              {note}
            </p>
          ))}
        </Panel>
      )}
      <Panel title="What was read, and what it cannot tell">
        <ul class="plain-list">
          {report.limits.map((one, at) => (
            <li key={at}>{one}</li>
          ))}
        </ul>
        {report.command && (
          <p class="command">
            <code>{report.command}</code>
          </p>
        )}
      </Panel>
    </Report>
  );
}
