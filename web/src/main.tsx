// The page: reads its view from the URL's hash, follows the meter, and draws one of five views.

import { against, isMoved } from "./against";
import { render } from "preact";
import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "preact/hooks";
import { askAgents, askAnnotations, askCases, askCoverage, askPage } from "./ask";
import { CallView } from "./call";
import { CasesView, CaseView, isLive } from "./cases";
import { count } from "./format";
import { CoverageWord } from "./coverage";
import { Dialog, KeysDialog, SettingsDialog } from "./dialogs";
import { eventWords } from "./experiment_words";
import { FleetView } from "./fleet";
import { HostsView } from "./hosts";
import { inWords, keepUpToDate, useAnswer, usePulse } from "./live";
import { clockWords, meterNowMs } from "./meter_clock";
import { PairView } from "./pair";
import { Failed, titleOf } from "./parts";
import { setMeterTemplate } from "./trace_link";
import { markScrollers } from "./scrollers";
import { RangeLine, RangePicker } from "./range";
import { SignedIn, SignIn, useLocked } from "./signin";
import { parseHash, START, toHash, type Go, type Place, type View } from "./state";
import { focusRow, isBack, rowsBehind } from "./way_back";
import { restoreTheme, nextOf, setTheme, theme } from "./theme";
import type { Annotation } from "./timeline";

function useView(): [View, Go] {
  const [view, setView] = useState(() => parseHash(location.hash));
  useEffect(() => {
    const changed = () => setView(parseHash(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return [
    view,
    (next, inPlace = false) => {
      if (inPlace) location.replace(toHash(next));
      else location.hash = toHash(next);
    },
  ];
}

/** One step back towards all pairs. */
function outOf(view: View): View | null {
  if (view.place === "call") return { ...view, place: view.caseId ? "case" : view.pair ? "pair" : "fleet", call: null };
  if (view.place === "pair") return view.cells ? { ...view, cells: null } : { ...view, place: "fleet", pair: null };
  if (view.place === "case") return { ...view, place: "cases", caseId: null };
  if (view.place === "cases" || view.place === "hosts") return { ...view, place: "fleet" };
  return null;
}

/** Moves the focus from row to row of the view's first table. */
function step(by: number): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>("main table tbody th a:not(.row-case)")].filter((link) => link.offsetParent !== null);
  if (links.length === 0) return;
  const at = links.findIndex((link) => link === document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

const Reload = () => (
  <button type="button" onClick={() => location.reload()}>
    load the page again
  </button>
);

/** A view that cannot be drawn says so, and leaves the others usable. */
function Guarded({ of, children }: { of: string; children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary();
  // Another view may be drawn all the same.
  useEffect(reset, [of]);
  if (error === undefined) return <>{children}</>;
  return (
    <Failed>
      This view cannot be drawn from what the meter answers: {inWords(error)}. Is the meter of another version? <Reload />
    </Failed>
  );
}

function App() {
  const [view, go] = useView();
  const locked = useLocked();
  const pulse = usePulse();
  const [dialog, setDialog] = useState<"keys" | "settings" | null>(null);
  const [, redraw] = useState(0);
  const { beat } = pulse;
  // One moment for all that is asked and drawn with a beat.
  const now = useRef({ beat: -1, s: 0 });
  if (now.current.beat !== beat) now.current = { beat, s: Math.floor(meterNowMs() / 1000) };
  const nowS = now.current.s;
  const coverage = useAnswer("coverage", "coverage", askCoverage, beat);
  // A meter without cases is asked for them once, and again by whoever looks for them.
  const noCases = useRef(false);
  const all = view.place === "cases";
  const cases = useAnswer("cases", `cases ${all}`, (signal) => askCases(all, signal), noCases.current && !all ? -1 : beat);
  if (!cases.stale) noCases.current = cases.data === null && cases.error === null;
  const agents = useAnswer("agents", view.place === "hosts" ? "agents" : "few", askAgents, view.place === "hosts" ? beat : 0);
  const changed = useAnswer("annotations", "annotations", askAnnotations, beat);
  const settings = useAnswer("page", "page", askPage, 0);
  setMeterTemplate(settings.data?.trace_url);
  const listens = settings.data?.listens ?? null;
  const before = useRef<View | null>(null);

  useEffect(() => {
    const name = view.place === "pair" && view.pair ? titleOf(view.pair) : view.place === "call" ? "call" : view.place === "case" ? "case" : view.place;
    // Another view begins at its top and with its heading; the same one stays where it is.
    const key = (one: View) => JSON.stringify([one.place, one.pair, one.call, one.caseId]);
    const left = before.current;
    if (left && key(left) !== key(view)) {
      scrollTo(0, 0);
      document.querySelector<HTMLElement>("main h2[tabindex]")?.focus({ preventScroll: true });
      // Who steps back goes on from the row that was followed.
      focusRow(isBack(left, view) ? rowsBehind(left) : []);
    }
    before.current = view;
    document.title = view.place === "fleet" ? "spangap" : `${name} – spangap`;
  }, [view]);

  // With what is drawn, and not after it: a key pressed as soon as a dialog is gone would be taken for one of the dialog's.
  useLayoutEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      // The address is ahead of what is drawn: two keys in a row are two steps.
      const view = parseHash(location.hash);
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { target } = event;
      const typing = target instanceof HTMLInputElement || target instanceof HTMLSelectElement || target instanceof HTMLTextAreaElement;
      if (event.key === "Escape") {
        if (dialog) setDialog(null);
        else if (typing) (target as HTMLElement).blur();
        else {
          const out = outOf(view);
          if (out) go(out);
        }
        return;
      }
      if (typing || dialog) return;
      const places: Record<string, Place> = { f: "fleet", c: "cases", h: "hosts" };
      const place = places[event.key];
      if (event.key === "/") {
        event.preventDefault();
        const search = document.getElementById("search");
        if (search) search.focus();
        else go({ ...view, place: "fleet", pair: null, call: null, caseId: null });
      } else if (event.key === "?") setDialog("keys");
      else if (event.key === "t") nextTheme();
      else if (event.key === "m" && view.place === "fleet") go({ ...view, map: !view.map });
      else if (place) go({ ...view, place, pair: null, call: null, caseId: null });
      else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
      else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && target instanceof Element && target.closest("main table")) {
        event.preventDefault();
        step(event.key === "ArrowDown" ? 1 : -1);
      }
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [dialog]);

  const nextTheme = () => {
    setTheme(nextOf(theme()));
    redraw((n) => n + 1);
  };

  const rows = cases.data?.cases ?? [];
  const live = rows.filter(isLive).length;
  const connected = agents.data?.agents.filter((agent) => agent.connected).length ?? 0;
  const versions: Annotation[] = (changed.data?.versions ?? []).map((one) => ({ unixS: one.unix_ms / 1000, text: `${one.service} ${one.before} → ${one.version}`, services: [one.service], href: toHash({ ...view, place: "fleet", filters: { ...view.filters, service: one.service } }) }));
  const opened: Annotation[] = rows.map((one) => ({ unixS: one.opened_unix_ms / 1000, text: `case ${titleOf({ ...one.pair, method: one.method ?? undefined })}`, services: [one.pair.client, one.pair.server], href: toHash({ ...view, place: "case", caseId: one.id }) }));
  const ofCase = new Map(rows.map((one) => [one.id, one]));
  const happened: Annotation[] = (cases.data?.events ?? []).map((one) => {
    const its = ofCase.get(one.case);
    return {
      unixS: one.unix_ms / 1000,
      text: eventWords(one.kind, one.lever, its ? titleOf({ ...its.pair, method: its.method ?? undefined }) : one.case),
      services: its ? [its.pair.client, its.pair.server] : [""],
      href: toHash({ ...view, place: "case", caseId: one.case }),
      bad: one.kind === "not_undone",
    };
  });
  const annotations = [...versions, ...opened, ...happened].sort((a, b) => a.unixS - b.unixS);
  const tab = (place: Place, words: string, isHere: boolean, more = "", hint = "") => (
    <a key={place} class="tab" href={toHash({ ...view, place, pair: null, call: null, caseId: null, cells: null })} aria-current={isHere ? "page" : undefined}>
      {words}
      {more !== "" && <span class="tab-count" title={hint}>{more}</span>}
    </a>
  );
  const clockOff = clockWords();
  const timed = view.place === "fleet" || view.place === "pair";
  const besides = against(view, nowS, rows);
  const freshness = pulse.paused ? "paused" : pulse.problem ? "trying again" : pulse.heard ? `as of ${pulse.heard.toLocaleTimeString([], { hour12: false })}` : "";
  return (
    <>
      <header id="top">
        <h1>
          <a href={toHash({ ...START, range: view.range })}>spangap</a>
        </h1>
        <nav aria-label="Views">
          {tab("fleet", "Fleet", view.place === "fleet" || view.place === "pair" || (view.place === "call" && !view.caseId))}
          {tab("cases", "Cases", view.place === "cases" || view.place === "case" || (view.place === "call" && view.caseId !== null), live > 0 ? String(live) : "", `${count(live)} of ${count(rows.length)} cases are not fixed`)}
          {tab("hosts", "Hosts", view.place === "hosts", connected > 0 ? String(connected) : "", `${count(connected)} agents are connected`)}
        </nav>
        <span class="grow" />
        <CoverageWordOn view={view} coverage={coverage.data} />
        <p id="freshness" role="status" class={pulse.problem ? "late" : ""}>
          {freshness}
        </p>
        <button type="button" class="icon" title={`theme: ${theme()}; press for ${nextOf(theme())} (t)`} aria-label={`theme: ${theme()}`} onClick={nextTheme}>
          {theme() === "dark" ? "☾" : theme() === "light" ? "☀" : "◐"}
        </button>
        <button type="button" class="icon" title="settings" aria-label="settings" onClick={() => setDialog("settings")}>
          ⚙
        </button>
        <button type="button" class="icon" title="help (?)" aria-label="help" onClick={() => setDialog("keys")}>
          ?
        </button>
      </header>
      {timed && !locked && (
        <section id="when" aria-label="Time shown">
          <RangePicker view={view} nowS={nowS} go={go} />
          <RangeLine view={view} nowS={nowS} go={go} against={besides} isMoved={isMoved(view, nowS, rows)} />
        </section>
      )}
      {locked && (
        <main>
          <SignIn />
        </main>
      )}
      {!locked && <main data-refreshed={beat} data-place={view.place}>
        <p id="problem" role="alert" hidden={pulse.problem === null}>
          {pulse.problem} {coverage.data ? "What is shown below is the last answer." : ""}
        </p>
        {pulse.replaced && (
          <p id="replaced" class="note" role="status">
            The meter now serves another version of this page, which may read its answers differently. <Reload />
          </p>
        )}
        {clockOff && (
          <p id="clock-off" class="note">
            {clockOff}
          </p>
        )}
        <Guarded of={toHash(view)}>
          {view.place === "fleet" && <FleetView view={view} nowS={nowS} beat={beat} coverage={coverage.data} cases={rows} annotations={annotations} listens={listens} go={go} />}
          {view.place === "pair" && <PairView key={JSON.stringify(view.pair)} view={view} nowS={nowS} beat={beat} coverage={coverage.data} cases={rows} annotations={annotations} go={go} />}
          {view.place === "call" && <CallView view={view} cases={rows} keepsTraces={coverage.data?.kept !== undefined} onSettings={() => setDialog("settings")} />}
          {view.place === "cases" && <CasesView view={view} cases={cases.data?.cases ?? null} none={noCases.current} listens={listens} go={go} />}
          {view.place === "case" && <CaseView view={view} beat={beat} agents={agents.data?.agents ?? []} listens={listens} />}
          {view.place === "hosts" && <HostsView view={view} report={agents.data} none={agents.data === null && !agents.stale && agents.error === null} nowS={nowS} listens={listens} />}
        </Guarded>
      </main>}
      {dialog && <Dialog onClose={() => setDialog(null)} title={dialog === "keys" ? "Help" : "Settings"}>{dialog === "keys" ? <KeysDialog /> : <><SettingsDialog onDone={() => setDialog(null)} /><SignedIn /></>}</Dialog>}
    </>
  );
}

function CoverageWordOn({ view, coverage }: { view: View; coverage: Parameters<typeof CoverageWord>[0]["coverage"] }) {
  return view.place === "fleet" ? <CoverageWord coverage={coverage} /> : null;
}

restoreTheme();
const root = document.getElementById("app");
if (!root) throw new Error("the page has no element #app");
// That it loads: `render` would leave it there.
root.replaceChildren();
render(
  <Guarded of="">
    <App />
  </Guarded>,
  root,
);
markScrollers(root);
void keepUpToDate();
