// Agents: which hosts they watch, how far back their rings reach, what they cost and what they lost.

import type { Agent, AgentsReport, Ring } from "./cases_api";
import { hostName } from "./cases";
import { AgentCommand } from "./empty";
import { bytes, count, dayAndClock, percent, span } from "./format";
import type { Listens } from "./listens";
import { Panel, ShareBar, Waiting } from "./parts";
import { toHash, type View } from "./state";

const nsToS = (ns: number | null | undefined) => (ns == null || ns <= 0 ? null : ns / 1e9);

function RingLine({ ring, nowS }: { ring: Ring; nowS: number }) {
  const [from, to] = [nsToS(ring.from_unix_ns), nsToS(ring.to_unix_ns)];
  const lost = ring.lost ?? 0;
  const taken = ring.taken ?? 0;
  const missed = (ring.canaries_sent ?? 0) - (ring.canaries_seen ?? 0);
  return (
    <tr>
      <th scope="row">{KEPT[ring.instrument] ?? ring.instrument}</th>
      <td class="number" data-label="reaches back">{from === null || to === null ? "empty" : span(to - from)}</td>
      <td class="number" data-label="until">{to === null ? "–" : to >= nowS - 5 ? "now" : `${span(nowS - to)} ago`}</td>
      <td class="number" data-label="memory">{ring.bytes === undefined ? "–" : bytes(ring.bytes)}</td>
      <td class="number" data-label="taken">{count(taken)}</td>
      <td class={lost > 0 ? "number bad" : "number"} data-label="lost">{count(lost)}{lost > 0 && taken + lost > 0 ? ` (${percent(lost / (taken + lost))})` : ""}</td>
      <td class={missed > UNDER_WAY ? "number bad" : "number"} data-label="test packets seen">{!ring.canaries_sent ? "–" : `${count(ring.canaries_seen ?? 0)} of ${count(ring.canaries_sent)}`}</td>
    </tr>
  );
}

/** A test packet that has only just been sent has not been seen yet. */
const UNDER_WAY = 1;

const KEPT: Record<string, string> = { capture: "packets", "host-record": "scheduling of threads" };

const HEADS: [string, string][] = [
  ["reaches back", "how long before now a slice of it can begin"],
  ["until", "when the last of it came"],
  ["memory", "bytes it takes now"],
  ["taken", "packets or events since the agent's start"],
  ["lost", "packets or events that came faster than the agent took them"],
  ["test packets seen", "packets that the agent sends to itself, to know that it sees any"],
];

const text = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

function AgentView({ agent, nowS, name }: { agent: Agent; nowS: number; name: string }) {
  const seen = agent.last_seen_unix_ms === undefined ? null : agent.last_seen_unix_ms / 1000;
  const problems = [...(agent.given_up ?? []).map((one) => ({ word: "given up", one })), ...(agent.lacks ?? []).map((one) => ({ word: "not seen", one }))];
  const memory = agent.memory_limit_bytes ? (agent.memory_bytes ?? 0) / agent.memory_limit_bytes : null;
  const cpu = agent.cpu_limit ? (agent.cpu_share ?? 0) / agent.cpu_limit : null;
  return (
    <Panel
      title={name}
      aside={
        <span class={agent.connected ? "pill" : "pill bad"}>
          {agent.connected ? `connected${agent.since_unix_ms === undefined ? "" : ` since ${dayAndClock(agent.since_unix_ms / 1000)}`}` : `gone${seen === null ? "" : `, last seen ${span(nowS - seen)} ago`}`}
        </span>
      }
    >
      <div class="agent">
        <dl class="meters">
          <div>
            <dt>memory</dt>
            <dd>
              {agent.memory_bytes === undefined ? "–" : bytes(agent.memory_bytes)}
              {agent.memory_limit_bytes ? ` of ${bytes(agent.memory_limit_bytes)}` : ""}
              {memory !== null && <ShareBar low={memory} mid={memory} high={memory} />}
            </dd>
          </div>
          <div>
            <dt>CPU</dt>
            <dd>
              {agent.cpu_share === undefined ? "–" : `${percent(agent.cpu_share)}${agent.cpu_limit ? ` of ${percent(agent.cpu_limit)}` : ""} of a CPU`}
              {cpu !== null && <ShareBar low={cpu} mid={cpu} high={cpu} />}
            </dd>
          </div>
          <div>
            <dt>containers</dt>
            <dd>{agent.containers === undefined ? "–" : count(agent.containers)}</dd>
          </div>
          <div>
            <dt title="how much of each packet it keeps">of each packet</dt>
            <dd>{agent.payload === "headers" ? "headers alone" : agent.payload === "full" ? "headers and payload" : (agent.payload ?? "–")}</dd>
          </div>
          <div>
            <dt>kernel, agent</dt>
            <dd>
              {agent.kernel ?? "–"}, {agent.version ?? "–"}
            </dd>
          </div>
        </dl>
        {problems.length > 0 && (
          <ul class="findings">
            {problems.map(({ word, one }, at) => (
              <li key={at} class={word === "given up" ? "wrong" : "note"}>
                {word}: {text(one)}
              </li>
            ))}
          </ul>
        )}
        {(agent.rings ?? []).length > 0 && (
          <div class="scroller" tabIndex={0} role="region" aria-label={`Rings of ${agent.host_name}, agent ${agent.id}`}>
            <table class="stacks">
              <thead>
                <tr>
                  <th scope="col" title="what the agent keeps the last of, in memory">keeps</th>
                  {HEADS.map(([head, hint]) => (
                    <th key={head} scope="col" class="number" title={hint}>
                      {head}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {agent.rings?.map((ring) => (
                  <RingLine key={ring.instrument} ring={ring} nowS={nowS} />
                ))}
              </tbody>
            </table>
          </div>
        )}
        {(agent.addresses ?? []).length > 0 && <p class="remark addresses">{agent.addresses?.join(", ")}</p>}
      </div>
    </Panel>
  );
}

export function HostsView({ view, report, none, nowS, listens }: { view: View; report: AgentsReport | null; none: boolean; nowS: number; listens: Listens | null }) {
  if (!report && !none) return <Waiting>Loading the agents…</Waiting>;
  if (!report || report.agents.length === 0) {
    return (
      <div class="empty panel">
        <h2>No agent yet</h2>
        <p>An agent keeps the last seconds of packets and scheduling of its host, and hands over a slice when a call was slow. Start one on each host of the fleet, as root:</p>
        <p>
          <AgentCommand listens={listens} />
        </p>
        <p class="quiet">It takes 256 MiB and 2 % of a CPU at most, unless --memory and --cpu say otherwise, and shows up here within a second.</p>
      </div>
    );
  }
  const { unmatched } = report;
  const missed = (unmatched?.client ?? 0) + (unmatched?.server ?? 0);
  const sorted = [...report.agents].sort((a, b) => Number(a.connected) - Number(b.connected) || a.host_name.localeCompare(b.host_name));
  const connected = report.agents.filter((agent) => agent.connected).length;
  return (
    <>
      <p class="headline">
        {count(connected)} of {count(report.agents.length)} agents connected.{missed > 0 ? ` Of slow calls, ${count(unmatched?.client ?? 0)} client and ${count(unmatched?.server ?? 0)} server sides ran on no host with an agent: ` : ""}
        {missed > 0 && <a href={toHash({ ...view, place: "cases", caseId: null, cases: { state: "unknown", q: "", page: 1 } })}>cases without a verdict</a>}
      </p>
      {sorted.map((agent) => (
        <AgentView key={agent.id} agent={agent} nowS={nowS} name={hostName(agent, sorted)} />
      ))}
    </>
  );
}
