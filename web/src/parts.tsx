// Small parts shared by several views.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Quantiles } from "./api";
import { duration, interval, visible } from "./format";

/** Names of a pair, each truncated with an ellipsis where room is short; the title has the full names. */
export function PairTitle({ pair }: { pair: { client: string; server: string; method?: string | undefined } }) {
  return (
    <>
      <span class="name">{visible(pair.client)}</span>
      <span class="arrow"> → </span>
      <span class="name">{visible(pair.server)}</span>
      {pair.method !== undefined && <span class="method"> {visible(pair.method)}</span>}
    </>
  );
}

export const titleOf = (pair: { client: string; server: string; method?: string | undefined }): string =>
  [visible(pair.client), "→", visible(pair.server), ...(pair.method === undefined ? [] : [visible(pair.method)])].join(" ");

/** A figure, with its interval below it. */
export function Figure({ ns, ci95, calls }: { ns: number; ci95?: [number, number]; calls: number }) {
  if (calls === 0) return <span class="quiet">–</span>;
  return (
    <>
      {duration(ns)}
      {ci95 && <span class="interval"> ({interval(ns, ci95)})</span>}
    </>
  );
}

const WIDTH = 130;

/** Ratio of the largest to the smallest duration that the small plots still distinguish. */
const TOLD_APART = 1e4;

/** Common range of the small plots of all rows. Much shorter durations are drawn at the left edge. */
export function plotRange(gaps: Quantiles[]): [number, number] {
  const seen = gaps.filter((gap) => gap.count > 0 && gap.p99_ns > 0);
  if (seen.length === 0) return [1, 10];
  const high = seen.reduce((most, gap) => Math.max(most, gap.p99_ci95_ns[1]), 1);
  const low = seen.reduce((least, gap) => Math.min(least, Math.max(1, high / TOLD_APART, gap.p50_ci95_ns[0])), Infinity);
  return [low * 0.8, Math.max(low * 2, high * 1.25)];
}

/** Median and 99th percentile with their intervals, on one logarithmic scale for all rows. */
export function Whisker({ gap, range: [low, high], before }: { gap: Quantiles; range: [number, number]; before?: Quantiles | undefined }) {
  const x = (ns: number) => (Math.log(Math.max(ns, low) / low) / Math.log(high / low)) * (WIDTH - 8) + 4;
  const mark = (name: string, ns: number, [from, to]: [number, number], y: number) => (
    <>
      <line class={name} x1={x(from)} x2={x(to)} y1={y} y2={y} />
      <line class={name} x1={x(from)} x2={x(from)} y1={y - 4} y2={y + 4} />
      <line class={name} x1={x(to)} x2={x(to)} y1={y - 4} y2={y + 4} />
      <circle class={name} cx={x(ns)} cy={y} r={2.6} />
    </>
  );
  const both = (quantiles: Quantiles, y: number) =>
    quantiles.count > 0 && (
      <>
        <line class="between" x1={x(quantiles.p50_ns)} x2={x(quantiles.p99_ns)} y1={y} y2={y} />
        {mark("p50", quantiles.p50_ns, quantiles.p50_ci95_ns, y)}
        {mark("p99", quantiles.p99_ns, quantiles.p99_ci95_ns, y)}
      </>
    );
  const height = before ? 24 : 16;
  return (
    <svg class="whisker" viewBox={`0 0 ${WIDTH} ${height}`} width={WIDTH} height={height} aria-hidden="true">
      {both(gap, before ? 6 : 8)}
      {before && <g class="before">{both(before, 17)}</g>}
    </svg>
  );
}

/** A few bars, oldest first, as high as their values relative to the largest. `upper` is the part of each that stands out at its top; the last one may be `unfinished`. */
export function Spark({ values, label, upper, unfinished = false }: { values: number[]; label: string; upper?: number[] | undefined; unfinished?: boolean }) {
  const most = values.reduce((a, b) => Math.max(a, b), 0);
  const width = 90 / Math.max(1, values.length);
  return (
    <svg class="spark" viewBox="0 0 90 20" width="90" height="20" role="img" aria-label={label} preserveAspectRatio="none">
      <title>{label}</title>
      {most > 0 &&
        values.map((value, i) => {
          if (value <= 0) return null;
          const height = Math.max(1, (value / most) * 19);
          const top = height * Math.min(1, (upper?.[i] ?? 0) / value);
          const name = unfinished && i === values.length - 1 ? "unfinished" : undefined;
          return (
            <g key={i} class={name}>
              <rect class={upper ? "leg-server" : undefined} x={i * width} width={Math.max(0.6, width - 0.6)} y={20 - height + top} height={height - top} />
              {top > 0 && <rect class="leg-gap" x={i * width} width={Math.max(0.6, width - 0.6)} y={20 - height} height={top} />}
            </g>
          );
        })}
    </svg>
  );
}

/** Text in which `these` are set as code. */
export function Code({ text }: { text: string }) {
  const pieces = text.split("`");
  return <>{pieces.length % 2 === 1 ? pieces.map((piece, at) => (at % 2 === 1 ? <code key={at}>{piece}</code> : piece)) : text}</>;
}

/** A button that copies a text and confirms it. */
export function Copy({ text, what = "copy" }: { text: string; what?: string }) {
  const [word, setWord] = useState(what);
  const copy = (event: MouseEvent) => {
    event.stopPropagation();
    // The clipboard needs HTTPS or loopback; elsewhere the text is selected instead.
    if (!navigator.clipboard) {
      const id = event.currentTarget instanceof Element ? event.currentTarget.parentElement?.querySelector(".id") : null;
      if (id) getSelection()?.selectAllChildren(id);
      return setWord("selected");
    }
    navigator.clipboard.writeText(text).then(
      () => setWord("copied"),
      () => setWord("refused"),
    );
  };
  return (
    <button type="button" class="copy" title={`copy ${text}`} aria-label={`${word} ${text}`} onClick={copy}>
      {word}
    </button>
  );
}

/** Offers a text to the user as a file. */
export function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/** A hand-made drawing, inserted at its place. */
export function Mounted({ root, class: name }: { root: HTMLElement; class?: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    place.current?.append(root);
    return () => root.remove();
  }, [root]);
  return <div ref={place} class={name} />;
}

/** Pause in typing after which a search begins. */
const PAUSE_MS = 250;

/** A search field that searches once typing pauses. `inPlace` says that the search only goes on: going back undoes all of it. */
export function Search({ label, placeholder, value, onSearch }: { label: string; placeholder: string; value: string; onSearch: (text: string, inPlace: boolean) => void }) {
  const [text, setText] = useState(value);
  const begun = useRef(false);
  const sent = useRef<string | null>(null);
  const search = useRef(onSearch);
  search.current = onSearch;
  useEffect(() => {
    // The echo of a search takes nothing from what was typed since.
    if (value === sent.current) return;
    sent.current = null;
    begun.current = false;
    setText(value);
  }, [value]);
  useEffect(() => {
    if (text === value) return;
    const soon = setTimeout(() => {
      sent.current = text;
      search.current(text, begun.current);
      begun.current = true;
    }, PAUSE_MS);
    return () => clearTimeout(soon);
  }, [text]);
  return (
    <input
      id="search"
      type="search"
      placeholder={`${placeholder}   /`}
      aria-label={label}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onBlur={() => {
        begun.current = false;
      }}
    />
  );
}

export function Waiting({ children }: { children: ComponentChildren }) {
  return (
    <p class="waiting" role="status">
      {children}
    </p>
  );
}

export function Failed({ children }: { children: ComponentChildren }) {
  return (
    <p class="failed" role="alert">
      {children}
    </p>
  );
}

/** A section of a page with its heading. */
export function Panel({ title, aside, id, children }: { title: ComponentChildren; aside?: ComponentChildren; id?: string; children: ComponentChildren }) {
  return (
    <section class="panel" id={id}>
      <div class="panel-head">
        <h2>{title}</h2>
        {aside}
      </div>
      {children}
    </section>
  );
}

/** Share of a whole, as a bar with its interval. */
export function ShareBar({ low, mid, high, name = "" }: { low: number; mid: number; high: number; name?: string }) {
  const x = (share: number) => Math.min(100, Math.max(0, share * 100));
  return (
    <svg class={`sharebar ${name}`} viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      <rect class="ground" x="0" y="0" width="100" height="10" />
      <rect class="mid" x="0" y="0" width={x(mid)} height="10" />
      <rect class="reach" x={x(low)} y="3.5" width={Math.max(0.4, x(high) - x(low))} height="3" />
    </svg>
  );
}
