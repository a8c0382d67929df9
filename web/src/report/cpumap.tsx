// The report of `spangap isolate show --html`: the machine's CPUs, nested as in hardware, with what runs on them.

import { useState } from "preact/hooks";
import { Panel } from "../parts";
import { Report } from "./parts";
import type { CpuPage, ListPage, ShowPage } from "./cpumap_api";

/** Lower bounds of the share of softirqs on a CPU, with their colours. */
const HEAT: [number, string][] = [
  [0, "below 1 %"],
  [0.01, "1 to 5 %"],
  [0.05, "5 to 15 %"],
  [0.15, "15 to 35 %"],
  [0.35, "35 to 60 %"],
  [0.6, "60 % and more"],
];

const heat = (share: number | null) => HEAT.reduce((found, [from], at) => ((share ?? 0) >= from ? at : found), 0);
const whole = (share: number) => `${(share * 100).toFixed(0)} %`;
const marks = (cpu: CpuPage) => [cpu.net ? "net" : cpu.planned ? "planned" : "", cpu.apart ? "apart" : ""].filter((mark) => mark !== "").join(" ");

function Legend({ report }: { report: ShowPage }) {
  const shown: [boolean, string, string][] = [
    [report.cpus.some((cpu) => cpu.net), "net", "for the network (NET)"],
    [report.cpus.some((cpu) => cpu.planned && !cpu.net), "planned", "a plan would take it"],
    [report.cpus.some((cpu) => cpu.apart), "apart", "isolated at boot, or not balanced"],
  ];
  return (
    <p class="legs-key">
      {HEAT.map(([from, words], at) => (
        <span key={from}>
          <i class={`cpu-key heat-${at}`} /> {at === 0 ? `softirqs ${words}` : words}
        </span>
      ))}
      <span>
        <i class="cpu-key tasks" /> share of tasks
      </span>
      {shown
        .filter(([any]) => any)
        .map(([, name, words]) => (
          <span key={name}>
            <i class={`cpu-key ${name}`} /> {words}
          </span>
        ))}
      {report.labels.map((words) => (
        <span key={words}>{words}</span>
      ))}
    </p>
  );
}

function Cpu({ cpu, chosen, choose }: { cpu: CpuPage; chosen: boolean; choose: (cpu: CpuPage) => void }) {
  return (
    <button type="button" data-cpu={cpu.cpu} class={`cpu heat-${heat(cpu.softirq_share)} ${marks(cpu)}`} aria-pressed={chosen} title={cpu.told.join("\n")} onClick={() => choose(cpu)}>
      <b>{cpu.cpu}</b>
      <span class="softirqs">{cpu.softirq_share !== null && cpu.softirq_share >= 0.005 ? whole(cpu.softirq_share) : ""}</span>
      <span class="label">{cpu.label}</span>
      <span class="busy">
        <i style={{ width: `${Math.min(1, Math.max(0, cpu.tasks_share ?? 0)) * 100}%` }} />
      </span>
    </button>
  );
}

function Map({ report }: { report: ShowPage }) {
  const [chosen, setChosen] = useState<CpuPage | null>(null);
  let next = 0;
  const take = (many: number) => report.cpus.slice(next, (next += many));
  return (
    <>
      <div class="cpumap">
        {report.packages.map((machine, at) => (
          <div key={at} class="box package">
            <p class="box-name">{machine.name}</p>
            {machine.nodes.map((node, of) => (
              <div key={of} class={node.name ? "box node" : "node"}>
                {node.name && <p class="box-name">{node.name}</p>}
                {node.caches.map((cache, nth) => (
                  <div key={nth} class={cache.name ? "box cache" : "cache"}>
                    {cache.name && <p class="box-name">{cache.name}</p>}
                    <div class="cores">
                      {cache.cores.map((many, core) => (
                        <div key={core} class="core">
                          {take(many).map((cpu) => (
                            <Cpu key={cpu.cpu} cpu={cpu} chosen={chosen === cpu} choose={setChosen} />
                          ))}
                        </div>
                      ))}
                    </div>
                  </div>
                ))}
              </div>
            ))}
          </div>
        ))}
      </div>
      <div class="chosen" aria-live="polite">
        {(chosen?.told ?? ["Choose a CPU to read what is on it."]).map((line, at) => (
          <p key={at}>{line}</p>
        ))}
      </div>
    </>
  );
}

const HEAD = ["CPU", "package", "node", "core of", "softirq %", "IRQ %", "tasks %", "steal %", "idle %", "NET_RX/s", "IRQ/s", "what is there"];

function Rows({ cpus }: { cpus: CpuPage[] }) {
  const isFigure = (at: number) => (at < HEAD.length - 1 ? "number" : "wrapped");
  return (
    <Panel title="Every CPU">
      <div class="scroller" tabIndex={0} role="region" aria-label="Every CPU">
        <table>
          <thead>
            <tr>
              {HEAD.map((head, at) => (
                <th key={head} scope="col" class={isFigure(at)}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {cpus.map((cpu) => (
              <tr key={cpu.cpu} class={cpu.net ? "chosen" : ""}>
                {cpu.row.map((cell, at) => (
                  <td key={at} class={isFigure(at)}>
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function List({ list }: { list: ListPage }) {
  return (
    <Panel title={list.title}>
      <pre class="lines scroller" tabIndex={0} role="region" aria-label={list.title}>
        {list.lines.join("\n")}
      </pre>
    </Panel>
  );
}

export function ShowReport({ report }: { report: ShowPage }) {
  return (
    <Report verb="isolate show" of={report.title}>
      <section class="panel">
        <p class="headline">Where interrupts and applications are</p>
        {report.plans.map((words, at) => (
          <p key={at} class="lead">
            {words}
          </p>
        ))}
        <Legend report={report} />
        <Map report={report} />
      </section>
      {report.lists.map((list) => (
        <List key={list.title} list={list} />
      ))}
      <Rows cpus={report.cpus} />
    </Report>
  );
}
