// Coverage: the fate of every span, with remarks, and the meter's services, ports and limits.

import type { Coverage, LimitReport } from "./api";
import { CLASSES, findings } from "./findings";
import { bytes, count, duration, percent, shortCount, span } from "./format";

/** Remarks shown before the rest is unfolded. */
const REMARKS_SHOWN = 5;
/** Maximum rows of the table of services; it shows those with the most spans. */
const SERVICES_SHOWN = 200;

function Numbers({ caption, head, rows }: { caption: string; head: string[]; rows: [string, ...string[]][] }) {
  return (
    <div class="scroller" tabIndex={0} role="region" aria-label={caption}>
      <table class="services">
        <caption>{caption}</caption>
        <thead>
          <tr>
            {head.map((text, at) => (
              <th key={at} scope="col" class={at > 0 ? "number" : ""}>
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([name, ...cells]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {cells.map((cell, at) => (
                <td key={at} class="number">
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Services({ coverage }: { coverage: Coverage }) {
  const share = (joined: number, lost: number) => (joined + lost > 0 ? [count(joined), count(lost), percent(joined / (joined + lost))] : ["–", "–", "–"]);
  const all = (s: Coverage["services"][number]) => s.client_joined + s.client_unmatched + s.server_joined + s.server_unmatched;
  const services = [...coverage.services].sort((a, b) => all(b) - all(a));
  const rows = services.slice(0, SERVICES_SHOWN).map((s): [string, ...string[]] => [s.service, ...share(s.client_joined, s.client_unmatched), ...share(s.server_joined, s.server_unmatched)]);
  const more = services.length > SERVICES_SHOWN ? `; ${count(services.length - SERVICES_SHOWN)} smaller ones are under /api/v1/coverage` : "";
  return <Numbers caption={`Spans of each service that found their mate, since the meter's start${more}`} head={["service", "CLIENT joined", "unmatched", "match", "SERVER joined", "unmatched", "match"]} rows={rows} />;
}

const size = (limit: LimitReport, n: number) => (limit.name.endsWith("_bytes") ? bytes(n) : count(n));

/** How much of the sent data was seen, in a word for the header. */
export function CoverageWord({ coverage }: { coverage: Coverage | null }) {
  if (!coverage) return null;
  const wrongs = findings(coverage).filter((finding) => finding.level === "wrong").length;
  if (wrongs === 0 && coverage.match_ratio === null) return <span class="pill">no spans yet</span>;
  const words = wrongs > 0 ? `${wrongs} ${wrongs === 1 ? "thing" : "things"} missing` : `${percent(coverage.match_ratio)} of spans matched`;
  return (
    <a
      class={wrongs > 0 ? "pill bad" : "pill"}
      href="#seen"
      title="share of settled CLIENT and SERVER spans that found their mate; shows what the meter saw"
      onClick={(event) => {
        event.preventDefault();
        document.getElementById("seen")?.scrollIntoView();
        document.querySelector<HTMLElement>("#seen h2")?.focus({ preventScroll: true });
      }}
    >
      {words}
    </a>
  );
}

export function CoverageView({ coverage: c }: { coverage: Coverage }) {
  const { spans } = c;
  const all = findings(c);
  const aside = all.filter((one) => one.level === "aside");
  const said = all.filter((one) => one.level !== "aside").sort((a, b) => Number(b.level === "wrong") - Number(a.level === "wrong"));
  const Remark = ({ at }: { at: number }) => <li class={said[at]?.level ?? "note"}>{said[at]?.text}</li>;
  const tile = (key: string, label: string, value: string, hint: string, bad: boolean, swatch = false) => (
    <div key={key} class={bad ? "tile bad" : "tile"} title={hint}>
      <dt>
        {swatch && <i class={`swatch class-${key}`} />}
        {label}
      </dt>
      <dd data-count={key}>{value}</dd>
    </div>
  );
  let x = 0;
  const bar = CLASSES.map(({ key }) => {
    const width = spans.received > 0 ? (spans[key] / spans.received) * 1000 : 0;
    x += width;
    return <rect key={key} class={`class-${key}`} x={x - width} y="0" width={width} height="6" />;
  });
  return (
    <section class="panel" id="seen">
      <div class="panel-head">
        <h2 tabIndex={-1}>What the meter saw</h2>
        <span class="quiet">since its start {span(c.uptime_s)} ago</span>
      </div>
      <dl class="tiles">
        {tile("received", "spans received", shortCount(spans.received), `${count(spans.received)} spans since the meter's start`, false)}
        {tile("match_ratio", "match ratio", percent(c.match_ratio), "share of settled CLIENT and SERVER spans that found their mate", false)}
        {CLASSES.filter(({ key, rare }) => !rare || spans[key] > 0).map(({ key, label, hint, bad }) => tile(key, label, shortCount(spans[key]), `${count(spans[key])} spans: ${hint}`, bad === true && spans[key] > 0, true))}
        {tile("refused_requests", "refused", shortCount(c.refused_requests), "requests refused because the meter was overloaded", c.refused_requests > 0)}
        {tile("invalid_requests", "undecodable", shortCount(c.invalid_requests), "requests that could not be decoded", c.invalid_requests > 0)}
      </dl>
      <svg class="shares" viewBox="0 0 1000 6" preserveAspectRatio="none" aria-hidden="true">
        {bar}
      </svg>
      <ul class="findings">
        {said.slice(0, REMARKS_SHOWN).map((_, at) => (
          <Remark key={at} at={at} />
        ))}
      </ul>
      {said.length > REMARKS_SHOWN && (
        <details>
          <summary>{said.length - REMARKS_SHOWN} more remarks</summary>
          <ul class="findings">
            {said.slice(REMARKS_SHOWN).map((_, at) => (
              <Remark key={at} at={at + REMARKS_SHOWN} />
            ))}
          </ul>
        </details>
      )}
      <details>
        <summary>services, arrival, memory and limits</summary>
        <div class="more">
          {aside.map((one) => (
            <p key={one.text}>{one.text}</p>
          ))}
          <p>
            Half of all mates came within {duration(c.mate_delay.p50_ns)} of each other, 99 % within {duration(c.mate_delay.p99_ns)}, the slowest within {duration(c.mate_delay.max_ns)}. Pending spans take {bytes(c.pending_bytes)} of at most {bytes(c.pending_bytes_limit)}; whole spans for the worst calls {bytes(c.whole_bytes)}.
          </p>
          {c.services.length > 0 && <Services coverage={c} />}
          <Numbers
            caption="Limits: what is held, and what did not fit"
            head={["limit of", "used", "limit", "cut", "forgotten", "refused"]}
            rows={c.limits.map((l): [string, ...string[]] => [l.name.replaceAll("_", " "), size(l, l.used), size(l, l.limit), count(l.cut), count(l.forgotten), count(l.refused)])}
          />
          <Numbers
            caption="Connections of each port"
            head={["port", "open", "accepted", "without request", "idle", "not reading", "for room", "no TLS", "refused"]}
            rows={c.ports.map((p): [string, ...string[]] => [p.port.replaceAll("_", " "), `${count(p.open)} of ${count(p.limit)}`, ...[p.accepted, p.closed_no_request, p.closed_idle, p.closed_not_reading, p.closed_for_room, p.closed_no_tls, p.refused].map(count)])}
          />
        </div>
      </details>
    </section>
  );
}
