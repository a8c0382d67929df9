// The report of `spangap host stacks --html`: who else had the CPUs, as a flame graph and in words.

import { useMemo, useState } from "preact/hooks";
import { count, percent } from "../format";
import { Panel } from "../parts";
import { flameTree, found, frameAt, place, type Frame, type Placed } from "./flame";
import { Remarks, Report, Table } from "./parts";
import type { GroupPage, StacksPage } from "./stacks_api";

const ROW = 18;
/** Minimum share of the width at which a name fits. */
const NAMED = 0.025;

/** Softirqs and interrupts, and what they interrupt, have other colours than the work of processes. */
const kind = (frame: Frame) => (frame.path.length === 0 ? "root" : / interrupting | in a call of /.test(frame.path[0] ?? "") ? "interrupt" : "process");

function Flame({ report }: { report: StacksPage }) {
  const root = useMemo(() => flameTree(report.folded), [report.folded]);
  const [path, setPath] = useState<string[]>([]);
  const [words, setWords] = useState("");
  const [pointed, setPointed] = useState<Frame | null>(null);
  const zoomed = frameAt(root, path);
  const placed = useMemo(() => place(root, zoomed), [root, zoomed]);
  const rows = placed.reduce((most, one) => Math.max(most, one.row), 0) + 1;
  const share = (frame: Frame) => `${frame.name}: ${count(frame.samples)} samples, ${percent(frame.samples / Math.max(1, root.samples))} of these, ${percent(frame.samples / Math.max(1, report.samples))} of all time of the CPUs`;
  const matches = (one: Placed) => words !== "" && one.frame.path.length > 0 && one.frame.name.toLowerCase().includes(words.toLowerCase());
  return (
    <div class="flame">
      <div class="whole-tools">
        <input type="search" aria-label="search functions" placeholder="search functions" value={words} onInput={(event) => setWords(event.currentTarget.value)} />
        <button type="button" disabled={path.length === 0} onClick={() => setPath([])}>
          all of it
        </button>
        {words !== "" && <span class="quiet">{percent(found(root, words) / Math.max(1, root.samples))} of these samples</span>}
      </div>
      <div class="frames" style={{ height: `${rows * ROW}px` }}>
        {placed.map((one) => (
          <button
            key={one.frame.path.join(";")}
            type="button"
            class={`frame ${kind(one.frame)}${one.width >= NAMED ? " named" : ""}${one.below ? " below" : ""}${matches(one) ? " match" : ""}`}
            style={{ left: `${one.x * 100}%`, width: `${one.width * 100}%`, bottom: `${one.row * ROW}px` }}
            tabIndex={one.width >= NAMED ? 0 : -1}
            title={share(one.frame)}
            aria-label={share(one.frame)}
            onClick={() => setPath(one.frame.path)}
            onPointerEnter={() => setPointed(one.frame)}
            onFocus={() => setPointed(one.frame)}
          >
            {one.width >= NAMED ? one.frame.name : ""}
          </button>
        ))}
      </div>
      <p class="chosen">{share(pointed ?? zoomed)}</p>
    </div>
  );
}

function Groups({ groups, more }: { groups: GroupPage[]; more: string | undefined }) {
  return (
    <Panel title="Who had the rest, as shares of the time of all these CPUs">
      <ul class="groups">
        {groups.map((group, at) => (
          <li key={at}>
            <b class="number">{group.share}</b> {group.words}
            <ul>
              {group.ways.map((way, of) => (
                <li key={of}>
                  <span class="number">{way.share}</span> <code>{way.words}</code>
                </li>
              ))}
            </ul>
          </li>
        ))}
      </ul>
      {more && <p class="remark">{more}</p>}
    </Panel>
  );
}

export function StacksReport({ report }: { report: StacksPage }) {
  const none = report.folded.length === 0;
  return (
    <Report verb="host stacks" of={report.facts}>
      <section class="panel">
        <p class="headline">{report.title}</p>
        <p class="lead">{none ? "Nothing else used these CPUs." : report.shares}</p>
      </section>
      {!none && (
        <Panel title="Flame graph">
          <p class="summary">As wide as a frame is, so much of the time it took. Below it stands what called it. Click to zoom.</p>
          <Flame report={report} />
        </Panel>
      )}
      {report.groups.length > 0 && <Groups groups={report.groups} more={report.more_groups} />}
      <Panel title={report.per_cpu.title}>
        <Table table={report.per_cpu} label={report.per_cpu.title} />
      </Panel>
      <Remarks of={[...report.notes.map((note) => `${note}.`), report.cost]} />
    </Report>
  );
}
